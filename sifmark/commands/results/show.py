"""The results.show command: a summary of each result."""

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from sifmark.commands.answers import Table, answer
from sifmark.core.console import output, output_table, printable, status
from sifmark.core.errors import SifmarkError
from sifmark.results.load import LoadedResult, load_all
from sifmark.results.summary import SHORT_COLUMNS, Row, short_row, summary, summary_row
from sifmark.results.warnings import warnings_of


def show_results(paths: Sequence[str], form: str, every_metric: bool = False) -> None:
    """Print a summary of each valid result. Raises SifmarkError if one is not valid."""
    results = list(load_all(paths))
    documents = [result.document for result in results if not result.problems]
    rows = [summary_row(document) for document in documents]
    columns = list(Row.__annotations__)
    table = Table(columns, [list(row.values()) for row in rows])
    many = len(documents) > 1 and not every_metric
    answer(form, rows, table, lambda: _show_table(results) if many else _show(documents, every_metric))
    problems = [f"{printable(result.file)}: {printable(result.problems[0])}" for result in results if result.problems]
    if problems:
        remedy = f"see all problems: sifmark results.validate {shlex.join(paths)}"
        raise SifmarkError("\n".join(problems), remedy, code="result-invalid")


def _show_table(results: Iterable[LoadedResult]) -> None:
    """Print a row for each valid result; a command for one of them shows the rest."""
    valid = [result for result in results if not result.problems]
    output_table(*SHORT_COLUMNS, rows=[short_row(result.document) for result in valid])
    marked = "; ! marks a warning" if any(any(warnings_of(result.document)) for result in valid) else ""
    status(f"{len(valid)} results{marked}; one in full: sifmark results.show {shlex.quote(valid[0].file)}")


def _show(documents: Iterable[dict[str, Any]], every_metric: bool) -> None:
    for number, document in enumerate(documents):
        lines = summary(document, every_metric)
        output("\n".join(map(printable, [""] * bool(number) + lines)))
