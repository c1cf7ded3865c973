"""Histories: series divided at change points, with the changes of the environment at each."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from statistics import fmean

from sifmark.core.errors import UsageError, unknown_name
from sifmark.results.catalogue import path_of
from sifmark.results.comparison.intervals import Mean, Ratio, mean
from sifmark.studies.history.change_points import (
    FEWEST_TOGETHER,
    Search,
    Segmentation,
    Split,
    change_of,
    difference_p,
    discoveries,
    is_gradual,
)
from sifmark.studies.history.correlation import upper_bound
from sifmark.studies.history.environment import EnvironmentChange, covariate_changes, environment_changes
from sifmark.studies.history.series import HistoryRun, LoadedHistory, Series, load_history

RATE = 0.01  # false discovery rate of the changes that are reported, if sessions are as the tests take them
LEAST_CHANGE = 0.02  # a relative change that matters
# Part of simulated series without a change that had a false one, at most: by sessions from, and correlation up to.
# benchmarks/statistics/history.py
HELD = (
    *((100, 0.3, 0.03), (60, 0.3, 0.04), (100, 0.7, 0.05), (20, 0.3, 0.05)),
    *((200, 0.9, 0.06), (60, 0.7, 0.07), (20, 0.7, 0.11)),
)
SESSIONS, RUNS = "sessions", "runs"  # what the tests take as independent numbers


@dataclass(frozen=True)
class Period:
    """A part of a series without a change point."""

    points: "tuple[SeriesPoint, ...]"
    mean: Mean

    @property
    def first(self) -> datetime:
        """When its first run began."""
        return self.points[0].runs[0].started

    @property
    def last(self) -> datetime:
        """When its last run began."""
        return self.points[-1].runs[-1].started

    @property
    def runs(self) -> list[HistoryRun]:
        """Its runs."""
        return [run for point in self.points for run in point.runs]


@dataclass(frozen=True)
class SeriesPoint:
    """A number of a series for the tests: the mean of a session, or a run where there are few sessions."""

    runs: tuple[HistoryRun, ...]
    logarithm: float


@dataclass(frozen=True)
class Change:
    """A place in a series: what the metric did there, and what else changed."""

    after: datetime  # the last run before it
    before: datetime  # the first run after it
    ratio: Ratio
    probability: float
    gradual: bool  # a straight line fits the two periods better than a step: drift
    differences: tuple[EnvironmentChange, ...]  # of image, driver, host and the like
    measured: tuple[EnvironmentChange, ...]  # clocks and the like


@dataclass(frozen=True)
class History:
    """A series in periods; `changes` are between them. `unchanged` are places where only the environment changed."""

    series: Series
    basis: str
    correlation: float | None  # of a session with the one before it, by which the tests are widened; None: too few
    periods: tuple[Period, ...]
    changes: tuple[Change, ...]
    unchanged: tuple[Change, ...]

    @property
    def correlation_at_most(self) -> float | None:
        """What the correlation may be, since it is an estimate."""
        return None if self.correlation is None else upper_bound(self.correlation, len(self.series.sessions))

    @property
    def held_rate(self) -> float | None:
        """The part of series that is reported to have a change without having one, at most; None if it is not known.

        It is that of series with as many sessions, whose correlation is what this one's may be.
        """
        if self.correlation_at_most is None:
            return None
        count, correlation = len(self.series.sessions), self.correlation_at_most
        return next((rate for least, most, rate in HELD if count >= least and correlation <= most), None)


def read_histories(
    paths: Sequence[str], metric: str = "", by: Iterable[str] = (), least: float = LEAST_CHANGE
) -> tuple[LoadedHistory, list[History]]:
    """Return the series of results at paths, and the history of each. `by` are more fields that separate series.

    Raises UsageError for a metric that no result has, a path without results, or a `least` that is no fraction.
    """
    if not 0 < least < 1:
        cause = f"the least change is {least:g}, and not between 0 and 1"
        raise UsageError(cause, "for example --least-change 0.02 for 2 %", code="invalid-option")
    loaded = load_history(paths, metric, tuple(map(path_of, by)))
    if metric and not loaded.series and loaded.metrics and metric not in loaded.metrics:
        raise unknown_name("metric", metric, loaded.metrics)
    return loaded, histories(loaded.series, least)


def histories(series: Sequence[Series], least: float = LEAST_CHANGE, rate: float = RATE) -> list[History]:
    """Return the history of each series. `rate` is the false discovery rate of all their changes."""
    searches = [_search(each, least, rate) for each in series]
    segmentations = [search.run() for _, search in searches]
    kept = _discovered(segmentations, rate)
    return [
        _history(each, points, replace(search, correlation=found.correlation), splits)
        for each, (points, search), found, splits in zip(series, searches, segmentations, kept, strict=True)
    ]


def _search(series: Series, least: float, rate: float) -> tuple[list[SeriesPoint], Search]:
    """Return a series as points, and the search for its changes.

    With only a few sessions, the runs are the numbers, and only places are tried at which something changed.
    """
    sessions = [SeriesPoint(session.runs, session.logarithm) for session in series.sessions]
    if len(sessions) >= FEWEST_TOGETHER:
        points, labels = sessions, series.labels
    else:
        points = [SeriesPoint((run,), math.log(run.value)) for run in series.runs]
        starts = [0]
        for session in sessions:
            starts.append(starts[-1] + len(session.runs))
        labels = frozenset(starts[place] for place in series.labels)
    anywhere = len(sessions) >= FEWEST_TOGETHER
    values = [point.logarithm for point in points]
    return points, Search(values, labels, rate, math.log1p(least), anywhere)


def _discovered(segmentations: Iterable[Segmentation], rate: float) -> list[list[Split]]:
    """Return the splits of each series that are significant among the tests of all."""
    results = list(segmentations)
    tests = [split.probability for each in results for split in each.splits]
    tests += [probability for each in results for probability in each.rejected]
    significant = iter(discoveries(tests, rate) if tests else [])
    return [[split for split in each.splits if next(significant)] for each in results]


def _history(series: Series, points: Sequence[SeriesPoint], search: Search, splits: Sequence[Split]) -> History:
    places = _places_that_matter(search, [split.places[0] for split in splits])
    bounds = [0, *places, len(points)]
    periods = tuple(_period(points[low:high]) for low, high in pairwise(bounds))
    probabilities = {split.places[0]: split.probability for split in splits}
    rho = search.correlation
    changes = [_change(points, bounds[at : at + 3], rho, probabilities[place]) for at, place in enumerate(places)]
    unchanged = list(_unchanged(points, search, bounds))
    basis = SESSIONS if search.anywhere else RUNS
    return History(series, basis, rho if search.knows_correlation else None, periods, tuple(changes), tuple(unchanged))


def _places_that_matter(search: Search, places: list[int]) -> list[int]:
    """Return the places without those at which neighbours differ too little, the smallest difference first."""
    while places:
        bounds = [0, *places, len(search.values)]
        means = [fmean(search.values[low:high]) for low, high in pairwise(bounds)]
        steps = [abs(second - first) for first, second in pairwise(means)]
        if min(steps) >= search.least:
            return places
        smallest = steps.index(min(steps))
        places = [*places[:smallest], *places[smallest + 1 :]]
    return places


def _period(points: Sequence[SeriesPoint]) -> Period:
    return Period(tuple(points), mean([math.exp(point.logarithm) for point in points]))


def _unchanged(points: Sequence[SeriesPoint], search: Search, bounds: Sequence[int]) -> Iterator[Change]:
    """Yield the labelled places within periods, each with the numbers up to the next place on each side."""
    places = sorted(search.labels.union(bounds))
    for low, place, high in zip(places, places[1:], places[2:], strict=False):
        if place not in bounds:
            yield _change(points, (low, place, high), search.correlation)


def _change(
    points: Sequence[SeriesPoint], bounds: Sequence[int], correlation: float, probability: float | None = None
) -> Change:
    """Return what changed at the middle one of three places."""
    low, place, high = bounds
    before, after = points[low:place], points[place:high]
    sides = [[run for point in side for run in point.runs] for side in (before, after)]
    old, new = ([point.logarithm for point in side] for side in (before, after))
    environments = [[run.environment for run in side] for side in sides]
    measured = [[run.covariates for run in side] for side in sides]
    return Change(
        sides[0][-1].started,
        sides[1][0].started,
        change_of(old, new, correlation),
        difference_p(old, new, correlation) if probability is None else probability,
        is_gradual(old, new),
        tuple(environment_changes(*environments)),
        tuple(covariate_changes(*measured)),
    )
