"""Recipes: frozen, schema-checked views of `recipes/*.toml`. One file read alone says what is built."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sifmark import house
from sifmark.errors import SifmarkError, UsageError, unknown_name
from sifmark.schema import check_document

UNRESOLVED = "unresolved"


@dataclass(frozen=True)
class Base:
    """The image a recipe builds on. `digests` maps a platform to `sha256:<hex>` or `unresolved`."""

    image: str  # registry/repository, without tag
    tag: str
    python: str  # minor version, such as 3.11
    licence: str
    redistributable: bool
    digests: dict[str, str]

    @property
    def reference(self) -> str:
        """The name people know it by; the digest is what is pulled."""
        return f"{self.image}:{self.tag}"


@dataclass(frozen=True)
class Recipe:
    """One image family: what it is built on, what we add, and how it is run."""

    name: str
    title: str
    framework: str
    device: str
    base: Base
    requires: tuple[str, ...]  # what we ask of the wheel index; the lock says what we got
    index: str | None  # the framework vendor's own wheel index, beside the one pip knows
    environment: dict[str, str]

    def lock(self, platform: str) -> Path:
        """The hash lock of the wheels we add: one file per Python version and platform."""
        return house.LOCKS / f"{self.name}-cp{self.base.python.replace('.', '')}-{platform}.txt"


@cache
def recipe_names() -> tuple[str, ...]:
    """The recipes there are, by file name."""
    return tuple(sorted(path.stem for path in house.RECIPES.glob("*.toml")))


@cache
def load_recipe(name: str) -> Recipe:
    """Read one recipe by name. Raises UsageError naming file, key and remedy."""
    if name not in recipe_names():
        raise unknown_name("recipe", name, recipe_names())
    return read_recipe(house.RECIPES / f"{name}.toml")


def read_recipe(path: Path) -> Recipe:
    """Read and check one recipe file. Raises UsageError naming file, key and remedy."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}", "correct the file; `git diff` shows what changed") from error
    check_document("recipe-1.0", document, str(path))
    base = document["base"]
    wheels = document["wheels"]
    return Recipe(
        name=path.stem,
        title=document["title"],
        framework=document["framework"],
        device=document["device"],
        base=Base(
            image=base["image"],
            tag=base["tag"],
            python=base["python"],
            licence=base["licence"],
            redistributable=base["redistributable"],
            digests={platform: pin["digest"] for platform, pin in base["digests"].items()},
        ),
        requires=tuple(wheels["requires"]),
        index=wheels.get("index"),
        environment=dict(document.get("environment", {})),
    )


def pinned_digest(recipe: Recipe, platform: str) -> str:
    """The base's digest for a platform. Raises SifmarkError where there is none yet."""
    digest = recipe.base.digests.get(platform)
    if digest is None:
        known = ", ".join(sorted(recipe.base.digests))
        raise SifmarkError(f"recipe {recipe.name} has no base for {platform}", f"it has one for: {known}")
    if digest == UNRESOLVED:
        raise SifmarkError(
            f"recipe {recipe.name}: nobody has seen the digest of {recipe.base.reference} for {platform}",
            "build with `--bases stand-in`, or write the digest that the registry shows into the recipe",
        )
    return digest
