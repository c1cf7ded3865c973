"""The conditions of a GPU of NVIDIA, and what its driver is."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from entrypoints.metering.kernel_files import host_pid
from entrypoints.metering.meter import MeterError
from entrypoints.metering.nvidia import gpus
from entrypoints.metering.nvidia.library import explained, opened, pynvml, supported_answer, text
from entrypoints.metering.nvidia.limits import THROTTLING
from entrypoints.system.facts import MIB, fact

MILLI = 1e-3
UNKNOWN_STATE = 32


def conditions(identifier: str | None) -> Mapping[str, Any]:
    """Return the conditions of a UUID's GPU, or of the first that CUDA may use (session.DEVICE_CONDITIONS)."""
    with opened():
        of_mig = (identifier or "").startswith("MIG-")  # CUDA uses the first instance, whatever this UUID names
        handle, _ = gpus.whole(gpus.at(identifier) if identifier and not of_mig else gpus.visible(0))
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
            "partitioning": (lambda: "MIG" if gpus.divided(handle) else "none", None),
            "persistence": (lambda: _switch(pynvml.nvmlDeviceGetPersistenceMode(handle)), None),
            "memory_used": (lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used / MIB, "MiB"),
            "other_processes": (lambda: _others(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)), None),
        }
        return {name: fact(explained(ask), unit) for name, (ask, unit) in asked.items()}


def properties() -> tuple[str, float, tuple[int, int] | None]:
    """Return name, memory in MiB and CUDA's compute capability of the first GPU, or MIG instance, that CUDA may use.

    Raises MeterError.
    """
    with opened():
        handle = gpus.visible(0)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total / MIB
        capability = supported_answer(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        name = text(pynvml.nvmlDeviceGetName(handle))
        return name, float(memory), (int(capability[0]), int(capability[1])) if capability else None


def why_no_gpu(built_for: str | None) -> str | None:
    """Return why a PyTorch or TensorFlow `built_for` a version of CUDA finds no GPU though there are device files.

    None if the driver looks right.
    """
    try:
        with opened():
            newest = pynvml.nvmlSystemGetCudaDriverVersion()  # 12040 is 12.4
            driver = pynvml.nvmlSystemGetDriverVersion()
    except MeterError as error:
        return str(error)
    supported = newest // 1000, newest % 1000 // 10
    if built_for and int(built_for.split(".")[0]) > supported[0]:
        return (
            f"the driver {text(driver)} is made for CUDA {supported[0]}.{supported[1]} at the most, and this image's "
            f"framework for CUDA {built_for}: update the driver, or take an image on an older base, such as cuda12"
        )
    return None


def _state(number: int) -> str | None:
    return None if number == UNKNOWN_STATE else f"P{number}"


def _switch(value: int) -> str:
    return "on" if value else "off"


def _throttling(reasons: int) -> str:
    return ", ".join(name for bit, name in THROTTLING.items() if reasons & bit) or "none"


def _others(processes: Any) -> int:
    own = host_pid()
    return sum(process.pid != own for process in processes)
