"""The power controllers of GPUs of AMD: their clocks, and what limits these.

What throttles clocks: rocm.docs.amd.com/projects/amdsmi, GPU violations.
"""

from __future__ import annotations

import re
import time
from typing import Any, Callable, Iterable, Mapping, TypeVar

from entrypoints.metering.amd.libraries import NOT_THERE, AmdSmi, number_or_none
from entrypoints.metering.meter import HARDWARE, HEAT, POWER, UNKNOWN, State

V = TypeVar("V", bool, float)
# What may throttle clocks, on MI200 and before: bits of `indep_throttle_status` by position (Linux, amdgpu_smu.h).
THROTTLERS = {
    **dict(enumerate(("PPT0", "PPT1", "PPT2", "PPT3", "SPL", "FPPT", "SPPT", "SPPT_APU"))),
    **dict(enumerate(("TDC_GFX", "TDC_SOC", "TDC_MEM", "TDC_VDD", "TDC_CVIP", "EDC_CPU", "EDC_GFX", "APCC"), 16)),
    **dict(enumerate(("TEMP_GPU", "TEMP_CORE", "TEMP_MEM", "TEMP_EDGE", "TEMP_HOTSPOT", "TEMP_SOC"), 32)),
    **dict(enumerate(("TEMP_VR_GFX", "TEMP_VR_SOC", "TEMP_VR_MEM0", "TEMP_VR_MEM1"), 38)),
    **dict(enumerate(("TEMP_LIQUID0", "TEMP_LIQUID1", "VRHOT0", "VRHOT1", "PROCHOT_CPU", "PROCHOT_GFX"), 42)),
    **dict(enumerate(("PPM", "FIT"), 56)),
}
THROTTLED = "throttled"  # all that ROCm 7 says of them
KIND = re.compile("[A-Z]+")  # of a throttler: its name without its number
KINDS = {
    **dict.fromkeys(("PPT", "SPL", "FPPT", "SPPT", "TDC", "EDC", "APCC", "PPM"), POWER),
    **dict.fromkeys(("TEMP", "VRHOT", "PROCHOT"), HEAT),
    "FIT": HARDWARE,
}
# What limited the clocks of MI300 and later: fields with the number of cycles of the controller in which it did, of
# those in `accumulation_counter`. The call for violations has the same, but waits for 0.1 s.
RESIDENCIES = {
    "ppt_pwr": ("ppt_residency_acc", POWER),
    "prochot_thrm": ("prochot_residency_acc", HEAT),
    "socket_thrm": ("socket_thm_residency_acc", HEAT),
    "vr_thrm": ("vr_thm_residency_acc", HEAT),
    "hbm_thrm": ("hbm_thm_residency_acc", HEAT),
}
LIMITS = {**KINDS, **{name: kind for name, (_, kind) in RESIDENCIES.items()}, THROTTLED: UNKNOWN}


class Controller:
    """The power controller of a die."""

    def __init__(self, library: AmdSmi, die: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.library, self.die, self.clock = library, die, clock
        self.limited = dict.fromkeys(RESIDENCIES, 0.0)
        self.last: Mapping[str, Any] = {}
        self.at = clock()

    def state(self) -> State:
        """Return the state of the die."""
        metrics = self.library.metrics(self.die)
        clocks = [clock for clock in metrics.get("current_gfxclks") or () if number_or_none(clock)]
        limited = self.limited_so_far(metrics)
        return State(
            clock=min(clocks, default=number_or_none(metrics.get("current_gfxclk"))),
            memory_clock=number_or_none(metrics.get("current_uclk")),
            limiting=_limiting(metrics.get("indep_throttle_status", NOT_THERE)),
            limited=limited,
        )

    def limited_so_far(self, metrics: Mapping[str, Any]) -> Mapping[str, float]:
        """Return for how many s each limit held the clocks down since the first call: its share of the controller's
        cycles, as time passed."""
        now, last = self.clock(), self.last
        cycles = _gain(last, metrics, "accumulation_counter")
        for name, (field, _) in RESIDENCIES.items():
            gain = _gain(last, metrics, field)
            if cycles and gain is not None:
                self.limited[name] += min(1.0, gain / cycles) * (now - self.at)
        self.last, self.at = metrics, now
        return {name: self.limited[name] for name, (field, _) in RESIDENCIES.items() if _is_count(metrics.get(field))}


def _limiting(status: Any) -> Mapping[str, bool]:
    """Return whether each kind of throttler limits the clocks, by `indep_throttle_status`; nothing if it is none."""
    if isinstance(status, bool):
        return {THROTTLED: status}
    if not _is_count(status) or status >= 2**64 - 1:
        return {}
    active = {KIND.match(name)[0] for place, name in THROTTLERS.items() if status >> place & 1}  # type: ignore[index]
    return {kind: kind in active for kind in KINDS}


def of_any(dies: Iterable[Mapping[str, V]]) -> Mapping[str, V]:
    """Return the largest value of each name on any die."""
    largest: dict[str, V] = {}
    for values in dies:
        for name, value in values.items():
            largest[name] = max(value, largest.get(name, value))
    return largest


def _gain(before: Mapping[str, Any], after: Mapping[str, Any], field: str) -> int | None:
    """Return by how much a count rose; None if it was not reported, or began again."""
    first, second = before.get(field), after.get(field)
    if first is None or second is None or not (_is_count(first) and _is_count(second)):
        return None
    return int(second - first) if second >= first else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
