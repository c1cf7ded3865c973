"""The numbers of a report for programs: of configurations as `compare` has them, and of single runs."""

from collections.abc import Iterator
from pathlib import Path

from sifmark.report.content.appendix import AppendixEntry
from sifmark.report.marks import marks_of
from sifmark.report.report import Report
from sifmark.report.results import OURS
from sifmark.results.comparison.exports import Record, comparison_records, csv_text
from sifmark.results.comparison.tidy import COLUMNS, ResultPlace, tidy_rows
from sifmark.studies.folder import study_of


def summary_csv(report: Report) -> str:
    """Return a row for each configuration and metric, as `compare --format csv` has them, with their marks."""
    return csv_text(_configurations(report))


def runs_csv(report: Report) -> str:
    """Return a row for each run and metric, as `results.export` has them, with marks, and why a run is left out."""
    reasons = {each.result.id: each.reason for each in report.results.excluded}
    rows = (
        {**row, "marks": _names(entry), "left_out": reasons.get(entry.result.observation.id, "")}
        for entry in report.appendix
        for row in _rows(report, entry)
    )
    return csv_text(rows) or ",".join(COLUMNS) + "\n"


def _configurations(report: Report) -> Iterator[Record]:
    results = report.results
    for metric in results.metrics:
        for row, record in comparison_records(results.compare(metric)):
            ours = results.of_row(row) if row.side == OURS else ()
            marks = marks_of(each.document for each in ours)
            yield {**record, "marks": ", ".join(mark.name for mark in marks)}


def _rows(report: Report, entry: AppendixEntry) -> Iterator[Record]:
    name = study_of(Path(entry.file)) or (report.study.name if report.study else "")
    for row in tidy_rows(entry.result.document, ResultPlace(entry.file, name)):
        yield {**row, "system": entry.system}


def _names(entry: AppendixEntry) -> str:
    return ", ".join(mark.name for mark in entry.marks)
