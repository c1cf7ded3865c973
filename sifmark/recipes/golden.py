"""The rendered build files as they were last reviewed: a change in what users build shows in a diff."""

from collections.abc import Iterable

from sifmark.core import paths
from sifmark.core.environment import platform_name
from sifmark.recipes.base import pinned_base
from sifmark.recipes.labels import BUILD_DATE, BUILD_KEY, BYTECODE, COMPRESSION, CREATED, REVISION
from sifmark.recipes.plan import Plan
from sifmark.recipes.recipe import load_recipe
from sifmark.recipes.render import definition, dockerfile

REFRESH = "review it, then write them anew: ci/generate"
# Labels that differ between commits and hosts, and what the golden texts have in their place.
_VOLATILE = {
    BUILD_KEY: "<build key>",
    REVISION: "<revision>",
    CREATED: "<date>",
    BUILD_DATE: "<date>",
    BYTECODE: "<true where the host has the base's Python>",
    COMPRESSION: "<as chosen>",
}


def golden_texts(recipe: str) -> dict[str, str]:
    """Return the current texts of a recipe on its pinned base, by golden file name."""
    plan = _plan_on_pinned_base(recipe)
    labels = {**plan.labels(), **_VOLATILE}
    arguments = (plan.recipe, plan.base.pull, labels, "<context>")
    return {f"{recipe}.def": definition(*arguments), f"{recipe}.Dockerfile": dockerfile(*arguments)}


def differences(recipe: str) -> list[str]:
    """Return the golden files of a recipe that differ from the current texts, or are missing."""
    return [
        name
        for name, text in golden_texts(recipe).items()
        if not (paths.GOLDEN / name).is_file() or (paths.GOLDEN / name).read_text() != text
    ]


def refresh_texts(recipes: Iterable[str]) -> None:
    """Write the golden files of recipes."""
    paths.GOLDEN.mkdir(exist_ok=True)
    for recipe in recipes:
        for name, text in golden_texts(recipe).items():
            (paths.GOLDEN / name).write_text(text)


def _plan_on_pinned_base(name: str) -> Plan:
    """Return the plan that no settings of this host change, but for the compression."""
    recipe, platform = load_recipe(name), platform_name()
    return Plan(recipe, platform, pinned_base(recipe, platform, recipe.base.image), compression="zstd")
