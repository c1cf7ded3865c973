"""The interface of meters of power and energy.

Each source has a module in `meters/`, found by its file name. A module has `MEASURES`, the kinds of device that it
measures (empty: any kind, but only if the meter is asked for by name), and `find(place)`, which returns a Meter or
raises MeterError with the reason. `place` says where to look if it is not the usual place.
"""

from __future__ import annotations

from typing import Callable, Mapping, NamedTuple, Protocol, Sequence, TypeVar

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


class Reading(NamedTuple):
    """Power in W and energy counters in J, by device; empty if the meter does not have them."""

    watts: Sequence[float]
    joules: Sequence[float]
    # For a meter that may show accelerators that this run does not use: for each accelerator, the index of the device
    # that has its energy, and whether a process uses it. Otherwise empty.
    in_use: Sequence[tuple[int, bool]] = ()


class Meter(Protocol):
    """A source of readings. `read` is called from one thread; any exception from it is a failed reading."""

    facts: MeterFacts

    def read(self) -> Reading:
        """Return the current values of the hardware."""


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
