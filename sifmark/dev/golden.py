"""Refreshing what is generated and reviewed: the golden texts of recipes and the pages beside the schemas."""

from collections.abc import Iterable

from sifmark.core import paths
from sifmark.dev.schema_pages import pages
from sifmark.recipes.golden import golden_texts
from sifmark.recipes.recipe import recipe_names


def stale_pages() -> list[str]:
    """The pages in `schemas/` that differ from what the schemas say today, or are missing."""
    present = {file.name: file.read_text() for file in paths.SCHEMAS.glob("*.md")}
    return [name for name, text in pages().items() if present.get(name) != text]


def refresh_texts(recipes: Iterable[str]) -> None:
    """Write the golden files of recipes anew."""
    paths.GOLDEN.mkdir(parents=True, exist_ok=True)
    for recipe in recipes:
        for name, text in golden_texts(recipe).items():
            (paths.GOLDEN / name).write_text(text)


def refresh() -> None:
    """Write every golden file and every page anew."""
    refresh_texts(recipe_names())
    for name, text in pages().items():
        (paths.SCHEMAS / name).write_text(text)


if __name__ == "__main__":
    refresh()
