"""All files of a report beside its page and its plots, by name. The same report gives the same bytes."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

from sifmark.core.spreadsheets import csv_text, write_rows
from sifmark.report.checks import checks, traces
from sifmark.report.latex import bibliography, latex_table
from sifmark.report.markdown import citations_text, markdown_table, methods_text, report_text
from sifmark.report.report import Report
from sifmark.report.results import OURS
from sifmark.report.runs import Run
from sifmark.report.tables import Table, flat, texts_of
from sifmark.results import tidy
from sifmark.results.comparison.exports import Record, comparison_records
from sifmark.results.load import study_of
from sifmark.results.marks import marks_of_number

MOST_ON_PAPER = 2  # metrics of a workload in a table for a paper


def summary_csv(report: Report) -> str:
    """Return a row for each configuration and metric, as `compare --format csv` has them, with their marks."""
    return csv_text(_configurations(report))


def runs_csv(report: Report) -> str:
    """Return the table `runs`, as `results.export` writes it, with the name of the system and why a run is left out."""
    reasons = {each.result.id: each.reason for each in report.results.excluded}
    kept = (
        {"system": run.system, **row, "left_out": reasons.get(run.result.observation.id, "")}
        for run in report.runs
        for row in tidy.rows(tidy.Table.RUNS, run.document, _place(report, run))
    )
    return csv_text(kept, ("system", *tidy.columns(tidy.Table.RUNS), "left_out"))


def _configurations(report: Report) -> Iterator[Record]:
    results = report.results
    for metric in results.metrics:
        for row, record in comparison_records(results.compare(metric)):
            ours = results.of_row(row) if row.side == OURS else ()
            marks = marks_of_number(each.marks for each in ours)
            yield {**record, "marks": ", ".join(mark.name for mark in marks)}


def _place(report: Report, run: Run) -> tidy.ResultPlace:
    found = "" if report.results.anonymous else study_of(Path(run.file))
    return tidy.ResultPlace(run.file, found or (report.study.name if report.study else ""))


def csv_table(table: Table) -> str:
    text = io.StringIO()
    write_rows(text, texts_of(table))
    return text.getvalue()


# In the order in which a page lists them.
_FILES: dict[str, Callable[[Report], str]] = {
    "report.md": report_text,
    "summary.csv": summary_csv,
    "runs.csv": runs_csv,
    "methods.md": methods_text,
    "checks.txt": checks,
    "trace.json": traces,
    "citations.md": citations_text,
    "references.bib": lambda report: bibliography(report.citations),
}
FILE_NAMES = tuple(_FILES)  # that every report has, besides those of tables


def report_files(report: Report, paper: bool = False) -> dict[str, str]:
    """Return the text of each file by its name, with `/` where it is in a folder; with `paper` LaTeX too."""
    files = {name: write(report) for name, write in _FILES.items()}
    for table in report.tables:
        files |= {f"tables/{table.name}.md": markdown_table(table), f"tables/{table.name}.csv": csv_table(table)}
    if paper:
        files |= {f"tables/{table.name}.tex": latex_table(flat(table, MOST_ON_PAPER)) for table in report.tables}
    return files
