"""How heavy the tails of a fleet's measures are, by the fleet's own values, and what that means for its outliers.

A fleet of some ten nodes hardly shows whether rare nodes are far off, but its measures together may. Each measure is
fitted with Student's distribution at several degrees of freedom (Lange, Little and Taylor, Robust statistical modeling
using the t distribution, 1989); values that deviate count as being somewhere beyond the others, so that a slow node
does not make the tail look heavy. How likely a measure is to have each of the tails follows from its own fit and from
what the other measures have (empirical Bayes: Efron, Large-scale inference, 2010). Half of it is presumed normal.

Several runs of each node tell noise of runs, which hardly moves all runs of a node alike, from differences of nodes,
whose part of the spread follows from an analysis of variance.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, variance

from sifmark.results.comparison.student import t_pvalue
from sifmark.studies.analysis.fleet import Deviation, distance_of

DEGREES = (3.0, 4.0, 5.0, 7.0, 10.0, 20.0, math.inf)  # of freedom; infinity is normal
NORMAL = 0.5  # presumed probability of normal tails; the others share the rest
WEIGHT = 1.0  # of what is presumed, in measures
MAD = 1.4826  # normal standard deviations in a median absolute deviation
SCALES = tuple(0.4 * 1.12**step for step in range(24))  # that are fitted, in MAD: 0.4 to 5.4
ROUNDS = 50
ONE_SIDED = 1.64  # standard errors: 95 % of what is estimated lie below
LEAST_SHARE = 0.05
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
class _Noise:
    """What may move a healthy node: how far nodes are from their centre, and runs from theirs.

    Of the distance of a node, `share` is at most of the node itself, and the rest of its runs.
    """

    nodes: _Fit
    runs: _Fit | None  # None: a run of each node does not tell runs from nodes
    share: float = 1.0


@dataclass(frozen=True)
class _Candidate:
    """A node that deviates if noise is normal, and by tail how likely a healthy node, or its runs, deviate as much."""

    node: str
    of_node: tuple[float, ...]
    of_runs: tuple[float, ...]


def judge(fleets: Sequence[Fleet], level: float) -> list[Judged]:
    """Return the outliers and suspects of each measure, at the level of each."""
    of_nodes = _fit_all([_fit(fleet, {node: [value] for node, value in fleet.values.items()}) for fleet in fleets])
    several = [_has_several_runs(fleet) for fleet in fleets]
    of_runs = _fit_all([_fit(fleet, fleet.runs) if more else None for fleet, more in zip(fleets, several, strict=True)])
    return [
        _judge(fleet, _Noise(nodes, runs, _share_of_nodes(fleet) if runs else 1.0) if nodes else None, level)
        for fleet, nodes, runs in zip(fleets, of_nodes, of_runs, strict=True)
    ]


def _judge(fleet: Fleet, noise: _Noise | None, level: float) -> Judged:
    if noise is None:
        return Judged(tuple(fleet.deviations), (), level)
    candidates = [_candidate(fleet, noise, each.member) for each in fleet.deviations]
    tails = {each.node: _probability(noise, each.of_node, each.of_runs) for each in candidates}
    candidates.sort(key=lambda each: tails[each.node])
    count = _outlying(candidates, noise, len(fleet.values), level)
    ordered = [Deviation(each.node, tails[each.node]) for each in candidates]
    return Judged(tuple(ordered[:count]), tuple(ordered[count:]), _suspect_rate(fleet, noise.nodes, level))


def _candidate(fleet: Fleet, noise: _Noise, node: str) -> _Candidate:
    """Return a candidate. Noise of runs seldom moves all runs of a node as far to the same side."""
    distance = abs(fleet.values[node] - noise.nodes.centre)
    of_node = tuple(noise.nodes.tails(distance / noise.share))
    if noise.runs is None:
        return _Candidate(node, of_node, (0.0,) * len(DEGREES))
    distances = [value - noise.runs.centre for value in fleet.runs[node]]
    side = math.copysign(1, sum(distances))
    least = max(0.0, min(side * distance for distance in distances))
    return _Candidate(node, of_node, tuple(noise.runs.tails(least, len(distances))))


def _probability(noise: _Noise, of_node: Sequence[float], of_runs: Sequence[float]) -> float:
    """Return the chance that either explains a distance."""
    return min(1.0, noise.nodes.mean(of_node) + (noise.runs.mean(of_runs) if noise.runs else 0.0))


def _has_several_runs(fleet: Fleet) -> bool:
    """Return whether half of the nodes that do not deviate have several runs."""
    deviating = {each.member for each in fleet.deviations}
    counts = [len(runs) for node, runs in fleet.runs.items() if node not in deviating]
    return 2 * sum(count > 1 for count in counts) >= len(counts)


def _share_of_nodes(fleet: Fleet) -> float:
    """Return how much of the spread of the means may be of the nodes and not of their runs, at the most.

    By an analysis of variance over the nodes that do not deviate, with the upper end of the variance between nodes.
    """
    deviating = {each.member for each in fleet.deviations}
    several = [runs for node, runs in fleet.runs.items() if node not in deviating and len(runs) > 1]
    between = variance([fmean(runs) for runs in several])
    freedom = sum(len(runs) - 1 for runs in several)
    within = math.fsum((value - fmean(runs)) ** 2 for runs in several for value in runs) / freedom
    of_runs = within * fmean(1 / len(runs) for runs in several)
    most = between * (1 + ONE_SIDED * math.sqrt(2 / (len(several) - 1))) - of_runs
    return min(1.0, max(LEAST_SHARE, math.sqrt(max(0.0, most) / between) if between else 1.0))


def _outlying(candidates: Sequence[_Candidate], noise: _Noise, count: int, level: float) -> int:
    """Return how many of the candidates are outliers, the most unlikely first.

    It is the largest number of which so many healthy nodes of `count` would seldom deviate as much together. The level
    is shared by the numbers that are tried, so that each hardly costs the others evidence.
    """
    outlying = 0
    for number in range(1, len(candidates) + 1):
        first = candidates[:number]
        of_node, of_runs = (
            [_chance_of(number, count, max(column)) for column in zip(*tails, strict=True)]
            for tails in ([each.of_node for each in first], [each.of_runs for each in first])
        )
        if _probability(noise, of_node, of_runs) < level / (number * (number + 1)):
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


def _fit_all(fits: Sequence[_Fit | None]) -> list[_Fit | None]:
    """Return fits of the measures with the weights of their tails."""
    weighed = iter(_weigh([fit for fit in fits if fit is not None]))
    return [next(weighed) if fit else None for fit in fits]


def _fit(fleet: Fleet, values: Mapping[str, Sequence[float]]) -> _Fit | None:
    """Return the fit of some values of the nodes; None if more than half of them are the same."""
    centre = median(fleet.values.values())
    deviating = {each.member for each in fleet.deviations}
    distances = {node: [abs(value - centre) for value in numbers] for node, numbers in values.items()}
    usual = sorted(each for node, numbers in distances.items() if node not in deviating for each in numbers)
    unit = MAD * median(each for numbers in distances.values() for each in numbers)
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
