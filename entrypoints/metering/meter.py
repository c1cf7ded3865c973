"""The interface of meters of power and energy.

Each source has a module in `meters/`, found by its file name. A module has `MEASURES`, the kinds of device that its
numbers are about (empty: whatever it is asked for, but then it must be asked for), and `find(place)`, which returns a
Meter or raises MeterError with the reason. `place` says where to look when it is not the usual one.
"""

from __future__ import annotations

from typing import Callable, Mapping, NamedTuple, Protocol, Sequence, TypeVar

from entrypoints.system.facts import FactError

M = TypeVar("M")


class MeterError(FactError):
    """A meter that is not there, or does not let itself be read; the text says why."""


class Absence(NamedTuple):
    """The reason why there is no meter, or no recording."""

    reason: str


class MeterFacts(NamedTuple):
    """What a meter is. Its devices never contain each other, so that their energies may be added."""

    source: str  # module and, where one module has several, the interface it reads
    scope: str  # what each device is: die, package, board or node
    devices: tuple[str, ...]
    update_period: float  # s between new values in the hardware
    averaging: float | None  # s that one power value is the average of
    averaging_reason: str | None  # why that is not known
    has_power: bool
    has_counter: bool
    counter_ranges: tuple[float | None, ...]  # J by device, at which the counter starts again; None: it never does
    simulated: bool


class Reading(NamedTuple):
    """Power in W and energy counters in J, by device; empty what the meter does not have."""

    watts: Sequence[float]
    joules: Sequence[float]
    # Of a meter that may show accelerators on which others compute, or nobody: for each of them the device, by its
    # place, that its energy is in, and whether a process has it. Else empty.
    in_use: Sequence[tuple[int, bool]] = ()


class Meter(Protocol):
    """A source of readings. `read` is called from one thread; whatever it raises is a reading that failed."""

    facts: MeterFacts

    def read(self) -> Reading:
        """Return what the hardware shows now."""


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
