"""Tidy tables in files for other programs: CSV, JSON and JSON lines; Parquet and DuckDB by the package duckdb."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, UsageError, missing_extra, unknown_name
from sifmark.core.files import atomic_path
from sifmark.core.spreadsheets import write_csv
from sifmark.results.load import SUFFIXES, LoadedResult, SeenRuns, load_all, study_of
from sifmark.results.tidy import ResultPlace, Row, Table, columns, rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

EXTRA, PACKAGE = "export", "duckdb"
# What the database may not do on its own: look for extensions elsewhere.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "threads": 1,  # the same bytes each time
}


class Format(StrEnum):
    """A format of exported tables, and the suffix of its files."""

    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"
    PARQUET = "parquet"
    DUCKDB = "duckdb"


@dataclass
class ExportCounts:
    """What an export has, and what of the results it left out."""

    runs: int = 0
    rows: int = 0
    duplicates: int = 0
    invalid: list[str] = field(default_factory=list)  # files, with their first problem


TEXTS = (Format.CSV, Format.JSON, Format.JSONL)  # which a stream can take


def format_of(name: str, target: Path | None) -> Format:
    """Return the format that is asked for, or else that of a file's suffix, or CSV; one that works here.

    Raises UsageError for an unknown one or one that needs a file, SifmarkError if its package is missing.
    """
    suffix = target.suffix[1:] if target else Format.CSV
    if name and name not in list(Format):
        raise unknown_name("format", name, list(Format))
    if not name and suffix not in list(Format):
        remedy = f"name the format: {', '.join(Format)}"
        raise UsageError(f"the suffix of {target} is not that of a format", remedy, code="unknown-name")
    form = Format(name or suffix)
    if form not in TEXTS:
        if target is None:
            cause = f"{form} cannot be written to standard output"
            raise UsageError(cause, f"name a file: -o FILE.{form}", code="argument-missing")
        try:
            import duckdb  # noqa: F401 - before results are read in vain
        except ImportError:
            raise missing_extra(EXTRA, f"an export as {form}", [PACKAGE]) from None
    return form


def valid_results(paths: Iterable[str], counts: ExportCounts) -> Iterator[LoadedResult]:
    """Yield all valid results, each run once, and count. They are read one after the other."""
    seen = SeenRuns()
    for result in load_all(paths):
        if result.problems:
            counts.invalid.append(printable(f"{result.file}: {result.problems[0]}"))
            continue
        if seen.has_copy_of(result.document):
            counts.duplicates += 1
            continue
        counts.runs += 1
        yield result


def rows_of(paths: Iterable[str], table: Table, counts: ExportCounts) -> Iterator[Row]:
    """Yield the rows of all valid results, each run once, and count."""
    for result in valid_results(paths, counts):
        for row in rows(table, result.document, ResultPlace(result.file, study_of(result.path))):
            counts.rows += 1
            yield row


def require_elsewhere(target: Path, paths: Iterable[str]) -> None:
    """Raise UsageError if the next reader of the results would read an export as one of them."""
    if target.suffix in SUFFIXES and any(target.resolve().is_relative_to(Path(path).resolve()) for path in paths):
        cause = f"{target} would be read as a result, since it is among them"
        raise UsageError(cause, "write it elsewhere", code="invalid-option")


def write_rows(kept: Iterable[Row], table: Table, form: Format, stream: TextIO) -> None:
    """Write the rows of a table to a stream, in one of TEXTS."""
    if form is Format.CSV:
        write_csv(stream, columns(table), kept)
    elif form is Format.JSONL:
        stream.writelines(json.dumps(row, allow_nan=False) + "\n" for row in kept)
    else:
        stream.write("[")
        for number, row in enumerate(kept):
            stream.write(",\n" if number else "\n")
            stream.write(json.dumps(row, allow_nan=False))
        stream.write("\n]\n")


def write_file(kept: Iterable[Row], table: Table, form: Format, target: Path) -> None:
    """Write the rows of a table to a file, which is replaced only by a whole one. A database has them as `table`."""
    with atomic_path(target) as draft:
        if form in TEXTS:
            with draft.open("w", encoding="utf-8", newline="") as stream:
                write_rows(kept, table, form, stream)
        else:
            _OF_DUCKDB[form](kept, table, draft)


def _write_parquet(kept: Iterable[Row], table: Table, target: Path) -> None:
    with _relation(kept, table, target) as (_, relation):
        relation.write_parquet(str(target), compression="zstd")


def _write_database(kept: Iterable[Row], table: Table, target: Path) -> None:
    with _relation(kept, table, target, str(target)) as (_, relation):
        relation.create(table)


_OF_DUCKDB: dict[Format, Callable[[Iterable[Row], Table, Path], None]] = {
    Format.PARQUET: _write_parquet,
    Format.DUCKDB: _write_database,
}


@contextmanager
def _relation(
    kept: Iterable[Row], table: Table, target: Path, database: str = ":memory:"
) -> "Iterator[tuple[DuckDBPyConnection, DuckDBPyRelation]]":
    """Yield a database and the rows in it, by way of a file beside the target: rows may be more than memory holds."""
    import duckdb  # here: only these formats need it

    lines = target.with_name("rows.jsonl")
    with lines.open("w", encoding="utf-8") as stream:
        write_rows(kept, table, Format.JSONL, stream)
    types = dict(columns(table))
    try:
        with duckdb.connect(database, config=_CONFIG) as connection:
            yield connection, connection.read_json(str(lines), format="newline_delimited", columns=types)
    except duckdb.Error as error:
        cause = f"{target.suffix[1:]} was not written: {error}"
        raise SifmarkError(cause, "try --format csv", code="command-failed") from error
