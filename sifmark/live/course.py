"""The course of a run: what it reported so far, in as much memory for a day as for a minute."""

import time
from collections.abc import Callable

from sifmark.engines.progress import RunProgress
from sifmark.live.graphs import mean, resample

MOST_POINTS = 512  # of a series; more than terminals have columns


class Readings:
    """Values in equal intervals from the first to the last: when there are too many, each two become their mean."""

    def __init__(self) -> None:
        self.values: list[float | None] = []
        self._size = 1  # of values that become one
        self._last: list[float | None] = []

    def append(self, value: float | None) -> None:
        """Add the next value, which may be unknown."""
        self._last.append(value)
        if len(self._last) == self._size:
            self.values.append(mean(self._last))
            self._last.clear()
        if len(self.values) == MOST_POINTS:
            self.values = resample(self.values, MOST_POINTS // 2)
            self._size *= 2


class Course:
    """The runs of one image as they report: that which is in progress now, and its series."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.latest: RunProgress | None = None
        self._clock = clock
        self._reset()

    def add(self, progress: RunProgress) -> None:
        """Add what the run reports. Another run begins a new course."""
        if self.latest is None or progress.started != self.latest.started:
            self._reset()
        self.latest, self._reported_at = progress, self._clock()
        self.throughput.append(progress.rate)
        self.loss.append(progress.loss)
        self.power.append(progress.power_watts)
        self.memory.append(progress.memory_mib)

    def seconds_left(self) -> float | None:
        """Return the seconds until the end by now; None if they are not known."""
        if self.latest is None or self.latest.seconds_left is None:
            return None
        return max(0.0, self.latest.seconds_left - (self._clock() - self._reported_at))

    def _reset(self) -> None:
        self.throughput, self.loss, self.power, self.memory = Readings(), Readings(), Readings(), Readings()
        self._reported_at = 0.0
