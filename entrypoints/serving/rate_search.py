"""The search for goodput: the largest rate of arrivals at which an engine keeps its limits."""

from __future__ import annotations

import math
import random

WIDTH = 0.05  # of the bracket, relative to its lower end
MOST_TRIALS = 24
PASSES = 2  # of a rate, with different arrivals, before it is taken


def first_rate(asked: float) -> float:
    """Return where to begin, at most WIDTH above what was asked for, at random.

    All that a search tries follows from where it begins: repeats would otherwise end at the same few rates, and their
    spread would say nothing of the steps between these.
    """
    return asked * (1 + WIDTH) ** random.SystemRandom().random()


def enough(rate: float, limit: float, least: int) -> int:
    """Return how many requests prove a rate (requests/s), of which `least` prove the percentile.

    At a rate that is too high by WIDTH, the last of them have to wait for as long as the limit of the first token (s):
    in a shorter load no request could exceed it, whatever the engine serves.
    """
    return max(least, math.ceil(rate * limit / WIDTH))


class RateSearch:
    """Bisection on a logarithmic scale, from a first rate in requests/s: it says what to try, and is told how it went.

    The rate that it ends with has passed PASSES trials, and one at most WIDTH higher has failed. A rate that passes and
    then fails has failed.
    """

    def __init__(self, first: float) -> None:
        self.first, self.trials = first, 0
        self.passes: dict[float, int] = {}
        self.failed = math.inf  # the smallest rate that failed

    @property
    def passed(self) -> float:
        """The largest rate below all that failed that has passed; 0 without one."""
        return max((rate for rate in self.passes if rate < self.failed), default=0.0)

    def next(self) -> float | None:
        """Return the rate to try next; None when the search is over."""
        low, high = self.passed, self.failed
        if self.trials >= MOST_TRIALS:
            return None
        if not low:
            return self.first if math.isinf(high) else high / 2
        if math.isinf(high):
            return 2 * low
        if high / low > 1 + WIDTH:
            return math.sqrt(low * high)
        return low if self.passes[low] < PASSES else None

    def due(self) -> float | None:
        """Return the rate to try next, or the one that was found, which the timed window has to confirm; None if the
        search is over and has none."""
        return self.next() or self.found

    def tell(self, rate: float, passed: bool) -> None:
        """Take note of a trial."""
        self.trials += 1
        if passed:
            self.passes[rate] = self.passes.get(rate, 0) + 1
        else:
            self.failed = min(self.failed, rate)

    @property
    def found(self) -> float | None:
        """The rate that was found; None if there is none, or the search was cut short."""
        low = self.passed
        sure = low and self.passes[low] >= PASSES and self.failed / low <= 1 + WIDTH
        return low if sure else None
