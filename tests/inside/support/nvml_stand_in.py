"""A stand-in for nvidia-ml-py on a made-up host: answers of real GPUs, ugly ones too. `HOST` says what is there."""

from __future__ import annotations

SIMULATED = True
NVML_SUCCESS = 0
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NO_PERMISSION = 4
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0


class NVMLError(Exception):
    """With the number of the library's error."""

    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


class Gpu:
    """One board. Numbers are the library's: mJ, mW, MHz; None stands for what it does not support.

    `fields` are values by number, those above 32 bits of that type; `violations` ns by policy, `rates` KB/s by
    direction.
    """

    def __init__(
        self, uuid, name="NVIDIA H200", energy=5_000_000, power=350_000, instant=360_000, mig=None, parent=None
    ):
        self.uuid, self.name, self.energy, self.power, self.instant = uuid, name, energy, power, instant
        self.mig, self.parent = mig, parent
        self.fields, self.violations, self.rates = {}, {}, {}
        self.clocks, self.reasons = {NVML_CLOCK_SM: 1980, NVML_CLOCK_MEM: 3201}, 0x4 | 0x20 | 0x1
        self.long = {74, 75, 76, 77}  # fields of 64 bits


class Host:
    """GPUs, instances of MIG by UUID, driver, and the error that the library starts with."""

    def __init__(self, *gpus, instances=(), driver="580.95.05", cuda=13000, fails=None):
        self.gpus, self.instances, self.driver, self.cuda, self.fails = gpus, instances, driver, cuda, fails


class Field:
    """A value of nvmlDeviceGetFieldValues."""

    def __init__(self, number, long):
        self.nvmlReturn = NVML_ERROR_NOT_SUPPORTED if number is None else NVML_SUCCESS
        self.valueType = 3 if long else 1
        number = number or 0
        self.value = type("Value", (), {"uiVal": number % 2**32, "ullVal": number if long else number | 7 << 32})


HOST = Host()


def supported(value):
    if value is None:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return value


def nvmlInit():
    if HOST.fails is not None:
        raise NVMLError(HOST.fails)


def nvmlSystemGetDriverVersion():
    return HOST.driver


def nvmlSystemGetCudaDriverVersion():
    return HOST.cuda


def nvmlDeviceGetCount():
    return len(HOST.gpus)


def nvmlDeviceGetHandleByIndex(index):
    return HOST.gpus[index]


def nvmlDeviceGetHandleByUUID(uuid):
    return next(gpu for gpu in (*HOST.gpus, *HOST.instances) if gpu.uuid == uuid.decode())


def nvmlDeviceGetName(handle):
    return handle.name


def nvmlDeviceGetUUID(handle):
    return handle.uuid


def nvmlDeviceGetPciInfo(handle):
    return type("PciInfo", (), {"busId": f"00000000:{HOST.gpus.index(handle):02X}:00.0"})


def nvmlDeviceIsMigDeviceHandle(device):
    return int(device.parent is not None)


def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(migDevice):
    return migDevice.parent


def nvmlDeviceGetMigMode(device):
    return [supported(device.mig), 0]


def nvmlDeviceGetTotalEnergyConsumption(handle):
    if handle.parent is not None:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return supported(handle.energy)


def nvmlDeviceGetPowerUsage(handle):
    return supported(handle.power)


def nvmlDeviceGetFieldValues(handle, fieldIds):
    values = {186: handle.instant, **handle.fields}
    return [Field(values.get(number), number in handle.long) for number in fieldIds]


def nvmlDeviceGetViolationStatus(device, perfPolicyType):
    return type("Violation", (), {"violationTime": supported(device.violations.get(perfPolicyType))})


def nvmlDeviceGetPcieThroughput(device, counter):
    return supported(device.rates.get(counter))


def nvmlDeviceGetMaxPcieLinkGeneration(handle):
    return 5


def nvmlDeviceGetMaxPcieLinkWidth(handle):
    return 16


def nvmlDeviceGetEnforcedPowerLimit(handle):
    return 700_000


def nvmlDeviceGetClockInfo(handle, type):
    return handle.clocks[type]


def nvmlDeviceGetMaxClockInfo(handle, type):
    return {NVML_CLOCK_SM: 1980, NVML_CLOCK_MEM: 3201}[type]


def nvmlDeviceGetPerformanceState(handle):
    return 0


def nvmlDeviceGetTemperature(handle, sensor):
    return 41


def nvmlDeviceGetEccMode(handle):
    return [1, 1]


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    return handle.reasons


def nvmlDeviceGetPersistenceMode(handle):
    raise NVMLError(NVML_ERROR_NO_PERMISSION)


def nvmlDeviceGetMemoryInfo(handle, version=None):
    return type("Memory", (), {"used": 3 << 30})


def nvmlDeviceGetComputeRunningProcesses(handle):
    return [type("Process", (), {"pid": pid}) for pid in (1, 2)]
