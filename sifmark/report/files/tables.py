"""The tables of a report as they are in files: cells of text, with marks, whatever writes them."""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from sifmark.core.console import markdown_lines
from sifmark.core.spreadsheets import write_rows
from sifmark.report.charts.chart import Chart
from sifmark.report.content.overview import Best, Summary, SummaryRow
from sifmark.report.content.sections import ReportSection
from sifmark.report.content.systems import SystemTable
from sifmark.report.content.tables import MOST_COLUMNS, MetricTable, TableRow, all_marks, ratio_words
from sifmark.report.describe import mean_text
from sifmark.report.report import Report
from sifmark.report.results import Point
from sifmark.results.comparison.intervals import CONFIDENCE, Mean
from sifmark.results.marks import Mark
from sifmark.results.numbers import Scale

_NAME = re.compile(r"[^a-z0-9]+")


class Kind(Enum):
    """What a column has."""

    TEXT = "text"
    NUMBER = "number"
    RATIO = "ratio"


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    head: str
    kind: Kind = Kind.TEXT


@dataclass(frozen=True)
class Cell:
    """A text, or a number with its interval and the symbols of its marks."""

    text: str
    interval: str = ""  # ± 1.2 %, or [low, high]
    marks: str = ""

    @property
    def whole(self) -> str:
        """All of it as one text."""
        return " ".join(filter(None, (self.text, self.interval, self.marks and f"({self.marks})")))


@dataclass(frozen=True)
class FileTable:
    """A table with the name of its files."""

    name: str  # lower-case letters, digits and hyphens
    title: str
    notes: tuple[str, ...]  # what a caption adds: statistics, what rows have in common, marks
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def caption(self) -> str:
        """Title and notes."""
        return " ".join((f"{self.title}.", *self.notes))


def tables_of(report: Report) -> Iterator[FileTable]:
    """Yield the tables of a report in the order of its page."""
    yield summary_table(report.summary)
    yield from (output_table(chart) for chart in report.all_charts if chart.is_table)
    for section in report.sections:
        yield from (measured_table(section, table) for table in (*section.tables, *section.more_tables))
    yield systems_table(report.systems)


def markdown_table(table: FileTable) -> str:
    """Return a table in Markdown, without its title."""
    rows = [[column.head for column in table.columns], *([cell.whole for cell in row] for row in table.rows)]
    return "\n".join(markdown_lines(rows)) + "\n"


def csv_table(table: FileTable) -> str:
    """Return a table as CSV."""
    rows = [[column.head for column in table.columns], *([cell.whole for cell in row] for row in table.rows)]
    text = io.StringIO()
    write_rows(text, rows)
    return text.getvalue()


def output_table(chart: Chart) -> FileTable:
    """Return a table that a study declares."""
    rows = tuple(tuple(map(Cell, row)) for row in chart.table.rows)
    return FileTable(chart.name, chart.title, (chart.explanation,), tuple(map(Column, chart.table.columns)), rows)


def summary_table(summary: Summary) -> FileTable:
    """Return the best of each workload by system, a row for each of them."""
    rows = [
        _summary_row(row, name, best)
        for row in summary.rows
        for name, best in zip(summary.systems, row.best, strict=True)
        if best is not None or not any(row.best)
    ]
    ratio = f"relative to {summary.baseline}" if summary.baseline else ""
    marks = all_marks(best.point for row in summary.rows for best in row.best if best)
    columns = [Column("workload"), Column("metric"), Column("system"), Column("best", Kind.NUMBER), Column("unit")]
    columns += [Column("configuration"), Column("beside it"), *([Column(ratio, Kind.RATIO)] if ratio else [])]
    kept = [place for place, column in enumerate(columns) if any(row[place].text for row in rows)]
    return FileTable(
        name="summary",
        title="The best of each workload",
        notes=(f"Geometric means over repeats, with {CONFIDENCE:.0%} intervals.", *_legend(marks)),
        columns=tuple(columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in rows),
    )


def _summary_row(row: SummaryRow, system: str, best: Best | None) -> tuple[Cell, ...]:
    names = [Cell(f"{row.title}, {row.section.key.task}"), Cell(row.label), Cell(system)]
    if best is None:
        return (*names, *map(Cell, ("-", row.unit, "-", "", "-")))
    ratio = f"not compared: {best.unlike}" if best.unlike else ratio_words(best.ratio, best.point.unit)
    texts = (best.scale.unit, best.configuration or "-", ", ".join(best.beside), ratio)
    return (*names, _number(best.point, best.scale), *map(Cell, texts))


def measured_table(section: ReportSection, table: MetricTable) -> FileTable:
    """Return what systems measured of a metric: few of them side by side, many in a row each."""
    unit = "" if table.unit == "1" else f" in {table.scale.unit}"
    notes = [f"{table.common}." if table.common else "", table.basis, *_legend(table.marks)]
    arrange = _side_by_side if len(table.systems) <= MOST_COLUMNS else _below_each_other
    columns, rows = arrange(table)
    fields = [*map(Column, table.fields), *([Column(table.reference, Kind.NUMBER)] if table.reference else [])]
    return FileTable(
        name=f"{section.anchor}-{_slug(table.metric)}",
        title=f"{_sentence(table.title)}{unit} of {section.short_title}",
        notes=tuple(filter(None, notes)),
        columns=(*fields, *columns),
        rows=tuple(rows),
    )


Arrangement = tuple[list[Column], list[tuple[Cell, ...]]]


def _side_by_side(table: MetricTable) -> Arrangement:
    """Return a column for each system, then one for each ratio."""
    below = table.reference or table.baseline
    columns = [Column(name, Kind.NUMBER) for name in table.systems]
    columns += [Column(f"{name} / {below}", Kind.RATIO) for name in table.compared]
    rows = []
    for row in table.rows:
        points = dict(zip(table.systems, row.cells, strict=True))
        numbers = [_measured(table, points[name]) for name in table.systems]
        rows.append((*_configuration(table, row), *numbers, *(_ratio(table, points[name]) for name in table.compared)))
    return columns, rows


def _below_each_other(table: MetricTable) -> Arrangement:
    """Return a row for each configuration and system."""
    ratio = [Column(f"relative to {table.reference or table.baseline}", Kind.RATIO)] if table.compared else []
    columns = [Column("system"), Column(table.title, Kind.NUMBER), *ratio]
    rows = []
    for row in table.rows:
        for point in filter(None, row.cells):
            cells = (*_configuration(table, row), Cell(point.system), _measured(table, point))
            rows.append((*cells, _ratio(table, point)) if ratio else cells)
    return columns, rows


def _configuration(table: MetricTable, row: TableRow) -> list[Cell]:
    return [*map(Cell, row.values), *([_mean_cell(row.reference, table.scale)] if table.reference else [])]


def _measured(table: MetricTable, point: Point | None) -> Cell:
    return _number(point, table.scale, table.uneven) if point else Cell("-")


def _ratio(table: MetricTable, point: Point | None) -> Cell:
    return Cell(ratio_words(point.ratio, table.unit) if point else "-")


def systems_table(systems: SystemTable) -> FileTable:
    """Return what the systems are made of; few of them side by side, many in a row each."""
    heads = [name for name, _ in systems.rows]
    by_system = list(zip(systems.systems, *(values for _, values in systems.rows), strict=True))
    if len(systems.systems) <= MOST_COLUMNS:
        columns, lines = ["", *systems.systems], [(name, *values) for name, values in systems.rows]
    else:
        columns, lines = ["system", *heads], by_system
    return FileTable(
        name="systems",
        title="The systems, as their results describe them",
        notes=(),
        columns=tuple(map(Column, columns)),
        rows=tuple(tuple(map(Cell, line)) for line in lines),
    )


def _number(point: Point, scale: Scale, counted: bool = False) -> Cell:
    cell = _mean_cell(point.mean, scale)
    count = f"n={point.mean.count}" if counted else ""
    marks = ",".join(mark.symbol for mark in point.marks)
    return Cell(cell.text, f"{cell.interval} {count}".strip(), marks)


def _mean_cell(mean: Mean | None, scale: Scale) -> Cell:
    text, _, interval = (mean_text(mean, scale) if mean else "-").partition(" ")
    return Cell(text, interval)


def _legend(marks: Sequence[Mark]) -> list[str]:
    """Return what the symbols of marks mean, as a sentence."""
    return [f"Not for publication: {', '.join(f'{mark.symbol} {mark.name}' for mark in marks)}."] if marks else []


def _slug(text: str) -> str:
    return _NAME.sub("-", text.lower()).strip("-") or "metric"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
