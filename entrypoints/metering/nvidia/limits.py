"""What limits the clocks of a GPU of NVIDIA."""

from __future__ import annotations

from typing import Any, Mapping

from entrypoints.metering.meter import HARDWARE, HEAT, OTHER, POWER
from entrypoints.metering.nvidia.library import fields, pynvml, supported_answer

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
NANO = 1e-9


def limited(handle: Any) -> Mapping[str, float]:
    """Return the s in which each policy held the clocks down, by the name of what it follows."""
    counted = {POLICIES[field]: value * NANO for field, (value, _) in fields(handle, POLICIES).items()}
    if counted:
        return counted
    first = min(POLICIES)
    asked = {
        name: supported_answer(pynvml.nvmlDeviceGetViolationStatus, handle, field - first)
        for field, name in POLICIES.items()
    }
    return {name: status.violationTime * NANO for name, status in asked.items() if status is not None}
