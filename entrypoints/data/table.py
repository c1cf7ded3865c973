"""A table of numbers for regression: `FILE.csv`, whose first row names the columns.

The target is the column named `target`, or else the last; the others are features, in their order. A workload takes the
first rows and features, as many as its card has, and ignores the rest. Rows are counted as in spreadsheets: the row of
names is the first.

Standard library only.
"""

from __future__ import annotations

import csv
from itertools import islice
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence, TextIO

from entrypoints.contract.statuses import RunError, UsageError
from entrypoints.system.image import binding_hint

NAME = "csv"
LARGEST = 3.4028234e38  # finite number of single precision
LONGEST_LINE = 1 << 24  # characters
TARGET = "target"  # the column of that name
HEADED = "The first row has to name the columns, with commas between them"


class TableRows(NamedTuple):
    """The rows that were read."""

    features: Sequence[Sequence[float]]
    targets: Sequence[float]


def require(path: Path) -> None:
    """Raise UsageError if the path cannot be a table."""
    if not path.exists():
        raise UsageError(
            f"--data {path}: no such file", f"give a table, FILE.csv{binding_hint(path)}", code="file-missing"
        )
    if not path.is_file() or path.suffix.lower() != f".{NAME}":
        raise UsageError(
            f"--data {path}: this workload reads a table",
            f"give a file whose name ends in .{NAME}",
            code="data-missing",
        )


def read(path: Path, rule: Mapping[str, Any]) -> TableRows:
    """Return as many rows and features as a card's `problem.input` asks for.

    Raises RunError (`data_error`) if there are fewer, and if a cell is not a finite number.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _table(path, csv.reader(_lines(file), strict=True), rule)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunError("data_error", f"{path} cannot be read as a table: {error}. {HEADED}") from error


def _lines(file: TextIO) -> Iterator[str]:
    """Yield the lines of a file. Raises csv.Error for one without end."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise csv.Error(f"a line of more than {LONGEST_LINE} characters")
        yield line


def _table(path: Path, lines: Iterator[Sequence[str]], rule: Mapping[str, Any]) -> TableRows:
    header = [name.strip() for name in next(lines, [])]
    if not header or any(_number(name) is not None for name in header):
        raise RunError("data_error", f"{path} begins with {', '.join(header)[:60] or 'nothing'}. {HEADED}")
    target = header.index(TARGET) if TARGET in header else len(header) - 1
    columns = [index for index in range(len(header)) if index != target][: rule["features"]]
    if len(columns) < rule["features"]:
        raise RunError(
            "data_error",
            f"{path} has {len(columns)} columns of features beside {header[target]!r}, and {rule['features']} are "
            "needed. Give more",
        )
    filled = ((number, cells) for number, cells in enumerate(lines, start=2) if cells)
    features: list[list[float]] = []
    targets: list[float] = []
    for number, cells in islice(filled, rule["observations"]):
        if len(cells) != len(header):
            raise RunError(
                "data_error",
                f"{path}, row {number}: {len(cells)} cells, and the first row names {len(header)} columns. "
                "Mend or take out this row",
            )
        *values, target_cell = (_cell(path, number, header[index], cells[index]) for index in (*columns, target))
        features.append(values)
        targets.append(target_cell)
    if len(targets) < rule["observations"]:
        rows = len(targets) or "no"
        raise RunError(
            "data_error",
            f"{path} has {rows} rows beside the first, and {rule['observations']} are needed. Give more",
        )
    return TableRows(features, targets)


def _cell(path: Path, row: int, column: str, text: str) -> float:
    value = _number(text)
    if value is None or not abs(value) <= LARGEST:
        raise RunError(
            "data_error",
            f"{path}, row {row}, column {column!r}: {text[:40]!r} is no number of single precision. Mend this cell, or "
            "take the row or the column out",
        )
    return value


def _number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)  # Python reads 1_000 as a number; others do not
    except ValueError:
        return None
