"""The dev.check command: what a developer runs before each commit. It needs no engine."""

import os

from sifmark.core import paths
from sifmark.core.console import output, status
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.dev.checks import CHECKS, passes


def run_checks() -> None:
    """Run every check, also after a failure. Raises SifmarkError naming those that failed."""
    if not paths.IS_CHECKOUT:
        raise UsageError("`dev.check` is for developers", "run it in a clone", code="checkout-missing")
    os.chdir(paths.CHECKOUT)
    failed = []
    for name in CHECKS:
        status(f"- {name}")
        if not passes(name, watch=output):
            failed.append(name)
    if failed:
        remedy = "`ruff format` and `ruff check --fix` repair most of it"
        raise SifmarkError(f"failed: {', '.join(failed)}", remedy, code="check-failed")
