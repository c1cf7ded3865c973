"""The plan of a build: a recipe on a base and a platform, with its keys and labels.

It reads recipes, locks and pins, and asks git for the commit and its date. It builds nothing.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.core import paths
from sifmark.core.environment import find_python, platform_name
from sifmark.core.errors import UnbuildableError
from sifmark.core.files import sha256_file, sha256_json, sha256_tree
from sifmark.core.git import revision, source_date_of_build
from sifmark.core.settings import Settings
from sifmark.recipes import labels, render
from sifmark.recipes.base import BaseImage, pinned_base, stand_in_base
from sifmark.recipes.names import workloads_of
from sifmark.recipes.recipe import UNRESOLVED, Recipe, Target, load_recipe

_SUFFIXES = (".py", ".json")  # of the entrypoints; `run` has none
_BUILDER = 5  # raise it when the same inputs must give another image
_LISTS = 3  # raise it when the same packages must give other lists


def shipped_files() -> dict[str, Path]:
    """Return the files of ours in every image, by their path below `/sifmark`."""
    entrypoints = [
        path for path in paths.ENTRYPOINTS.rglob("*") if path.suffix in _SUFFIXES or path == paths.ENTRYPOINTS / "run"
    ]
    schemas = paths.SCHEMAS.glob("*.json")  # without the examples, which are in a folder below
    return {str(path.relative_to(paths.ROOT)): path for path in sorted([*entrypoints, *schemas]) if path.is_file()}


@cache
def code_hash() -> str:
    """Return the hash of these files' names and contents."""
    return sha256_tree(shipped_files())


@dataclass(frozen=True)
class Plan:
    """One recipe on one platform and base, with a choice of compression."""

    recipe: Recipe
    platform: str
    base: BaseImage
    compression: str

    def require_resolved(self) -> None:
        """Raise UnbuildableError if the base has no digest yet: such a recipe can be rendered, but not built."""
        if self.base.digest == UNRESOLVED:
            raise UnbuildableError(
                f"recipe {self.recipe.name}: there is no digest of {self.recipe.base.reference} for {self.platform}",
                "build with `--bases stand-in`, or have the registry asked: "
                f"sifmark recipe.pin --update --name {self.recipe.name}",
                code="base-unresolved",
            )

    @property
    def target(self) -> Target:
        """The Python and the platform that our wheels are chosen for."""
        return Target(self.base.python, self.platform)

    @cached_property
    def lock_hash(self) -> str:
        """The hash of the wheels' lock. Raises UnbuildableError if there is no lock."""
        path = self.recipe.lock(self.target)
        if not path.is_file():
            options = f"--python {self.base.python} --platform {self.platform}"
            remedy = f"write it where a network is: sifmark recipe.lock {self.recipe.name} {options}"
            raise UnbuildableError(f"there is no lock {path.name}", remedy, code="lock-missing")
        return sha256_file(path)

    @cached_property
    def python(self) -> str | None:
        """An interpreter on this host that can compile bytecode for the base's Python, or None."""
        return find_python(self.base.python)

    @property
    def site_key(self) -> str:
        """The key of the layer of wheels in the cache."""
        return _key(["site", self.lock_hash, self.python is not None, _BUILDER])

    @property
    def base_key(self) -> str:
        """The key of the converted base in the cache: digest and fixed sections, independent of the address.

        Its Python is checked when it is converted.
        """
        definition = render.base_definition(self.recipe, self.base.digest)
        return _key([definition, self.recipe.base.interpreter, self.base.python, self.compression, _BUILDER])

    @property
    def base_with_wheels_key(self) -> str:
        """The key of the base with wheels in the cache; its lists of packages also describe the base."""
        base = [self.recipe.base.reference, self.recipe.base.licence, self.base.stand_in, __version__, _LISTS]
        return _key([self.base_key, self.site_key, base])

    @cached_property
    def build_key(self) -> str:
        """A hash over all inputs of the build; an image that carries it is up to date.

        Mirrors, compression and the commit are left out: they do not change what the image does.
        """
        reference = f"{self.recipe.base.reference}@{self.base.digest}"
        return sha256_json(
            {
                "builder": _BUILDER,
                "definition": render.definition(self.recipe, reference, self._input_labels(), context="."),
                "code": code_hash(),
            }
        )

    def labels(self) -> dict[str, str]:
        """Return the labels of the image: OCI's and ours."""
        created = datetime.fromtimestamp(source_date_of_build(), UTC).isoformat()
        commit = revision()
        return {
            **self._input_labels(),
            labels.COMPRESSION: self.compression,
            labels.BUILD_KEY: self.build_key,
            labels.CREATED: created,
            labels.BUILD_DATE: created,
            **({labels.REVISION: commit} if commit is not None else {}),
        }

    def self_description(self) -> dict[str, Any]:
        """Return the document that the entrypoint reads from `/sifmark/image.json`."""
        return {
            "recipe": self.recipe.name,
            "framework": self.recipe.framework,
            "device": self.recipe.device,
            "platform": self.platform,
            "python": self.base.python,
            "version": __version__,
            "build_key": self.build_key,
            "base": {"reference": self.recipe.base.reference, "digest": self.base.digest},
            "stand_in": self.base.stand_in,
            "lock": self.lock_hash,
            "revision": revision(),
        }

    def _input_labels(self) -> dict[str, str]:
        """Return the labels that are part of the build key: every field of the recipe, and what was chosen here."""
        recipe = self.recipe
        return {
            labels.TITLE: f"sifmark {recipe.name}",
            labels.DESCRIPTION: recipe.title,
            labels.VERSION: __version__,
            labels.BASE_NAME: recipe.base.reference,
            labels.BASE_DIGEST: self.base.digest,
            labels.RECIPE: recipe.name,
            labels.FRAMEWORK: recipe.framework,
            labels.DEVICE: recipe.device,
            labels.PYTHON: self.base.python,
            **_base_labels(recipe),
            **_host_labels(recipe),
            labels.PLATFORM: self.platform,
            labels.WORKLOADS: ",".join(workloads_of(recipe.name)),
            labels.BASE_LICENCE: recipe.base.licence,
            labels.BASE_REDISTRIBUTABLE: _word(recipe.base.redistributable),
            labels.LOCK: self.lock_hash,
            labels.BYTECODE: _word(self.python is not None),
            labels.STAND_IN: _word(self.base.stand_in),
        }


def make_plan(recipe: str, settings: Settings) -> Plan:
    """Return the plan for a recipe on this host's platform.

    Raises UnbuildableError if the recipe has no base for the platform, and SifmarkError if stand-ins are missing.
    """
    loaded, platform = load_recipe(recipe), platform_name()
    if settings.bases == "stand-in":
        base = stand_in_base(loaded, platform, settings)
    else:
        base = pinned_base(loaded, platform, settings.mirrored(loaded.base.image))
    return Plan(loaded, platform, base, settings.compression)


def _base_labels(recipe: Recipe) -> dict[str, str]:
    """Return the labels of what a recipe may say of its base."""
    said = {labels.INTERPRETER: recipe.base.interpreter, labels.FRAMEWORK_VERSION: recipe.base.framework_version}
    return {label: value for label, value in said.items() if value}


def _host_labels(recipe: Recipe) -> dict[str, str]:
    """Return the labels that say what a run needs of its host; a CPU needs nothing."""
    needs = {}
    if recipe.driver:
        needs[labels.DRIVER] = f"{recipe.driver.name} {recipe.driver.minimum}"
    if recipe.access:
        needs[labels.DEVICES] = ",".join(recipe.access.devices)
    if recipe.access and recipe.access.apptainer:
        needs[labels.RUN_FLAGS] = " ".join(recipe.access.apptainer)
    if recipe.access and recipe.access.docker:
        needs[labels.DOCKER_FLAGS] = " ".join(recipe.access.docker)
    return needs


def _key(parts: list[Any]) -> str:
    """Return the key of a cache entry: a hash in hexadecimal."""
    return sha256_json(parts).removeprefix("sha256:")


def _word(value: bool) -> str:
    return str(value).lower()
