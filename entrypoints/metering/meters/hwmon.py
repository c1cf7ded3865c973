"""Power of NVIDIA Grace processors: the ACPI power meters of the kernel's hwmon."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from entrypoints.metering.kernel_files import KernelFile, kernel_text
from entrypoints.metering.meter import MeterError, MeterFacts, Reading

MEASURES = ("cpu",)
HWMON = Path("/sys/class/hwmon")
# The processor with its memory controllers and I/O. `Module Power` contains it and the GPU, and it contains `CPU Power`
# and `SysIO Power`: adding any of these would count energy twice.
LABEL = re.compile(r"Grace Power Socket (\d+)")
# Below the ACPI device; since Linux moved them in 2025 (acpi_power_meter) below hwmon itself.
PLACES = ("hwmon*/device/power1_oem_info", "hwmon*/power1_oem_info")
UPDATE_PERIOD = 1.0  # s; from what JSC's jpwr recorded on a GH200, sampled once a second
MICRO, MILLI = 1e-6, 1e-3
UNKNOWN = 0xFFFFFFFF * 1000  # microwatts: ACPI's _PMM without a value, as Linux passes it on


class Hwmon:
    """Power meters by label."""

    def __init__(self, sockets: dict[str, Path], scope: str) -> None:
        self.powers = [KernelFile(folder / "power1_average") for folder in sockets.values()]
        averaging = _averaging(sockets)
        self.facts = MeterFacts(
            source="acpi_power_meter",
            scope=scope,
            devices=tuple(sockets),
            update_period=max(UPDATE_PERIOD, averaging or 0.0),
            averaging=averaging,
            averaging_reason=None if averaging else "the driver does not say, or not the same for every socket",
            has_power=True,
            has_counter=False,
            counter_ranges=(),
            simulated=False,
        )

    def read(self) -> Reading:
        """Return the power of each."""
        return Reading(watts=[_watts(power) for power in self.powers], joules=())


def find(place: str | None) -> Hwmon:
    """Return the processors below `place`, a folder laid out as /sys/class/hwmon."""
    return Hwmon(labelled(HWMON if place is None else Path(place), LABEL, "Grace processor"), "package")


def labelled(root: Path, wanted: re.Pattern[str], what: str) -> dict[str, Path]:
    """Return the folders of power meters whose labels match, by label. Raises MeterError if there is none."""
    labels = {kernel_text(path): path.parent for place in PLACES for path in sorted(root.glob(place))}
    sockets = {label: labels[label] for label in sorted(labels) if wanted.fullmatch(label)}
    if not sockets:
        present = (
            f"its power meters are {', '.join(sorted(labels))}" if labels else "it has no power meter with a label"
        )
        raise MeterError(f"no {what} in {root}: {present}")
    return sockets


def _watts(power: KernelFile) -> float:
    """Return the power in W. Raises MeterError if the firmware does not know it."""
    number = power.number()
    if number == UNKNOWN:
        raise MeterError(f"{power.path}: the firmware does not know the power")
    return number * MICRO


def _averaging(sockets: dict[str, Path]) -> float | None:
    """Return the averaging interval (s) of all sockets; None if the driver reports none, or different ones."""
    intervals = set()
    with contextlib.suppress(MeterError):
        intervals = {KernelFile(folder / "power1_average_interval").number() * MILLI for folder in sockets.values()}
    return intervals.pop() if len(intervals) == 1 else None
