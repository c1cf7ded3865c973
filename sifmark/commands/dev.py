"""Commands for developers, in a clone: check, golden."""

import os

from sifmark.commands.framework import command
from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.terminal import output, status


@command("dev.check")
def check() -> None:
    """Lint, type-check and run the tests that need no engine."""
    from sifmark.dev.checks import CHECKS, passes

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


@command("dev.golden")
def golden() -> None:
    """Write generated texts: golden files and reference pages."""
    from sifmark.dev.golden import generated_pages, refresh_texts, write_files
    from sifmark.dev.published_page import published_pictures
    from sifmark.recipes.recipe import recipe_names
    from sifmark.report.packages import require_packages

    if not paths.IS_CHECKOUT:
        raise UsageError("generated texts are written in a clone", "run it in a clone", code="checkout-missing")
    refresh_texts(recipe_names())
    write_files(generated_pages())
    require_packages("the pictures of the documentation")
    write_files(published_pictures())
