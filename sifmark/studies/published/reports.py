"""Published figures beside results, as tables, Markdown, CSV and JSON."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from sifmark.results.comparison.compatibility import Excluded
from sifmark.results.comparison.intervals import CONFIDENCE
from sifmark.results.comparison.tables import exclusion_text, ratio_text
from sifmark.results.marks import DISTURBED
from sifmark.results.numbers import format_interval, format_number
from sifmark.studies.published.comparison import PublishedComparison, PublishedRow, Reason, UnmatchedFigure
from sifmark.studies.published.figures import OUT_OF_MEMORY, Bound, Figure, PublishedTable
from sifmark.studies.published.listing import figure_record, study_record
from sifmark.studies.published.matching import ConditionDifference

COLUMNS = (
    "table",
    "row",
    "metric",
    "published",
    "system",
    "measured",
    "measured / published",
    "differs",
    "not printed",
)
CSV_COLUMNS = (
    "study", "table", "row", "column", "metric", "unit", "printed", "printed_unit", "published_low", "published_high",
    "bound", "published_state", "system", "state", "n", "measured", "measured_low", "measured_high", "ratio",
    "ratio_low", "ratio_high", "verdict", "differs", "not_printed", "files",
)  # fmt: skip

Json = dict[str, Any]


def table_rows(comparison: PublishedComparison) -> list[list[str]]:
    """Return a row of texts for each figure with a counterpart, under COLUMNS."""
    tables = {table.name: table for table in comparison.tables}
    rows: list[list[str]] = []
    for row in comparison.rows:
        figure = row.figure
        metric = "state" if figure.state else f"{figure.metric} [{_unit(figure)}]"
        cells = [figure.table, row_label(tables[figure.table], figure), metric, published_text(figure)]
        cells += [_system(row), measured_text(row), comparison_text(row)]
        rows.append([*cells, difference_texts(row.differs), ", ".join(each.name for each in row.missing)])
    return rows


def row_label(table: PublishedTable, figure: Figure) -> str:
    """Return the cells that identify a row of a published table, such as `2, 1, 1`."""
    valued = {each.column for each in table.figures}
    cells = zip(table.columns, table.rows[figure.row - 1], strict=True)
    return ", ".join(cell for column, cell in cells if column not in valued and cell)


def published_text(figure: Figure) -> str:
    """Return a published value in our unit: `1,862.9`, `at least 60`, `3.5 to 3.9`, or the state."""
    if figure.state or figure.low is None or figure.high is None:
        return (figure.state or "-").replace("_", " ")
    if figure.bound is Bound.RANGE:
        return f"{format_number(figure.low)} to {format_number(figure.high)}"
    word = "" if figure.bound is Bound.EXACT else f"{figure.bound} "
    return word + format_number(figure.low)


def measured_text(row: PublishedRow) -> str:
    """Return what was measured, with its interval and the number of repeats, or the state."""
    measured = row.measured
    if row.figure.state or row.group.state == OUT_OF_MEMORY:
        return f"{row.group.state.replace('_', ' ')}  n={len(row.group.row.observations)}"
    if measured.value is None:
        return "-"
    return f"{format_interval(measured.value, measured.low, measured.high)}  n={measured.count}"


def comparison_text(row: PublishedRow) -> str:
    """Return the ratio in words, or the verdict."""
    return row.verdict or ("-" if row.ratio is None else ratio_text(row.ratio, row.figure.unit))


def notes(comparison: PublishedComparison) -> Iterator[str]:
    """Yield what readers of the table must know: traps, warnings, and what has no counterpart."""
    if any(row.measured.low is not None for row in comparison.rows):
        yield f"geometric means of n fresh-process repeats, with {CONFIDENCE:.0%} intervals"
    yield from (f"note: {trap}" for trap in comparison.study.traps if comparison.rows)
    traps = [(row.figure.table, trap) for row in comparison.rows for trap in row.figure.traps]
    yield from (f"note on {table}: {trap}" for table, trap in dict.fromkeys(traps))
    yield from _warnings(comparison)
    yield from missing_lines(comparison)


def missing_lines(comparison: PublishedComparison) -> Iterator[str]:
    """Yield a line for each reason why figures have no counterpart, with their tables."""
    tables: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in comparison.unmatched:
        tables[each.reason, _summary(each)].append(each.figure.table)
    for (reason, detail), names in tables.items():
        figures = f"{len(names)} figure{'s' if len(names) > 1 else ''} of {', '.join(dict.fromkeys(names))}"
        yield f"{figures}: {reason}{detail and f': {detail}'}"


def _summary(unmatched: UnmatchedFigure) -> str:
    """Return what figures without counterpart for the same reason have in common."""
    if unmatched.differs:
        names = dict.fromkeys(each.name for each in unmatched.differs)
        return f"{', '.join(names)} (--allow FIELD)"
    return "" if unmatched.reason is Reason.NO_FIELD else unmatched.detail


def as_record(comparison: PublishedComparison) -> Json:
    """Return everything, for JSON."""
    return {
        "published": study_record(comparison.study),
        "rows": [_row_record(row) for row in comparison.rows],
        "without_counterpart": [_unmatched_record(each) for each in comparison.unmatched],
        "excluded": [_excluded_record(each) for each in comparison.results.excluded],
        "invalid": list(comparison.results.invalid),
        "unsigned": list(comparison.results.unsigned),
    }


def csv_row(row: PublishedRow) -> list[Any]:
    """Return a row under CSV_COLUMNS."""
    figure, measured, ratio = row.figure, row.measured, row.ratio
    cells = [figure.study, figure.table, figure.row, figure.column, figure.metric, figure.unit, figure.printed]
    cells += [figure.printed_unit, figure.low, figure.high, str(figure.bound), figure.state]
    cells += [
        _system(row),
        row.group.state,
        len(row.group.row.observations),
        measured.value,
        measured.low,
        measured.high,
    ]
    cells += [None] * 3 if ratio is None else [ratio.value, ratio.low, ratio.high]
    missing = ", ".join(each.name for each in row.missing)
    return [*cells, row.verdict, difference_texts(row.differs), missing, " ".join(_files(row))]


def _warnings(comparison: PublishedComparison) -> Iterator[str]:
    rows = [group.row for row in comparison.rows for group in (row.group, row.divided_by) if group is not None]
    if any(row.fields.get("provenance.stand_in") for row in rows):
        yield "warning: these images have test bases, not those of the vendors. Do not publish these numbers"
    if any(row.marked(mark) for row in rows for mark in DISTURBED):
        yield "warning: other work on the host, a stall or heat disturbed some results. Do not publish these numbers"
    if any(row.fields.get("numerics.state") != "passed" for row in rows):
        yield "correctness of some results was not checked"


def _row_record(row: PublishedRow) -> Json:
    measured, ratio = row.measured, row.ratio
    return {
        "figure": figure_record(row.figure),
        "system": _system(row),
        "state": row.group.state,
        "measured": {"value": measured.value, "low": measured.low, "high": measured.high, "n": measured.count},
        "ratio": None if ratio is None else {"value": ratio.value, "low": ratio.low, "high": ratio.high},
        "verdict": row.verdict,
        "differs": [difference_record(each) for each in row.differs],
        "not_printed": [difference_record(each) for each in row.missing],
        "files": _files(row),
        "divided_by": [each.file for each in row.divided_by.row.observations] if row.divided_by else None,
    }


def _unmatched_record(unmatched: UnmatchedFigure) -> Json:
    return {
        "figure": figure_record(unmatched.figure),
        "reason": str(unmatched.reason),
        "detail": unmatched.detail,
        "differs": [difference_record(each) for each in unmatched.differs],
    }


def difference_record(difference: ConditionDifference) -> Json:
    """Return a difference for JSON."""
    return {"name": difference.name, "published": list(difference.published), "measured": difference.measured}


def _excluded_record(excluded: Excluded) -> Json:
    return {"file": excluded.result.file, "fields": list(excluded.fields), "text": exclusion_text(excluded)}


def _system(row: PublishedRow) -> str:
    """Return what results are of: their site, or else their device."""
    fields = row.group.row.fields
    return str(fields.get("site") or fields.get("accelerator.name") or fields.get("accelerator.kind") or "-")


def _files(row: PublishedRow) -> list[str]:
    return [each.file for each in row.group.row.observations]


def difference_texts(differences: Iterable[ConditionDifference]) -> str:
    """Return differences in a line: `device NVIDIA H200 (a100), batch_size 16 (32)`."""
    return ", ".join(each.text for each in differences)


def _unit(figure: Figure) -> str:
    return "ratio" if figure.unit == "1" else figure.unit
