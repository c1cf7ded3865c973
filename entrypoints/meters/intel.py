"""Intel GPUs: the energy counter of a card, by Level Zero's management part (sysman) or by the kernel's hwmon.

A card with several tiles has a counter for itself and one for each tile: only the card's is read, which holds the
others. Structures: zes_api.h of the Level Zero specification; files: sysfs-driver-intel-i915-hwmon and
sysfs-driver-intel-xe-hwmon in the kernel's Documentation/ABI/testing.
"""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any, Mapping, Sequence

from entrypoints.meters import KernelFile, MeterError, MeterFacts, Reading, first_found, kernel_text

MEASURES = ("xpu",)
LOADER = "libze_loader.so.1"
HWMON = Path("/sys/class/hwmon")
COUNTERS = {"i915": ("energy1_input",), "xe": ("energy1_input", "energy2_input")}  # xe: of the card, else the package
MASK = "ZE_AFFINITY_MASK"  # devices that Level Zero shows: 0,1; tiles of cards: 0.1
HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"
SELECTOR = "ONEAPI_DEVICE_SELECTOR"
ANY = re.compile(r"|(\*|level_zero):(\*|gpu|0)", re.IGNORECASE)  # what leaves the first device the first
NAME_IT = "and a card has the meter: name the card, --meter intel:NUMBER"
UPDATE_PERIOD = 0.1  # s; not documented
MICRO = 1e-6
Handle = ctypes.c_void_p


class Intel:
    """One card's energy counter."""

    def __init__(self, source: str, name: str, counter: SysmanCounter | KernelFile) -> None:
        self.counter = counter
        self.facts = MeterFacts(
            source=source,
            scope="package",
            devices=(name,),
            update_period=UPDATE_PERIOD,
            averaging=None,
            averaging_reason="there is no power, only energy",
            has_power=False,
            has_counter=True,
            counter_ranges=(None,),  # 64 bits, into which the driver folds what the hardware counts in 32
            simulated=False,
        )

    def read(self) -> Reading:
        """Energy since the driver was loaded."""
        return Reading((), [self.counter.number() * MICRO])


class EnergyCounter(ctypes.Structure):
    """zes_power_energy_counter_t."""

    _fields_ = (("energy", ctypes.c_uint64), ("timestamp", ctypes.c_uint64))  # both in millionths: J, s


class SysmanCounter:
    """The power domain of a card."""

    def __init__(self, library: Any, domain: Handle) -> None:
        self.library, self.domain = library, domain

    def number(self) -> int:
        """Energy in microjoules. Raises MeterError."""
        counter = EnergyCounter()
        require(self.library.zesPowerGetEnergyCounter(self.domain, ctypes.byref(counter)), "zesPowerGetEnergyCounter")
        return int(counter.energy)


def find(place: str | None) -> Intel:
    """The card that computes: the first that Level Zero may use, or `place`, its number."""
    number = int(place) if place is not None else first_visible()
    return first_found(
        {
            "level_zero": lambda: Intel("level_zero", *by_sysman(number)),
            "drm_hwmon": lambda: Intel("drm_hwmon", *by_hwmon(number)),
        }
    )


def first_visible() -> int:
    """The number of the card that the first device is, or is a tile of. Raises MeterError where that cannot be told.

    https://oneapi-src.github.io/level-zero-spec/level-zero/latest/core/PROG.html#device-hierarchy
    """
    selector = os.environ.get(SELECTOR, "")
    if not ANY.fullmatch(selector):
        raise MeterError(f"{SELECTOR}={selector} chooses among devices, {NAME_IT}")
    mask = os.environ.get(MASK, "0")
    first, _, tile = mask.split(",")[0].strip().partition(".")
    if not first.isdigit():
        raise MeterError(f"{MASK}={mask} names no card")
    if first != "0" and not tile and not by_card():
        raise MeterError(f"{MASK}={mask} numbers tiles unless {HIERARCHY} is COMPOSITE, {NAME_IT}")
    return int(first)


def by_card() -> bool:
    """Whether devices are cards to Level Zero. Else, and by default, the tiles of each are devices."""
    return os.environ.get(HIERARCHY, "FLAT").upper() == "COMPOSITE"


def by_sysman(number: int) -> tuple[str, SysmanCounter]:
    """A card by Level Zero."""
    try:
        library = ctypes.CDLL(LOADER)
    except OSError as error:
        raise MeterError(f"{LOADER} is not in this image") from error
    if not hasattr(library, "zesInit"):
        raise MeterError(f"{LOADER} is older than Level Zero 1.5, which brought zesInit")
    require(library.zesInit(ctypes.c_uint32(0)), "zesInit")
    drivers = listed(library.zesDriverGet)
    cards = [card for driver in drivers for card in listed(library.zesDeviceGet, driver)]
    if number >= len(cards):
        raise MeterError(f"there is no card {number}: {len(cards)} are seen")
    domain = Handle()
    require(library.zesDeviceGetCardPowerDomain(cards[number], ctypes.byref(domain)), "zesDeviceGetCardPowerDomain")
    return f"card {number}", SysmanCounter(library, domain)


def listed(call: Any, *of: Handle) -> Sequence[Handle]:
    """All handles that a call of Level Zero lists: it tells how many first."""
    count = ctypes.c_uint32()
    require(call(*of, ctypes.byref(count), None), call.__name__)
    handles = (Handle * count.value)()
    require(call(*of, ctypes.byref(count), handles), call.__name__)
    return [Handle(handle) for handle in handles]


def require(status: int, call: str) -> None:
    """Raise MeterError for anything but success, which is 0."""
    if status:
        raise MeterError(f"{call} fails with {status & 0xFFFFFFFF:#x}")


def by_hwmon(number: int, root: Path | None = None) -> tuple[str, KernelFile]:
    """A card by the kernel's driver, cards in the order of their PCI addresses."""
    root = root or HWMON
    drivers = {folder: kernel_text(folder / "name") for folder in root.glob("hwmon*")}
    cards = sorted((folder for folder in drivers if drivers[folder] in COUNTERS), key=address)
    if number >= len(cards):
        raise MeterError(f"there is no card {number}: {root} has {len(cards)} of the drivers {', '.join(COUNTERS)}")
    counters = [cards[number] / name for name in COUNTERS[drivers[cards[number]]]]
    there = next((counter for counter in counters if counter.exists()), None)
    if there is None:
        raise MeterError(f"{cards[number]} has no energy counter: Linux has it from 6.2 (i915) and 6.5 (xe) on")
    return address(cards[number]), KernelFile(there)


def address(folder: Path) -> str:
    """The PCI address of the device that a folder of hwmon is about."""
    return (folder / "device").resolve().name


def conditions() -> Mapping[str, Any]:
    """What is told of a card beside its energy: nothing yet, and each part of a result says so."""
    return {}
