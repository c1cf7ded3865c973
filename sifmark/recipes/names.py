"""Images and their names: `<workload>-<recipe>`, one dash, globs everywhere."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from sifmark.core import paths
from sifmark.core.errors import UsageError, unknown_name
from sifmark.core.schemas import check_document
from sifmark.core.settings import settings
from sifmark.recipes.recipe import load_recipe, recipe_names

EVERYTHING = "*"  # the glob that names every image


@dataclass(frozen=True)
class Image:
    """One workload on one recipe. All workloads of a recipe share the recipe's bytes."""

    workload: str
    recipe: str

    @property
    def name(self) -> str:
        """The name that every verb takes."""
        return f"{self.workload}-{self.recipe}"


def image_file(name: str) -> Path:
    """Where Apptainer's image of a name or a recipe lies; the names of a recipe are links to one file."""
    return settings().dist / f"{name}.sif"


@cache
def cards() -> dict[str, dict[str, Any]]:
    """The workload cards by name, schema-checked. Raises UsageError naming card and field."""
    found = {}
    for path in sorted(paths.CARDS.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        check_document("card-1.0", document, str(path))
        found[path.stem] = document
    return found


@cache
def images() -> tuple[Image, ...]:
    """Every image there can be: each recipe with each workload that its framework has."""
    return tuple(image for recipe in recipe_names() for image in _images_of(recipe))


def workloads_of(recipe: str) -> tuple[str, ...]:
    """The workloads that a recipe's image can run."""
    return tuple(image.workload for image in _images_of(recipe))


def names_of(recipe: str) -> tuple[str, ...]:
    """The names of a recipe's images, in the order of its workloads."""
    return tuple(image.name for image in _images_of(recipe))


@cache
def _images_of(recipe: str) -> tuple[Image, ...]:
    framework = load_recipe(recipe).framework
    found = (name for name, card in cards().items() if _module(framework, card["family"]).is_file())
    return tuple(Image(workload, recipe) for workload in found)


def find_images(pattern: str) -> tuple[Image, ...]:
    """The images that a name, a glob or a recipe's name means. Raises UsageError for none."""
    named = {image.name: image for image in images()}
    if pattern in recipe_names():
        return _images_of(pattern)
    found = tuple(image for name, image in named.items() if fnmatchcase(name, pattern))
    if not found:
        raise unknown_name("image", pattern, named, "inv list")
    return found


def find_image(name: str) -> Image:
    """The one image that a name means. Raises UsageError for none or several."""
    found = find_images(name)
    if len(found) > 1:
        some = ", ".join(image.name for image in found[:3])
        raise UsageError(f"{name!r} means {len(found)} images", f"name one, such as {some}; `inv list` shows all")
    return found[0]


def find_recipe(pattern: str) -> str:
    """The one recipe whose images a name, a glob or a recipe's name means. Raises UsageError for none or several."""
    recipes = recipes_in(find_images(pattern))
    if len(recipes) > 1:
        raise UsageError(f"{pattern!r} means {len(recipes)} recipes", f"name one of: {', '.join(recipes)}")
    return recipes[0]


def recipes_in(found: Iterable[Image]) -> tuple[str, ...]:
    """The recipes that a set of images needs, each once."""
    return tuple(dict.fromkeys(image.recipe for image in found))


def _module(framework: str, family: str) -> Path:
    return paths.CARDS / framework / f"{family}.py"
