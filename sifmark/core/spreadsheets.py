"""CSV that neither a terminal nor a spreadsheet acts on."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from sifmark.core.console import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # owasp.org/www-community/attacks/CSV_Injection


def write_csv(stream: TextIO, columns: Iterable[str], records: Iterable[Mapping[str, Any]]) -> None:
    """Write records below a line of columns; missing values are empty."""
    writer = csv.DictWriter(stream, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in record.items()} for record in records)


def csv_text(records: Iterable[Mapping[str, Any]], columns: Iterable[str] = ()) -> str:
    """Return records as CSV, with these columns and one for every other key of theirs."""
    kept = list(records)
    stream = io.StringIO()
    write_csv(stream, dict.fromkeys((*columns, *(name for record in kept for name in record))), kept)
    return stream.getvalue()


def spreadsheet_text(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: one that begins like one gets an apostrophe."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return spreadsheet_text(value) if isinstance(value, str) else value
