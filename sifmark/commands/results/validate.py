"""The results.validate command: which result files are valid, and what is wrong with the others."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from sifmark.commands.answers import Table, answer
from sifmark.core.console import is_quiet, output, paint, printable, status
from sifmark.core.errors import SifmarkError
from sifmark.results.finished import unfinished_reason
from sifmark.results.identity import RunIdentity, identity_of
from sifmark.results.load import LoadedResult, load_all

Problems = dict[str, list[str]]  # by file


def validate_results(paths: Iterable[str], form: str, finished: bool = False, key: str = "") -> None:
    """Print for each file whether it is valid, and with `finished` whether its runs need not be repeated.

    With `key`, results of other runs of a study are not valid.

    Raises SifmarkError if one is not, UsageError if there is none.
    """
    problems = {
        file: [problem for result in results for problem in _problems(result, finished, key)]
        for file, results in groupby(load_all(paths), key=lambda result: result.file)
    }
    documents = [{"file": file, "valid": not texts, "problems": texts} for file, texts in problems.items()]
    rows = [(file, _state(texts), "; ".join(texts)) for file, texts in problems.items()]
    answer(form, documents, Table(("file", "state", "problems"), rows), lambda: _show(problems))
    if invalid := sum(map(bool, problems.values())):
        cause = f"{invalid} of {len(problems)} files are not valid"
        raise SifmarkError(cause, "the lines above name each field", code="result-invalid")
    status(f"{len(problems)} valid")


def _problems(result: LoadedResult, finished: bool, key: str) -> Iterator[str]:
    yield from result.problems
    if result.problems:
        return
    if finished and (reason := unfinished_reason(result)):
        yield reason
    if key and (difference := identity_of(result.document).difference(RunIdentity("", "", "", key))):
        yield f"belongs to another run: {difference}"


def _show(problems: Problems) -> None:
    """Print a line for each file, if quiet only for those that are not valid, and for each problem."""
    for file, texts in problems.items():
        if texts or not is_quiet():
            output(f"{paint(_state(texts))}  {printable(file)}")
        for problem in texts:
            output(f"  {printable(problem)}")


def _state(problems: list[str]) -> str:
    return "invalid" if problems else "valid"
