"""How many repeats a decision needs: the power of Student's test, exactly, by the noncentral distribution.

A clause fails if the upper end of its interval is below its limit. Where the true logarithm is d below that of the
limit, its statistic has Student's noncentral distribution with noncentrality d over the standard error (Cohen,
Statistical Power Analysis for the Behavioral Sciences, 1988, chapter 2; NIST/SEMATECH e-Handbook 7.2.2.2). Repeats are
of a session, which differ by more than they: that part stays however often a run is repeated, until there are sessions.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sifmark.results.comparison.intervals import standard_errors
from sifmark.results.comparison.sessions import Part, summed
from sifmark.results.marks import FEWEST_REPEATS

MOST_REPEATS = 1000
MOST_SESSIONS = 100
_STEPS = 400  # of Simpson's rule; the integrand is smooth, and a test compares with another program's values
_WIDTH = 9.0  # standard deviations on either side, beyond which nothing is left
_NORMAL = 1e4  # degrees of freedom from which Student's distribution is the normal one


def power_of(distance: float, error: float, freedom: float, confidence: float) -> float:
    """Return the probability that a true logarithm that is `distance` beyond a limit is shown to be beyond it.

    `error` is the standard error of the estimate; the interval is two-sided at `confidence`.
    """
    if error == 0:
        return 1.0 if distance > 0 else 0.0
    return noncentral_tail(distance / error, freedom, standard_errors(freedom, confidence))


def noncentral_tail(noncentrality: float, freedom: float, least: float) -> float:
    """Return the probability that Student's noncentral statistic is at least `least`.

    It is the mean of the normal tail over the distribution of the estimated standard deviation.
    """
    if freedom >= _NORMAL:
        return _normal(noncentrality - least)
    spread = 1 / math.sqrt(2 * freedom)  # about the standard deviation of an estimated standard deviation
    low, high = max(1e-9, 1 - _WIDTH * spread), 1 + _WIDTH * spread
    width = (high - low) / _STEPS
    total = 0.0
    for step in range(_STEPS + 1):
        s = low + step * width
        weight = 1 if step in (0, _STEPS) else 4 if step % 2 else 2
        total += weight * math.exp(_log_density(s, freedom)) * _normal(noncentrality - least * s)
    return min(1.0, total * width / 3)


def detectable(error: float, freedom: float, confidence: float, power: float) -> float:
    """Return the distance of logarithms that is shown with probability `power`, by bisection."""
    high = error or 1e-12
    while power_of(high, error, freedom, confidence) < power:
        high *= 2
    low = 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power_of(middle, error, freedom, confidence) >= power else (middle, high)
    return high


@dataclass(frozen=True)
class Design:
    """How often something is measured: runs in each session, and sessions. Variances are those of logarithms."""

    within: float  # variance of the repeats of a session
    between: float  # variance of the means of sessions that is assumed while there are too few to show it
    reference: Part  # of the mean of a baseline; without one 0
    repeats: int
    sessions: int = 1

    @property
    def error(self) -> tuple[float, float]:
        """The standard error of the mean, or of its ratio to a baseline, and its degrees of freedom."""
        count = self.repeats * self.sessions
        if self.sessions >= FEWEST_REPEATS:
            own = [Part((self.within / self.repeats + self.between) / self.sessions, self.sessions - 1)]
        else:
            own = [Part(self.within / count, count - self.sessions), Part(self.between / self.sessions)]
        return summed([*own, self.reference])

    def detects(self, distance: float, confidence: float, power: float) -> bool:
        """Return whether so large a distance of logarithms is shown with probability `power`."""
        return power_of(distance, *self.error, confidence) >= power

    def with_enough(self, distance: float, confidence: float, power: float) -> "Design | None":
        """Return the smallest design that detects a distance: repeats first, then sessions. None if there is none."""
        return next((each for each in self._larger() if each.detects(distance, confidence, power)), None)

    def _larger(self) -> Iterator["Design"]:
        """Yield designs with ever more repeats in one session, and then with ever more sessions of these repeats."""
        count = FEWEST_REPEATS
        while count <= MOST_REPEATS:
            yield replace(self, repeats=count, sessions=1)
            count += max(1, count // 20)
        yield from (replace(self, sessions=sessions) for sessions in range(FEWEST_REPEATS, MOST_SESSIONS + 1))


def _normal(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


def _log_density(s: float, freedom: float) -> float:
    """Return the logarithm of the density of an estimated standard deviation over the true one."""
    half = freedom / 2
    return math.log(2) + half * math.log(half) - math.lgamma(half) + (freedom - 1) * math.log(s) - half * s * s
