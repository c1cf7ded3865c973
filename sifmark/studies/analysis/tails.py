"""How heavy the tails of a fleet's measures are, by the fleet's own values, and what that means for its outliers.

A fleet of some ten nodes hardly shows whether rare nodes are far off, but its measures together may. Each measure is
fitted with Student's distribution at several degrees of freedom (Lange, Little and Taylor, Robust statistical modeling
using the t distribution, 1989); values that deviate count as being somewhere beyond the others, so that a slow node
does not make the tail look heavy. How likely a measure is to have each of the tails follows from its own fit and from
what the other measures have (empirical Bayes: Efron, Large-scale inference, 2010). Normal noise is presumed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from sifmark.results.comparison.student import t_pvalue
from sifmark.studies.analysis.fleet import Deviation, distance_of

DEGREES = (3.0, 4.0, 5.0, 7.0, 10.0, 20.0, math.inf)  # of freedom; infinity is normal
NORMAL = 0.5  # presumed probability of normal tails; the others share the rest
WEIGHT = 1.0  # of what is presumed, in measures
MAD = 1.4826  # normal standard deviations in a median absolute deviation
SCALES = tuple(0.4 * 1.12**step for step in range(24))  # that are fitted, in MAD: 0.4 to 5.4
ROUNDS = 50
PRESUMED = tuple((1 - NORMAL) / (len(DEGREES) - 1) if math.isfinite(each) else NORMAL for each in DEGREES)


@dataclass(frozen=True)
class Fleet:
    """What the runs of the nodes of a fleet have of one measure, and the nodes that deviate if noise is normal."""

    values: Mapping[str, float]  # of a node: the mean of its runs
    runs: Mapping[str, Sequence[float]]
    deviations: Sequence[Deviation]


@dataclass(frozen=True)
class Judged:
    """The outliers of a measure, and its suspects: nodes that deviate if noise is normal, and perhaps if it is not.

    `suspect_rate` is the chance of either in a healthy fleet with tails as its own may be.
    """

    outliers: tuple[Deviation, ...]
    suspects: tuple[Deviation, ...]
    suspect_rate: float


@dataclass(frozen=True)
class _Fit:
    """Values of a measure at each of DEGREES: the logarithm of the likelihood, and how likely each of SCALES is."""

    centre: float
    unit: float  # of the scales
    likelihoods: tuple[float, ...]
    scales: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...] = PRESUMED  # of each tail

    def tails(self, distance: float, count: int = 1) -> Iterator[float]:
        """Yield by tail the probability that so many runs of a healthy node are as far from the centre on one side."""
        for degrees, probabilities in zip(DEGREES, self.scales, strict=True):
            of_runs = (2 * (_tail(distance / (self.unit * scale), degrees) / 2) ** count for scale in SCALES)
            yield sum(probability * each for probability, each in zip(probabilities, of_runs, strict=True))

    def mean(self, probabilities: Sequence[float]) -> float:
        """Return the mean of probabilities, by how likely each of the tails is."""
        return sum(weight * each for weight, each in zip(self.weights, probabilities, strict=True))


@dataclass(frozen=True)
class _Candidate:
    """A node that deviates if noise is normal, and by tail how likely a healthy node deviates as much."""

    node: str
    tails: tuple[float, ...]


def judge(fleets: Sequence[Fleet], level: float) -> list[Judged]:
    """Return the outliers and suspects of each measure, at the level of each."""
    fits = [_fit(fleet) for fleet in fleets]
    weighed = iter(_weigh([fit for fit in fits if fit is not None]))
    return [_judge(fleet, next(weighed) if fit else None, level) for fleet, fit in zip(fleets, fits, strict=True)]


def _judge(fleet: Fleet, fit: _Fit | None, level: float) -> Judged:
    if fit is None:
        return Judged(tuple(fleet.deviations), (), level)
    candidates = [_candidate(fleet, fit, each.member) for each in fleet.deviations]
    candidates.sort(key=lambda each: fit.mean(each.tails))
    count = _outlying(candidates, fit, len(fleet.values), level)
    tails = [Deviation(each.node, fit.mean(each.tails)) for each in candidates]
    return Judged(tuple(tails[:count]), tuple(tails[count:]), _suspect_rate(fleet, fit, level))


def _candidate(fleet: Fleet, fit: _Fit, node: str) -> _Candidate:
    """Return a candidate. Of several runs all must be as far on the same side, as noise of runs seldom is."""
    distances = [value - fit.centre for value in fleet.runs[node]]
    side = math.copysign(1, sum(distances))
    least = max(0.0, min(side * distance for distance in distances))
    return _Candidate(node, tuple(fit.tails(least, len(distances))))


def _outlying(candidates: Sequence[_Candidate], fit: _Fit, count: int, level: float) -> int:
    """Return how many of the candidates are outliers, the most unlikely first.

    It is the largest number of which so many healthy nodes of `count` would seldom deviate as much together. The level
    is shared by the numbers that are tried, so that each hardly costs the others evidence.
    """
    outlying = 0
    for number in range(1, len(candidates) + 1):
        farthest = [max(column) for column in zip(*(each.tails for each in candidates[:number]), strict=True)]
        chances = [_chance_of(number, count, tail) for tail in farthest]
        if fit.mean(chances) < level / (number * (number + 1)):
            outlying = number
    return outlying


def _chance_of(number: int, count: int, tail: float) -> float:
    """Return an upper bound of the chance that at least so many of `count` nodes are in a tail (Boole)."""
    return min(1.0, math.exp(min(0.0, math.log(math.comb(count, number)) + number * math.log(max(tail, 1e-300)))))


def _suspect_rate(fleet: Fleet, fit: _Fit, level: float) -> float:
    """Return the chance that any node of a healthy fleet deviates as if noise were normal, over all tails."""
    normal = sum(probability * scale for probability, scale in zip(fit.scales[-1], SCALES, strict=True))
    limit = distance_of(len(fleet.values), level) * normal * fit.unit
    chances = [1 - (1 - tail) ** len(fleet.values) for tail in fit.tails(limit)]
    return fit.mean([*chances[:-1], level])


def _fit(fleet: Fleet) -> _Fit | None:
    """Return the fit of a measure's runs; None if more than half of them have one value."""
    centre = median(fleet.values.values())
    deviating = {each.member for each in fleet.deviations}
    distances = {node: [abs(value - centre) for value in runs] for node, runs in fleet.runs.items()}
    usual = sorted(each for node, values in distances.items() if node not in deviating for each in values)
    unit = MAD * median(each for values in distances.values() for each in values)
    if not deviating:
        usual.pop()
    inner = [(distance / unit) ** 2 for distance in usual] if unit > 0 else []
    if not inner or inner[-1] == 0:
        return None
    beyond = max(1, sum(each > usual[-1] for node in deviating for each in distances[node]))
    fits = [_fit_scales(inner, beyond, degrees) for degrees in DEGREES]
    return _Fit(centre, unit, tuple(likelihood for likelihood, _ in fits), tuple(scales for _, scales in fits))


def _fit_scales(squares: Sequence[float], beyond: int, degrees: float) -> tuple[float, tuple[float, ...]]:
    """Return the logarithm of the likelihood over all scales, and of each its part; some values are beyond the last."""

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

    logarithms = [at(scale) for scale in SCALES]
    largest = max(logarithms)
    parts = [math.exp(each - largest) for each in logarithms]
    return largest + math.log(sum(parts)), tuple(part / sum(parts) for part in parts)


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
    return [replace(fit, weights=each) for fit, each in zip(fits, weights, strict=True)]


def _normalised(likelihoods: Sequence[float], prior: Sequence[float]) -> tuple[float, ...]:
    products = [likelihood * weight for likelihood, weight in zip(likelihoods, prior, strict=True)]
    return tuple(product / sum(products) for product in products)


def _tail(distance: float, degrees: float) -> float:
    """Return the probability of a distance as large, of either sign."""
    return math.erfc(distance / math.sqrt(2)) if math.isinf(degrees) else t_pvalue(distance, degrees)
