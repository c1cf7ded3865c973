"""The results.validate command: which result files are valid, and what is wrong with the others."""

from itertools import groupby

from sifmark.core.console import output, printable, status
from sifmark.core.errors import SifmarkError
from sifmark.results.load import load_results


def validate_results(path: str, quiet: bool = False) -> None:
    """Print for each file whether it is valid. Raises SifmarkError if one is not, UsageError if there is none."""
    total = invalid = 0
    for file, results in groupby(load_results(path), key=lambda result: result.file):
        problems = [problem for result in results for problem in result.problems]
        total += 1
        invalid += bool(problems)
        if problems or not quiet:
            output(f"{'invalid' if problems else 'valid'}  {printable(file)}")
        for problem in problems:
            output(f"  {printable(problem)}")
    if invalid:
        cause = f"{invalid} of {total} files are not valid"
        raise SifmarkError(cause, "the lines above name each field", code="result-invalid")
    status(f"{total} valid")
