"""The interface of meters of power and energy.

Each source has a module in `meters/`, found by its file name. A module has `MEASURES`, the kinds of device that it
measures (empty: any kind, but only if the meter is asked for by name), and `find(place)`, which returns a Meter or
raises MeterError with the reason. `place` says where to look if it is not the usual place.
"""

from __future__ import annotations

from typing import Callable, Mapping, NamedTuple, Protocol, Sequence, TypeVar, cast

from entrypoints.system.facts import FactError

M = TypeVar("M")


class MeterError(FactError):
    """A meter is missing or unreadable; the text is the reason."""


class Absence(NamedTuple):
    """The reason why there is no meter, or no recording; `elsewhere`: another task's meter counts the same devices."""

    reason: str
    elsewhere: bool = False


class MeterFacts(NamedTuple):
    """The properties of a meter. No device contains another, so that their energies may be added."""

    source: str  # module and, if that has several, the interface it reads
    scope: str  # what each device is: die, package, board or node
    devices: tuple[str, ...]
    update_period: float  # s between new values in the hardware
    averaging: float | None  # s over which a power value is averaged
    averaging_reason: str | None  # why that is unknown
    has_power: bool
    has_counter: bool
    counter_ranges: tuple[float | None, ...]  # J by device, at which the counter starts again; None: it never does
    simulated: bool
    limits: Mapping[str, str] = {}  # what may limit the clocks, by the vendor's name: one of LIMIT_KINDS
    watch_period: float | None = None  # s, the longest between two states; None if the meter reads no states
    traffic_method: str | None = None  # counter, samples of rates, or None: why_no_traffic
    why_no_traffic: str | None = None
    # Whether importing a framework leaves idle power as it is: nothing of the host's processors is counted, and no
    # framework uses these devices before it computes.
    imports_unseen: bool = False


# What limits clocks. Power: a setting of the card or of its site. Heat and hardware: faults of cooling or supply.
# Other: nothing that makes a device slower than it is made to be.
LIMIT_KINDS = POWER, HEAT, HARDWARE, UNKNOWN, OTHER = ("power", "heat", "hardware", "unknown", "other")


class Reading(NamedTuple):
    """Power in W and energy counters in J, by device; empty if the meter does not have them."""

    watts: Sequence[float]
    joules: Sequence[float]
    # For a meter that may show accelerators that this run does not use: for each accelerator, the index of the device
    # that has its energy, and whether a process uses it. Otherwise empty.
    in_use: Sequence[tuple[int, bool]] = ()


class State(NamedTuple):
    """What a device under load shows at a moment; None or nothing for what it does not report.

    Limits of the clocks are by name (MeterFacts.limits).
    """

    clock: float | None = None  # MHz
    memory_clock: float | None = None  # MHz
    limiting: Mapping[str, bool] = {}  # whether each limits the clocks now
    limited: Mapping[str, float] = {}  # s in which each did, since some moment before the run
    received: float | None = None  # bytes over the bus to the device, since some moment before the run
    sent: float | None = None  # bytes from it


class Meter(Protocol):
    """A source of readings. `read` is called from one thread; any exception from it is a failed reading."""

    facts: MeterFacts

    def read(self) -> Reading:
        """Return the current values of the hardware."""


class Watched(Protocol):
    """A meter with a `watch_period`, which reads states as well, from another thread than energy."""

    facts: MeterFacts

    def watch(self) -> Sequence[State]:
        """Return the current state of each device."""


class Several:
    """Meters of one source as one meter, for devices that compute together."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        """Join them. Raises MeterError if they do not have the same kinds of reading."""
        self.meters, parts = meters, [meter.facts for meter in meters]
        first = parts[0]
        if len({(facts.source, facts.has_power, facts.has_counter) for facts in parts}) > 1:
            raise MeterError(f"{', '.join(facts.devices[0] for facts in parts)} do not report the same")
        self.facts = first._replace(
            devices=sum((facts.devices for facts in parts), ()),
            counter_ranges=sum((facts.counter_ranges for facts in parts), ()),
        )

    def read(self) -> Reading:
        """Return the values of all devices, read after each other."""
        readings = [meter.read() for meter in self.meters]
        return Reading(
            [watts for reading in readings for watts in reading.watts],
            [joules for reading in readings for joules in reading.joules],
        )

    def watch(self) -> Sequence[State]:
        """Return the states of all devices. Only for meters that are watched."""
        return [state for meter in self.meters for state in cast(Watched, meter).watch()]


def first_found(searches: Mapping[str, Callable[[], M]]) -> M:
    """Return the result of the first search that does not raise MeterError; searches by the name of their source.

    Raises MeterError with the reasons of all.
    """
    reasons = []
    for source, search in searches.items():
        result = _tried(search)
        if not isinstance(result, MeterError):
            return result
        reasons.append(f"{source}: {result}")
    raise MeterError("; ".join(reasons))


def _tried(search: Callable[[], M]) -> M | MeterError:
    try:
        return search()
    except MeterError as error:
        return error
