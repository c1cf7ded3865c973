"""CSV that spreadsheets read as text and numbers."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from sifmark.core.console import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # owasp.org/www-community/attacks/CSV_Injection


def csv_text(records: Iterable[Mapping[str, Any]], names: Iterable[str] = ()) -> str:
    """Return records as CSV with these columns, or without names with one for every field that any of them has."""
    kept = list(records)
    stream = io.StringIO()
    write_csv(stream, names or dict.fromkeys(name for record in kept for name in record), kept)
    return stream.getvalue()


def write_csv(stream: TextIO, names: Iterable[str], records: Iterable[Mapping[str, Any]]) -> None:
    """Write records below a line of names. Lists are words; what is missing is empty; no text is a formula."""
    writer = csv.DictWriter(stream, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in record.items()} for record in records)


def spreadsheet_text(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: one that begins like one gets an apostrophe."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return spreadsheet_text(value) if isinstance(value, str) else value
