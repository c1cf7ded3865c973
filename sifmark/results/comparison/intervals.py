"""Means and ratios over repeats, with confidence intervals, or the reason why there is none.

A repeat is a run in a separate process. A mean is geometric where all values are positive, so that it agrees with
ratios, which are of geometric means, and its interval stays positive. Intervals are Student's and Welch's, which are
valid for a few repeats with unequal spread, where a bootstrap of three values would claim more than it can support. A
ratio is computed from logarithms: its interval is that of the difference of their means, so that a/b and b/a lead to
the same conclusion.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from sifmark.results.comparison import student
from sifmark.results.marks import FEWEST_REPEATS

CONFIDENCE = 0.95
CANNOT_TELL = "cannot tell"
_NORMAL = 1e4  # degrees of freedom from which Student's distribution is the normal one, to five digits
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
    sessions: int = 1


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of geometric means over repeats, with its interval, and what a verdict rests on."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None
    scope: str = ""  # what the interval is about, if that is less than the verdict needs
    withheld: str = ""  # what keeps a verdict from being made: `busy host`
    error: float | None = None  # standard error of the logarithm for a verdict; None: that of the interval
    freedom: float = math.inf  # its degrees of freedom

    @property
    def verdict(self) -> str:
        """How the ratio compares with 1: `more`, `less`, `no difference shown`, or `cannot tell`."""
        bounds = self.bounds()
        if bounds is None or self.withheld:
            return CANNOT_TELL
        low, high = bounds
        if low <= 1 <= high:
            return CANNOT_TELL if self.doubt else "no difference shown"
        return "more" if low > 1 else "less"

    @property
    def doubt(self) -> str:
        """Why no verdict follows from an interval that lies on one side of 1; empty if one does."""
        bounds = self.bounds()
        if self.withheld or bounds is None or self.low is None or self.high is None:
            return self.withheld
        shown, decided = (not low <= 1 <= high for low, high in ((self.low, self.high), bounds))
        return self.scope if shown and not decided else ""

    def bounds(self, confidence: float | None = None) -> tuple[float, float] | None:
        """Return the interval that a verdict rests on, at a level of confidence; None without one."""
        if self.value is None or self.low is None or self.high is None:
            return None
        if self.error is None:
            return self.low, self.high
        half = standard_errors(self.freedom, confidence or CONFIDENCE) * self.error
        centre = math.log(self.value)
        return math.exp(centre - half), _exponential(centre + half)

    def over(self, factor: float) -> "Ratio":
        """Return the ratio and its interval divided by a factor."""
        low, value, high = (None if x is None else x / factor for x in (self.low, self.value, self.high))
        return replace(self, value=value, low=low, high=high)


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
    return log_ratio(centre, *welch(above, below))


def log_ratio(centre: float, error: float, freedom: float) -> Ratio:
    """Return the ratio whose logarithm is `centre`, with this standard error and its degrees of freedom."""
    half = standard_errors(freedom) * error
    return Ratio(math.exp(centre), math.exp(centre - half), _exponential(centre + half), error=error, freedom=freedom)


def welch(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Return the standard error of the difference of two means, and its degrees of freedom; 1 of them without any."""
    parts = [(variance(values) / len(values), len(values) - 1) for values in (above, below)]
    total = sum(part for part, _ in parts)
    if total == 0:
        return 0.0, 1.0
    # Divided first: squares of tiny variances would vanish.
    return math.sqrt(total), 1 / sum((part / total) ** 2 / count for part, count in parts)


def standard_errors(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return half the width of an interval in standard errors. Degrees of freedom are rounded down, which widens it."""
    rounded = math.floor(min(freedom, _NORMAL) * 10) / 10
    return student.t_critical(1 - confidence, max(1.0, rounded))


def _exponential(logarithm: float) -> float:
    return math.exp(min(logarithm, _LARGEST_LOG))


def variance(values: Sequence[float]) -> float:
    """Return the variance of a sample. The library's function is exact, and fifty times slower."""
    centre = fmean(values)
    return math.fsum((x - centre) ** 2 for x in values) / (len(values) - 1)


def _too_few(*counts: int) -> str:
    return f"{' and '.join(map(str, counts))} repeats where {FEWEST_REPEATS} are needed"
