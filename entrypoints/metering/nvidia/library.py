"""NVML, the driver's management library, through nvidia-ml-py.

Field numbers, units and meanings: nvml.h as nvidia-ml-py repeats it, and
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping

from entrypoints.metering.meter import MeterError

try:
    import pynvml
except ImportError:
    pynvml = None

KERNEL_MODULE = Path("/proc/driver/nvidia/version")
OF_32_BITS = 1  # NVML_VALUE_TYPE_UNSIGNED_INT


@contextlib.contextmanager
def opened() -> Iterator[None]:
    """Load the library, once for the process. Raises MeterError with both versions if they do not match."""
    if pynvml is None:
        raise MeterError("nvidia-ml-py (pynvml) is not here")
    try:
        pynvml.nvmlInit()
        yield
    except pynvml.NVMLError as error:
        raise MeterError(reason(error)) from error


def reason(error: Any) -> str:
    """Return what an error of the library means."""
    reasons = {
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "the driver's library libnvidia-ml.so.1 is not here; in a "
        "container: was it started with --nv? Docker needs the driver capability `utility`",
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the driver of NVIDIA is not loaded",
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver's libraries are of another version than its kernel "
        f"module ({_kernel_module()}): it was updated but not reloaded; restart the host",
        pynvml.NVML_ERROR_NO_PERMISSION: "NVML refuses: this user may not ask the GPU",
    }
    return reasons.get(error.value, f"NVML: {error}")


def explained(ask: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call whose value is no bytes, and whose error is a MeterError with the reason."""

    def ask_and_explain() -> Any:
        try:
            value = ask()
        except pynvml.NVMLError as error:
            raise MeterError(reason(error)) from error
        return text(value) if isinstance(value, bytes) else value

    return ask_and_explain


def _kernel_module() -> str:
    with contextlib.suppress(OSError):
        match = re.search(r"Kernel Module.*?(\d+\.[\d.]+)", KERNEL_MODULE.read_text("utf-8", "replace"))
        return match.group(1) if match else "of an unknown version"
    return f"{KERNEL_MODULE} is not there"


def supported_answer(ask: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call answers; None if this GPU or driver does not support it."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return None
        raise


def fields(handle: Any, numbers: Iterable[int]) -> Mapping[int, tuple[float, int]]:
    """Return the values of the fields that the GPU reports, each with the number of its type."""
    asked = list(numbers)
    values = supported_answer(pynvml.nvmlDeviceGetFieldValues, handle, asked) or ()
    return {
        number: (value.value.uiVal if value.valueType == OF_32_BITS else value.value.ullVal, value.valueType)
        for number, value in zip(asked, values)
        if value.nvmlReturn == pynvml.NVML_SUCCESS
    }


def text(value: Any) -> str:
    """Return a value as text: old releases of the wrapper return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
