"""The management libraries of ROCm: amdsmi, by its Python module, and the older rocm_smi.

Calls, keys by version of ROCm and units: amdsmi_interface.py of ROCm 5.7 to 7.0, rocm_smi.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any, Callable, Mapping, Sequence, TypeVar

from entrypoints.metering.meter import MeterError
from entrypoints.system.gpu_software import rocm_roots

# ROCm's module is here, on no Python path; an installed one comes first.
sys.path += [str(root / "share" / "amd_smi") for root in rocm_roots() if (root / "share" / "amd_smi").is_dir()]
try:
    # On import it looks for its library and every function it calls there, and prints what is missing.
    with contextlib.redirect_stdout(sys.stderr):
        import amdsmi
except (ImportError, OSError, KeyError, AttributeError):
    amdsmi = None

T = TypeVar("T")
MICRO = 1e-6
ROCM_SMI = "librocm_smi64.so"
WHOLE = "SPX"  # a GPU that is one partition
NOT_THERE = "N/A"
NOT_THERE_RAW = 0xFFFF  # what ROCm 5.7 to 6.1.0 returned instead
# GPUs report different ones: MI300 the current, MI200 the average; ROCm 7 has one name for both.
POWERS = ("socket_power", "current_socket_power", "average_socket_power")


class AmdSmi:
    """The library amdsmi."""

    name = "amdsmi"

    def __init__(self) -> None:
        if amdsmi is None:
            raise MeterError("amdsmi is not here, or does not find its library")
        amdsmi.amdsmi_init()
        self.simulated = bool(getattr(amdsmi, "SIMULATED", False))

    def handles(self) -> Sequence[Any]:
        """Return all GPUs sorted by PCI address, as ROCm numbers them."""
        return sorted(amdsmi.amdsmi_get_processor_handles(), key=self.address)

    def address(self, handle: Any) -> str:
        """Return the PCI address."""
        return str(amdsmi.amdsmi_get_gpu_device_bdf(handle))

    def serial(self, handle: Any) -> str:
        """Return the number in the UUID that selects visible devices, in hexadecimal; amdsmi's own UUID differs."""
        return str(amdsmi.amdsmi_get_gpu_asic_info(handle).get("asic_serial", ""))

    def market_name(self, handle: Any) -> str:
        """Return the market name, such as AMD Instinct MI250X."""
        return str(amdsmi.amdsmi_get_gpu_asic_info(handle).get("market_name", ""))

    def shared(self, handle: Any) -> str:
        """Return what else its power and energy include, to append to its name."""
        return " with all its partitions" if self.mode(handle) else ""

    def mode(self, handle: Any) -> str | None:
        """Return the partition mode; None if the GPU is not divided."""
        mode = answer(lambda: amdsmi.amdsmi_get_gpu_compute_partition(handle), WHOLE)
        return None if mode == WHOLE else str(mode)

    def metrics(self, handle: Any) -> Mapping[str, Any]:
        """Return the table of the power controller; an empty one if it is not reported."""
        table: Mapping[str, Any] = answer(lambda: amdsmi.amdsmi_get_gpu_metrics_info(handle), {})
        return table

    def watts(self, handle: Any) -> float | None:
        """Return the power of the socket in W; None if it is not reported."""
        power = answer(lambda: amdsmi.amdsmi_get_power_info(handle), {})
        values = (power.get(name, NOT_THERE) for name in POWERS)
        return next((float(value) for value in values if value not in (NOT_THERE, NOT_THERE_RAW)), None)

    def joules(self, handle: Any) -> float | None:
        """Return the energy in J since the driver was loaded; None if not reported. ROCm before 6.3 calls it power."""
        energy = answer(lambda: amdsmi.amdsmi_get_energy_count(handle), {})
        count = energy.get("energy_accumulator", energy.get("power", NOT_THERE))
        return None if count == NOT_THERE else float(count) * energy["counter_resolution"] * MICRO


class RocmSmi:
    """The older library, which has no dependable Python module."""

    name = "rocm_smi"
    simulated = False

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(ROCM_SMI)
        except OSError as error:
            raise MeterError(f"{ROCM_SMI} is not here, nor amdsmi: AMD's images have them") from error
        self.require(self.library.rsmi_init(ctypes.c_uint64(0)), "rsmi_init")

    def require(self, status: int, call: str) -> None:
        """Raise MeterError for anything but success, which is 0."""
        if status:
            raise MeterError(f"{call} fails with {status}")

    def handles(self) -> Sequence[int]:
        """Return the numbers of all GPUs."""
        count = ctypes.c_uint32()
        self.require(self.library.rsmi_num_monitor_devices(ctypes.byref(count)), "rsmi_num_monitor_devices")
        return range(count.value)

    def address(self, handle: int) -> str:
        """Return the PCI address."""
        number = ctypes.c_uint64()
        self.require(self.library.rsmi_dev_pci_id_get(handle, ctypes.byref(number)), "rsmi_dev_pci_id_get")
        value = number.value
        return f"{value >> 32:04x}:{value >> 8 & 0xFF:02x}:{value >> 3 & 0x1F:02x}.{value & 7}"

    def serial(self, handle: int) -> str:
        """Return the number in the UUID that selects visible devices, in hexadecimal."""
        number = ctypes.c_uint64()
        self.require(self.library.rsmi_dev_unique_id_get(handle, ctypes.byref(number)), "rsmi_dev_unique_id_get")
        return f"{number.value:x}"

    def market_name(self, handle: int) -> str:
        """Return the driver's name for it."""
        text = ctypes.create_string_buffer(256)
        self.library.rsmi_dev_name_get(handle, text, ctypes.c_size_t(len(text)))
        return text.value.decode("utf-8", "replace")

    def shared(self, _: int) -> str:
        """Return nothing: the library does not reliably report it."""
        return ""

    def watts(self, handle: int) -> float | None:
        """Return the average power of the first sensor in W; None if it is not reported. The call writes 64 bits."""
        microwatts = ctypes.c_uint64()
        failed = self.library.rsmi_dev_power_ave_get(handle, ctypes.c_uint32(0), ctypes.byref(microwatts))
        return None if failed else microwatts.value * MICRO

    def joules(self, handle: int) -> float | None:
        """Return the energy since the driver was loaded, in J; None if it is not reported."""
        count, resolution, moment = ctypes.c_uint64(), ctypes.c_float(), ctypes.c_uint64()
        references = ctypes.byref(count), ctypes.byref(resolution), ctypes.byref(moment)
        failed = self.library.rsmi_dev_energy_count_get(handle, *references)
        return None if failed else count.value * resolution.value * MICRO


def translated(ask: Callable[..., T], *arguments: Any) -> T:
    """Return what a call returns. Raises MeterError in place of the library's errors."""
    try:
        return ask(*arguments)
    except _errors() as error:
        raise MeterError(f"{type(error).__name__}: {error}") from error


def answer(ask: Callable[[], Any], otherwise: Any) -> Any:
    """Return the answer to a call, or `otherwise` if the GPU or this version of the library has none."""
    with contextlib.suppress(*_errors(), LookupError, TypeError):
        value = ask()
        return otherwise if value == NOT_THERE else value
    return otherwise


def number_or_none(number: Any) -> Any:
    """Return a number; None for the numbers by which the library says that it has none."""
    return None if number in (NOT_THERE, NOT_THERE_RAW) else number


def _errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of amdsmi, if it is there."""
    return (AttributeError,) if amdsmi is None else (AttributeError, amdsmi.AmdSmiException)
