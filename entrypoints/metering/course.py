"""The course of power over a run: mean power over equal intervals, so that its sum over the timed window is its energy.

Samples themselves would be too many for a result, and a few of them would not add up to the energy.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from typing import Iterator, NamedTuple, Sequence

from entrypoints.metering.energy import LONGEST_GAP, Window, gain, interpolated
from entrypoints.metering.sampling import Recording

MOST_POINTS = 500  # of a course; a result is to stay small


class Course(NamedTuple):
    """Mean power of all devices together over equal intervals, a whole number of which fills the window."""

    begin: float  # s from the begin of the window to that of the first interval; negative if that is earlier
    interval: float  # s
    watts: Sequence[float | None]  # None where readings are missing
    rest_until: float | None  # s from the begin of the window to the end of the rest before the run, if there was one


def course(recording: Recording, window: Window) -> Course:
    """Return the course of power over a recording that covers the window. Raises EnergyError if a counter was reset."""
    begin = window[0]
    interval, first, last = _intervals(recording, window)
    edges = [begin + interval * number for number in range(first, last)]
    edges = [min(max(edge, recording.times[0]), recording.times[-1]) for edge in (*edges, begin + interval * last)]
    risen = [math.fsum(by_device) for by_device in zip(*_energy_until(recording, edges))]
    gaps = list(_gaps(recording))
    watts = [
        None if any(gap[0] < after and before < gap[1] for gap in gaps) else (more - less) / interval
        for before, after, less, more in zip(edges, edges[1:], risen, risen[1:])
    ]
    rest_until = None if recording.idle_until is None else recording.idle_until - begin
    return Course(interval * first, interval, watts, rest_until)


def _intervals(recording: Recording, window: Window) -> tuple[float, int, int]:
    """Return the length of the intervals, and the numbers of the first and after the last; 0 begins with the window."""
    begin, end = window
    since, until = recording.times[0], recording.times[-1]
    shortest = max(recording.period, recording.facts.update_period, (until - since) / MOST_POINTS)
    within = max(1, int((end - begin) / shortest))
    interval = (end - begin) / within
    # A run of more than 500 windows has more intervals than that: those around the window stay.
    first = max(min(0, math.ceil((since - begin) / interval)), within - MOST_POINTS)
    last = min(max(within, math.floor((until - begin) / interval)), first + MOST_POINTS)
    return interval, first, last


def _energy_until(recording: Recording, edges: Sequence[float]) -> Iterator[Sequence[float]]:
    """Yield the energy in J from the first sample until each edge, by device: counted if there is a counter."""
    times = recording.times
    for joules, top in zip(recording.joules, recording.facts.counter_ranges):
        counted = list(accumulate((gain(*pair, top) for pair in zip(joules, joules[1:])), initial=0.0))
        yield [interpolated(times, counted, edge) for edge in edges]
    for watts in recording.watts if not recording.joules else ():
        pairs = zip(times, times[1:], watts, watts[1:])
        risen = list(accumulate(((after - at) * (less + more) / 2 for at, after, less, more in pairs), initial=0.0))
        yield [_integral_until(edge, times, watts, risen) for edge in edges]


def _integral_until(edge: float, times: Sequence[float], watts: Sequence[float], risen: Sequence[float]) -> float:
    before = min(bisect_right(times, edge), len(times) - 1) - 1
    return risen[before] + (edge - times[before]) * (watts[before] + interpolated(times, watts, edge)) / 2


def _gaps(recording: Recording) -> Iterator[Window]:
    longest = LONGEST_GAP * max(recording.period, recording.facts.update_period)
    times = recording.times
    return ((before, after) for before, after in zip(times, times[1:]) if after - before > longest)
