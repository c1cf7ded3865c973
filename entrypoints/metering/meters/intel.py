"""Intel GPUs: the energy counter of a card, through Level Zero's management part (sysman) or the kernel's hwmon.

A card with several tiles has a counter for itself and one for each tile: only the card's is read, which includes the
others. Structures: zes_api.h of the Level Zero specification; files: sysfs-driver-intel-i915-hwmon and
sysfs-driver-intel-xe-hwmon in the kernel's Documentation/ABI/testing, and for clocks and throttling
docs.kernel.org/gpu/xe/xe_gt_freq.html and drivers/gpu/drm/i915/gt/intel_gt_sysfs_pm.c.
"""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

from entrypoints.metering.kernel_files import KernelFile, kernel_text
from entrypoints.metering.meter import (
    HEAT,
    POWER,
    UNKNOWN,
    MeterError,
    MeterFacts,
    Reading,
    State,
    first_found,
)
from entrypoints.system.facts import fact

MEASURES = ("xpu",)
LOADER = "libze_loader.so.1"
HWMON = Path("/sys/class/hwmon")
MASK = "ZE_AFFINITY_MASK"  # devices that Level Zero shows: 0,1; tiles of cards: 0.1
HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"
SELECTOR = "ONEAPI_DEVICE_SELECTOR"
ANY = re.compile(r"|(\*|level_zero):(\*|gpu|0)", re.IGNORECASE)  # values that keep the first device first
NAME_IT = "and a card has the meter: name the card, --meter intel:NUMBER"
OF_BOARD, OF_TILE = "energy1_input", "i915_gt"  # a file of xe, and the prefix of a tile's folder with i915
UPDATE_PERIOD = 0.1  # s; not documented
# Parts of the names that both drivers give to reasons: pl1, pl2, pl4 and psys are limits of power, tdc and iccmax of
# current.
KINDS = {"therm": HEAT, "prochot": HEAT, "ratl": HEAT, "pl": POWER, "psys": POWER, "tdc": POWER, "iccmax": POWER}
STATUS = "status"  # of the file with 1 if any reason limits the clock
WATCH_PERIOD = 0.1  # s
NO_TRAFFIC = "neither the kernel nor this Level Zero counts the traffic on the bus"
MICRO, MILLI = 1e-6, 1e-3
Handle = ctypes.c_void_p


class DriverFiles(NamedTuple):
    """Files in which a kernel driver reports a card: those of hwmon, the card's before the package's, and those of the
    device for each tile. The first that exists counts."""

    energy: tuple[str, ...]  # microjoules
    limit: tuple[str, ...]  # microwatts; 0 if it is switched off
    temperature: tuple[str, ...]  # of the package, in thousandths of a degree
    clock: str  # MHz
    clock_max: str
    held_down: str  # prefix of one file per reason, with 1 if that throttles the clock


FILES = {
    "i915": DriverFiles(
        ("energy1_input",),
        ("power1_max",),
        ("temp1_input",),
        "drm/card*/gt/gt{tile}/rps_act_freq_mhz",
        "drm/card*/gt/gt{tile}/rps_RP0_freq_mhz",
        "drm/card*/gt/gt{tile}/throttle_reason_",
    ),
    "xe": DriverFiles(
        (OF_BOARD, "energy2_input"),
        ("power1_max", "power2_max"),
        ("temp2_input",),
        "tile{tile}/gt0/freq0/act_freq",
        "tile{tile}/gt0/freq0/rp0_freq",
        "tile{tile}/gt0/freq0/throttle/reason_",
    ),
}


class Intel:
    """One card: its energy counter, its clock and what limits it, and the traffic on its bus if that is counted."""

    def __init__(self, source: str, name: str, counter: SysmanCounter | KernelFile, card: int) -> None:
        counter.number()  # fails at once if it cannot be read
        self.counter, self.card = counter, card
        self.bus = counter.bus if isinstance(counter, SysmanCounter) and counter.bus.bytes() else None
        self.facts = MeterFacts(
            source=source,
            scope=scope(card),
            devices=(name,),
            update_period=UPDATE_PERIOD,
            averaging=None,
            averaging_reason="there is no power, only energy",
            has_power=False,
            has_counter=True,
            counter_ranges=(None,),  # 64 bits, into which the driver accumulates the 32 of the hardware
            simulated=False,
            limits=_limits(card),
            watch_period=WATCH_PERIOD,
            traffic_method=None if self.bus is None else "counter",
            why_no_traffic=NO_TRAFFIC if self.bus is None else None,
        )

    def read(self) -> Reading:
        """Return the energy since the driver was loaded."""
        return Reading((), [self.counter.number() * MICRO])

    def watch(self) -> tuple[State]:
        """Return the clock of the tile that computes, or of the card's first, what limits it, and the traffic."""
        received, sent = (self.bus and self.bus.bytes()) or (None, None)
        if not self.facts.limits:  # of a card that the kernel does not show, such as in a container without its files
            return (State(received=received, sent=sent),)
        limiting = {reason: active for reason, active in _limiting(self.card).items() if reason != STATUS}
        return (State(_of_tile("clock", self.card), limiting=limiting, received=received, sent=sent),)


class EnergyCounter(ctypes.Structure):
    """zes_power_energy_counter_t."""

    _fields_ = (("energy", ctypes.c_uint64), ("timestamp", ctypes.c_uint64))  # both in millionths: J, s


class BusStatistics(ctypes.Structure):
    """zes_pci_stats_t. The last two of its fields are the link's speed."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("timestamp", "replays", "packets", "received", "sent")),
        *(("generation", ctypes.c_int32), ("lanes", ctypes.c_int32), ("bandwidth", ctypes.c_int64)),
    )


class SysmanBus:
    """The bus of a card."""

    def __init__(self, library: Any, card: Handle) -> None:
        self.library, self.card = library, card

    def bytes(self) -> tuple[float, float] | None:
        """Return the bytes to and from the card; None if they are not counted, as with most drivers."""
        if not hasattr(self.library, "zesDevicePciGetStats"):
            return None
        statistics = BusStatistics()
        failed = self.library.zesDevicePciGetStats(self.card, ctypes.byref(statistics))
        counted = not failed and statistics.received + statistics.sent > 0  # a driver without them may leave zeros
        return (float(statistics.received), float(statistics.sent)) if counted else None


class SysmanCounter:
    """The power domain of a card."""

    def __init__(self, library: Any, domain: Handle, bus: SysmanBus) -> None:
        self.library, self.domain, self.bus = library, domain, bus

    def number(self) -> int:
        """Return the energy in microjoules. Raises MeterError."""
        counter = EnergyCounter()
        require(self.library.zesPowerGetEnergyCounter(self.domain, ctypes.byref(counter)), "zesPowerGetEnergyCounter")
        return int(counter.energy)


def find(place: str | None, number: int = 0) -> Intel:
    """Return the card of the device that Level Zero numbers so among those it may use, or the one numbered `place`."""
    if place is not None and not place.isdigit():
        raise MeterError(f"{place!r} is no number of a card")
    card = int(place) if place is not None else visible(number)
    return first_found(
        {
            "level_zero": lambda: Intel("level_zero", *by_sysman(card), card),
            "drm_hwmon": lambda: Intel("drm_hwmon", *by_hwmon(card), card),
        }
    )


def visible(number: int) -> int:
    """Return the number of the card that a device is, or belongs to. Raises MeterError if it is unclear.

    https://oneapi-src.github.io/level-zero-spec/level-zero/latest/core/PROG.html#device-hierarchy
    """
    selector = os.environ.get(SELECTOR, "")
    if not ANY.fullmatch(selector):
        raise MeterError(f"{SELECTOR}={selector} chooses among devices, {NAME_IT}")
    mask = os.environ.get(MASK, ",".join(map(str, range(number + 1))))
    words = mask.split(",")
    card, _, tile = words[number].strip().partition(".") if number < len(words) else ("", "", "")
    if not card.isdigit():
        raise MeterError(f"{MASK}={mask} names no card")
    if card != "0" and not tile and not by_card():
        raise MeterError(f"{MASK}={mask} numbers tiles unless {HIERARCHY} is COMPOSITE, {NAME_IT}")
    return int(card)


def by_card() -> bool:
    """Return whether Level Zero's devices are cards. Otherwise, and by default, they are the tiles of each card."""
    return os.environ.get(HIERARCHY, "FLAT").upper() == "COMPOSITE"


def whole_card() -> bool:
    """Return whether the first device is a card. If the mask leaves a single tile of a card, that tile is the device.

    https://github.com/oneapi-src/level-zero/issues/86
    """
    mask = [word.strip() for word in os.environ.get(MASK, "").split(",") if word.strip()]
    card = mask[0].partition(".")[0] if mask else ""
    left = {word for word in mask if word.partition(".")[0] == card}
    return by_card() and not (len(left) == 1 and "." in left.pop())


def by_sysman(number: int) -> tuple[str, SysmanCounter]:
    """Return name and counter of a card by Level Zero. Raises MeterError."""
    try:
        library = ctypes.CDLL(LOADER)
    except OSError as error:
        raise MeterError(f"{LOADER} is not here") from error
    if not hasattr(library, "zesInit"):
        raise MeterError(f"{LOADER} is older than Level Zero 1.5, which brought zesInit")
    require(library.zesInit(ctypes.c_uint32(0)), "zesInit")
    drivers = listed(library.zesDriverGet)
    cards = [card for driver in drivers for card in listed(library.zesDeviceGet, driver)]
    if number >= len(cards):
        raise MeterError(f"there is no card {number}: {len(cards)} are visible")
    domain = Handle()
    require(library.zesDeviceGetCardPowerDomain(cards[number], ctypes.byref(domain)), "zesDeviceGetCardPowerDomain")
    return f"card {number}", SysmanCounter(library, domain, SysmanBus(library, cards[number]))


def listed(call: Any, *of: Handle) -> Sequence[Handle]:
    """Return all handles that a call of Level Zero lists; a first call gives their count."""
    count = ctypes.c_uint32()
    require(call(*of, ctypes.byref(count), None), call.__name__)
    handles = (Handle * count.value)()
    require(call(*of, ctypes.byref(count), handles), call.__name__)
    return [Handle(handle) for handle in handles]


def require(status: int, call: str) -> None:
    """Raise MeterError for anything but success, which is 0."""
    if status:
        raise MeterError(f"{call} fails with {status & 0xFFFFFFFF:#x}")


def by_hwmon(number: int) -> tuple[str, KernelFile]:
    """Return name and counter of a card by the kernel's driver. Raises MeterError."""
    folder, files = monitored(number)
    counter = _first(folder, files.energy)
    if counter is None:
        raise MeterError(f"{folder} has no energy counter: Linux has it from 6.2 (i915) and 6.5 (xe) on")
    return address_of(folder), KernelFile(counter)


def scope(number: int) -> str:
    """Return what a card's counter covers, also for Level Zero, which reads the same file: the board if xe says so, or
    if i915 has counters of tiles beside it; else the package. Kernel: xe_hwmon.c, i915_hwmon.c."""
    try:
        folder, files = monitored(number)
    except MeterError:
        return "package"
    if files is FILES["xe"]:
        return "board" if (folder / OF_BOARD).exists() else "package"
    names = [kernel_text(other / "name") for other in HWMON.glob("hwmon*") if address_of(other) == address_of(folder)]
    return "board" if any(name.startswith(OF_TILE) for name in names) else "package"


def monitored(number: int) -> tuple[Path, DriverFiles]:
    """Return a card's folder in hwmon and its driver's files; cards are sorted by PCI address. Raises MeterError."""
    drivers = {folder: kernel_text(folder / "name") for folder in HWMON.glob("hwmon*")}
    cards = sorted((folder for folder in drivers if drivers[folder] in FILES), key=address_of)
    if number >= len(cards):
        raise MeterError(f"there is no card {number}: {HWMON} has {len(cards)} of the drivers {', '.join(FILES)}")
    return cards[number], FILES[drivers[cards[number]]]


def address(number: int) -> str:
    """Return the PCI address of the card that PyTorch's device of a number is, or belongs to. Raises MeterError."""
    return address_of(monitored(visible(number))[0])


def address_of(folder: Path) -> str:
    """Return the PCI address of the device that a folder of hwmon describes."""
    return (folder / "device").resolve().name


def conditions(driver: str | None) -> Mapping[str, Any]:
    """Return the conditions of the card that computes, from the kernel's files; the `driver`'s version is PyTorch's.

    Facts by a name of session.DEVICE_CONDITIONS; clocks are those of the tile that computes, or a whole card's first.
    """
    return {
        "driver": fact(lambda: driver),
        "power_cap": fact(lambda: _of_card("limit", MICRO) or None, "W"),
        "clock": fact(lambda: _of_tile("clock"), "MHz"),
        "clock_max": fact(lambda: _of_tile("clock_max"), "MHz"),
        "temperature": fact(lambda: _of_card("temperature", MILLI), "°C"),
        "throttling": fact(_throttling),
    }


def _of_card(kind: str, unit: float) -> float | None:
    folder, files = monitored(visible(0))
    path = _first(folder, getattr(files, kind))
    return None if path is None else int(kernel_text(path)) * unit


def _of_tile(kind: str, card: int | None = None) -> int | None:
    return next((int(kernel_text(path)) for path in _tile_files(kind, card)), None)


def _throttling() -> str | None:
    limiting = _limiting(visible(0))
    active = [reason for reason, limits in limiting.items() if limits and reason != STATUS]
    return ", ".join(active) or "none" if limiting else None


def _limiting(card: int) -> Mapping[str, bool]:
    """Return whether each reason limits the clock of a card, and any one."""
    reasons = {path: path.name.partition("reason_")[2] or STATUS for path in _tile_files("held_down", card)}
    return {reason: kernel_text(path) == "1" for path, reason in reasons.items()}


def _limits(card: int) -> Mapping[str, str]:
    try:
        return {reason: _kind(reason) for reason in _limiting(card)}
    except MeterError:
        return {}


def _kind(reason: str) -> str:
    return next((kind for part, kind in KINDS.items() if part in reason), UNKNOWN)


def _tile_files(kind: str, card: int | None = None) -> list[Path]:
    """Return the files of a kind for the tile that computes, sorted by name."""
    folder, files = monitored(visible(0) if card is None else card)
    tile = os.environ.get(MASK, "0").split(",")[0].partition(".")[2] or "0"
    return sorted((folder / "device").glob(f"{getattr(files, kind).format(tile=tile)}{'*' * (kind == 'held_down')}"))


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).exists()), None)
