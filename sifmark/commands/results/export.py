"""The results.export command: runs as a table for other programs."""

from collections.abc import Sequence
from pathlib import Path

from sifmark.commands.answers import answer_record, list_left_out, report_copies
from sifmark.core.console import output, printable
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.studies.history.export import export_runs


def export_results(paths: Sequence[str], target: str, form: str) -> None:
    """Write a row for each run and metric into a file. Raises SifmarkError if a document is not valid."""
    if not target:
        remedy = "name a file that ends with .csv, .jsonl, .parquet or .duckdb: -o runs.csv"
        raise UsageError("where should the table go?", remedy, code="argument-missing")
    export = export_runs(paths, Path(target))
    document = {
        "file": target,
        "runs": export.runs,
        "rows": export.rows,
        "duplicates": export.duplicates,
        "invalid": len(export.invalid),
    }
    text = f"exported: {printable(target)}, {export.rows} rows of {export.runs} runs"
    answer_record(form, document, lambda: output(text))
    report_copies(export.duplicates)
    list_left_out("left out", export.invalid)
    if export.invalid:
        cause = f"{len(export.invalid)} documents are not valid; the table has the others"
        raise SifmarkError(cause, "list all problems: sifmark results.validate", code="result-invalid")
