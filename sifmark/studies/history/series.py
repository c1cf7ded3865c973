"""Time series of one configuration on one system, with runs of a session grouped."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Any

from sifmark.results.catalogue import KINDS, rates
from sifmark.results.comparison.collection import load_observations
from sifmark.results.comparison.compatibility import exclusion_fields
from sifmark.results.comparison.observation import ENVIRONMENT, ComparisonGroup, Observation
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.scaling import THROUGHPUT
from sifmark.studies.history.environment import (
    HOST,
    PATHS,
    Environment,
    covariates_of,
    environment_of,
    has_changed,
)

SESSION = timedelta(hours=6)  # runs that began within it, in the same environment, are not independent
EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)  # a clock that shows less was never set
STARTED = "started"
ABOUT_RUNS = (STARTED, *PATHS)  # the fields of an observation that only its history needs
_VERSION = "schema_version"


@dataclass(frozen=True)
class HistoryRun:
    """A run: when it began, what it measured, and its environment."""

    started: datetime
    value: float
    observation: Observation
    environment: Environment
    covariates: Environment


@dataclass(frozen=True)
class RunSession:
    """Runs that followed each other in the same environment."""

    runs: tuple[HistoryRun, ...]

    @property
    def started(self) -> datetime:
        """When its first run began."""
        return self.runs[0].started

    @property
    def environment(self) -> Environment:
        """The environment of its runs."""
        return self.runs[0].environment

    @property
    def host(self) -> Any:
        """The host of its runs; None if unknown."""
        return self.environment.get(HOST)

    @cached_property
    def logarithm(self) -> float:
        """The mean of the logarithms of what its runs measured."""
        return fmean(math.log(run.value) for run in self.runs)


@dataclass(frozen=True)
class Series:
    """What was measured of one configuration on one system."""

    group: ComparisonGroup
    title: str
    fields: dict[str, Any]  # that distinguish it from other series
    metric: str
    unit: str
    sessions: tuple[RunSession, ...]

    @property
    def system(self) -> str:
        """The name of the system: its site, or else its device."""
        return str(self.fields.get("site") or self.fields.get("accelerator.name") or "unknown")

    @property
    def runs(self) -> list[HistoryRun]:
        """All runs."""
        return [run for session in self.sessions for run in session.runs]

    @cached_property
    def labels(self) -> frozenset[int]:
        """The places of sessions whose environment differs from that of the one before them on the same host.

        A host that replaces another is such a place; hosts that take turns are not.
        """
        labels, latest = set(), dict[Any, RunSession]()
        later_hosts = self._hosts_from_each()
        for place, session in enumerate(self.sessions):
            before = latest.get(session.host)
            if before is None and place and self.sessions[place - 1].host not in later_hosts[place]:
                before = self.sessions[place - 1]
            if before is not None and has_changed(before.environment, session.environment):
                labels.add(place)
            latest[session.host] = session
        return frozenset(labels)

    @property
    def alternating_hosts(self) -> int:
        """How many hosts take turns; 0 if each host's sessions follow each other."""
        hosts = [session.host for session in self.sessions]
        blocks = 1 + sum(first != second for first, second in pairwise(hosts))
        return len(set(hosts)) if blocks > len(set(hosts)) else 0

    def _hosts_from_each(self) -> list[set[Any]]:
        """Return by place the hosts of the session there and of all later ones."""
        hosts, later = set[Any](), list[set[Any]]()
        for session in reversed(self.sessions):
            hosts = hosts | {session.host}
            later.append(hosts)
        return later[::-1]


@dataclass
class LoadedHistory:
    """The series of some results, and the results that are in no series."""

    series: list[Series]
    invalid: list[str]
    duplicates: int
    excluded: list[str] = field(default_factory=list)  # files of runs that did not complete or are not correct
    without_value: list[str] = field(default_factory=list)  # files of runs without a value above 0
    undated: list[str] = field(default_factory=list)  # files with a date that cannot be true
    metrics: set[str] = field(default_factory=set)  # that any result has


def load_history(paths: Sequence[str], metric: str = "", more_fields: Iterable[str] = ()) -> LoadedHistory:
    """Return the series of the results of files, folders or globs. `more_fields` separate series too.

    Without a metric, each kind of run has that by which it is ranked.

    Broken files, copies, failed runs and dates that cannot be true are left out, and named. Raises UsageError if a path
    has no result.
    """
    separating = tuple(more_fields)
    metrics = (metric,) if metric else (*rates(*KINDS), THROUGHPUT)
    query = Query(metrics, more_fields=tuple(dict.fromkeys((*ABOUT_RUNS, *separating))))
    collection = load_observations(paths, query)
    history = history_of(collection.observations, metric, separating)
    history.invalid, history.duplicates = collection.invalid, collection.duplicates
    history.metrics = collection.metrics
    return history


def history_of(observations: Iterable[Observation], metric: str = "", more_fields: Iterable[str] = ()) -> LoadedHistory:
    """Return the series of observations that have the fields of ABOUT_RUNS, and which of them are in none."""
    separating = tuple(more_fields)
    history = LoadedHistory([], [], 0)
    members: dict[Any, list[HistoryRun]] = defaultdict(list)
    for observation in observations:
        name = metric or _rate_of(observation)
        number = observation.numbers.get(name)
        started = datetime.fromisoformat(observation.fields[STARTED])
        if exclusion_fields(observation):
            history.excluded.append(observation.file)
        elif number is None or number.value is None or number.value <= 0:
            history.without_value.append(observation.file)
        elif started < EARLIEST:  # one in the future is not valid
            history.undated.append(observation.file)
        else:
            key = series_key(observation, number.unit, separating)
            members[name, key].append(_run(observation, started, number.value))
    history.series = [
        Series(group, runs[0].observation.title, dict(sorted(fields)), name, unit, _sessions(runs))
        for (name, (group, unit, fields)), runs in members.items()
    ]
    history.series.sort(key=lambda each: (each.group, each.system, list(map(str, each.fields.items()))))
    return history


def _rate_of(observation: Observation) -> str:
    """Return the metric by which a run of its kind is ranked, of those that it has."""
    numbers = observation.numbers
    measured = (name for name in rates(observation.kind) if name in numbers and numbers[name].value is not None)
    return next(measured, THROUGHPUT)


def series_key(
    observation: Observation, unit: str, more_fields: Iterable[str] = ()
) -> tuple[ComparisonGroup, str, frozenset[tuple[str, Any]]]:
    """Return what the runs of a series have in common, with a metric in this unit."""
    return observation.group, unit, frozenset(_separating_fields(observation, more_fields).items())


def _run(observation: Observation, started: datetime, value: float) -> HistoryRun:
    return HistoryRun(started, value, observation, environment_of(observation), covariates_of(observation))


def _separating_fields(observation: Observation, more: Iterable[str]) -> dict[str, Any]:
    """Return the fields that distinguish series: all that are not of a run's environment."""
    left_out = {*ABOUT_RUNS} - set(more)
    values = observation.fields
    fields = {name: values[name] for name in values.keys() - left_out if not name.startswith(ENVIRONMENT)}
    return fields | {_VERSION: str(fields[_VERSION]).partition(".")[0]}


def _sessions(runs: Iterable[HistoryRun]) -> tuple[RunSession, ...]:
    sessions: list[list[HistoryRun]] = []
    for run in sorted(runs, key=lambda each: (each.started, each.observation.id)):
        first = sessions[-1][0] if sessions else None
        if first and run.started - first.started < SESSION and not has_changed(first.environment, run.environment):
            sessions[-1].append(run)
        else:
            sessions.append([run])
    return tuple(RunSession(tuple(each)) for each in sessions)
