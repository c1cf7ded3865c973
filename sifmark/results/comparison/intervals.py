"""Means and ratios over repeats, with confidence intervals, or the reason why there is none.

A repeat is a run in a separate process. A mean is geometric where all values are positive, so that it agrees with
ratios, which are of geometric means, and its interval stays positive. Intervals are Student's and Welch's, which are
valid for a few repeats with unequal spread, where a bootstrap of three values would claim more than it can support. A
ratio is computed from logarithms: its interval is that of the difference of their means, so that a/b and b/a lead to
the same conclusion.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from sifmark.results.comparison import student
from sifmark.results.marks import FEWEST_REPEATS

CONFIDENCE = 0.95
_LARGEST_LOG = 700.0  # the natural logarithm of about the largest floating-point number


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over repeats; the interval contains the true mean with probability `CONFIDENCE`."""

    count: int
    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None  # why something above is missing
    geometric: bool = True  # or arithmetic, where a value is not positive


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of geometric means over repeats, with its interval."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    @property
    def verdict(self) -> str:
        """How the ratio compares with 1, according to its interval."""
        if self.low is None or self.high is None:
            return "cannot tell"
        if self.low <= 1 <= self.high:
            return "no difference shown"
        return "more" if self.low > 1 else "less"

    def over(self, factor: float) -> "Ratio":
        """Return the ratio and its interval divided by a factor."""
        low, value, high = (None if x is None else x / factor for x in (self.low, self.value, self.high))
        return Ratio(value, low, high, self.reason)


def mean(values: Sequence[float], missing_reason: str | None = None) -> Mean:
    """Return the mean of what the repeats measured; `missing_reason` is why some measured nothing.

    It is geometric, with Student's interval of the logarithms, unless a value is not positive.
    """
    count = len(values)
    if not count:
        return Mean(0, None, reason=missing_reason or "not measured")
    geometric = min(values) > 0
    numbers = list(map(math.log, values)) if geometric else values
    scale = _exponential if geometric else float
    centre = fmean(numbers)
    value = values[0] if min(values) == max(values) else scale(centre)  # equal ones exactly, without rounding
    if count < FEWEST_REPEATS:
        return Mean(count, value, reason=_too_few(count), geometric=geometric)
    half = standard_errors(count - 1) * math.sqrt(variance(numbers) / count)
    return Mean(count, value, scale(centre - half), scale(centre + half), geometric=geometric)


def ratio(values: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Return the ratio of what the repeats measured to what the repeats of the reference did."""
    if not values or not reference:
        return Ratio(None, reason="a value is missing")
    if min(*values, *reference) <= 0:
        return Ratio(None, reason="only positive values have a ratio")
    above, below = [math.log(x) for x in values], [math.log(x) for x in reference]
    centre = fmean(above) - fmean(below)
    if min(len(above), len(below)) < FEWEST_REPEATS:
        return Ratio(math.exp(centre), reason=_too_few(len(above), len(below)))
    half = _half_width(above, below)
    return Ratio(math.exp(centre), math.exp(centre - half), _exponential(centre + half))


def welch(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Return the standard error of the difference of two means, and its degrees of freedom; 1 of them without any."""
    parts = [(variance(values) / len(values), len(values) - 1) for values in (above, below)]
    total = sum(part for part, _ in parts)
    if total == 0:
        return 0.0, 1.0
    # Divided first: squares of tiny variances would vanish.
    return math.sqrt(total), 1 / sum((part / total) ** 2 / count for part, count in parts)


def standard_errors(freedom: float) -> float:
    """Return half the width of an interval in standard errors. Degrees of freedom are rounded down, which widens it."""
    return student.t_critical(1 - CONFIDENCE, max(1.0, math.floor(freedom * 10) / 10))


def _half_width(above: Sequence[float], below: Sequence[float]) -> float:
    """Return half the interval of the difference of two means."""
    error, freedom = welch(above, below)
    return standard_errors(freedom) * error


def _exponential(logarithm: float) -> float:
    return math.exp(min(logarithm, _LARGEST_LOG))


def variance(values: Sequence[float]) -> float:
    """Return the variance of a sample. The library's function is exact, and fifty times slower."""
    centre = fmean(values)
    return math.fsum((x - centre) ** 2 for x in values) / (len(values) - 1)


def _too_few(*counts: int) -> str:
    return f"{' and '.join(map(str, counts))} repeats where {FEWEST_REPEATS} are needed"
