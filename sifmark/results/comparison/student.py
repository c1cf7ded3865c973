"""Student's distribution at any level: tails and quantiles, without a library of statistics.

The tail is the regularised incomplete beta function by its continued fraction (Press et al., Numerical Recipes, 6.4),
which a test compares with printed tables.
"""

import math
from functools import cache

_MOST_TERMS = 300
_SMALL = 1e-300  # in place of a denominator of 0
_PRECISION = 1e-14


def t_pvalue(t: float, df: float) -> float:
    """Return the two-sided p-value of a t statistic with `df` degrees of freedom."""
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t))


def f_pvalue(ratio: float, df: float, df_below: float) -> float:
    """Return the probability that a ratio of two variances with these degrees of freedom is at least as large."""
    return _incomplete_beta(df_below / 2, df / 2, df_below / (df_below + df * ratio))


@cache
def t_critical(alpha: float, df: float) -> float:
    """Return the critical value of a two-sided t test at level `alpha`, by Newton's method.

    The tail is convex in t, so that steps from below never pass the root.
    """
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    t, step = 0.0, math.inf
    while step > t * 1e-12:
        density = 2 * scale * (1 + t * t / df) ** (-(df + 1) / 2)
        step = (t_pvalue(t, df) - alpha) / density
        t += step
    return t


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    front = math.exp(logarithm)
    if x < (a + 1) / (a + b + 2):  # where the fraction converges fast
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction by Lentz's method."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _SMALL else _SMALL
