"""The recipe.fetch command: collect what builds need in a folder, for hosts without a network."""

from collections.abc import Iterable
from pathlib import Path

from sifmark.commands.answers import Table, answer
from sifmark.core.console import output, status
from sifmark.core.errors import SifmarkError, UnbuildableError, UsageError
from sifmark.core.files import human_size
from sifmark.core.settings import Settings
from sifmark.layers.sources import fetch_sources
from sifmark.recipes.plan import make_plan
from sifmark.recipes.recipe import recipe_names

COLUMNS = ("recipe", "base_bytes", "wheels_bytes")


def fetch(folder: str, names: Iterable[str], settings: Settings, form: str) -> None:
    """Collect bases and wheels of recipes in a folder. What is there already is not fetched again.

    Without names these are all recipes that can be built here. Raises SifmarkError if a recipe cannot be fetched.
    """
    target, chosen = Path(folder).absolute(), tuple(names)
    failed, fetched = [], []
    for recipe in chosen or recipe_names():
        try:
            fetched.append((recipe, *_fetch(recipe, target, settings)))
        except UsageError:
            raise
        except UnbuildableError as error:
            if chosen:
                raise
            status(f"left out: {error.cause}")
        except SifmarkError as error:  # the others are fetched all the same
            status(f"error: {error}")
            failed.append(recipe)
    if failed:
        remedy = "complete files are kept: run it again after the repair"
        raise SifmarkError(f"not fetched: {', '.join(failed)}", remedy, code="sources-incomplete")
    documents = [dict(zip(COLUMNS, row, strict=True)) for row in fetched]
    answer(form, documents, Table(COLUMNS, fetched), lambda: output(str(target)))


def _fetch(recipe: str, folder: Path, settings: Settings) -> tuple[int, int]:
    """Collect what a recipe needs, and return the bytes of its base and of its wheels."""
    plan = make_plan(recipe, settings)
    plan.require_resolved()
    sources = fetch_sources(plan, folder, settings)
    status(f"  {recipe}: base {human_size(sources.base)}, wheels {human_size(sources.wheels)}")
    return sources.base, sources.wheels
