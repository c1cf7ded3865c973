"""Change points of a series of numbers: binary segmentation, with tests that count how many places were tried.

A piece of the series is split where Student's statistic of its two sides is largest, if the test of the two sides,
times the number of places that were tried, is significant. Places at which something is known to have changed are
tried by themselves as well: they are few, so that less evidence suffices. If no place splits a piece, pairs of places
are tried, between which the series left its level and returned to it. If a side has only a few numbers, each must be
away from the mean of the other side: two slow nights of three are no new level. At the end every place is chosen again,
and tested again, between its neighbours.

Numbers that resemble the ones before them widen the tests. Their correlation is estimated from differences, which
changes of level hardly alter, and then from what is left beside the changes that were found with that, with which the
search is repeated.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, combinations, islice, pairwise
from statistics import fmean
from typing import NamedTuple

from sifmark.results.comparison.intervals import Ratio, standard_errors
from sifmark.results.comparison.student import f_pvalue, t_pvalue
from sifmark.studies.history import correlation as nights

FEWEST = 3  # numbers on each side of a place at which nothing is known to have changed
MOST_PAIRS = 200_000  # of places within one piece
MOST_ROUNDS = 10  # of choosing all places again
FEW = 4  # numbers on a side of which each must be away from the other side, by AWAY of the difference
AWAY = 0.25
OTHER_SPREAD = 0.0001  # chance of so much more spread on the shorter side, below which its own spread counts
CLEARLY = 4.0  # variances by which a line must fit better than a step to be called one
FEWEST_TOGETHER = 4  # numbers on both sides together that a test needs
Places = tuple[int, ...]  # one place, or two between which the series differs from its rest


@dataclass(frozen=True)
class Split:
    """One or two places of a series: the numbers from each on differ from those before it."""

    places: Places
    probability: float  # of so large a difference by chance, times the number of places that were tried
    labelled: bool  # something is known to have changed there


@dataclass(frozen=True)
class Segmentation:
    """The change points of a series in order, and the tests that led to none."""

    splits: tuple[Split, ...]
    rejected: tuple[float, ...]
    correlation: float = 0.0  # of a number with the one before it, by which the tests were widened


@dataclass(frozen=True)
class Search:
    """A search for change points in numbers, of which some places are labelled.

    `rate` is the largest probability of a difference, `least` the smallest one that matters.
    """

    values: Sequence[float]
    labels: frozenset[int]
    rate: float
    least: float
    anywhere: bool = True  # or only where there is a label
    correlation: float = 0.0
    _chosen: dict[tuple[int, int, bool, bool], tuple[Places, int] | None] = field(default_factory=dict, compare=False)

    @property
    def knows_correlation(self) -> bool:
        """Whether there are enough numbers to estimate their correlation."""
        return self.anywhere and len(self.values) >= nights.FEWEST

    def run(self) -> Segmentation:
        """Return the change points, with the correlation that was estimated; 0 of few numbers."""
        if not self.knows_correlation:
            return self._run()
        robust = self._robust_correlation()
        first = replace(self, correlation=robust)._run()
        places = [split.places[0] for split in first.splits]
        left = nights.correlation_of_residuals(self.values, places)
        correlation = min(left, robust + nights.standard_error(len(self.values)))
        return first if correlation == robust else replace(self, correlation=correlation)._run()

    def _robust_correlation(self) -> float:
        """Return the smallest of some estimates: of differences, and beside the change or two that explain most."""
        count = len(self.values)
        chosen = [self._largest(0, count, pairs, labelled=False) for pairs in (False, True)]
        left = [nights.correlation_of_residuals(self.values, each[0]) for each in chosen if each is not None]
        return min(nights.correlation_of_differences(self.values), *left)

    def _run(self) -> Segmentation:
        splits, rejected = self._divide()
        places = sorted({place for split in splits for place in split.places})
        return Segmentation(tuple(self._choose_again(places)), tuple(rejected), self.correlation)

    def _divide(self) -> tuple[list[Split], list[float]]:
        pending, splits, rejected = [(0, len(self.values))], list[Split](), list[float]()
        while pending:
            low, high = pending.pop()
            split = self._best(low, high)
            if split is None:
                continue
            if self._accepts(split, low, high):
                splits.append(split)
                pending += pairwise((low, *split.places, high))
            else:
                rejected.append(split.probability)
        return splits, rejected

    def _best(self, low: int, high: int) -> Split | None:
        """Return the best split of a piece, accepted or not; None if the piece is too short for any."""
        single = self._most_likely(low, high)
        if single is not None and self._accepts(single, low, high):
            return single
        pair = self._most_likely(low, high, pairs=True)
        if pair is not None and self._accepts(pair, low, high):
            return pair
        return single

    def _choose_again(self, places: list[int]) -> list[Split]:
        """Return a split for each place, chosen between its neighbours; none for one that is no longer significant."""
        splits: list[Split] = []
        for _ in range(MOST_ROUNDS):
            splits = list(self._between_neighbours(places))
            chosen = [split.places[0] for split in splits]
            if chosen == places:
                break
            places = chosen
        return splits

    def _between_neighbours(self, places: Sequence[int]) -> Iterator[Split]:
        low = 0
        for number, _ in enumerate(places):
            high = places[number + 1] if number + 1 < len(places) else len(self.values)
            split = self._most_likely(low, high)
            if split is not None and self._accepts(split, low, high):
                yield split
                low = split.places[0]

    def _single(self, low: int, high: int, labelled: bool) -> Iterator[Places]:
        """Yield the places of a piece that are tried together: those that are labelled, or all."""
        if labelled:
            yield from ((place,) for place in sorted(self.labels) if low < place < high)
        elif self.anywhere:
            yield from ((place,) for place in range(low + FEWEST, high - FEWEST + 1))

    def _pairs(self, low: int, high: int, labelled: bool) -> Iterator[Places]:
        if labelled:
            within = [place for place in sorted(self.labels) if low < place < high]
            yield from islice(combinations(within, 2), MOST_PAIRS)
        elif self.anywhere:
            longest = max(FEWEST, MOST_PAIRS // max(1, high - low))
            for start in range(low + FEWEST, high - 2 * FEWEST + 1):
                yield from ((start, end) for end in range(start + FEWEST, min(high - FEWEST, start + longest) + 1))

    def _most_likely(self, low: int, high: int, pairs: bool = False) -> Split | None:
        """Return the split with the smallest probability; of equal ones that with a label."""
        splits = []
        for labelled in (True, False):
            if (chosen := self._largest(low, high, pairs, labelled)) is not None:
                best, count = chosen
                probability = min(1.0, difference_p(*self._sides(low, high, best), self.correlation) * count)
                splits.append(Split(best, probability, labelled))
        return min(splits, key=lambda split: (split.probability, not split.labelled), default=None)

    def _largest(self, low: int, high: int, pairs: bool, labelled: bool) -> tuple[Places, int] | None:
        """Return the places that explain most of a piece, and of how many they are chosen; searches share them."""
        key = low, high, pairs, labelled
        if key not in self._chosen:
            places = list((self._pairs if pairs else self._single)(low, high, labelled))
            best = max(places, key=lambda each: self._statistic(low, high, each), default=None)
            self._chosen[key] = None if best is None else (best, len(places))
        return self._chosen[key]

    def _accepts(self, split: Split, low: int, high: int) -> bool:
        sides = inside, outside = self._sides(low, high, split.places)
        centres = fmean(inside), fmean(outside)
        if split.probability > self.rate or abs(centres[0] - centres[1]) < self.least:
            return False
        steps = (centres[0] - centres[1], centres[1] - centres[0])
        few = [each for each in zip(sides, centres, steps, strict=True) if len(each[0]) <= FEW]
        return all((value - (own - step)) / step >= AWAY for side, own, step in few for value in side)

    def _sides(self, low: int, high: int, places: Places) -> tuple[Sequence[float], Sequence[float]]:
        first, last = places[0], places[1] if len(places) > 1 else high
        return self.values[first:last], [*self.values[low:first], *self.values[last:high]]

    @cached_property
    def _sums(self) -> list[float]:
        """Sums of the numbers up to each place, as differences from their mean."""
        centre = fmean(self.values)
        return list(accumulate((value - centre for value in self.values), initial=0.0))

    def _statistic(self, low: int, high: int, places: Places) -> float:
        """Return how much of a piece's variation the split explains, which grows with Student's statistic."""
        first, last = places[0], places[1] if len(places) > 1 else high
        count, inner = high - low, last - first
        whole, inside = self._sums[high] - self._sums[low], self._sums[last] - self._sums[first]
        return inside**2 / inner + (whole - inside) ** 2 / (count - inner)


def difference_p(before: Sequence[float], after: Sequence[float], correlation: float = 0.0) -> float:
    """Return the two-sided p-value of the difference of two means; 1 if there are too few numbers to tell.

    It is Student's with a common spread, which a few numbers beside many do not alter much. If the shorter side clearly
    spreads more, it is Welch's, if that is larger.
    """
    if min(len(before), len(after)) < 1 or len(before) + len(after) < FEWEST_TOGETHER:
        return 1.0
    difference = fmean(after) - fmean(before)
    return max(_two_sided(difference, error, freedom) for error, freedom in _tests(before, after, correlation))


def change_of(before: Sequence[float], after: Sequence[float], correlation: float = 0.0) -> Ratio:
    """Return the ratio of two sets of numbers that are given as logarithms; its interval is that of the wider test."""
    difference = fmean(after) - fmean(before)
    if len(before) + len(after) < FEWEST_TOGETHER:
        return Ratio(
            math.exp(difference), reason=f"{len(before) + len(after)} numbers where {FEWEST_TOGETHER} are needed"
        )
    half = max(error * standard_errors(freedom) for error, freedom in _tests(before, after, correlation))
    return Ratio(math.exp(difference), math.exp(difference - half), math.exp(difference + half))


def is_gradual(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether a straight line fits numbers clearly better than a step between two of them.

    Clearly is by four times the variance about the better fit, which a step's own noise seldom reaches.
    """
    values, count = [*before, *after], len(before) + len(after)
    centre = fmean(values)
    times = [place - (count - 1) / 2 for place in range(count)]
    of_times = sum(time * time for time in times)
    line = sum(time * (value - centre) for time, value in zip(times, values, strict=True)) ** 2 / of_times
    step = (fmean(after) - fmean(before)) ** 2 * len(before) * len(after) / count
    left = math.fsum((value - centre) ** 2 for value in values) - line
    return line - step > CLEARLY * max(0.0, left) / max(1, count - 2)


def discoveries(probabilities: Sequence[float], rate: float) -> list[bool]:
    """Return which of several tests are significant if at most this part of those may be false.

    Benjamini and Hochberg, Controlling the false discovery rate, 1995.
    """
    count = len(probabilities)
    ordered = sorted(probabilities)
    limits = [p for rank, p in enumerate(ordered, start=1) if p <= rate * rank / count]
    limit = max(limits, default=-1.0)
    return [p <= limit for p in probabilities]


class _Side(NamedTuple):
    """The numbers of a side: their sum of squares about their mean, and what it is divided by for their variance."""

    squares: float
    divisor: float
    of_mean: float  # variance of their mean over theirs

    @property
    def variance(self) -> float:
        return self.squares / self.divisor


def _side(values: Sequence[float], correlation: float) -> _Side:
    centre, count = fmean(values), len(values)
    wider = nights.widening(count, correlation)
    return _Side(math.fsum((value - centre) ** 2 for value in values), count - wider, wider / count)


def _tests(before: Sequence[float], after: Sequence[float], correlation: float) -> Iterator[tuple[float, float]]:
    """Yield the standard error of the difference of means and its degrees of freedom, for each applicable test."""
    short, long = (_side(side, correlation) for side in sorted((before, after), key=len))
    divisor = short.divisor + long.divisor
    common = (short.squares + long.squares) / divisor
    yield math.sqrt(common * (short.of_mean + long.of_mean)), nights.freedom(divisor, correlation)
    if len(before) != len(after) and _spreads_more(short, long, correlation):
        parts = [(side.variance * side.of_mean, nights.freedom(side.divisor, correlation)) for side in (short, long)]
        total = sum(part for part, _ in parts)
        yield math.sqrt(total), 1 / sum((part / total) ** 2 / freedom for part, freedom in parts)


def _spreads_more(short: _Side, long: _Side, correlation: float) -> bool:
    if short.divisor <= 0 or short.squares == 0:
        return False
    if long.squares == 0:
        return True
    freedom = [nights.freedom(side.divisor, correlation) for side in (short, long)]
    return f_pvalue(short.variance / long.variance, *freedom) < OTHER_SPREAD


def _two_sided(difference: float, error: float, freedom: float) -> float:
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return t_pvalue(difference / error, freedom)
