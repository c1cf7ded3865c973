"""The results to compare, read from one or two paths and each counted once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, UsageError, unknown_name
from sifmark.results.catalogue import Role, column_of, headlines, kind_of, paths_with
from sifmark.results.comparison.compatibility import DECISIVE, FIELDS, format_value, unit_field
from sifmark.results.comparison.observation import EVALUATED, PLATFORM, SETTING, Observation, observe
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.scaling import THROUGHPUT
from sifmark.results.documents import MetricValue, has_path, metric_value, metrics_of
from sifmark.results.envelope import signer_of
from sifmark.results.load import LoadedResult, SeenRuns, load_all
from sifmark.results.marks import WITHHOLDING

Document = dict[str, Any]
Measure = Callable[[Document], Mapping[str, MetricValue]]  # numbers of a document that are none of its metrics
Replace = Callable[[LoadedResult], LoadedResult]
MOST_VALUES = 20  # named in a message


@dataclass
class ResultCollection:
    """Observations of one or two sides, and what else is to be known of the documents they were read from."""

    observations: list[Observation] = field(default_factory=list)
    metrics: set[str] = field(default_factory=set)  # that any result has, compared or not
    fields: set[str] = field(default_factory=set)  # those of the query that any result has, even with the value null
    invalid: list[str] = field(default_factory=list)
    unsigned: list[str] = field(default_factory=list)
    duplicates: int = 0

    def add_baselines(self, baselines: Iterable[Observation]) -> None:
        """Add baselines that were not read from result files here."""
        for observation in baselines:
            self.observations.append(observation)
            self.metrics.update(observation.numbers)

    def require_names(self, query: Query) -> None:
        """Raise UsageError if the query names a field, metric or baseline that no result has."""
        if self.observations:
            self._require_fields(query)
            self._require_baseline(query)
        self._require_metrics(query)
        self._require_allowed(query)

    def _require_fields(self, query: Query) -> None:
        # EVALUATED is computed, so it is in no document.
        names = self.fields | {EVALUATED for observation in self.observations if EVALUATED in observation.fields}
        for name in query.named_fields:
            if name not in names:
                existing = names.union(*(observation.fields for observation in self.observations)) - {name}
                raise no_such_field(name, existing)

    def _require_baseline(self, query: Query) -> None:
        if query.baseline and not any(map(query.is_baseline, self.observations)):
            name, value = query.baseline
            values = sorted({format_value(observation.fields.get(name)) for observation in self.observations})
            raise UsageError(
                f"no result has {column_of(name)}={value}",
                f"the whole value counts; existing values: {', '.join(values[:MOST_VALUES])}",
                code="baseline-missing",
            )

    def _require_metrics(self, query: Query) -> None:
        if query.every_metric or query.by_default or not self.metrics:
            return
        for name in query.metrics:
            if name not in self.metrics:
                raise unknown_name("metric", name, self.metrics)

    def _require_allowed(self, query: Query) -> None:
        settings = {name for observation in self.observations for name in observation.fields if _is_setting(name)}
        fields = {*DECISIVE, *settings, *PLATFORM, *paths_with(Role.SETTING), *WITHHOLDING}
        for name in sorted(query.allowed):
            if name not in fields | set(map(unit_field, self.metrics)):
                raise unknown_name("field", column_of(name), map(column_of, fields))


def load_observations(
    paths: Iterable[str],
    query: Query,
    against: str = "",
    trusted_keys: Sequence[str] | None = None,
    measure: Measure | None = None,
    replaced: Replace | None = None,
) -> ResultCollection:
    """Return every valid result of each side once, with the metrics of the query; of the rest, the problem.

    With `trusted_keys`, one that none of them has signed is left out. `measure` gives observations more numbers.
    `replaced` returns what is read in place of a result.
    Raises UsageError if a path has no result.
    """
    sides = (load_all(names) for names in (paths, [against] if against else []))
    ours, theirs = (map(replaced, loaded) if replaced else loaded for loaded in sides)
    return collect(ours, theirs, query, trusted_keys, measure)


def collect(
    results: Iterable[LoadedResult],
    against: Iterable[LoadedResult],
    query: Query,
    trusted_keys: Sequence[str] | None = None,
    measure: Measure | None = None,
) -> ResultCollection:
    """Return the same of results that are loaded already, and of those of the other side."""
    collection = ResultCollection()
    for side, loaded in (("results", results), ("against", against)):
        seen = SeenRuns()
        for result in loaded:
            if result.problems:
                collection.invalid.append(printable(f"{result.file}: {result.problems[0]}"))
                continue
            if trusted_keys is not None and (reason := _distrust(result.path, tuple(trusted_keys))):
                collection.unsigned.append(printable(f"{result.file}: {reason}"))
                continue
            if seen.has_copy_of(result.document):
                collection.duplicates += 1
            else:
                _add(collection, result, side, query, measure)
    return collection


@lru_cache(maxsize=1)  # the results of a file follow each other
def _distrust(file: Path, keys: tuple[str, ...]) -> str:
    """Return why a file is not signed by a trusted key; empty if it is. Raises UsageError for an unusable key."""
    try:
        signer_of(file, keys)
    except UsageError:
        raise
    except SifmarkError as error:
        return error.cause
    return ""


def _add(collection: ResultCollection, result: LoadedResult, side: str, query: Query, measure: Measure | None) -> None:
    metrics = metrics_of(result.document)
    collection.metrics.update(metrics)
    collection.fields.update(name for name in query.extra_fields if has_path(result.document, name))
    own = headlines(kind_of(result.document)) if query.by_default else ()
    names = metrics if query.every_metric else {*query.metrics, *own, THROUGHPUT}  # which scaling needs
    numbers = {name: metric_value(metrics[name]) for name in names if name in metrics}
    numbers |= measure(result.document) if measure else {}
    fields = (*FIELDS, *query.extra_fields)
    collection.observations.append(observe(result.document, side, result.file, fields, numbers))


def _is_setting(name: str) -> bool:
    return name.startswith(SETTING)


def no_such_field(name: str, names: Iterable[str]) -> UsageError:
    """Return the error for a field that no result has, with the nearest of those that are there."""
    remedy = f"name it as in tables, or by its dotted path in the result: for example {_nearest_field(name, names)}"
    return UsageError(f"no result has the field {column_of(name)!r}", remedy, code="unknown-name")


def _nearest_field(name: str, names: Iterable[str]) -> str:
    """Return the field whose last part is most like that of a name; without one, two that every result has."""
    from difflib import get_close_matches  # here: only a mistyped name needs it

    by_last = {each.rpartition(".")[2]: each for each in names}
    nearest = get_close_matches(name.rpartition(".")[2], by_last, n=1)
    return column_of(by_last[nearest[0]]) if nearest else "precision or host.hostname"
