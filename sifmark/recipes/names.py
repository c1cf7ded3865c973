"""Images and their names: `<workload>-<recipe>`, with one dash. Every command also takes globs and recipes' names."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from sifmark.core import paths
from sifmark.core.errors import UsageError
from sifmark.core.schemas import check_document
from sifmark.core.settings import Settings
from sifmark.recipes.recipe import load_recipe, recipe_names

EVERYTHING = "*"  # the glob that names every image
SMALLEST = "image_compression"  # the workload that takes the least time


@dataclass(frozen=True)
class Image:
    """One workload on one recipe. All workloads of a recipe are one and the same file or Docker image."""

    workload: str
    recipe: str

    @property
    def name(self) -> str:
        """The name that every command takes."""
        return f"{self.workload}-{self.recipe}"


def image_file(name: str, settings: Settings) -> Path:
    """Return the path of the SIF of a name or a recipe; the names of a recipe are links to one file."""
    return settings.dist / f"{name}.sif"


@cache
def cards() -> dict[str, dict[str, Any]]:
    """Return the workload cards by name. Raises UsageError naming card and field if one is invalid."""
    documents = {}
    for path in sorted(paths.CARDS.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        check_document("card-1.0", document, str(path))
        documents[path.stem] = document
    return documents


@cache
def images() -> tuple[Image, ...]:
    """Return every possible image: each recipe with each workload that its framework implements."""
    return tuple(image for recipe in recipe_names() for image in _images_of(recipe))


def workloads_of(recipe: str) -> tuple[str, ...]:
    """Return the workloads that a recipe's image can run."""
    return tuple(image.workload for image in _images_of(recipe))


def names_of(recipe: str) -> tuple[str, ...]:
    """Return the names of a recipe's images, in the order of its workloads."""
    return tuple(image.name for image in _images_of(recipe))


def smallest_image(recipe: str) -> str:
    """Return the name of a recipe's image that is quickest to try."""
    names = names_of(recipe)
    return f"{SMALLEST}-{recipe}" if f"{SMALLEST}-{recipe}" in names else names[0]


def find_images(pattern: str) -> tuple[Image, ...]:
    """Return the images that a name, a glob or a recipe's name means. Raises UsageError for none."""
    by_name = {image.name: image for image in images()}
    if pattern in recipe_names():
        return _images_of(pattern)
    matches = tuple(image for name, image in by_name.items() if fnmatchcase(name, pattern))
    if not matches:
        raise _unknown_image(pattern)
    return matches


def find_image(name: str) -> Image:
    """Return the one image that a name means. Raises UsageError for none or several."""
    matches = find_images(name)
    if len(matches) > 1:
        examples = ", ".join(image.name for image in matches[:3])
        remedy = f"name one, such as {examples}; `sifmark list` shows all"
        raise UsageError(f"{name!r} means {len(matches)} images", remedy, code="ambiguous-name")
    return matches[0]


def find_recipe(pattern: str) -> str:
    """Return the one recipe that a name, a glob or a recipe's name means. Raises UsageError for none or several."""
    recipes = recipes_in(find_images(pattern))
    if len(recipes) > 1:
        remedy = f"name one of: {', '.join(recipes)}"
        raise UsageError(f"{pattern!r} means {len(recipes)} recipes", remedy, code="ambiguous-name")
    return recipes[0]


def recipes_in(images: Iterable[Image]) -> tuple[str, ...]:
    """Return the recipes of some images, each once."""
    return tuple(dict.fromkeys(image.recipe for image in images))


def _unknown_image(name: str) -> UsageError:
    """Return the error for a name or glob that means no image. Its remedy suggests recipes first."""
    from difflib import get_close_matches  # here: only a mistyped name needs it

    workload, dash, ending = name.partition("-")
    recipes = recipe_names()
    if not dash and workload in cards():
        cause, remedy = f"{name} is a workload, and needs a recipe", f"for example {', '.join(_examples(workload))}"
    elif workload in cards() and (meant := _recipes_called(ending.lower())):
        cause, remedy = (
            f"no recipe {ending!r}",
            f"did you mean {' or '.join(f'{workload}-{recipe}' for recipe in meant)}?",
        )
    elif meant := _recipes_called(name.lower()):
        cause, remedy = f"no recipe {name!r}", f"did you mean {' or '.join(meant)}?"
    elif nearest := get_close_matches(name, recipes, n=2):
        cause, remedy = f"no recipe {name!r}", f"did you mean the recipe {' or '.join(nearest)}?"
    elif nearest := get_close_matches(name, [image.name for image in images()], n=3):
        cause, remedy = f"no image {name!r}", f"did you mean {' or '.join(nearest)}?"
    else:
        cause = f"no image {name!r}"
        remedy = f"images are called WORKLOAD-RECIPE; recipes: {', '.join(recipes)}; workloads: sifmark list workloads"
    return UsageError(cause, remedy, code="unknown-name")


def _recipes_called(word: str) -> list[str]:
    """Return the recipes for what people call so, such as a vendor or a model of accelerator."""
    return [recipe for recipe in recipe_names() if word in load_recipe(recipe).aliases]


def _examples(workload: str) -> list[str]:
    return [image.name for image in images() if image.workload == workload][:4]


@cache
def _images_of(recipe: str) -> tuple[Image, ...]:
    framework = load_recipe(recipe).framework
    workloads = (name for name, card in cards().items() if _module(framework, card["family"]).is_file())
    return tuple(Image(workload, recipe) for workload in workloads)


def _module(framework: str, family: str) -> Path:
    """Return the file in which a framework implements a family of workloads."""
    return paths.CARDS / framework / f"{family}.py"
