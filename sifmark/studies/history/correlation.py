"""Autocorrelation of the nights of a series at lag 1, and how it widens means.

Noise is taken as an autoregressive process of first order, in which numbers that are k apart have the correlation
rho^k.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median

FEWEST = 20  # numbers from which a correlation is estimated; with fewer it is taken as 0
LARGEST = 0.95  # correlation that is reckoned with
_CLIP = 5.0  # times the median: larger differences count as this, so that a change of level does not look like noise


def correlation_of_differences(values: Sequence[float]) -> float:
    """Return the correlation from the variances of differences at lags 1 and 2, whose ratio is 1 + rho.

    A change of level is in one and two of the differences only, and these are clipped. Compare Chakar, Lebarbier,
    Levy-Leduc and Robin, A robust approach for estimating change-points in the mean of an AR(1) process, 2017.
    """
    first, second = (_mean_square(values, lag) for lag in (1, 2))
    return _limited(second / first - 1) if first > 0 else 0.0


def correlation_of_residuals(values: Sequence[float], places: Sequence[int]) -> float:
    """Return the correlation of what is left if the mean of each part between some places is subtracted.

    Corrected for its bias: each mean that is subtracted lowers it by about (1 + rho) / n, and the quotient of two
    estimates by 2 rho / n.
    """
    count, parts = len(values), len(places) + 1
    residuals = [list(_centred(values[low:high])) for low, high in pairwise((0, *places, count))]
    square = sum(value * value for part in residuals for value in part)
    product = sum(one * next_one for part in residuals for one, next_one in pairwise(part))
    if square == 0 or count <= parts + 2:
        return 0.0
    plain = (product / (count - parts)) / (square / count)
    return _limited((plain + parts / count) / (1 - (parts + 2) / count))


def standard_error(count: int) -> float:
    """Return the standard error of `correlation_of_differences` of independent numbers."""
    return math.sqrt(2 / count)


def upper_bound(correlation: float, count: int) -> float:
    """Return what the correlation of some numbers may be, if this was estimated: two standard errors more."""
    return min(1.0, correlation + 2 * standard_error(count))


def widening(count: int, correlation: float) -> float:
    """Return the variance of the mean of successive numbers over that of as many independent ones."""
    rho = correlation
    return (1 + rho) / (1 - rho) - 2 * rho * (1 - rho**count) / (count * (1 - rho) ** 2)


def freedom(freedom_of_independent: float, correlation: float) -> float:
    """Return the degrees of freedom of a variance, less what correlation takes of them; at least 1."""
    return max(1.0, freedom_of_independent * (1 - correlation**2) / (1 + correlation**2))


def _mean_square(values: Sequence[float], lag: int) -> float:
    differences = [abs(after - before) for before, after in zip(values, values[lag:], strict=False)]
    most = _CLIP * median(differences)
    return fmean(min(difference, most) ** 2 for difference in differences)


def _centred(values: Sequence[float]) -> Iterator[float]:
    centre = fmean(values)
    return (value - centre for value in values)


def _limited(correlation: float) -> float:
    return min(LARGEST, max(0.0, correlation))
