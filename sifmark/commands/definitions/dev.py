"""Commands for developers, in a clone."""

from sifmark.commands.definition import command


@command("dev.check", former="check")
def check() -> None:
    """Lint, type-check and run the tests that need no engine."""
    from sifmark.commands.dev.check import run_checks

    run_checks()


@command("dev.golden")
def golden() -> None:
    """Write generated texts: golden files and reference pages."""
    from sifmark.commands.dev.golden import write_texts

    write_texts()
