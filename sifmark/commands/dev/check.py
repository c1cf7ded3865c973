"""The check verb: what a developer runs before each commit. Needs no engine."""

import os
import sys

from sifmark.core import paths
from sifmark.core.console import output, status
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.process import run

# The oldest Python that mypy can read code as; that ours runs on 3.8 is proved by the tests on a real 3.8.
_OLDEST_FOR_MYPY = "3.10"
_PYTHON = [sys.executable, "-m"]
CHECKS = {
    "ruff": [*_PYTHON, "ruff", "check", "."],
    "format": [*_PYTHON, "ruff", "format", "--check", "."],
    "mypy": [*_PYTHON, "mypy"],
    "mypy of in-image code": [
        *[*_PYTHON, "mypy", "--config-file=", "--python-version", _OLDEST_FOR_MYPY, "--disallow-untyped-defs"],
        *["--ignore-missing-imports", "--cache-dir=.mypy_cache/in-image", "--package", "entrypoints"],
    ],
    "tests": [*_PYTHON, "pytest", "-q", "--numprocesses=auto", "tests/unit"],
}


def run_checks() -> None:
    """Run every check, all of them also after a failure. Raises SifmarkError naming those that failed."""
    if not paths.IS_CHECKOUT:
        raise UsageError("`check` is for developers", "run it in a clone")
    os.chdir(paths.CHECKOUT)
    failed = []
    for name, argv in CHECKS.items():
        status(f"- {name}")
        if run(argv, watch=output, check=False).exit_code != 0:
            failed.append(name)
    if failed:
        raise SifmarkError(f"failed: {', '.join(failed)}", "`ruff format` and `ruff check --fix` mend what they can")
