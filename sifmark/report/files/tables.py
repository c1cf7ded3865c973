"""The tables of a report as they are in files: cells of text, with marks, whatever writes them."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from sifmark.core.console import markdown_lines
from sifmark.core.spreadsheets import write_rows
from sifmark.report.content.systems import SystemTable
from sifmark.report.content.tables import MOST_COLUMNS, Measured, WorkloadTable, all_marks, basis_of, ratio_words
from sifmark.report.describe import mean_text
from sifmark.report.numbers import NumberBlock, NumberTable
from sifmark.report.outputs.chart import Chart
from sifmark.report.report import Report
from sifmark.report.scorecard import Scorecard
from sifmark.report.texts import slug
from sifmark.results.catalogue import metric_label
from sifmark.results.marks import Mark
from sifmark.results.numbers import Scale, split_interval

MOST_ON_PAPER = 2  # metrics of a workload in a table for a paper


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
    """Yield the tables of a report in the order of its page, with every metric."""
    yield from _tables(report, None)


def paper_tables_of(report: Report) -> Iterator[FileTable]:
    """Yield the same with as many metrics of a workload as a page of a paper has room for."""
    yield from _tables(report, MOST_ON_PAPER)


def _tables(report: Report, most: int | None) -> Iterator[FileTable]:
    if report.scorecard:
        yield scorecard_table(report.scorecard)
    yield from map(numbers_table, report.numbers)
    yield from (output_table(chart) for chart in report.charts if chart.is_table)
    yield from (measured_table(strip.table, most) for strip in report.strips if strip.table)
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


def scorecard_table(scorecard: Scorecard) -> FileTable:
    """Return the ratios of the scorecard, as `compare` has them: a row for each of them."""
    divisor = scorecard.results.divisor
    heads = ("workload", "metric", "configuration", "system", f"relative to {divisor}")
    rows = [
        (
            *(f"{row.workload.title}, {row.workload.task}", metric_label(cell.metric), cell.configuration),
            *(score.system, score.words),
        )
        for group in scorecard.groups
        for row in group.rows
        for cell in filter(None, row.cells)
        for score in cell.scores
    ]
    columns = (*map(Column, heads[:-1]), Column(heads[-1], Kind.RATIO))
    notes = tuple(_legend(all_marks(scorecard.points)))
    return FileTable(
        "scorecard", f"Compared with {divisor}", notes, columns, tuple(tuple(map(Cell, row)) for row in rows)
    )


def numbers_table(table: NumberTable) -> FileTable:
    """Return the best of each system by workload, of a kind of run."""
    heads = [" ".join(filter(None, head)) for head in table.heads]
    columns = [Column("workload"), Column("system"), Column(table.rate.lower(), Kind.NUMBER), Column("unit")]
    rows = [
        (
            *map(Cell, (_title(block), row.system)),
            Cell(row.number, row.interval, _symbols(row.point.marks)),
            Cell(block.unit),
            *(Cell(" ".join(filter(None, (cell.text, cell.small))) or "-") for cell in row.cells),
        )
        for block in table.blocks
        for row in block.rows
    ]
    return FileTable(
        name=f"numbers-{slug(table.title, table.rate)}",
        title=f"{table.title}: each system at its highest rate",
        notes=(basis_of(table.points), *_legend(all_marks(table.points))),
        columns=(*columns, *map(Column, heads)),
        rows=tuple(rows),
    )


def _title(block: NumberBlock) -> str:
    return ", ".join(filter(None, (block.workload.title, block.precision)))


def measured_table(table: WorkloadTable, most: int | None = None) -> FileTable:
    """Return all that systems measured of a workload, of `most` metrics at most: numbers, and ratios behind them."""
    metrics = table.columns[:most]
    columns = [*map(Column, table.fields), Column("system")]
    for metric in metrics:
        columns.append(Column(metric.head, Kind.NUMBER))
        columns += [Column(f"relative to {table.divisor}", Kind.RATIO)] if metric.is_compared else []
    rows = []
    for row in table.rows:
        cells = [*map(Cell, row.values), Cell(row.system)]
        for metric, measured in zip(metrics, row.cells, strict=False):
            cells.append(_measured(measured, metric.scale, len(table.counts) > 1))
            if metric.is_compared:
                point = measured.point if measured else None
                cells.append(Cell(ratio_words(point.ratio, point.unit) if point else "-"))
        rows.append(tuple(cells))
    notes = (f"{table.common}." if table.common else "", table.basis, *_legend(table.marks))
    return FileTable(
        name=table.workload.anchor,
        title=f"{table.workload.title}, {table.workload.task}",
        notes=tuple(filter(None, notes)),
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _measured(measured: Measured | None, scale: Scale, is_counted: bool) -> Cell:
    if measured is None:
        return Cell("-")
    text, interval = split_interval(mean_text(measured.mean, scale))
    count = f"n={measured.mean.count}" if is_counted else ""
    return Cell(text, f"{interval} {count}".strip(), _symbols(measured.marks))


def _symbols(marks: Sequence[Mark]) -> str:
    return ",".join(mark.symbol for mark in marks)


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


def _legend(marks: Sequence[Mark]) -> list[str]:
    """Return what the symbols of marks mean, as a sentence."""
    return [f"Not for publication: {', '.join(f'{mark.symbol} {mark.name}' for mark in marks)}."] if marks else []
