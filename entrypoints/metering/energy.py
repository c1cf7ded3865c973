"""Energy over a window of a recording: from a hardware counter if there is one, otherwise the integral of power.

A window that the samples do not cover has no energy: EnergyError has the reason.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Any, Iterator, Mapping, NamedTuple, Sequence, Tuple, TypeVar, Union

from entrypoints.metering.meter import Absence, MeterFacts
from entrypoints.metering.sampling import Recording

FEWEST_PERIODS = 20  # in a window: its edges, each uncertain by a period, are then at most 5 % of it each
LONGEST_GAP = 5  # periods between two samples
NOTHING_METERED = "nothing was metered: power says why"  # a result has the whole reason only once, since it is long
Window = Tuple[float, float]  # from, until; s of the monotonic clock
Metered = Union[Recording, Absence]
V = TypeVar("V")


class EnergyError(Exception):
    """There is no energy for a window; the text is the reason."""


class WindowEnergy(NamedTuple):
    """Energy of each device in a window, and how it was determined."""

    joules: Sequence[float]  # by device
    method: str  # counter or integral
    integral: Sequence[float] | None  # of the power, if there are both
    samples: int  # samples used, with the two around the edges

    @property
    def counter_integral_difference(self) -> float | None:
        """The integral's deviation from the counter, as a fraction of the counter."""
        return None if self.integral is None else math.fsum(self.integral) / math.fsum(self.joules) - 1


class TotalEnergy(NamedTuple):
    """Energy in J, or the reason why there is none."""

    joules: float | None
    reason: str | None


class Consumed(NamedTuple):
    """What the devices of a task of a launch used, by its own meter and clock; `power` is that part of a result.

    Nothing, if another task of its host counts them (`elsewhere`).
    """

    host: str
    steps: int  # that its ranks timed
    power: Mapping[str, Any]
    window: TotalEnergy  # the timed one
    epochs: Sequence[TotalEnergy]
    simulated: bool
    elsewhere: bool
    decode: TotalEnergy = TotalEnergy(None, "its task did not report it")  # while texts were continued


def window_energy(metered: Metered, window: Window) -> WindowEnergy:
    """Return the energy of every device over the window. Raises EnergyError."""
    if isinstance(metered, Absence):
        raise EnergyError(NOTHING_METERED)
    within = _samples_of(metered, window)
    times = metered.times[within]
    integral = [integrated(times, watts[within], window) for watts in metered.watts]
    ranges = metered.facts.counter_ranges
    counted = [counted_up(times, joules[within], top, window) for joules, top in zip(metered.joules, ranges)]
    if any(joules <= 0 for joules in counted or integral):
        raise EnergyError("the meter showed no energy at all for one of its devices: it does not measure that one")
    if not counted:
        return WindowEnergy(integral, "integral", None, len(times))
    return WindowEnergy(counted, "counter", integral or None, len(times))


def total_energy(metered: Metered, window: Window) -> TotalEnergy:
    """Return the energy of all devices together over the window."""
    try:
        return TotalEnergy(math.fsum(window_energy(metered, window).joules), None)
    except EnergyError as error:
        return TotalEnergy(None, str(error))


def energy_of_parts(metered: Metered, windows: Sequence[Window]) -> TotalEnergy:
    """Return the energy of all devices together over several windows, each of which must be long enough by itself."""
    parts = [total_energy(metered, window) for window in windows]
    without = next((part for part in parts if part.joules is None), None)
    return without or TotalEnergy(math.fsum(part.joules or 0.0 for part in parts), None)


def mean_watts(recording: Recording) -> float | None:
    """Return the mean power in W of all devices together over a whole recording; None if that is not known."""
    times = recording.times
    if len(times) < 2:
        return None
    window = (times[0], times[-1])
    try:
        counters = zip(recording.joules, recording.facts.counter_ranges)
        each = [counted_up(times, joules, top, window) for joules, top in counters]
    except EnergyError:
        return None
    each = each or [integrated(times, watts, window) for watts in recording.watts]
    return math.fsum(each) / (times[-1] - times[0]) if each else None


def rest_needed(facts: MeterFacts, period: float) -> float:
    """Return the seconds of rest that idle power needs: a meter's first values average over a time before."""
    return (FEWEST_PERIODS + 2) * max(period, facts.update_period) + (facts.averaging or 0.0)


def _samples_of(recording: Recording, window: Window) -> slice:
    """Return the samples within the window and the two around it. Raises EnergyError if they do not cover it."""
    start, end = window
    period = max(recording.period, recording.facts.update_period)
    if end - start < FEWEST_PERIODS * period:
        raise EnergyError(f"the window of {end - start:.3g} s is shorter than {FEWEST_PERIODS} periods of {period:g} s")
    first, last = bisect_right(recording.times, start) - 1, bisect_left(recording.times, end)
    if first < 0 or last == len(recording.times):
        raise EnergyError(f"the samples do not reach from edge to edge of the window{_failures(recording)}")
    within = slice(first, last + 1)
    gap = max(after - before for before, after in _pairs(recording.times[within]))
    if gap > LONGEST_GAP * period:
        raise EnergyError(f"a gap of {gap:.3g} s, over {LONGEST_GAP} periods of {period:g} s{_failures(recording)}")
    return within


def _failures(recording: Recording) -> str:
    return f"; {recording.failures} readings failed, the last: {recording.last_failure}" if recording.failures else ""


def integrated(times: Sequence[float], watts: Sequence[float], window: Window) -> float:
    """Return the area of the trapezoids under the samples, cut off at the window's edges."""
    inside = [(at, value) for at, value in zip(times, watts) if window[0] < at < window[1]]
    start, end = ((edge, interpolated(times, watts, edge)) for edge in window)
    return math.fsum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in _pairs([start, *inside, end]))


def counted_up(times: Sequence[float], joules: Sequence[float], top: float | None, window: Window) -> float:
    """Return the gain of a counter in J, interpolated at the edges; at `top` (J) it starts again from zero."""
    gains = [gain(before, after, top) for before, after in _pairs(joules)]
    risen = list(accumulate(gains, initial=0.0))
    return interpolated(times, risen, window[1]) - interpolated(times, risen, window[0])


def gain(before: float, after: float, top: float | None) -> float:
    """Return by how much a counter rose between two readings. Raises EnergyError if it was reset."""
    if after >= before:
        return after - before
    if top is None:
        raise EnergyError("the energy counter went backwards: it was reset")
    return after - before + top


def interpolated(times: Sequence[float], values: Sequence[float], moment: float) -> float:
    """Return the value at a moment between the first time and the last, on the line between its neighbours."""
    after = max(1, bisect_left(times, moment))
    share = (moment - times[after - 1]) / (times[after] - times[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])


def _pairs(values: Sequence[V]) -> Iterator[tuple[V, V]]:
    return zip(values, values[1:])
