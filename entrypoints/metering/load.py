"""What the states of a device amount to over a window: its clocks under load, what limited them, traffic on the bus."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from statistics import median
from typing import Iterator, Mapping, NamedTuple, Sequence

from entrypoints.metering.energy import Window, interpolated
from entrypoints.metering.states import (
    CLOCK,
    LIMITED,
    LIMITING,
    MEMORY_CLOCK,
    RECEIVED,
    SENT,
    Quantity,
    StateRecording,
)

COUNTER, SAMPLES = "counter", "samples"
# A counter that rises faster than time is not in the unit of its documentation: samples count then. Drivers advance
# these counters in steps of 0.1 s.
FASTEST, STEP = 1.05, 0.2


class Range(NamedTuple):
    """The smallest value and the median of samples."""

    least: float
    median: float


class Limited(NamedTuple):
    """For how long something limited the clocks in a window, and how that was determined: by counter or samples."""

    name: str
    seconds: float
    method: str


class WindowStates(NamedTuple):
    """What the states of a device amount to over a window; None for what it does not report."""

    samples: int
    clock: Range | None  # MHz
    memory_clock: Range | None
    limits: Sequence[Limited] | None  # those that limited the clocks
    received: float | None  # bytes
    sent: float | None


def window_states(recording: StateRecording, device: int, window: Window) -> WindowStates:
    """Return what the states of a device amount to over a window of at least one sample."""
    columns, times = recording.devices[device], recording.times
    inside = slice(bisect_left(times, window[0]), bisect_right(times, window[1]))
    return WindowStates(
        samples=len(times[inside]),
        clock=_range(columns.get(CLOCK, ())[inside]),
        memory_clock=_range(columns.get(MEMORY_CLOCK, ())[inside]),
        limits=_limits(recording, device, window, inside),
        received=risen(recording, device, RECEIVED, window),
        sent=risen(recording, device, SENT, window),
    )


def risen(recording: StateRecording, device: int, quantity: Quantity, window: Window) -> float | None:
    """Return by how much a counter rose over a window; None if it was not read there, or was reset."""
    readings = [
        (at, value)
        for at, value in zip(recording.times, recording.devices[device].get(quantity, ()))
        if not math.isnan(value)
    ]
    times, values = [at for at, _ in readings], [value for _, value in readings]
    if len(times) < 2 or not times[0] <= window[0] <= window[1] <= times[-1]:
        return None
    first, last = bisect_right(times, window[0]) - 1, bisect_left(times, window[1])
    if any(after < before for before, after in zip(values[first:last], values[first + 1 : last + 1])):
        return None
    return interpolated(times, values, window[1]) - interpolated(times, values, window[0])


def _range(values: Sequence[float]) -> Range | None:
    read = [value for value in values if not math.isnan(value)]
    return Range(min(read), median(read)) if read else None


def _limits(recording: StateRecording, device: int, window: Window, inside: slice) -> Sequence[Limited] | None:
    """Return what limited the clocks, the longest first; None if the device does not report it."""
    columns, length = recording.devices[device], window[1] - window[0]
    limited: dict[str, Limited] = {}
    for name, active in _named(columns, LIMITING):
        read = [value for value in active[inside] if not math.isnan(value)]
        if read:
            limited[name] = Limited(name, length * math.fsum(read) / len(read), SAMPLES)
    for name, _ in _named(columns, LIMITED):
        seconds = risen(recording, device, (LIMITED, name), window)
        if seconds is not None and seconds <= FASTEST * length + STEP:
            limited[name] = Limited(name, min(seconds, length), COUNTER)
    if not limited:
        return None
    return sorted((each for each in limited.values() if each.seconds > 0), key=lambda each: -each.seconds)


def _named(columns: Mapping[Quantity, Sequence[float]], kind: str) -> Iterator[tuple[str, Sequence[float]]]:
    return ((name, values) for (of, name), values in columns.items() if of == kind)
