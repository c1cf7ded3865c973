"""NVIDIA GPUs: the driver's management library, through nvidia-ml-py. It lists GPUs whatever CUDA_VISIBLE_DEVICES says.

Field numbers, units and meanings: nvml.h as nvidia-ml-py repeats it, and
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping

from entrypoints.metering.kernel_files import host_pid
from entrypoints.metering.meter import (
    HARDWARE,
    HEAT,
    OTHER,
    POWER,
    MeterError,
    MeterFacts,
    Reading,
    State,
)
from entrypoints.system.facts import MIB, fact

try:
    import pynvml
except ImportError:
    pynvml = None

MEASURES = ("cuda",)
VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
KERNEL_MODULE = Path("/proc/driver/nvidia/version")
POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT, mW; since driver 525
UPDATE_PERIOD = 0.1  # s; the counter changes every 20 to 100 ms, by model
MILLI = 1e-3
THROTTLING = {  # bits of the reasons that throttle clocks; idling and requested settings are not among them
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
LIMITS = {
    "software power cap": POWER,
    "board limit": POWER,
    "software thermal slowdown": HEAT,
    "hardware thermal slowdown": HEAT,
    "hardware slowdown": HARDWARE,
    "hardware power brake": HARDWARE,
    "sync boost": OTHER,
}
# Fields with the ns in which a policy held the clocks down (NVML_FI_DEV_PERF_POLICY_POWER and on), by what that is
# called among THROTTLING. The policies have the same numbers from 0 on. What hardware does has fields too, but their
# numbers differ between drivers: for those samples count.
POLICIES = {74: "software power cap", 75: "software thermal slowdown", 76: "sync boost", 77: "board limit"}
SENT, RECEIVED = 197, 198  # NVML_FI_DEV_PCIE_COUNT_TX_BYTES, ..._RX_BYTES: bytes; since driver 565
DIRECTIONS = {SENT: 0, RECEIVED: 1}  # the same of nvmlDeviceGetPcieThroughput
OF_32_BITS, RANGE = 1, 2.0**32  # NVML_VALUE_TYPE_UNSIGNED_INT, at which such a counter starts again
LANE = (0.25e9, 0.5e9, 0.985e9, 1.97e9, 3.94e9, 7.56e9, 15.1e9)  # bytes/s of a lane of PCIe, by generation from 1 on
WATCH_PERIOD = 0.1  # s; the driver advances its counters of time in such steps
NANO = 1e-9
KILOBYTE = 1000.0
UNCOUNTED = "the driver does not count the traffic on the bus"
UNKNOWN_STATE = 32


class Nvml:
    """One GPU: its energy counter if it has one (Volta and newer), and its power."""

    def __init__(self, handle: Any, name: str) -> None:
        self.handle = handle
        self.instant = _instant_power(handle) is not None
        counts = _supported_answer(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle) is not None
        powered = self.instant or _supported_answer(pynvml.nvmlDeviceGetPowerUsage, handle) is not None
        if not (counts or powered):
            raise MeterError(f"{name} reports neither energy nor power")
        averaged = "the library does not say: 1 s on most GPUs from Ampere on, none before"
        self.facts = MeterFacts(
            source="nvml",
            scope="package",
            devices=(name,),
            update_period=UPDATE_PERIOD,
            averaging=None,
            averaging_reason="an instant value, as the library calls it" if self.instant else averaged,
            has_power=powered,
            has_counter=counts,
            counter_ranges=(None,) if counts else (),
            simulated=bool(getattr(pynvml, "SIMULATED", False)),
            limits=LIMITS,
            watch_period=WATCH_PERIOD,
        )
        self.bus = _bus(handle)
        if self.bus is not None:
            period = min(WATCH_PERIOD, self.bus.longest_gap / 2)
            self.facts = self.facts._replace(watch_period=period, traffic_method=self.bus.method)
        else:
            self.facts = self.facts._replace(why_no_traffic=UNCOUNTED)

    def read(self) -> Reading:
        """Return the power, and the energy since the driver was loaded."""
        joules = [pynvml.nvmlDeviceGetTotalEnergyConsumption(self.handle) * MILLI] if self.facts.has_counter else []
        return Reading([self.watts()] if self.facts.has_power else [], joules)

    def watts(self) -> float:
        """Return the latest power in W. Raises MeterError if the GPU stopped reporting it."""
        milliwatts = _instant_power(self.handle) if self.instant else pynvml.nvmlDeviceGetPowerUsage(self.handle)
        if milliwatts is None:
            raise MeterError("the GPU no longer reports its power")
        return float(milliwatts * MILLI)

    def watch(self) -> tuple[State]:
        """Return clocks, what limits them, for how long it did, and the traffic on the bus."""
        reasons = _supported_answer(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, self.handle)
        received, sent = (None, None) if self.bus is None else self.bus.bytes()
        return (
            State(
                clock=_supported_answer(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_SM),
                memory_clock=_supported_answer(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_MEM),
                limiting={} if reasons is None else {name: bool(reasons & bit) for bit, name in THROTTLING.items()},
                limited=_limited(self.handle),
                received=received,
                sent=sent,
            ),
        )


class BusCounters:
    """The bytes that crossed the bus. Some drivers count in 32 bits: then it must be read before 4 GiB have passed."""

    method = "counter"

    def __init__(self, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.handle, self.clock = handle, clock
        self.total = {RECEIVED: 0.0, SENT: 0.0}
        self.last: Mapping[int, float] = {}
        self.at = clock()
        wraps = any(kind == OF_32_BITS for _, kind in _fields(handle, self.total).values())
        self.longest_gap = RANGE / _link(handle) if wraps else math.inf

    def bytes(self) -> tuple[float, float]:
        """Return the bytes to and from the GPU since the first call; 0 again where some may have been missed."""
        values, now = _fields(self.handle, self.total), self.clock()
        if len(values) < len(self.total):
            raise MeterError("the GPU no longer counts the traffic on its bus")
        for field, (value, kind) in values.items():
            gain = value - self.last.get(field, value)
            self.total[field] += gain + (RANGE if gain < 0 and kind == OF_32_BITS else 0.0)
        if self.last and now - self.at > self.longest_gap:
            self.total = dict.fromkeys(self.total, 0.0)
        self.last, self.at = {field: value for field, (value, _) in values.items()}, now
        return self.total[RECEIVED], self.total[SENT]


class BusRates:
    """The same by the rates over the last 20 ms, for which each call waits: a sample of a fifth of the time."""

    method, longest_gap = "samples", math.inf

    def __init__(self, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.handle, self.clock = handle, clock
        self.total = {RECEIVED: 0.0, SENT: 0.0}
        self.at = clock()

    def bytes(self) -> tuple[float, float]:
        """Return the bytes to and from the GPU since this began."""
        rates = {
            field: pynvml.nvmlDeviceGetPcieThroughput(self.handle, direction) * KILOBYTE
            for field, direction in DIRECTIONS.items()
        }
        now = self.clock()
        for field, rate in rates.items():
            self.total[field] += rate * (now - self.at)
        self.at = now
        return self.total[RECEIVED], self.total[SENT]


def _bus(handle: Any) -> BusCounters | BusRates | None:
    """Return what counts the traffic on the bus; None if nothing does."""
    if len(_fields(handle, DIRECTIONS)) == len(DIRECTIONS):
        return BusCounters(handle)
    rate = _supported_answer(pynvml.nvmlDeviceGetPcieThroughput, handle, DIRECTIONS[SENT])
    return None if rate is None else BusRates(handle)


def _link(handle: Any) -> float:
    """Return the most bytes that the bus moves in a second, one way; those of the newest if it does not say."""
    generation = _supported_answer(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle) or len(LANE)
    lanes = _supported_answer(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle) or 16
    return LANE[min(int(generation), len(LANE)) - 1] * float(lanes)


def _limited(handle: Any) -> Mapping[str, float]:
    """Return the s in which each policy held the clocks down, by the name of what it follows."""
    counted = {POLICIES[field]: value * NANO for field, (value, _) in _fields(handle, POLICIES).items()}
    if counted:
        return counted
    first = min(POLICIES)
    asked = {
        name: _supported_answer(pynvml.nvmlDeviceGetViolationStatus, handle, field - first)
        for field, name in POLICIES.items()
    }
    return {name: status.violationTime * NANO for name, status in asked.items() if status is not None}


def find(place: str | None, number: int = 0) -> Nvml:
    """Return the GPU that CUDA numbers so, or the one at `place`: a UUID, a PCI address or NVML's number."""
    with _library():
        handle = _handle(place) if place else _visible(number)
        return Nvml(*_whole(handle))


def address(number: int) -> str:
    """Return the PCI address of the GPU that CUDA numbers so, as the kernel writes it. Raises MeterError."""
    with _library():
        info = pynvml.nvmlDeviceGetPciInfo(_whole(_visible(number))[0])
        domain, _, rest = _text(info.busId).lower().partition(":")
        return f"{int(domain, 16):04x}:{rest}"


def conditions(identifier: str | None) -> Mapping[str, Any]:
    """Return the conditions of a UUID's GPU, or of the first that CUDA may use (session.DEVICE_CONDITIONS)."""
    with _library():
        of_mig = (identifier or "").startswith("MIG-")  # CUDA uses the first instance, whatever this UUID names
        handle, _ = _whole(_handle(identifier) if identifier and not of_mig else _visible(0))
        asked: Mapping[str, tuple[Callable[[], Any], str | None]] = {
            "driver": (pynvml.nvmlSystemGetDriverVersion, None),
            "power_cap": (lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) * MILLI, "W"),
            "clock": (lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM), "MHz"),
            "clock_max": (lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM), "MHz"),
            "memory_clock": (lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM), "MHz"),
            "performance_state": (lambda: _state(pynvml.nvmlDeviceGetPerformanceState(handle)), None),
            "temperature": (lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU), "°C"),
            "ecc": (lambda: _switch(pynvml.nvmlDeviceGetEccMode(handle)[0]), None),
            "throttling": (lambda: _throttling(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)), None),
            "partitioning": (lambda: "MIG" if _divided(handle) else "none", None),
            "persistence": (lambda: _switch(pynvml.nvmlDeviceGetPersistenceMode(handle)), None),
            "memory_used": (lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used / MIB, "MiB"),
            "other_processes": (lambda: _others(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)), None),
        }
        return {name: fact(_explained(ask), unit) for name, (ask, unit) in asked.items()}


def properties() -> tuple[str, float, tuple[int, int] | None]:
    """Return name, memory in MiB and CUDA's compute capability of the first GPU, or MIG instance, that CUDA may use.

    Raises MeterError.
    """
    with _library():
        handle = _visible(0)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total / MIB
        capability = _supported_answer(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        name = _text(pynvml.nvmlDeviceGetName(handle))
        return name, float(memory), (int(capability[0]), int(capability[1])) if capability else None


def why_no_gpu(built_for: str | None) -> str | None:
    """Return why a PyTorch or TensorFlow `built_for` a version of CUDA finds no GPU though there are device files.

    None if the driver looks right.
    """
    try:
        with _library():
            newest = pynvml.nvmlSystemGetCudaDriverVersion()  # 12040 is 12.4
            driver = pynvml.nvmlSystemGetDriverVersion()
    except MeterError as error:
        return str(error)
    supported = newest // 1000, newest % 1000 // 10
    if built_for and int(built_for.split(".")[0]) > supported[0]:
        return (
            f"the driver {_text(driver)} is made for CUDA {supported[0]}.{supported[1]} at the most, and this image's "
            f"framework for CUDA {built_for}: update the driver, or take an image on an older base, such as cuda12"
        )
    return None


@contextlib.contextmanager
def _library() -> Iterator[None]:
    """Load the library, once for the process. Raises MeterError with both versions if they do not match."""
    if pynvml is None:
        raise MeterError("nvidia-ml-py (pynvml) is not in this image")
    try:
        pynvml.nvmlInit()
        yield
    except pynvml.NVMLError as error:
        raise MeterError(_reason(error)) from error


def _reason(error: Any) -> str:
    reasons = {
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "the driver's library libnvidia-ml.so.1 is not to be seen: was the "
        "container started with --nv? Docker needs the driver capability `utility`",
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the driver of NVIDIA is not loaded",
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver's libraries are of another version than its kernel "
        f"module ({_kernel_module()}): it was updated but not reloaded; restart the host",
        pynvml.NVML_ERROR_NO_PERMISSION: "NVML refuses: this user may not ask the GPU",
    }
    return reasons.get(error.value, f"NVML: {error}")


def _kernel_module() -> str:
    with contextlib.suppress(OSError):
        match = re.search(r"Kernel Module.*?(\d+\.[\d.]+)", KERNEL_MODULE.read_text("utf-8", "replace"))
        return match.group(1) if match else "of an unknown version"
    return f"{KERNEL_MODULE} is not there"


def _visible(number: int) -> Any:
    """Return the GPU that CUDA numbers so. Raises MeterError where NVML's numbers do not identify it."""
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return _by_number(number)
    words = [word.strip() for word in visible.split(",")]
    word = words[number] if number < len(words) else ""
    if not word or word.startswith("-"):
        raise MeterError(f"{VISIBLE}={visible} leaves no GPU{f' {number}' if number else ''}")
    return _by_number(int(word)) if word.isdigit() else _by_uuid(word)


def _by_number(number: int) -> Any:
    """Return the GPU of CUDA's number, which is NVML's if CUDA counts so or all GPUs are alike. Raises MeterError."""
    count = pynvml.nvmlDeviceGetCount()
    if number >= count:
        raise MeterError(f"{VISIBLE} names GPU {number}, and NVML sees {count}")
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    kinds = {_text(pynvml.nvmlDeviceGetName(handle)) for handle in handles}
    if len(kinds) > 1 and os.environ.get(ORDER) != "PCI_BUS_ID":
        raise MeterError(
            f"this host has {', '.join(sorted(kinds))}, which CUDA numbers by speed and NVML by address: "
            f"set {ORDER}=PCI_BUS_ID, or name the GPU's UUID in {VISIBLE}"
        )
    return handles[number]


def _by_uuid(start: str) -> Any:
    """Return the GPU whose UUID begins so, as CUDA reads it, or the MIG instance of a whole UUID. Raises MeterError."""
    if start.startswith("MIG-"):
        return pynvml.nvmlDeviceGetHandleByUUID(start.encode())
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    matching = [handle for handle in handles if _text(pynvml.nvmlDeviceGetUUID(handle)).startswith(start)]
    if len(matching) != 1:
        raise MeterError(f"{len(matching)} GPUs have a UUID that begins with {start}")
    return matching[0]


def _handle(place: str) -> Any:
    if place.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(place))
    if place.startswith(("GPU-", "MIG-")):
        return _by_uuid(place)
    return pynvml.nvmlDeviceGetHandleByPciBusId(place.encode())


def _whole(handle: Any) -> tuple[Any, str]:
    """Return the GPU itself, and a name for it: a MIG instance has no separate meter."""
    instance = pynvml.nvmlDeviceIsMigDeviceHandle(handle)
    whole = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if instance else handle
    shared = " with all its MIG instances" if _divided(whole) else ""
    return whole, _text(pynvml.nvmlDeviceGetUUID(whole)) + shared


def _divided(handle: Any) -> bool:
    mode = _supported_answer(pynvml.nvmlDeviceGetMigMode, handle)
    return bool(mode and mode[0])


def _instant_power(handle: Any) -> int | None:
    """Return instant power in mW; None if driver or GPU do not report it."""
    value = _fields(handle, [POWER_INSTANT]).get(POWER_INSTANT)
    return None if value is None else int(value[0])


def _fields(handle: Any, numbers: Iterable[int]) -> Mapping[int, tuple[float, int]]:
    """Return the values of the fields that the GPU reports, each with the number of its type."""
    asked = list(numbers)
    values = _supported_answer(pynvml.nvmlDeviceGetFieldValues, handle, asked) or ()
    return {
        number: (value.value.uiVal if value.valueType == OF_32_BITS else value.value.ullVal, value.valueType)
        for number, value in zip(asked, values)
        if value.nvmlReturn == pynvml.NVML_SUCCESS
    }


def _supported_answer(ask: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call answers; None if this GPU or driver does not support it."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return None
        raise


def _explained(ask: Callable[[], Any]) -> Callable[[], Any]:
    def ask_and_explain() -> Any:
        try:
            value = ask()
        except pynvml.NVMLError as error:
            raise MeterError(_reason(error)) from error
        return _text(value) if isinstance(value, bytes) else value

    return ask_and_explain


def _state(number: int) -> str | None:
    return None if number == UNKNOWN_STATE else f"P{number}"


def _switch(value: int) -> str:
    return "on" if value else "off"


def _throttling(reasons: int) -> str:
    return ", ".join(name for bit, name in THROTTLING.items() if reasons & bit) or "none"


def _others(processes: Any) -> int:
    own = host_pid()
    return sum(process.pid != own for process in processes)


def _text(value: Any) -> str:
    """Return a value as text: old releases of the wrapper return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
