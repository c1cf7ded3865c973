"""What a developer runs before each commit: linters, type checker, documentation and the tests without an engine."""

import sys
from collections.abc import Callable

from sifmark.core.process import run

# The oldest Python that mypy can read code for. The tests on a real 3.8 prove that ours runs there.
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
    "mypy of in-image tests": [*_PYTHON, "mypy", "--config-file=tests/inside/mypy.ini"],
    "site": ["ci/site"],
    "tests": [*_PYTHON, "pytest", "-q", "--numprocesses=auto", "tests/unit"],
}


def passes(name: str, watch: Callable[[str], None]) -> bool:
    """Run a check in the working folder, a clone, and return whether it passes; `watch` gets its output by line."""
    return run(CHECKS[name], watch=watch, check=False).exit_code == 0
