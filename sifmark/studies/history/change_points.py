"""Change points of a series of numbers: binary segmentation, with tests that count how many places were tried.

A piece of the series is split where Student's statistic of its two sides is largest, if the test of the two sides,
times the number of places that were tried, is significant. Places at which something is known to have changed are
tried by themselves as well: they are few, so that less evidence suffices. If no place splits a piece, pairs of places
are tried, between which the series left its level and returned to it. If a side has only a few numbers, each must be
nearer to their mean than to that of the other side: two slow nights of three are no new level. At the end every place
is chosen again, and tested again, between its neighbours.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations, islice, pairwise
from statistics import fmean

from sifmark.results.comparison.intervals import Ratio, standard_errors, variance, welch
from sifmark.results.comparison.student import t_pvalue

FEWEST = 3  # numbers on each side of a place at which nothing is known to have changed
MOST_PAIRS = 200_000  # of places within one piece
MOST_ROUNDS = 10  # of choosing all places again
ENOUGH_FOR_WELCH = 5  # numbers on each side
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

    def run(self) -> Segmentation:
        """Return the change points."""
        splits, rejected = self._divide()
        places = sorted({place for split in splits for place in split.places})
        return Segmentation(tuple(self._choose_again(places)), tuple(rejected))

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
        single = self._most_likely(low, high, self._single(low, high))
        if single is not None and self._accepts(single, low, high):
            return single
        pair = self._most_likely(low, high, self._pairs(low, high))
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
            split = self._most_likely(low, high, self._single(low, high))
            if split is not None and self._accepts(split, low, high):
                yield split
                low = split.places[0]

    def _single(self, low: int, high: int) -> Iterator[tuple[bool, Iterable[Places]]]:
        """Yield the places of a piece that are tried together: those that are labelled, then all."""
        yield True, [(place,) for place in sorted(self.labels) if low < place < high]
        if self.anywhere:
            yield False, [(place,) for place in range(low + FEWEST, high - FEWEST + 1)]

    def _pairs(self, low: int, high: int) -> Iterator[tuple[bool, Iterable[Places]]]:
        labels = [place for place in sorted(self.labels) if low < place < high]
        yield True, list(islice(combinations(labels, 2), MOST_PAIRS))
        if not self.anywhere:
            return
        longest = max(FEWEST, MOST_PAIRS // max(1, high - low))
        starts = range(low + FEWEST, high - 2 * FEWEST + 1)
        yield False, [(a, b) for a in starts for b in range(a + FEWEST, min(high - FEWEST, a + longest) + 1)]

    def _most_likely(self, low: int, high: int, kinds: Iterable[tuple[bool, Iterable[Places]]]) -> Split | None:
        """Return the split with the smallest probability; of equal ones that with a label."""
        splits = []
        for labelled, places in kinds:
            candidates = list(places)
            if not candidates:
                continue
            best = max(candidates, key=lambda each: self._statistic(low, high, each))
            probability = min(1.0, difference_p(*self._sides(low, high, best)) * len(candidates))
            splits.append(Split(best, probability, labelled))
        return min(splits, key=lambda split: (split.probability, not split.labelled), default=None)

    def _accepts(self, split: Split, low: int, high: int) -> bool:
        sides = inside, outside = self._sides(low, high, split.places)
        centres = fmean(inside), fmean(outside)
        if split.probability > self.rate or abs(centres[0] - centres[1]) < self.least:
            return False
        few = [(side, own) for side, own in zip(sides, centres, strict=True) if len(side) < ENOUGH_FOR_WELCH]
        return all(
            abs(value - own) <= min(abs(value - other) for other in centres) for side, own in few for value in side
        )

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
    """Yield the standard error of the difference of means and its degrees of freedom, for each applicable test."""
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
    return t_pvalue(difference / error, freedom)
