"""The results.show command: a summary of each result."""

from sifmark.core.console import output, printable
from sifmark.core.errors import SifmarkError
from sifmark.results.load import load_results
from sifmark.results.summary import summary


def show_results(path: str) -> None:
    """Print a summary of each valid result. Raises SifmarkError if one is not valid."""
    problems = []
    for result in load_results(path):
        if result.problems:
            problems.append(f"{printable(result.file)}: {printable(result.problems[0])}")
        else:
            output("\n".join(map(printable, summary(result.document))))
    if problems:
        remedy = f"see all that is wrong: inv results.validate {path}"
        raise SifmarkError("\n".join(problems), remedy, code="result-invalid")
