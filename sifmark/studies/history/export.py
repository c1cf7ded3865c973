"""Runs as a table for other programs: Parquet and DuckDB by the package duckdb, CSV and JSON lines without it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, UsageError, missing_extra, unknown_name
from sifmark.core.files import atomic_path
from sifmark.results.comparison.collection import run_keys
from sifmark.results.comparison.exports import write_csv
from sifmark.results.comparison.tidy import COLUMNS, ResultPlace, tidy_rows
from sifmark.results.load import SUFFIXES, load_all
from sifmark.studies.folder import study_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

EXTRA, PACKAGE = "data", "duckdb"
TABLE = "runs"  # in a database
# What the database may not do on its own: look for extensions elsewhere.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "threads": 1,  # the same bytes each time
}

Row = dict[str, Any]


@dataclass
class RunExport:
    """What an export wrote, and what of the results it left out."""

    file: Path
    runs: int = 0
    rows: int = 0
    duplicates: int = 0
    invalid: list[str] = field(default_factory=list)


def export_runs(paths: Sequence[str], target: Path) -> RunExport:
    """Write the metrics of all valid results of files, folders or globs into a table, in the format of its suffix.

    Each run is there once. Raises UsageError for another suffix or a path without results, SifmarkError if a package
    is missing.
    """
    write = _writer(target)
    if target.suffix in SUFFIXES and any(target.resolve().is_relative_to(Path(path).resolve()) for path in paths):
        cause = f"{target} would be read as a result, since it is among them"
        raise UsageError(cause, "write it elsewhere", code="invalid-option")
    export = RunExport(target)
    with atomic_path(target) as draft:
        write(_rows(paths, export), draft)
        if not export.runs:
            cause = f"no valid result to export; {len(export.invalid)} are not valid, for example {export.invalid[0]}"
            raise SifmarkError(cause, "list all problems: sifmark results.validate", code="result-invalid")
    return export


def _rows(paths: Iterable[str], export: RunExport) -> Iterator[Row]:
    """Yield the rows of all valid results, and count."""
    runs: set[Any] = set()
    for result in load_all(paths):
        if result.problems:
            export.invalid.append(printable(f"{result.file}: {result.problems[0]}"))
            continue
        keys = set(run_keys(result.document))
        if keys & runs:
            export.duplicates += 1
            continue
        runs |= keys
        export.runs += 1
        for row in tidy_rows(result.document, ResultPlace(result.file, study_of(Path(result.file)))):
            export.rows += 1
            yield row


def _write_csv(rows: Iterable[Row], target: Path) -> None:
    with target.open("w", encoding="utf-8", newline="") as stream:
        write_csv(stream, COLUMNS, rows)


def _write_lines(rows: Iterable[Row], target: Path) -> None:
    with target.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def _write_parquet(rows: Iterable[Row], target: Path) -> None:
    with _relation(rows, target) as (_, relation):
        relation.write_parquet(str(target), compression="zstd")


def _write_database(rows: Iterable[Row], target: Path) -> None:
    with _relation(rows, target, str(target)) as (_, relation):
        relation.create(TABLE)


@contextmanager
def _relation(
    rows: Iterable[Row], target: Path, database: str = ":memory:"
) -> "Iterator[tuple[DuckDBPyConnection, DuckDBPyRelation]]":
    """Yield a database and the rows in it, by way of a file beside the target: rows may be more than memory holds."""
    import duckdb  # here: only these formats need it

    lines = target.with_name("rows.jsonl")
    _write_lines(rows, lines)
    try:
        with duckdb.connect(database, config=_CONFIG) as connection:
            yield connection, connection.read_json(str(lines), format="newline_delimited", columns=COLUMNS)
    except duckdb.Error as error:
        raise SifmarkError(
            f"{target.suffix[1:]} was not written: {error}", "try .csv", code="command-failed"
        ) from error


_WRITERS: dict[str, Callable[[Iterable[Row], Path], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_lines,
    ".parquet": _write_parquet,
    ".duckdb": _write_database,
}
_OF_PACKAGE = (".parquet", ".duckdb")


def _writer(target: Path) -> Callable[[Iterable[Row], Path], None]:
    """Return what writes the format of a file's suffix. Raises SifmarkError."""
    if target.suffix not in _WRITERS:
        raise unknown_name("format of an export", target.suffix or target.name, _WRITERS)
    if target.suffix in _OF_PACKAGE:
        try:
            import duckdb  # noqa: F401 - before results are read in vain
        except ImportError:
            raise missing_extra(EXTRA, f"an export as {target.suffix[1:]}", [PACKAGE]) from None
    return _WRITERS[target.suffix]
