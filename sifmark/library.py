"""Results as Python programs use them: load, look at, tabulate, compare, and gate.

>>> import sifmark
>>> results = sifmark.load("results/")
>>> table = results.compare(baseline={"site": "alpha"}, metrics=["throughput"])
>>> print(table)
>>> table.gate(minimum=0.95).passed
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.core.errors import UsageError, missing_extra, unknown_name
from sifmark.core.files import write_text
from sifmark.core.keys import require_trusted_keys
from sifmark.core.settings import Settings, load_settings
from sifmark.results.catalogue import column_of, kind_of, path_of
from sifmark.results.comparison.collection import collect, no_such_field
from sifmark.results.comparison.compare import Comparison as Compared
from sifmark.results.comparison.compare import compare_collection, compare_results
from sifmark.results.comparison.exports import comparison_rows
from sifmark.results.comparison.gate import Gate, GateVerdict
from sifmark.results.comparison.query import DEFAULT_METRICS, KEPT, PUBLISHED, Query
from sifmark.results.comparison.sessions import BETWEEN
from sifmark.results.comparison.text import as_markdown, as_text
from sifmark.results.documents import MetricValue, has_path, metric_value, metrics_of, value_at
from sifmark.results.load import LoadedResult, SeenRuns, load_all, study_of
from sifmark.results.marks import Mark, marks_of_result
from sifmark.results.tidy import ResultPlace, Row, Table, columns, rows

if TYPE_CHECKING:
    from pandas import DataFrame

    from sifmark.results.comparison.observation import Observation

AnyPath = str | PathLike[str]
EVERY_METRIC = "all"
PANDAS = "pandas"


def load(*paths: AnyPath | Iterable[AnyPath]) -> "Results":
    """Return the results of files, folders, archives or globs, each run once.

    Paths are given one by one or as an iterable. Files that hold no valid result are in `Results.invalid`, with their
    problems.

    Raises UsageError for a path without results.
    """
    every = chain.from_iterable([each] if isinstance(each, str | PathLike) else each for each in paths)
    return Results.of(load_all(str(fspath(path)) for path in every))


def compare(
    *paths: AnyPath,
    baseline: Mapping[str, Any] | AnyPath | None = None,
    against: str = "",
    metrics: Iterable[str] | str = DEFAULT_METRICS,
    by: Iterable[str] | str = (),
    allow: Iterable[str] | str = (),
    between: float = BETWEEN,
    trusted_keys: Sequence[str] | None = None,
    settings: Settings | None = None,
) -> "Comparison":
    """Return the comparison of files, folders, archives or globs, as `Results.compare` does of loaded results.

    Documents are not kept in memory. `baseline` is a field with its value or the place of other results, `against` a
    kept baseline: `baseline:NAME`. With `trusted_keys` only results that one of them has signed are compared.

    Raises UsageError for a name that no result has, or a path without results.
    """
    if against and baseline is not None:
        cause = f"two baselines are named: {against} and another"
        raise UsageError(cause, "ask for one of them: --against or --baseline", code="invalid-option")
    require_trusted_keys(trusted_keys)
    place = "" if baseline is None or isinstance(baseline, Mapping) else str(fspath(baseline))
    query = _query(metrics, by, allow, None if place else baseline, against=bool(place or against), between=between)
    kept = _kept(against, query, settings, trusted_keys is not None)
    return Comparison(compare_results((str(fspath(path)) for path in paths), query, place, trusted_keys, kept))


@dataclass(frozen=True)
class Result:
    """One valid result. `document` is the whole document, as `schemas/result-1.2.md` describes it."""

    file: str
    document: dict[str, Any]
    study: str = ""

    def __getitem__(self, name: str) -> Any:
        """Return a field by its name in tables or its dotted path: `batch_size`, `host.hostname`. None if missing."""
        return value_at(self.document, path_of(name))

    def __repr__(self) -> str:
        shown = ("workload.name", "workload.task", "precision", "status.state")
        return f"<Result {' '.join(str(self[name]) for name in shown)}: {self.file}>"

    @property
    def id(self) -> str:
        """The UUID of the run."""
        return str(self.document["id"])

    @property
    def kind(self) -> str:
        """The kind of run: training, inference, requests, generation, sampling or microbenchmark."""
        return kind_of(self.document)

    @property
    def completed(self) -> bool:
        """Whether the run completed."""
        return bool(self.document["status"]["state"] == "completed")

    @cached_property
    def metrics(self) -> Mapping[str, MetricValue]:
        """Its metrics by name: value, unit, and the reason if there is no value; phases and epochs among them."""
        return {name: metric_value(metric) for name, metric in metrics_of(self.document).items()}

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The reasons not to publish its numbers."""
        return marks_of_result(self.document)

    def rows(self, table: Table | str = Table.RUNS) -> Iterator[Row]:
        """Yield its rows in a tidy table."""
        return rows(Table.named(table), self.document, ResultPlace(self.file, self.study))


@dataclass(frozen=True)
class Results(Sequence[Result]):
    """Loaded results: a sequence of the valid ones, each run once."""

    valid: tuple[Result, ...]
    invalid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # problems, by file
    duplicates: tuple[str, ...] = ()  # files with copies of other results

    @classmethod
    def of(cls, loaded: Iterable[LoadedResult]) -> "Results":
        """Return loaded results, each run once."""
        valid: list[Result] = []
        invalid: dict[str, tuple[str, ...]] = {}
        duplicates: list[str] = []
        seen = SeenRuns()
        for each in loaded:
            if each.problems:
                invalid[each.file] = (*invalid.get(each.file, ()), *each.problems)
                continue
            if seen.has_copy_of(each.document):
                duplicates.append(each.file)
            else:
                valid.append(Result(each.file, each.document, study_of(each.path)))
        return cls(tuple(valid), invalid, tuple(duplicates))

    def __len__(self) -> int:
        return len(self.valid)

    def __repr__(self) -> str:
        return f"<Results: {len(self)} valid, {len(self.invalid)} invalid, {len(self.duplicates)} duplicates>"

    def __getitem__(self, place: Any) -> Any:
        return Results(self.valid[place]) if isinstance(place, slice) else self.valid[place]

    def where(self, **fields: Any) -> "Results":
        """Return the results whose fields have these values; `__` stands for a dot: `workload__name="resnet50"`.

        Raises UsageError for a field that no result has.
        """
        wanted = {name.replace("__", "."): value for name, value in fields.items()}
        known = dict(columns(Table.RUNS))
        for name in wanted:
            if column_of(name) not in known and not any(has_path(each.document, path_of(name)) for each in self.valid):
                raise no_such_field(name, known)
        kept = (each for each in self.valid if all(each[name] == value for name, value in wanted.items()))
        return Results(tuple(kept))

    def rows(self, table: Table | str = Table.RUNS) -> Iterator[Row]:
        """Yield the rows of a tidy table, `runs`, `points` or `steps`, as dictionaries with all of its columns."""
        for each in self.valid:
            yield from each.rows(table)

    def to_frame(self, table: Table | str = Table.RUNS) -> "DataFrame":
        """Return a tidy table as a pandas data frame.

        Raises SifmarkError if pandas is not installed.
        """
        return _frame(self.rows(table), list(columns(Table.named(table))), ("started", "finished"))

    def points(self) -> "DataFrame":
        """Return the curves inside results: bandwidth by size, latency by percentile, epochs, evaluations."""
        return self.to_frame(Table.POINTS)

    def steps(self) -> "DataFrame":
        """Return what was kept of single steps and requests, and of power over time."""
        return self.to_frame(Table.STEPS)

    def export(self, file: AnyPath, table: Table | str = Table.RUNS, form: str = "") -> Path:
        """Write a tidy table to a file, in the format of its suffix or in `form`: csv, json, jsonl, parquet, duckdb.

        Formats of other programs are no tables: openmetrics, mllog, bencher, customBiggerIsBetter,
        customSmallerIsBetter, junit.
        Raises UsageError for another format, SifmarkError if its package is missing.
        """
        from sifmark.results.consumers import consumer_of  # here: a comparison needs none of it
        from sifmark.results.export import format_of, write_file

        target = Path(file)
        if consumer := consumer_of(form, target.suffix):
            write_text(target, consumer.write(self._loaded()))
        else:
            write_file(self.rows(table), Table.named(table), format_of(form, target), target)
        return target

    def compare(
        self,
        baseline: "Mapping[str, Any] | Results | None" = None,
        metrics: Iterable[str] | str = DEFAULT_METRICS,
        by: Iterable[str] | str = (),
        allow: Iterable[str] | str = (),
        between: float = BETWEEN,
    ) -> "Comparison":
        """Return the comparison of all results, with ratios to a baseline: a field with its value, or other results.

        `metrics` may be "all". `by` are fields that separate rows besides the usual ones, `allow` fields that may
        differ although they make results incomparable, or marks that withhold no verdict: busy, stopped, unsteady.
        `between` is the standard deviation between sessions where results do not show it, a fraction.

        Raises UsageError for a name that no result has, or another kind of baseline.
        """
        against = baseline if isinstance(baseline, Results) else None
        field_value = None if isinstance(baseline, Results) else baseline
        query = _query(metrics, by, allow, field_value, against is not None, between)
        others = () if against is None else against._loaded()
        return Comparison(compare_collection(collect(self._loaded(), others, query), query))

    def report(self, folder: AnyPath = "report", **options: Any) -> Path:
        """Write a report, a page with tables and charts, into a folder and return the path of the page.

        `options` are those of `sifmark.report.library.report`: study, against, by, baseline, allow, title,
        paper, anonymous.

        Raises SifmarkError if there is no valid result, or files for papers need the extra `report`.
        """
        from sifmark.report.library import report  # here: charts load slowly
        from sifmark.report.write import PAGE

        files = list(dict.fromkeys(each.file for each in self.valid))
        written = report(files, Path(folder), only=[each.id for each in self.valid], **options)
        return written.folder / PAGE

    def _loaded(self) -> Iterator[LoadedResult]:
        return (LoadedResult(each.file, each.document) for each in self.valid)


@dataclass(frozen=True)
class Comparison:
    """What can be compared, as text, rows or a data frame, and a gate on it. `compared` has all details."""

    compared: Compared

    def __str__(self) -> str:
        return as_text(self.compared)

    def __repr__(self) -> str:
        counts = f"{len(self.rows())} rows, {len(self.excluded)} results excluded"
        return f"<Comparison of {', '.join(self.compared.query.metrics)}: {counts}; print it to see its tables>"

    def to_markdown(self) -> str:
        """Return its tables in Markdown."""
        return as_markdown(self.compared)

    def rows(self) -> list[Row]:
        """Return a row for each configuration and metric: fields, value, interval, ratio, verdict."""
        return list(comparison_rows(self.compared))

    def to_frame(self) -> "DataFrame":
        """Return the same rows as a pandas data frame.

        Raises SifmarkError if pandas is not installed.
        """
        kept = self.rows()
        return _frame(kept, list(dict.fromkeys(name for row in kept for name in row)))

    @property
    def refused(self) -> list[str]:
        """Why some results were not compared with each other."""
        return [each.difference for each in self.compared.refused]

    @property
    def excluded(self) -> dict[str, str]:
        """Which results were left out, and why, by file."""
        return {each.result.file: each.reason for each in self.compared.excluded}

    def gate(
        self, minimum: float | None = None, maximum: float | None = None, *, allow_missing: bool = False
    ) -> GateVerdict:
        """Return whether the ratio of the first metric to its baseline keeps a limit in every row.

        A baseline without a counterpart leaves that undecided, unless `allow_missing`.

        Raises UsageError for other than one limit, or one that would let the worse pass.
        """
        gate = Gate.of(minimum, maximum)
        gate.require_sense(self.compared)
        return gate.judge(self.compared, allow_missing)


def _query(
    metrics: Iterable[str] | str,
    by: Iterable[str] | str,
    allow: Iterable[str] | str,
    baseline: Any,
    against: bool,
    between: float,
) -> Query:
    """Return what is asked of results. Raises UsageError."""
    if not 0 <= between < 1:
        cause = f"the spread between sessions is a fraction from 0 to below 1, not {between:g}"
        raise UsageError(cause, "for example 0.01, which is 1 %", code="invalid-option")
    names = () if metrics == EVERY_METRIC else _names(metrics)
    if not names and metrics != EVERY_METRIC:
        raise UsageError("the list of metrics is empty", f"name some, or {EVERY_METRIC}", code="invalid-option")
    return Query(
        metrics=names or DEFAULT_METRICS,
        every_metric=metrics == EVERY_METRIC,
        more_fields=tuple(map(path_of, _names(by))),
        allowed=frozenset(map(path_of, _names(allow))),
        against=against,
        baseline=None if baseline is None else _field_and_value(baseline),
        between=between,
    )


def _kept(against: str, query: Query, settings: Settings | None, signed: bool) -> "Iterable[Observation]":
    """Return the observations of a kept baseline, `baseline:NAME`. Raises SifmarkError."""
    if not against:
        return ()
    kind, _, name = against.partition(":")
    if kind != KEPT or not name:
        raise unknown_name("kind of reference", against, (f"{KEPT}:NAME", f"{PUBLISHED}:NAME"))
    if signed:
        remedy = "compare with the signed results themselves: --baseline RESULTS"
        raise UsageError("a baseline has no signatures of its results", remedy, code="invalid-option")
    from sifmark.studies.history.baseline import read_baseline  # here: most comparisons need none

    return read_baseline((settings or load_settings()).baselines, name).observations(query.extra_fields)


def _names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple: one name alone is a string, which would come apart into letters."""
    return (names,) if isinstance(names, str) else tuple(names)


def _field_and_value(baseline: Mapping[str, Any]) -> tuple[str, str]:
    if not isinstance(baseline, Mapping) or len(baseline) != 1:
        raise UsageError(
            "a baseline is one field with its value, or Results", 'for example {"site": "alpha"}', code="invalid-option"
        )
    ((name, value),) = baseline.items()
    return path_of(name), str(value)


def _frame(kept: Iterable[Row], names: Sequence[str], times: Iterable[str] = ()) -> "DataFrame":
    try:
        import pandas  # here: an extra
    except ImportError:
        raise missing_extra(PANDAS, "a data frame", [PANDAS]) from None
    frame = pandas.DataFrame(kept, columns=names)
    for name in times:
        if name in frame:
            frame[name] = pandas.to_datetime(frame[name], format="ISO8601")
    return frame
