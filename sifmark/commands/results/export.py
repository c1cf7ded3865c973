"""The results.export command: tidy tables of results for other programs."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sifmark.commands.answers import list_left_out, report_copies
from sifmark.core.console import output, printable
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.results.export import format_of, write_file, write_rows
from sifmark.results.load import SUFFIXES, load_all, run_keys, study_of
from sifmark.results.tidy import ResultPlace, Row, Table, rows


@dataclass
class _Counts:
    """What an export has, and what of the results it left out."""

    runs: int = 0
    rows: int = 0
    duplicates: int = 0
    invalid: list[str] = field(default_factory=list)


def export_results(paths: Sequence[str], target: str = "", form: str = "", table: str = Table.RUNS) -> None:
    """Write a tidy table of all valid results, each run once, to a file or to standard output.

    Raises SifmarkError if a document is not valid; the table has the others.
    """
    file = Path(target) if target and target != "-" else None
    written = format_of(form, file)
    if file is not None:
        _require_elsewhere(file, paths)
    counts = _Counts()
    kept = _rows(paths, Table(table), counts)
    first = next(kept, None)
    if not counts.runs:
        cause = f"no valid result to export; {len(counts.invalid)} are not valid, for example {counts.invalid[0]}"
        raise SifmarkError(cause, "list all problems: sifmark results.validate", code="result-invalid")
    every = _with_first(first, kept)
    if file is None:
        write_rows(every, Table(table), written, sys.stdout)
    else:
        write_file(every, Table(table), written, file)
        output(f"exported: {printable(target)}, {counts.rows} rows of {counts.runs} runs")
    report_copies(counts.duplicates)
    list_left_out("left out", counts.invalid)
    if counts.invalid:
        cause = f"{len(counts.invalid)} documents are not valid; the table has the others"
        raise SifmarkError(cause, "list all problems: sifmark results.validate", code="result-invalid")


def _require_elsewhere(file: Path, paths: Iterable[str]) -> None:
    """Raise UsageError if the next reader of the results would read an export as one."""
    if file.suffix in SUFFIXES and any(file.resolve().is_relative_to(Path(path).resolve()) for path in paths):
        cause = f"{file} would be read as a result, since it is among them"
        raise UsageError(cause, "write it elsewhere", code="invalid-option")


def _rows(paths: Iterable[str], table: Table, counts: _Counts) -> Iterator[Row]:
    """Yield the rows of all valid results, and count. The results are read one after the other."""
    runs: set[Any] = set()
    for result in load_all(paths):
        if result.problems:
            counts.invalid.append(printable(f"{result.file}: {result.problems[0]}"))
            continue
        keys = set(run_keys(result.document))
        if keys & runs:
            counts.duplicates += 1
            continue
        runs |= keys
        counts.runs += 1
        for row in rows(table, result.document, ResultPlace(result.file, study_of(result.path))):
            counts.rows += 1
            yield row


def _with_first(first: Row | None, rest: Iterator[Row]) -> Iterator[Row]:
    if first is not None:
        yield first
    yield from rest
