"""A command's answer in the format that its reader wants: a table for people; JSON, CSV or Markdown for others."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sifmark.commands.pipelines import add_summary
from sifmark.core.console import counted, markdown_lines
from sifmark.core.terminal import output, output_can_show, output_table, output_width, status

if TYPE_CHECKING:
    from sifmark.results.comparison.tables import TableStyle

TABLE, JSON, CSV, MARKDOWN = FORMATS = ("table", "json", "csv", "markdown")
MOST_LISTED = 20  # lines of one kind, such as results that are left out for the same reason
Row = Sequence[Any]


@dataclass(frozen=True)
class Table:
    """Rows under the names of their columns. Cells are texts, numbers, or None for what is missing."""

    columns: Sequence[str]
    rows: Sequence[Row]


def answer(form: str, document: Any, table: Table, show: Callable[[], None] | None = None, summary: str = "") -> None:
    """Write an answer to stdout: the table, or the document as JSON.

    `show` writes what people see if that is more than a table. With `summary`, a title, the table is also added to
    the summary of a CI job.
    """
    if summary:
        add_summary(summary, lambda: _markdown(table))
    if form == JSON:
        output(json.dumps(document, indent=2, allow_nan=False))
    elif form == CSV:
        from sifmark.core.spreadsheets import csv_text

        records = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
        output(csv_text(records, table.columns).removesuffix("\n"))
    elif form == MARKDOWN:
        output("\n".join(_markdown(table)))
    elif show is not None:
        show()
    else:
        output_table(*table.columns, rows=table.rows)


def answer_lines(form: str, document: Any, table: Table, lines: "Callable[[TableStyle], Iterable[str]]") -> None:
    """Write an answer of several tables: people see its lines in the style for texts, and in Markdown likewise."""
    from sifmark.results.comparison import tables

    if form == MARKDOWN:
        output("\n".join(lines(tables.MARKDOWN)))
    else:
        answer(form, document, table, lambda: output("\n".join(lines(output_style()))))


def output_style() -> "TableStyle":
    """Return how texts are written to stdout: as its terminal has room, or in full."""
    from sifmark.results.comparison.tables import text_style

    return text_style(output_width(), blocks=output_can_show("│·"))


def answer_record(form: str, document: Mapping[str, Any], show: Callable[[], None] | None = None) -> None:
    """Write one record: as JSON, or as a table of one row; people see what `show` writes instead, if it is given."""
    answer(form, dict(document), Table(tuple(document), [tuple(document.values())]), show)


def _markdown(table: Table) -> list[str]:
    return list(markdown_lines([list(table.columns), *([_text(cell) for cell in row] for row in table.rows)]))


def _text(cell: Any) -> str:
    return ", ".join(map(str, cell)) if isinstance(cell, list | tuple) else "" if cell is None else str(cell)


def list_left_out(lines: Iterable[str], copies: int = 0, label: str = "excluded") -> None:
    """Write to stderr how many results are copies of others, and the first lines about what else is left out."""
    if copies:
        are = counted(copies, "result is a copy of another", "results are copies of others")
        status(f"{are}, and each run was counted once")
    every = list(lines)
    for line in every[:MOST_LISTED]:
        status(f"{label}: {line}")
    if len(every) > MOST_LISTED:
        status(f"{label}: {len(every) - MOST_LISTED} more")
