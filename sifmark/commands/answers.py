"""A command's answer in the format that its reader wants: a table for people; JSON, CSV or Markdown for others."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.commands.pipelines import add_summary
from sifmark.core.console import markdown_lines
from sifmark.core.terminal import output, output_table, status

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


def answer_record(form: str, document: Mapping[str, Any], show: Callable[[], None] | None = None) -> None:
    """Write one record: as JSON, or as a table of one row; people see what `show` writes instead, if it is given."""
    answer(form, dict(document), Table(tuple(document), [tuple(document.values())]), show)


def _markdown(table: Table) -> list[str]:
    return list(markdown_lines([list(table.columns), *([_text(cell) for cell in row] for row in table.rows)]))


def _text(cell: Any) -> str:
    return ", ".join(map(str, cell)) if isinstance(cell, list | tuple) else "" if cell is None else str(cell)


def list_left_out(label: str, lines: Sequence[str]) -> None:
    """Write to stderr what an answer leaves out: the first lines behind a label, and how many more there are."""
    for line in lines[:MOST_LISTED]:
        status(f"{label}: {line}")
    if len(lines) > MOST_LISTED:
        status(f"{label}: {len(lines) - MOST_LISTED} more")


def report_copies(count: int) -> None:
    """Write to stderr how many results were not counted because they are copies of others."""
    if count:
        status(f"{count} results are copies of others, and each run was counted once")
