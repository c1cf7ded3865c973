"""What pages say of measurements: for each series the newest repeats, as `compare` has them, and what is left out."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sifmark.report.describe import FIRST_FIELDS, configuration_text, field_text, quantity_text
from sifmark.report.site.read import METRICS, SiteResult
from sifmark.results.catalogue import rates
from sifmark.results.comparison.compare import Comparison, ComparisonTable, compare_each
from sifmark.results.comparison.compatibility import Excluded, exclusion_fields
from sifmark.results.comparison.observation import PLATFORM
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup, varying_fields
from sifmark.results.comparison.scaling import THROUGHPUT
from sifmark.results.marks import MARKS, Mark, marks_of_number
from sifmark.studies.history.environment import is_variable
from sifmark.studies.history.series import ABOUT_RUNS, series_key

MOST_ROWS = 1000  # of a table
MOST_FILES = 10  # of a row


class _Number(NamedTuple):
    """A mean with its unit and interval, and as it is."""

    text: str
    value: float


_Numbers = Mapping[str, Mapping[Hashable, _Number]]  # by metric and the ID of the first repeat
_ENERGY = "energy_per_unit"
_LATENCIES = {
    "latency_p99": "p99",
    "time_to_first_token_p50": "to the first token",
    "time_between_tokens_p50": "between tokens",
}
_HIDDEN = {*PLATFORM, *ABOUT_RUNS, "schema_version", "power.scope"}


@dataclass(frozen=True)
class SeriesRow:
    """The newest repeats of one configuration on one system."""

    workload: str  # its name, as pages are called
    title: str
    task: str
    source: str
    system: str
    device: str
    settings: str
    repeats: int
    text: str  # its throughput, of generation in tokens, with unit and interval
    energy: str
    latency: str
    order: tuple[float | None, float | None, float | None]  # throughput, latency and energy, by which to sort
    marks: tuple[Mark, ...]
    day: str  # of the newest run
    files: tuple[str, ...]
    more_files: int
    ids: tuple[str, ...]


@dataclass(frozen=True)
class FailureRow:
    """A result that is no measurement, and why."""

    workload: str
    title: str
    task: str
    system: str
    device: str
    settings: str
    state: str
    reason: str
    day: str
    file: str
    id: str


@dataclass(frozen=True)
class Measurements:
    """What a page says of some results: a row for each series, the newest first within a workload."""

    rows: tuple[SeriesRow, ...]
    failures: tuple[FailureRow, ...]
    refused: tuple[str, ...]  # what `compare` refuses, and why

    @property
    def sections(self) -> dict[tuple[str, str, str], list[SeriesRow]]:
        """The rows by title of the workload, task and data."""
        sections: dict[tuple[str, str, str], list[SeriesRow]] = defaultdict(list)
        for row in self.rows:
            sections[row.title, row.task, row.source].append(row)
        return sections


def measured(members: Sequence[SiteResult], by: str) -> Measurements:
    """Return what `compare` says of some results, metric by metric, with systems named by a field."""
    by_id = {each.id: each for each in members}
    metrics = tuple(name for name in METRICS if name == THROUGHPUT or any(_has_value(each, name) for each in members))
    comparisons = compare_each([each.observation for each in members], Query(metrics, more_fields=(by,)))
    numbers = {metric: _numbers(comparison, metric) for metric, comparison in comparisons.items()}
    rows = [row for table in comparisons[THROUGHPUT].tables for row in _rows(table, by, by_id, numbers)]
    titles = {each.observation.group: each.observation.title for each in reversed(members)}
    refused = {
        f"{titles[each.group]}, {each.group.task}: {each.difference}"
        for comparison in comparisons.values()
        for each in comparison.refused
    }
    return Measurements(
        rows=tuple(sorted(rows, key=_order)),
        failures=tuple(_failures(members, by)),
        refused=tuple(sorted(refused)),
    )


def system_of(result: SiteResult, by: str) -> str:
    return _name(result.observation.fields, by)


def device_of(result: SiteResult) -> str:
    return _name(result.observation.fields, "accelerator.name")


def marks_named(*names: Iterable[str]) -> tuple[Mark, ...]:
    """Return the marks of these names, each once, in the order of legends."""
    every = {name for each in names for name in each}
    return tuple(mark for mark in MARKS if mark.name in every)


def settings_of(result: SiteResult) -> str:
    """Return what of a result's configuration readers look for first, in words."""
    return _settings(RepeatGroup("results", result.observation.fields, [result.observation]), ())


def _name(fields: Mapping[str, Any], by: str) -> str:
    value = fields.get(by)
    return "unknown" if value is None else str(value)


def _has_value(result: SiteResult, metric: str) -> bool:
    number = result.observation.numbers.get(metric)
    return number is not None and number.value is not None


def _numbers(comparison: Comparison, metric: str) -> dict[Hashable, _Number]:
    """Return the mean of a metric by the ID of the first repeat."""
    return {
        row.observations[0].id: _Number(quantity_text(mean, table.units[metric]), mean.value)
        for table in comparison.tables
        for row in table.rows
        if (mean := row.means[metric]).value is not None
    }


def _rows(table: ComparisonTable, by: str, by_id: Mapping[str, SiteResult], numbers: _Numbers) -> Iterator[SeriesRow]:
    newest: dict[Hashable, tuple[str, RepeatGroup]] = {}
    unit = table.units[THROUGHPUT]
    for row in table.rows:
        if row.means[THROUGHPUT].value is None:
            continue
        key = series_key(row.observations[0], unit)
        last = max(by_id[each.id].started for each in row.observations)
        if key not in newest or newest[key][0] < last:
            newest[key] = last, row
    rows = [row for _, row in newest.values()]
    varying = [name for name in varying_fields(rows) if name not in {*_HIDDEN, by} and not is_variable(name)]
    for last, row in newest.values():
        first = by_id[row.observations[0].id]
        rate, energy = _rate(first, numbers), numbers.get(_ENERGY, {}).get(first.id)
        latencies = list(_latencies(first, numbers))
        yield SeriesRow(
            workload=first.workload,
            title=table.title,
            task=table.group.task,
            source=table.group.source,
            system=_name(row.fields, by),
            device=device_of(first),
            settings=_settings(row, varying),
            repeats=len(row.observations),
            text=rate.text if rate else "-",
            energy=energy.text if energy else "",
            latency=", ".join(text for text, _ in latencies),
            order=(
                rate.value if rate else None,
                latencies[0].value if latencies else None,
                energy.value if energy else None,
            ),
            marks=marks_of_number(marks_named(by_id[each.id].marks) for each in row.observations),
            day=last[:10],
            files=tuple(each.file for each in row.observations[:MOST_FILES]),
            more_files=max(0, len(row.observations) - MOST_FILES),
            ids=tuple(each.id for each in row.observations),
        )


def _rate(result: SiteResult, numbers: _Numbers) -> _Number | None:
    """Return the first headline of which more is better."""
    shown = (numbers.get(name, {}).get(result.id) for name in (*rates(result.observation.kind), THROUGHPUT))
    return next(filter(None, shown), None)


def _latencies(result: SiteResult, numbers: _Numbers) -> Iterator[_Number]:
    for name, words in _LATENCIES.items():
        if number := numbers.get(name, {}).get(result.id):
            yield number._replace(text=f"{number.text} {words}")


def _settings(row: RepeatGroup, varying: Iterable[str]) -> str:
    usual = configuration_text(row.fields)
    others = [field_text(name, row.fields.get(name)) for name in varying if name not in FIRST_FIELDS]
    return ", ".join([*([usual] if usual else []), *others])


def _failures(members: Iterable[SiteResult], by: str) -> list[FailureRow]:
    excluded = [(each, names) for each in members if (names := exclusion_fields(each.observation))]
    excluded.sort(key=lambda pair: (pair[0].started, pair[0].id), reverse=True)
    return [_failure(each, names, by) for each, names in excluded]


def _failure(result: SiteResult, names: tuple[str, ...], by: str) -> FailureRow:
    observation = result.observation
    fields = observation.fields
    return FailureRow(
        workload=result.workload,
        title=observation.title,
        task=observation.group.task,
        system=_name(fields, by),
        device=device_of(result),
        settings=settings_of(result),
        state=result.state,
        reason=result.message or Excluded(observation, names).reason,
        day=result.started[:10],
        file=observation.file,
        id=result.id,
    )


def _order(row: SeriesRow) -> tuple[Any, ...]:
    return row.workload, row.title, row.task, row.source, row.system, row.device, _by_number(row.settings), row.ids


def _by_number(text: str) -> list[tuple[int, str]]:
    """Return a key by which `batch size 8` comes before `batch size 16`."""
    parts = re.findall(r"\d{1,18}|\D+|\d", text, re.ASCII)
    return [(int(part), "") if part.isascii() and part.isdigit() else (0, part) for part in parts]
