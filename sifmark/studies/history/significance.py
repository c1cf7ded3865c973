"""Whether two sets of numbers differ: Student's tests, and Benjamini and Hochberg's limit for many tests at once."""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from sifmark.results.comparison.intervals import Ratio, standard_errors, variance, welch
from sifmark.results.comparison.student import two_sided_tail

ENOUGH_FOR_WELCH = 5  # numbers on each side
FEWEST_TOGETHER = 4  # numbers on both sides together that a test needs


def difference_p(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the two-sided p-value of the difference of two means; 1 if there are too few numbers to tell.

    It is Student's with a common spread, and with enough numbers on each side Welch's if that is larger: a different
    spread does not mislead Welch's, but it cannot tell much from three or four numbers.
    """
    if min(len(before), len(after)) < 1 or len(before) + len(after) < FEWEST_TOGETHER:
        return 1.0
    difference = fmean(after) - fmean(before)
    return max(_two_sided(difference, error, freedom) for error, freedom in _tests(before, after))


def change_of(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Return the ratio of two sets of numbers that are given as logarithms; its interval is that of the wider test."""
    difference = fmean(after) - fmean(before)
    if len(before) + len(after) < FEWEST_TOGETHER:
        return Ratio(
            math.exp(difference), reason=f"{len(before) + len(after)} numbers where {FEWEST_TOGETHER} are needed"
        )
    half = max(error * standard_errors(freedom) for error, freedom in _tests(before, after))
    return Ratio(math.exp(difference), math.exp(difference - half), math.exp(difference + half))


def discoveries(probabilities: Sequence[float], rate: float) -> list[bool]:
    """Return which of several tests are significant if at most this part of those may be false.

    Benjamini and Hochberg, Controlling the false discovery rate, 1995.
    """
    count = len(probabilities)
    ordered = sorted(probabilities)
    limits = [p for rank, p in enumerate(ordered, start=1) if p <= rate * rank / count]
    limit = max(limits, default=-1.0)
    return [p <= limit for p in probabilities]


def _tests(before: Sequence[float], after: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the standard error of the difference of means and its degrees of freedom, by each test in question."""
    yield _student(before, after)
    if min(len(before), len(after)) >= ENOUGH_FOR_WELCH:
        yield welch(before, after)


def _student(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Return the standard error of a difference of means with a common variance, and its degrees of freedom."""
    sides = [side for side in (before, after) if len(side) > 1]
    freedom = len(before) + len(after) - 2
    common = sum(variance(side) * (len(side) - 1) for side in sides) / freedom
    return math.sqrt(common * (1 / len(before) + 1 / len(after))), float(freedom)


def _two_sided(difference: float, error: float, freedom: float) -> float:
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return two_sided_tail(difference / error, freedom)
