"""The results.show command: a summary of each result."""

from collections.abc import Iterable, Sequence
from typing import Any

from sifmark.commands.answers import Table, answer
from sifmark.core.console import output, printable
from sifmark.core.errors import SifmarkError
from sifmark.results.load import load_all
from sifmark.results.summary import Row, summary, summary_row


def show_results(paths: Sequence[str], form: str, every_metric: bool = False) -> None:
    """Print a summary of each valid result. Raises SifmarkError if one is not valid."""
    results = list(load_all(paths))
    documents = [result.document for result in results if not result.problems]
    rows = [summary_row(document) for document in documents]
    columns = list(Row.__annotations__)
    table = Table(columns, [list(row.values()) for row in rows])
    answer(form, rows, table, lambda: _show(documents, every_metric))
    problems = [f"{printable(result.file)}: {printable(result.problems[0])}" for result in results if result.problems]
    if problems:
        remedy = f"see all that is wrong: sifmark results.validate {' '.join(paths)}"
        raise SifmarkError("\n".join(problems), remedy, code="result-invalid")


def _show(documents: Iterable[dict[str, Any]], every_metric: bool) -> None:
    for number, document in enumerate(documents):
        lines = summary(document, every_metric)
        output("\n".join(map(printable, [""] * bool(number) + lines)))
