"""Commands for the figures of published studies."""

from typing import Annotated

from sifmark.commands.definition import Argument, Format, Option, command


@command("published.list", example="published.list")
def list_studies(format_: Format = "table") -> None:
    """List published studies with their figures."""
    from sifmark.commands.published.list import list_published

    list_published(format_)


@command("published.show", example="published.show pearc22/1")
def show(
    name: Annotated[str, Argument("A study, one of its tables, or a file in the same format.", "NAME[/TABLE]")],
    output: Annotated[
        str, Option("Draw the tables and figures as files of a folder instead.", "FOLDER", "o", completes="folder")
    ] = "",
    format_: Format = "table",
) -> None:
    """Print or draw the tables of a published study.

    They are as printed; JSON and CSV also have each figure as a result has it: metric, unit, conditions.
    """
    from sifmark.commands.published.show import show_published

    show_published(name, format_, output)
