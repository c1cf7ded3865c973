"""Outlier test over the nodes of a fleet.

The generalised extreme Studentized deviate test (Rosner, Technometrics 25, 1983; NIST/SEMATECH e-Handbook 1.3.5.17.3):
the most deviating member is taken out, again and again, up to a quarter of the fleet, and the last one beyond its
bound is the last outlier. So several slow nodes do not hide each other by widening the spread, and the chance that a
healthy fleet has any outlier is that of the level.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

from sifmark.results.comparison.student import t_critical, t_pvalue

FEWEST = 5  # members that say what is usual; with fewer, a bound at a useful level is out of reach
MOST_SHARE = 4  # at most one member in so many can be an outlier
# Below this size the bounds of the second and later outliers are too low: simulated healthy fleets of 8 had an outlier
# 1.6 times as often as the level says, of 10 and 15 1.4 times, of 25 and more as often.
SMALL_FLEET = 25
SMALL_FLEET_LEVEL = 0.6


@dataclass(frozen=True)
class Deviation:
    """A member that deviates from the others, in their scale, and how likely that is in a healthy fleet."""

    member: str
    tail: float  # probability that one given healthy member deviates as much; 0 if all others are equal


def deviating(values: Mapping[str, float], level: float) -> list[Deviation]:
    """Return the members that deviate, the most unlikely first. A healthy fleet has one with probability `level`.

    Raises ValueError for a fleet of fewer than FEWEST members.
    """
    if len(values) < FEWEST:
        raise ValueError(f"{len(values)} members where {FEWEST} are needed")
    level = _adjusted(level, len(values))
    others = dict(values)
    removed: list[str] = []
    beyond = 0
    for number in range(1, max(1, len(values) // MOST_SHARE) + 1):
        centre, spread = fmean(others.values()), stdev(others.values())
        if spread == 0:
            break
        farthest = max(others, key=lambda name: abs(others[name] - centre))
        deviation = abs(others.pop(farthest) - centre) / spread
        removed.append(farthest)
        if deviation > _bound(len(others) + 1, level):
            beyond = number
    usual = [value for name, value in values.items() if name not in removed[:beyond]]
    outliers = [Deviation(name, tail_of(values[name], usual)) for name in removed[:beyond]]
    return sorted(outliers, key=lambda outlier: outlier.tail)


def tail_of(value: float, sample: list[float]) -> float:
    """Return the probability that another value of a sample's distribution is at least as far from its mean."""
    centre, spread = fmean(sample), stdev(sample)
    if spread == 0:
        return 0.0 if value != centre else 1.0
    distance = abs(value - centre) / (spread * math.sqrt(1 + 1 / len(sample)))
    return t_pvalue(distance, len(sample) - 1)


def distance_of(count: int, level: float) -> float:
    """Return how far from its fleet the first outlier must be, in standard deviations of the others."""
    return t_critical(_adjusted(level, count) / count, count - 2)


def _adjusted(level: float, count: int) -> float:
    return level * (SMALL_FLEET_LEVEL if count < SMALL_FLEET else 1)


def _bound(count: int, level: float) -> float:
    """Return the largest deviation, in standard deviations, among `count` members of a healthy fleet."""
    t = t_critical(level / count, count - 2)
    return (count - 1) * t / math.sqrt((count - 2 + t * t) * count)
