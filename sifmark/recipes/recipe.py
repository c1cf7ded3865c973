"""Recipes: frozen, schema-checked views of `recipes/*.toml`. One file read alone says what is built."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

from sifmark.core import paths
from sifmark.core.errors import UnbuildableError, UsageError, unknown_name
from sifmark.core.schemas import check_document

UNRESOLVED = "unresolved"
# Flags by which a recipe may let a container reach its device; the schema has them too.
FLAGS = {
    "apptainer": {"--nv", "--nvccli", "--rocm"},
    "docker": {
        "--gpus=all",
        "--network=host",
        "--cap-add=IPC_LOCK",
        "--cap-add=SYS_PTRACE",
        "--security-opt=seccomp=unconfined",
        "--ulimit=memlock=-1",
    },
}
# The device files of accelerators, and of the network by which some are reached: no image gets others.
_DEVICE = re.compile(r"/dev/(nvidia|kfd|dri|ipu|infiniband|accel)[A-Za-z0-9_*?-]*(/[A-Za-z0-9_*?.-]+)*")


@dataclass(frozen=True)
class Base:
    """The image a recipe builds on. `digests` maps a platform to `sha256:<hex>` or `unresolved`."""

    image: str  # registry/repository, without tag
    tag: str
    python: str  # minor version, such as 3.11
    framework_version: str | None  # or how it begins; None where we add the framework as a wheel
    licence: str
    redistributable: bool
    digests: dict[str, str]

    @property
    def reference(self) -> str:
        """The name people know it by; the digest is what is pulled."""
        return f"{self.image}:{self.tag}"


@dataclass(frozen=True)
class Target:
    """What wheels are chosen for."""

    python: str  # minor version, such as 3.11
    platform: str  # as `uname -m` says it


@dataclass(frozen=True)
class Driver:
    """What the host must have installed; `minimum` is a version or `unknown`."""

    name: str
    minimum: str


@dataclass(frozen=True)
class Access:
    """How a container reaches the device: its files on the host, as globs, and the engines' flags."""

    devices: tuple[str, ...]
    apptainer: tuple[str, ...] = ()
    docker: tuple[str, ...] = ()

    def harmless(self) -> bool:
        """Whether it is what a recipe may ask for: labels of an image might hold anything."""
        below_dev = all(_DEVICE.fullmatch(path) and ".." not in path for path in self.devices)
        return below_dev and set(self.apptainer) <= FLAGS["apptainer"] and set(self.docker) <= FLAGS["docker"]

    def here(self) -> list[str]:
        """The device files and folders that this host has of them."""
        return sorted(path for pattern in self.devices for path in glob(pattern))  # noqa: PTH207 - from the root


@dataclass(frozen=True)
class Recipe:
    """One image family: what it is built on, what we add, and how it is run."""

    name: str
    title: str
    framework: str
    device: str
    base: Base
    driver: Driver | None
    access: Access | None  # None where there is nothing to reach: a CPU
    requires: tuple[str, ...]  # what we ask of the wheel index; the lock says what we got
    index: str | None  # the framework vendor's own wheel index, beside the one pip knows
    environment: dict[str, str]

    def lock(self, target: Target) -> Path:
        """The hash lock of the wheels we add: one file per Python version and platform."""
        return paths.LOCKS / f"{self.name}-cp{target.python.replace('.', '')}-{target.platform}.txt"


@cache
def recipe_names() -> tuple[str, ...]:
    """The recipes there are, by file name."""
    return tuple(sorted(path.stem for path in paths.RECIPES.glob("*.toml")))


@cache
def load_recipe(name: str) -> Recipe:
    """Read one recipe by name. Raises UsageError naming file, key and remedy."""
    if name not in recipe_names():
        raise unknown_name("recipe", name, recipe_names())
    return read_recipe(paths.RECIPES / f"{name}.toml")


def read_recipe(path: Path) -> Recipe:
    """Read and check one recipe file. Raises UsageError naming file, key and remedy."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}", "correct the file; `git diff` shows what changed") from error
    check_document("recipe-1.0", document, str(path))
    base, wheels = document["base"], document["wheels"]
    driver, access = document.get("driver"), document.get("run")
    return Recipe(
        name=path.stem,
        title=document["title"],
        framework=document["framework"],
        device=document["device"],
        base=Base(
            image=base["image"],
            tag=base["tag"],
            python=base["python"],
            framework_version=base.get("framework_version"),
            licence=base["licence"],
            redistributable=base["redistributable"],
            digests={platform: pin["digest"] for platform, pin in base["digests"].items()},
        ),
        driver=driver and Driver(driver["name"], driver["minimum"]),
        access=access and Access(**{key: tuple(words) for key, words in access.items()}),
        requires=tuple(wheels["requires"]),
        index=wheels.get("index"),
        environment=dict(document.get("environment", {})),
    )


def pinned_digest(recipe: Recipe, platform: str) -> str:
    """The base's digest for a platform, or UNRESOLVED. Raises Unbuildable where the recipe has no such platform."""
    digest = recipe.base.digests.get(platform)
    if digest is None:
        known = ", ".join(sorted(recipe.base.digests))
        raise UnbuildableError(f"recipe {recipe.name} has no base for {platform}", f"it has one for: {known}")
    return digest
