"""Commands for recipes: what maintainers and sites without a network need."""

from typing import Annotated

from sifmark.commands.definition import BASES, Argument, Format, Option, Strings, command
from sifmark.core.settings import Settings

Recipes = Annotated[Strings, Option("A recipe. Repeatable. [default: all]", "RECIPE", completes="recipe")]


@command("recipe.pin", example="recipe.pin --name cpu", former="pins")
def pin(
    settings: Settings,
    name: Recipes = (),
    check: Annotated[bool, Option("Only compare, which is the default.")] = False,
    update: Annotated[bool, Option("Write the registries' digests into the recipes.")] = False,
    format_: Format = "table",
) -> None:
    """Check or update the pinned digests of base images."""
    from sifmark.commands.recipe.pin import pin as check_or_update

    check_or_update(name, settings, check=check, update=update, form=format_)


@command("recipe.lock", example="recipe.lock cpu", former="lock")
def lock(
    settings: Settings,
    name: Annotated[str, Argument("A recipe.", "RECIPE", completes="recipe")],
    python: Annotated[str, Option("Minor version of Python. [default: that of the base]", "VERSION")] = "",
    platform: Annotated[str, Option("[default: this machine's]", choices=("x86_64", "aarch64"))] = "",
    format_: Format = "table",
) -> None:
    """Resolve a recipe's wheels and write their lock file."""
    from sifmark.commands.recipe.lock import lock as write_lock

    write_lock(name, settings, python, platform, format_)


@command("recipe.fetch", BASES, example="recipe.fetch sources/ --name cpu", former="fetch-sources")
def fetch(
    settings: Settings,
    folder: Annotated[str, Argument("Folder for bases and wheels; existing files are kept.", completes="folder")],
    name: Recipes = (),
    format_: Format = "table",
) -> None:
    """Download what builds need, for hosts without a network."""
    from sifmark.commands.recipe.fetch import fetch as fetch_sources

    fetch_sources(folder, name, settings, format_)
