"""The numbers of a report for programs: of configurations as `compare` has them, and of single runs."""

from collections.abc import Iterator
from pathlib import Path

from sifmark.core.spreadsheets import csv_text
from sifmark.report.content.appendix import AppendixEntry
from sifmark.report.report import Report
from sifmark.report.results import OURS
from sifmark.results.comparison.exports import Record, comparison_records
from sifmark.results.load import study_of
from sifmark.results.marks import marks_of_number
from sifmark.results.tidy import ResultPlace, Table, columns, rows


def summary_csv(report: Report) -> str:
    """Return a row for each configuration and metric, as `compare --format csv` has them, with their marks."""
    return csv_text(_configurations(report))


def runs_csv(report: Report) -> str:
    """Return the table `runs`, as `results.export` writes it, with the name of the system and why a run is left out."""
    reasons = {each.result.id: each.reason for each in report.results.excluded}
    kept = (
        {"system": entry.system, **row, "left_out": reasons.get(entry.result.observation.id, "")}
        for entry in report.appendix
        for row in rows(Table.RUNS, entry.result.document, _place(report, entry))
    )
    return csv_text(kept, ("system", *columns(Table.RUNS), "left_out"))


def _configurations(report: Report) -> Iterator[Record]:
    results = report.results
    for metric in results.metrics:
        for row, record in comparison_records(results.compare(metric)):
            ours = results.of_row(row) if row.side == OURS else ()
            marks = marks_of_number(each.marks for each in ours)
            yield {**record, "marks": ", ".join(mark.name for mark in marks)}


def _place(report: Report, entry: AppendixEntry) -> ResultPlace:
    found = "" if report.results.anonymous else study_of(Path(entry.file))
    return ResultPlace(entry.file, found or (report.study.name if report.study else ""))
