"""Recipes: `recipes/*.toml`, checked against their schema. A recipe and the hardware it names say what is built."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sifmark.core import paths
from sifmark.core.errors import UnbuildableError, UsageError, nearest_names, unknown_name
from sifmark.core.schemas import read_toml
from sifmark.recipes.hardware import Access, Hardware, access_of, hardware_names, load_hardware

UNRESOLVED = "unresolved"


@dataclass(frozen=True)
class Base:
    """The image that a recipe builds on. `digests` maps a platform to `sha256:<hex>` or `unresolved`."""

    image: str  # registry/repository, without tag
    tag: str
    python: str  # minor version, such as 3.11
    interpreter: str | None  # its absolute path; None for the first `python3` on the base's PATH
    framework_version: str | None  # or how it begins; None where we add the framework as a wheel
    licence: str
    redistributable: bool
    digests: dict[str, str]

    @property
    def reference(self) -> str:
        """Image and tag, for people; engines pull by digest."""
        return f"{self.image}:{self.tag}"


@dataclass(frozen=True)
class Target:
    """The Python and the platform that wheels are chosen for."""

    python: str  # minor version, such as 3.11
    platform: str  # as `uname -m` names it


@dataclass(frozen=True)
class Driver:
    """The driver that the host must have; `minimum` is a version or `unknown`."""

    name: str
    minimum: str


@dataclass(frozen=True)
class Recipe:
    """One family of images: its base, what we add to it, and how it is run."""

    name: str
    title: str
    framework: str
    device: str
    aliases: tuple[str, ...]  # what people call what it is for
    base: Base
    driver: Driver | None
    access: Access | None  # None for a CPU, which needs no device files
    requires: tuple[str, ...]  # what we ask of the wheel index; the lock names what was resolved
    index: str | None  # the framework vendor's own wheel index, beside the one pip knows
    environment: dict[str, str]

    def lock(self, target: Target) -> Path:
        """Return the path of the lock of the wheels that we add: one file per Python version and platform."""
        return paths.LOCKS / f"{self.name}-cp{target.python.replace('.', '')}-{target.platform}.txt"


@cache
def recipe_names() -> tuple[str, ...]:
    """Return the names of all recipes, which are their file names."""
    return tuple(sorted(path.stem for path in paths.RECIPES.glob("*.toml")))


@cache
def load_recipe(name: str) -> Recipe:
    """Read a recipe by name. Raises UsageError naming file, key and remedy."""
    if name not in recipe_names():
        raise unknown_name("recipe", name, recipe_names())
    return read_recipe(paths.RECIPES / f"{name}.toml")


def read_recipe(path: Path) -> Recipe:
    """Read and check a recipe file. Raises UsageError naming file, key and remedy."""
    document = read_toml(path, "recipe-1.0")
    wheels, driver = document["wheels"], document.get("driver")
    hardware = _hardware(document, path)
    names = (hardware.name, *hardware.aliases) if hardware else ()
    return Recipe(
        name=path.stem,
        title=document["title"],
        framework=document["framework"],
        device=document.get("device") or (hardware.device if hardware else ""),
        aliases=tuple(document.get("aliases", names)),
        base=_base(document["base"]),
        driver=driver and Driver(driver["name"], driver["minimum"]),
        access=access_of(document) or (hardware.access if hardware else None),
        requires=tuple(wheels["requires"]),
        index=wheels.get("index"),
        environment=dict(document.get("environment", {})),
    )


def _hardware(document: Mapping[str, Any], path: Path) -> Hardware | None:
    """Return the hardware that a recipe names; it may state device and access by itself."""
    name = document.get("hardware")
    if name is None:
        return None
    if name not in hardware_names():
        remedy = nearest_names(name, hardware_names())
        raise UsageError(f"{path}: hardware: there is no recipes/hardware/{name}.toml", remedy, code="document-invalid")
    return load_hardware(name)


def _base(table: Mapping[str, Any]) -> Base:
    return Base(
        image=table["image"],
        tag=table["tag"],
        python=table["python"],
        interpreter=table.get("interpreter"),
        framework_version=table.get("framework_version"),
        licence=table["licence"],
        redistributable=table["redistributable"],
        digests={platform: pin["digest"] for platform, pin in table["digests"].items()},
    )


def pinned_digest(recipe: Recipe, platform: str) -> str:
    """Return the base's digest for a platform, or UNRESOLVED. Raises UnbuildableError for another platform."""
    digest = recipe.base.digests.get(platform)
    if digest is None:
        cause = f"recipe {recipe.name} has no base for {platform}"
        remedy = f"it has one for: {', '.join(sorted(recipe.base.digests))}"
        raise UnbuildableError(cause, remedy, code="platform-unsupported")
    return digest
