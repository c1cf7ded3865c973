"""All files of a report beside its page and its plots, by name. The same report gives the same bytes."""

from collections.abc import Callable

from sifmark.report.files.checks import checks, traces
from sifmark.report.files.latex import bibliography, latex_table
from sifmark.report.files.rows import runs_csv, summary_csv
from sifmark.report.files.tables import FileTable, csv_table, markdown_table, paper_tables_of, tables_of
from sifmark.report.files.text import citations_text, methods_text, report_text
from sifmark.report.report import Report

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
_TABLES: dict[str, Callable[[FileTable], str]] = {"md": markdown_table, "csv": csv_table}


def report_files(report: Report, paper: bool = False) -> dict[str, str]:
    """Return the text of each file by its name, with `/` where it is in a folder; with `paper` LaTeX too."""
    tables = {
        f"tables/{table.name}.{suffix}": write(table)
        for table in tables_of(report)
        for suffix, write in _TABLES.items()
    }
    if paper:
        tables |= {f"tables/{table.name}.tex": latex_table(table) for table in paper_tables_of(report)}
    return {**{name: write(report) for name, write in _FILES.items()}, **tables}


def file_names() -> tuple[str, ...]:
    """Return the names of the files that every report has, besides those of tables."""
    return tuple(_FILES)
