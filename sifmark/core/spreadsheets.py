"""CSV that neither a terminal nor a spreadsheet acts on."""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, TextIO

from sifmark.core.console import printable

# How formulas begin, the wide characters where Japanese is written. Tabs and returns are spelled out.
# Source: owasp.org/www-community/attacks/CSV_Injection
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_AS_THEY_ARE = frozenset((int, float, bool, type(None)))
_NUMBER = re.compile(r"-(\d[\d,]*(\.\d+)?([eE][+-]?\d+)?)?", re.ASCII)  # or the dash of what is missing


def write_rows(stream: TextIO, rows: Iterable[Iterable[Any]]) -> None:
    """Write rows of cells: texts, lists of them, numbers, or None for what is missing."""
    shown = (
        [
            cell
            if (kind := cell.__class__) in _AS_THEY_ARE
            else spreadsheet_text(cell)
            if kind is str
            else _other(cell)
            for cell in row
        ]
        for row in rows
    )
    csv.writer(stream, lineterminator="\n").writerows(shown)


def write_csv(stream: TextIO, columns: Iterable[str], records: Iterable[Mapping[str, Any]]) -> None:
    """Write records below a line of columns; missing values are empty."""
    names = list(columns)
    write_rows(stream, [names])
    write_rows(stream, (map(record.get, names) for record in records))


def csv_text(records: Iterable[Mapping[str, Any]], columns: Iterable[str] = ()) -> str:
    """Return records as CSV, with these columns and one for every other key of theirs."""
    kept = list(records)
    stream = io.StringIO()
    write_csv(stream, dict.fromkeys(chain(columns, *kept)), kept)
    return stream.getvalue()


@lru_cache(maxsize=1 << 14)  # the metrics of a run repeat what describes it
def spreadsheet_text(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: one that begins like one gets an apostrophe."""
    shown = printable(text)
    begins = shown.lstrip().startswith(_FORMULA)
    return f"'{shown}" if begins and not _NUMBER.fullmatch(shown) else shown


def _other(cell: Any) -> Any:
    """Return what a cell of another kind is shown as, such as a list, or a text or number of a class of its own."""
    if isinstance(cell, int | float):
        return cell
    return spreadsheet_text(" ".join(map(str, cell)) if isinstance(cell, list | tuple) else str(cell))
