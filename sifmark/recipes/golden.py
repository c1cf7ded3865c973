"""The rendered texts as they were last reviewed: a change in what users build shows itself in a diff."""

from dataclasses import replace

from sifmark.core import paths
from sifmark.core.settings import settings
from sifmark.recipes.plan import BUILD_KEY, BYTECODE, COMPRESSION, CREATED, REVISION, make_plan
from sifmark.recipes.render import BUILD_DATE, definition, dockerfile

REFRESH = "review it, then write them anew: inv dev.golden"
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
        if not (paths.GOLDEN / name).is_file() or (paths.GOLDEN / name).read_text() != text
    ]
