"""How heavy the tails of a fleet's measures are, by the fleet's own values, and what that means for its outliers.

A fleet of some ten nodes hardly shows whether rare nodes are far off, but its measures together may. Each measure is
fitted with Student's distribution at several degrees of freedom (Lange, Little and Taylor, Robust statistical modeling
using the t distribution, 1989); values that deviate count as being somewhere beyond the others, so that a slow node
does not make the tail look heavy. How likely a measure is to have each of the tails follows from its own fit and from
what the other measures have (empirical Bayes: Efron, Large-scale inference, 2010). Normal noise is presumed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from sifmark.results.comparison.student import t_pvalue
from sifmark.studies.analysis.fleet import Deviation, distance_of

DEGREES = (3.0, 4.0, 5.0, 7.0, 10.0, 20.0, math.inf)  # of freedom; infinity is normal
NORMAL = 0.9  # presumed probability of normal tails; the others share the rest
WEIGHT = 1.0  # of what is presumed, in measures
MAD = 1.4826  # normal standard deviations in a median absolute deviation
SCALES = tuple(0.5 * 1.1**step for step in range(18))  # that are fitted, in MAD
ROUNDS = 50
PRESUMED = tuple((1 - NORMAL) / (len(DEGREES) - 1) if math.isfinite(each) else NORMAL for each in DEGREES)


@dataclass(frozen=True)
class Fleet:
    """What the nodes of a fleet have of one measure, and the nodes that deviate if its noise is normal."""

    values: Mapping[str, float]
    deviations: Sequence[Deviation]


@dataclass(frozen=True)
class Judged:
    """The outliers of a measure; `rate` is the chance of any in a healthy fleet, judged by its own tails."""

    outliers: tuple[Deviation, ...]
    rate: float
    heavy: bool


@dataclass(frozen=True)
class _Fit:
    """A measure at each of DEGREES: the logarithm of the likelihood, and the scale that makes it largest."""

    count: int
    centre: float
    likelihoods: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...] = PRESUMED  # of each tail

    @property
    def heavy(self) -> bool:
        return self.weights[-1] < 1 / 2

    def tail(self, distance: float) -> float:
        """Return the probability that a healthy node is as far from the centre; of heavy tails without the normal."""
        chosen = [(w, df, s) for w, df, s in zip(self.weights, DEGREES, self.scales, strict=True)]
        chosen = chosen[:-1] if self.heavy else chosen[-1:]
        return sum(w * _tail(distance / s, df) for w, df, s in chosen) / sum(w for w, _, _ in chosen)

    def rate(self, level: float) -> float:
        """Return the chance that any node of a healthy fleet is an outlier, over all tails."""
        limit = self._limit(level) if self.heavy else distance_of(self.count, level) * self.scales[-1]
        chances = [1 - (1 - _tail(limit / s, df)) ** self.count for df, s in zip(DEGREES, self.scales, strict=True)]
        if not self.heavy:
            chances[-1] = level
        return sum(weight * chance for weight, chance in zip(self.weights, chances, strict=True))

    def _limit(self, level: float) -> float:
        low, high = 0.0, 1e6 * max(self.scales)
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self.tail(middle) * self.count > level else (low, middle)
        return high


def judge(fleets: Sequence[Fleet], level: float) -> list[Judged]:
    """Return the outliers of each measure, each at the level; those of heavy tails must be farther off."""
    fits = [_fit(fleet) for fleet in fleets]
    weighed = iter(_weigh([fit for fit in fits if fit is not None]))
    return [_judge(fleet, next(weighed) if fit else None, level) for fleet, fit in zip(fleets, fits, strict=True)]


def _judge(fleet: Fleet, fit: _Fit | None, level: float) -> Judged:
    if fit is None:
        return Judged(tuple(fleet.deviations), level, heavy=False)
    if not fit.heavy:
        return Judged(tuple(fleet.deviations), fit.rate(level), heavy=False)
    tails = [Deviation(each.member, fit.tail(abs(fleet.values[each.member] - fit.centre))) for each in fleet.deviations]
    outliers = [each for each in tails if each.tail * fit.count < level]
    return Judged(tuple(sorted(outliers, key=lambda each: each.tail)), fit.rate(level), heavy=True)


def _fit(fleet: Fleet) -> _Fit | None:
    """Return the fit of a measure; None if more than half of the nodes have one value."""
    centre = median(fleet.values.values())
    distances = sorted(abs(value - centre) for value in fleet.values.values())
    unit = MAD * median(distances)
    beyond = max(1, len(fleet.deviations))
    inner = [(distance / unit) ** 2 for distance in distances[:-beyond]] if unit > 0 else []
    if not inner or inner[-1] == 0:
        return None
    fits = [_best(inner, beyond, degrees) for degrees in DEGREES]
    return _Fit(len(distances), centre, tuple(fit for fit, _ in fits), tuple(scale * unit for _, scale in fits))


def _best(squares: Sequence[float], beyond: int, degrees: float) -> tuple[float, float]:
    """Return the largest logarithm of the likelihood, and its scale; some values are beyond the last."""

    def at(scale: float) -> float:
        factor = 1 / scale**2
        if math.isinf(degrees):
            density = -0.5 * math.log(2 * math.pi) * len(squares) - 0.5 * factor * math.fsum(squares)
        else:
            half = (degrees + 1) / 2
            constant = math.lgamma(half) - math.lgamma(degrees / 2) - 0.5 * math.log(degrees * math.pi)
            spread = sum(math.log1p(square * factor / degrees) for square in squares)
            density = constant * len(squares) - half * spread
        outside = math.log(max(_tail(math.sqrt(squares[-1] * factor), degrees), 1e-300))
        return density - len(squares) * math.log(scale) + beyond * outside

    return max((at(scale), scale) for scale in SCALES)


def _weigh(fits: Sequence[_Fit]) -> list[_Fit]:
    """Return fits with how likely each of the tails is: by its own values, and by the weights of the others."""
    likelihoods = [[math.exp(value - max(fit.likelihoods)) for value in fit.likelihoods] for fit in fits]
    weights = [_normalised(likelihood, PRESUMED) for likelihood in likelihoods]
    for _ in range(ROUNDS if len(fits) > 1 else 0):
        sums = [sum(column) for column in zip(*weights, strict=True)]
        weights = [
            _normalised(
                likelihood,
                [WEIGHT * p + total - w for p, total, w in zip(PRESUMED, sums, own, strict=True)],
            )
            for likelihood, own in zip(likelihoods, weights, strict=True)
        ]
    return [_Fit(f.count, f.centre, f.likelihoods, f.scales, w) for f, w in zip(fits, weights, strict=True)]


def _normalised(likelihoods: Sequence[float], prior: Sequence[float]) -> tuple[float, ...]:
    products = [likelihood * weight for likelihood, weight in zip(likelihoods, prior, strict=True)]
    return tuple(product / sum(products) for product in products)


def _tail(distance: float, degrees: float) -> float:
    """Return the probability of a distance as large, of either sign."""
    return math.erfc(distance / math.sqrt(2)) if math.isinf(degrees) else t_pvalue(distance, degrees)
