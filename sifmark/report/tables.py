"""Tables of a report, the same on its page and in its files: cells of text with their marks and ratios."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import Any

from sifmark.report.describe import (
    FIRST_FIELDS,
    all_marks,
    basis_of,
    configuration_of,
    fields_apart,
    head,
    legend_of,
    mean_text,
    scale_of_points,
    titled,
)
from sifmark.report.results import Point, ReportResults
from sifmark.report.workloads import Workload, judged
from sifmark.results.catalogue import MICROBENCHMARK, metric_label
from sifmark.results.comparison.columns import cell_text
from sifmark.results.comparison.compatibility import NUMERICS
from sifmark.results.comparison.intervals import Mean
from sifmark.results.comparison.observation import NODES, PLATFORM, PRECISION
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.comparison.scaling import BATCH, DEVICES, STRATEGY
from sifmark.results.comparison.tables import EXPECTED, disturbances_of, ratio_text, session_notes, unlike_baselines
from sifmark.results.marks import Mark, letters_of_marks
from sifmark.results.numbers import Scale, split_interval

STEP_TIME, PER_DEVICE = "step_time_p50", "throughput_per_device"
# Metrics of a table after the headlines of its kind of run.
_MORE = (
    STEP_TIME,
    "step_time_p99",
    PER_DEVICE,
    "utilisation_of_measured_peak",
    "throughput_per_watt",
    "units_per_watt_hour",
    "energy_per_epoch",
    "power_mean",
    "utilisation",
    "fraction_of_bound",
    "peak_allocated_memory",
    "peak_process_memory",
    "time_to_first_step",
    "time_to_result",
    "epoch_time",
    "training_time",
)
# The same of micro-benchmarks: rates and efficiencies of a whole sweep over sizes say nothing of a device.
_OF_SWEEPS = ("power_mean", "peak_allocated_memory", "peak_process_memory", "time_to_first_step")


class Kind(Enum):
    """What a column has."""

    TEXT = "text"
    SYSTEM = "system"
    NUMBER = "number"
    RATIO = "ratio"


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    head: str
    kind: Kind = Kind.TEXT
    note: str = ""  # small, below the head
    ratio: str = ""  # what the ratios of its numbers are: `relative to alpha`; empty without them


@dataclass(frozen=True)
class Cell:
    """A text or number, with what stands small behind it, and the marks that accompany it."""

    text: str = "-"
    small: str = ""  # an interval, a unit
    marks: tuple[Mark, ...] = ()
    ratio: str = ""
    look: str = ""  # a class of CSS: what the ratio says, the best of a workload, a failure
    anchor: str = ""  # of the result that it leads to

    @property
    def whole(self) -> str:
        """All of it but the ratio as one text."""
        return " ".join(filter(None, (self.text, self.small, letters_of_marks(self.marks))))


@dataclass(frozen=True)
class Row:
    """A row, of a system or of none."""

    cells: tuple[Cell, ...]
    system: str = ""
    group: tuple[str, str] = ("", "")  # what it has in common with its neighbours, and what is said small of that
    share: float | None = None  # of the largest: the length of a bar


@dataclass(frozen=True)
class Table:
    """A table. `name` is that of its files: lower-case letters, digits and hyphens."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    notes: tuple[str, ...] = ()  # below it

    @property
    def marks(self) -> tuple[Mark, ...]:
        return all_marks(cell for row in self.rows for cell in row.cells)

    @property
    def legend(self) -> str:
        return legend_of(self.marks)

    @property
    def blocks(self) -> list[tuple[tuple[str, str], list[Row]]]:
        return [(group, list(rows)) for group, rows in groupby(self.rows, key=lambda row: row.group)]

    @property
    def has_bars(self) -> bool:
        return any(row.share is not None for row in self.rows)


def plain_table(name: str, title: str, heads: Iterable[str], rows: Iterable[Iterable[str]], caption: str = "") -> Table:
    return Table(name, title, tuple(map(Column, heads)), tuple(Row(tuple(map(Cell, row))) for row in rows), caption)


def flat(table: Table, most: int | None = None) -> Table:
    """Return a table as files have it, with `most` numbers at most: groups and ratios are columns of their own."""
    numbers = [place for place, column in enumerate(table.columns) if column.kind is Kind.NUMBER]
    left = set() if most is None else set(numbers[most:])
    kept = [place for place in range(len(table.columns)) if place not in left]
    grouped = any(any(row.group) for row in table.rows)
    columns = [Column("workload")] if grouped else []
    for column in (table.columns[place] for place in kept):
        whole = "system" if column.kind is Kind.SYSTEM else " ".join(filter(None, (column.head, column.note)))
        columns.append(replace(column, head=whole))
        columns += [Column(column.ratio, Kind.RATIO)] if column.ratio else []
    rows = []
    for row in table.rows:
        cells = [Cell(", ".join(filter(None, row.group)))] if grouped else []
        for place in kept:
            cells.append(row.cells[place])
            cells += [Cell(row.cells[place].ratio or "-")] if table.columns[place].ratio else []
        rows.append(replace(row, cells=tuple(cells)))
    return replace(table, columns=tuple(columns), rows=tuple(rows))


def texts_of(table: Table) -> list[list[str]]:
    """Return a table as rows of texts, the first of which is its head."""
    whole = flat(table)
    rows = ([cell.whole or "-" for cell in row.cells] for row in whole.rows)
    return [[column.head for column in whole.columns], *rows]


def number_cell(point: Point, scale: Scale, **more: Any) -> Cell:
    """Return a measured number with its interval, its marks and its ratio."""
    text, interval = split_interval(mean_text(point.mean, scale))
    if point.ratio:
        more = {"ratio": ratio_text(point.ratio, point.unit), "look": judged(point.ratio, point.metric), **more}
    return Cell(text, interval, point.marks, **more)


def notes_of_ratios(rows: Sequence[RepeatGroup], query: Query) -> Iterator[str]:
    """Yield in which settings rows differ from their baselines, and what verdicts allow for."""
    yield from unlike_baselines(rows, query)
    yield from session_notes([row for row in rows if row.ratios], query)


@dataclass(frozen=True)
class _Line:
    """A row in the making: of a system of the report, or of the results that systems are divided by."""

    fields: Mapping[str, Any]
    cells: dict[str, Cell]
    counts: set[int]
    anchor: str = ""


def workload_table(workload: Workload) -> Table | None:
    """Return all that systems measured of a workload: a row for each configuration and system, a column for each
    metric. None if no result has a value that may be compared.
    """
    measured = {metric: workload.points(metric) for metric in _metrics(workload)}
    points = [point for of_metric in measured.values() for point in of_metric]
    if not points:
        return None
    results, counts = workload.results, {point.mean.count for point in points}
    identity = fields_apart(points, results.by)
    shown = _shown_fields(points, identity)
    lines: dict[tuple[Any, ...], _Line] = {}
    columns = []
    for metric, of_metric in measured.items():
        scale = scale_of_points(of_metric)
        ratio = f"relative to {results.divisor}" if any(point.ratio for point in of_metric) else ""
        columns.append(Column(titled(metric_label(metric), scale.unit), Kind.NUMBER, ratio=ratio))
        for key, line, cell, count in _cells(results, of_metric, scale, identity):
            kept = lines.setdefault(key, line)
            kept.cells[metric] = cell
            kept.counts.add(count)
    order = {name: place for place, name in enumerate((results.reference_name, *results.systems))}
    keys = sorted(lines, key=lambda key: (_order(lines[key].fields, shown), order[key[0]], str(key[1:])))
    repeats = [Column("repeats")] if len(counts) > 1 else []
    rows = [_row(key[0], lines[key], shown, measured, bool(repeats)) for key in keys]
    common = configuration_of(points[0].observation, [name for name in FIRST_FIELDS if name not in shown])
    ratios = f"Ratios to {results.divisor}." if any(column.ratio for column in columns) else ""
    return Table(
        name=workload.anchor,
        title=f"{workload.title}, {workload.task}",
        columns=(*(Column(head(name)) for name in shown), Column("system", Kind.SYSTEM), *columns, *repeats),
        rows=tuple(rows),
        caption=" ".join(filter(None, (f"{common}." if common else "", basis_of(points), ratios))),
        notes=tuple(dict.fromkeys(_notes_of(results, measured))),
    )


def _cells(
    results: ReportResults, points: Iterable[Point], scale: Scale, identity: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], _Line, Cell, int]]:
    """Yield the numbers of a metric, each with what identifies its row, also those of other results beside them."""
    for point in points:
        line = _Line(point.fields, {}, set(), point.results[0].anchor)
        yield (point.system, point.observation.id), line, number_cell(point, scale), point.mean.count
        if reference := _reference(point):
            mean: Mean = reference.means[point.metric]
            key = (results.reference_name, *(reference.fields.get(name) for name in identity))
            yield key, _Line(reference.fields, {}, set()), Cell(*split_interval(mean_text(mean, scale))), mean.count


def _row(system: str, line: _Line, shown: Sequence[str], metrics: Iterable[str], is_counted: bool) -> Row:
    cells = [Cell(cell_text(line.fields.get(name))) for name in shown]
    cells += [Cell(system, anchor=line.anchor), *(line.cells.get(metric, Cell()) for metric in metrics)]
    cells += [Cell(" to ".join(map(str, sorted(line.counts))))] if is_counted else []
    return Row(tuple(cells), system)


def _reference(point: Point) -> RepeatGroup | None:
    """Return what a point is divided by if that is no result of the report."""
    return point.row.baseline if point.row.baseline and point.row.baseline.side != point.row.side else None


def _metrics(workload: Workload) -> list[str]:
    """Return the metrics that have values, without that which would repeat throughput: per device, of one device."""
    others = _OF_SWEEPS if workload.kind == MICROBENCHMARK else _MORE
    named = [name for name in dict.fromkeys((*workload.headlines, *others)) if workload.points(name)]
    one_device = all(point.fields[DEVICES] == 1 for point in workload.points(PER_DEVICE))
    return [name for name in named if not (name == PER_DEVICE and one_device)]


def _notes_of(results: ReportResults, measured: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    """Yield why a number has no ratio, or one that says nothing, and what ratios are of."""
    for metric, points in measured.items():
        yield from notes_of_ratios([point.row for point in points], results.compare(metric).query)
        for point in points:
            if point.ratio and point.ratio.reason:
                yield f"cannot tell: {point.ratio.reason}"
            if point.row.no_baseline:
                yield f"no ratio: {point.row.no_baseline}"
            if reference := _reference(point):
                texts = (text.removeprefix("warning: ") for text in disturbances_of([reference]))
                yield from (f"of the reference: {text}" for text in texts)
                if reference.fields.get(NUMERICS) != "passed":
                    yield f"of the reference: {NUMERICS} {reference.fields.get(NUMERICS)}"


def _shown_fields(points: Sequence[Point], identity: Sequence[str]) -> list[str]:
    """Return the fewest fields that distinguish all rows, the ones that readers look for among them."""
    shown = [name for name in FIRST_FIELDS if name in identity and not _says_nothing(points, name)]
    others = [name for name in identity if name not in shown]
    for name in sorted(others, key=lambda name: (name in PLATFORM, name)):
        if _distinct(points, shown) == _distinct(points, identity):
            break
        if _distinct(points, [*shown, name]) > _distinct(points, shown):
            shown.append(name)
    return shown or [name for name in (BATCH, PRECISION) if configuration_of(points[0].observation, [name])][:1]


def _says_nothing(points: Sequence[Point], name: str) -> bool:
    """Return whether all runs on several devices have the same value of a field that others do not have."""
    values = {point.fields.get(name) for point in points} - {None, EXPECTED.get(name)}
    return name in (STRATEGY, NODES) and (len(values) == 1 or values == {1})


def _distinct(points: Sequence[Point], fields: Sequence[str]) -> int:
    return len({tuple(point.fields.get(name) for name in fields) for point in points})


def _order(fields: Mapping[str, Any], shown: Sequence[str]) -> list[tuple[int, float, str]]:
    values = (fields.get(name) for name in shown)
    return [(0, value, "") if isinstance(value, int | float) else (1, 0, str(value)) for value in values]
