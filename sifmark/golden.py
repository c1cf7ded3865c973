"""The rendered texts as they were last reviewed: a change in what users build shows itself in a diff."""

from collections.abc import Iterable
from dataclasses import replace

from sifmark import house
from sifmark.page import pages
from sifmark.plan import BUILD_KEY, BYTECODE, COMPRESSION, CREATED, REVISION, make_plan
from sifmark.recipe import recipe_names
from sifmark.render import BUILD_DATE, definition, dockerfile
from sifmark.settings import settings

REFRESH = "review it, then write them anew: python -m sifmark.golden"
# What differs from commit to commit is not what a golden text is about.
_VOLATILE = {
    BUILD_KEY: "<build key>",
    REVISION: "<revision>",
    CREATED: "<date>",
    BUILD_DATE: "<date>",
    BYTECODE: "<true where the host has the base's Python>",
    COMPRESSION: "<as chosen>",
}


def golden_texts(recipe: str) -> dict[str, str]:
    """Today's texts of a recipe on its pinned base, by golden file name."""
    plan = make_plan(recipe, replace(settings(), bases="pinned", mirrors={}))
    labels = {**plan.labels(), **_VOLATILE}
    given = (plan.recipe, plan.base.pull, labels, "<context>")
    return {f"{recipe}.def": definition(*given), f"{recipe}.Dockerfile": dockerfile(*given)}


def differences(recipe: str) -> list[str]:
    """The golden files of a recipe that differ from today's texts, or are missing."""
    return [
        name
        for name, text in golden_texts(recipe).items()
        if not (house.GOLDEN / name).is_file() or (house.GOLDEN / name).read_text() != text
    ]


def stale_pages() -> list[str]:
    """The pages in `schemas/` that differ from what the schemas say today, or are missing."""
    present = {file.name: file.read_text() for file in house.SCHEMAS.glob("*.md")}
    return [name for name, text in pages().items() if present.get(name) != text]


def refresh_texts(recipes: Iterable[str]) -> None:
    """Write the golden files of recipes anew."""
    house.GOLDEN.mkdir(parents=True, exist_ok=True)
    for recipe in recipes:
        for name, text in golden_texts(recipe).items():
            (house.GOLDEN / name).write_text(text)


def refresh() -> None:
    """Write every golden file and every page anew."""
    refresh_texts(recipe_names())
    for name, text in pages().items():
        (house.SCHEMAS / name).write_text(text)


if __name__ == "__main__":
    refresh()
