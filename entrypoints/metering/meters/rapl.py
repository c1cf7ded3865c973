"""Energy counters of x86 processor packages: RAPL, through the kernel's powercap files."""

from __future__ import annotations

import re
from pathlib import Path

from entrypoints.metering.kernel_files import KernelFile, kernel_text
from entrypoints.metering.meter import MeterError, MeterFacts, Reading

MEASURES = ("cpu",)
POWERCAP = Path("/sys/class/powercap")
# Intel SDM volume 3B, MSR_PKG_ENERGY_STATUS: updated every ~1 msec.
UPDATE_PERIOD = 0.001
ZONES = "intel-rapl:*"  # AMD's have the same name; intel-rapl-mmio repeats the same counters
# Nothing else is added: `core` and `uncore` are parts of a package, `dram` is a part or separate, and `psys`, the
# platform, contains the packages. For a package of several dies the kernel has a zone for each.
DEVICE = re.compile(r"package-\d+(-die-\d+)?")
MICRO = 1e-6


class Rapl:
    """The packages of the host. On servers their energy does not include memory."""

    def __init__(self, zones: dict[str, Path]) -> None:
        self.counters = [KernelFile(zone / "energy_uj") for zone in zones.values()]
        self.facts = MeterFacts(
            source="rapl",
            scope="die" if any("die" in name for name in zones) else "package",
            devices=tuple(zones),
            update_period=UPDATE_PERIOD,
            averaging=None,
            averaging_reason="an energy counter averages nothing",
            has_power=False,
            has_counter=True,
            counter_ranges=tuple(KernelFile(zone / "max_energy_range_uj").number() * MICRO for zone in zones.values()),
            simulated=False,
        )

    def read(self) -> Reading:
        """Return every package's counter."""
        return Reading(watts=(), joules=[counter.number() * MICRO for counter in self.counters])


def find(place: str | None) -> Rapl:
    """Return the packages below `place`, a folder laid out as /sys/class/powercap."""
    root = POWERCAP if place is None else Path(place)
    return Rapl(packages(root))


def packages(root: Path) -> dict[str, Path]:
    """Return the folders of the packages below `root` by name. Raises MeterError if there is none."""
    folders = {kernel_text(zone / "name"): zone for zone in root.glob(ZONES)}
    zones = {name: folders[name] for name in sorted(folders) if DEVICE.fullmatch(name)}
    if not zones:
        raise MeterError(
            f"no package of intel-rapl in {root}: a virtual machine, a container that hides it, or no driver"
        )
    return zones


def power_cap() -> float:
    """Return the long-term power limit of all processor packages together in W (RAPL)."""
    limits = [zone / "constraint_0_power_limit_uw" for zone in packages(POWERCAP).values()]
    return sum(int(kernel_text(limit)) for limit in limits) * MICRO
