"""The conditions of a GPU of AMD."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Mapping

from entrypoints.metering.amd import gpus
from entrypoints.metering.amd.controller import THROTTLERS
from entrypoints.metering.amd.libraries import MICRO, NOT_THERE, AmdSmi, amdsmi, answer, number_or_none
from entrypoints.metering.kernel_files import host_pid
from entrypoints.system.facts import fact

VIOLATIONS = ("prochot_thrm", "ppt_pwr", "socket_thrm", "vr_thrm", "hbm_thrm")  # the same on MI300 and later


def conditions(_: str | None) -> Mapping[str, Any]:
    """Return the conditions of the first GPU that ROCm may use (session.DEVICE_CONDITIONS). Raises MeterError."""
    library = AmdSmi()
    handle = gpus.chosen(library, library.handles(), None)
    clock = answer(lambda: amdsmi.amdsmi_get_clock_info(handle, amdsmi.AmdSmiClkType.GFX), {})
    memory_clock = answer(lambda: amdsmi.amdsmi_get_clock_info(handle, amdsmi.AmdSmiClkType.MEM), {})
    metrics = answer(lambda: amdsmi.amdsmi_get_gpu_metrics_info(handle), {})
    asked: Mapping[str, tuple[Callable[[], Any], str | None]] = {
        "driver": (lambda: amdsmi.amdsmi_get_gpu_driver_info(handle)["driver_version"], None),
        "power_cap": (lambda: amdsmi.amdsmi_get_power_cap_info(handle)["power_cap"] * MICRO, "W"),
        "clock": (lambda: clock.get("clk"), "MHz"),
        "clock_max": (lambda: clock.get("max_clk"), "MHz"),
        "memory_clock": (lambda: memory_clock.get("clk"), "MHz"),
        "temperature": (lambda: number_or_none(metrics.get("temperature_hotspot")), "°C"),
        "throttling": (lambda: _throttling(handle, metrics), None),
        "partitioning": (lambda: amdsmi.amdsmi_get_gpu_compute_partition(handle), None),
        "memory_used": (lambda: amdsmi.amdsmi_get_gpu_vram_usage(handle)["vram_used"], "MiB"),
        "other_processes": (lambda: _others(amdsmi.amdsmi_get_gpu_process_list(handle)), None),
    }
    return {name: fact(partial(answer, ask, None), unit) for name, (ask, unit) in asked.items()}


def partition_mode() -> str | None:
    """Return the partition mode of the first GPU that ROCm may use, such as CPX; None if undivided or unknown."""
    try:
        library = AmdSmi()
        return library.mode(gpus.chosen(library, library.handles(), None))
    except Exception:  # whatever the library raises: no run should fail for a name
        return None


def _throttling(handle: Any, metrics: Mapping[str, Any]) -> str | None:
    """Return what throttles the clocks, in the vendor's words; `none` for nothing, None if it is not reported."""
    status = metrics.get("indep_throttle_status", NOT_THERE)
    if status is True:  # ROCm 7 says no more
        return "throttled"
    if status != NOT_THERE and status < 2**64 - 1:
        return ", ".join(name for place, name in THROTTLERS.items() if status >> place & 1) or "none"
    violations = amdsmi.amdsmi_get_violation_status(handle)
    states = {name: violations.get(f"active_{name}", NOT_THERE) for name in VIOLATIONS}
    if set(states.values()) == {NOT_THERE}:
        return None
    return ", ".join(name for name, active in states.items() if active is True or active == 1) or "none"


def _others(processes: Any) -> int:
    own = host_pid()
    return sum(process["pid"] != own for process in processes)
