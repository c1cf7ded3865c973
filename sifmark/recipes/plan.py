"""What building a recipe means here and now: the base, the keys, the labels. Reads files, runs nothing."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.core import paths
from sifmark.core.environment import platform_name
from sifmark.core.errors import SifmarkError, UnbuildableError
from sifmark.core.files import sha256_file, sha256_json, sha256_tree
from sifmark.core.git import revision, source_date_of_build
from sifmark.core.process import bytecode_python
from sifmark.core.schemas import check_document
from sifmark.core.settings import Settings, settings
from sifmark.oci.reference import is_loopback
from sifmark.recipes import render
from sifmark.recipes.names import workloads_of
from sifmark.recipes.recipe import UNRESOLVED, Base, Recipe, Target, load_recipe, pinned_digest

LABEL = "org.sifmark"
BUILD_KEY = f"{LABEL}.build-key"
STAND_IN = f"{LABEL}.stand-in"
RECIPE = f"{LABEL}.recipe"
PLATFORM = f"{LABEL}.platform"
WORKLOADS = f"{LABEL}.workloads"
COMPRESSION = f"{LABEL}.compression"
BYTECODE = f"{LABEL}.bytecode"
DRIVER = f"{LABEL}.driver"
DEVICES = f"{LABEL}.devices"
RUN_FLAGS = f"{LABEL}.run-flags"
DOCKER_FLAGS = f"{LABEL}.docker-flags"
BASE_DIGEST = "org.opencontainers.image.base.digest"
LOCK = f"{LABEL}.lock"
REVISION = "org.opencontainers.image.revision"
CREATED = "org.opencontainers.image.created"
SHIPPED = (".py", ".json")  # suffixes of the files that go into images, beside the entrypoint itself
_BUILDER = 5  # raise it when the same inputs must give another image


@dataclass(frozen=True)
class BaseImage:
    """The base in force: the pinned one or a stand-in, `address` after mirrors."""

    address: str  # registry/repository, where it is fetched
    tag: str
    digest: str  # or UNRESOLVED
    python: str  # minor version
    framework_version: str | None  # or how it begins; None where we add the framework as a wheel
    stand_in: bool
    plain_http: bool

    @property
    def pull(self) -> str:
        """What an engine is told to fetch: by digest alone, since engines ignore a tag beside it.

        Where nobody has seen the digest it is the tag, for people who render the build file and know what they do.
        """
        return f"{self.address}:{self.tag}" if self.digest == UNRESOLVED else f"{self.address}@{self.digest}"


@dataclass(frozen=True)
class Plan:
    """One recipe on one platform and base, with a choice of compression."""

    recipe: Recipe
    platform: str
    base: BaseImage
    compression: str

    def require_resolved(self) -> None:
        """Raise SifmarkError where nobody has seen the base's digest: such a recipe is rendered, and not built."""
        if self.base.digest == UNRESOLVED:
            raise UnbuildableError(
                f"recipe {self.recipe.name}: nobody has seen the digest of {self.recipe.base.reference} "
                f"for {self.platform}",
                "build with `--bases stand-in`, or have the registry asked: "
                f"inv recipe.pin --update --name {self.recipe.name}",
            )

    @property
    def target(self) -> Target:
        """What our wheels are chosen for."""
        return Target(self.base.python, self.platform)

    @cached_property
    def lock_hash(self) -> str:
        """The hash of the wheels' lock."""
        path = self.recipe.lock(self.target)
        if not path.is_file():
            options = f"--python {self.base.python} --platform {self.platform}"
            remedy = f"write it where a network is: inv recipe.lock {self.recipe.name} {options}"
            raise UnbuildableError(f"there is no lock {path.name}", remedy)
        return sha256_file(path)

    @property
    def site_key(self) -> str:
        """Names the layer of wheels in the cache."""
        bytecode = bytecode_python(self.base.python) is not None
        return sha256_json(["site", self.lock_hash, bytecode, _BUILDER]).removeprefix("sha256:")

    @property
    def base_key(self) -> str:
        """Names the converted base in the cache: digest and fixed sections, whatever the address."""
        definition = render.base_definition(self.recipe, self.base.digest)
        return sha256_json([definition, self.compression, _BUILDER]).removeprefix("sha256:")

    @property
    def base_with_wheels_key(self) -> str:
        """Names the base with the wheels in the cache, and all that their lists of packages say of the base."""
        base = [self.recipe.base.reference, self.recipe.base.licence, self.base.stand_in, __version__]
        return sha256_json([self.base_key, self.site_key, base]).removeprefix("sha256:")

    @cached_property
    def build_key(self) -> str:
        """An image is up to date when it carries this: a hash over all that goes into it.

        Mirrors, compression and the commit are left out: they do not change what the image does.
        """
        reference = f"{self.recipe.base.reference}@{self.base.digest}"
        return sha256_json(
            {
                "builder": _BUILDER,
                "definition": render.definition(self.recipe, reference, self._statements(), context="."),
                "code": _code_hash(),
            }
        )

    def labels(self) -> dict[str, str]:
        """OCI's labels and ours, all strings."""
        created = datetime.fromtimestamp(source_date_of_build(), UTC).isoformat()
        labels = {**self._statements(), COMPRESSION: self.compression, BUILD_KEY: self.build_key}
        labels |= {CREATED: created, render.BUILD_DATE: created}
        if (commit := revision()) is not None:
            labels[REVISION] = commit
        return labels

    def self_description(self) -> dict[str, Any]:
        """What the entrypoint reads from `/sifmark/image.json`."""
        return {
            "recipe": self.recipe.name,
            "framework": self.recipe.framework,
            "device": self.recipe.device,
            "platform": self.platform,
            "version": __version__,
            "build_key": self.build_key,
            "base": {"reference": self.recipe.base.reference, "digest": self.base.digest},
            "stand_in": self.base.stand_in,
            "lock": self.lock_hash,
            "revision": revision(),
        }

    def _needs(self) -> dict[str, str]:
        """The labels that say what a run needs of its host; none for a CPU."""
        driver, access = self.recipe.driver, self.recipe.access
        labels = {DRIVER: f"{driver.name} {driver.minimum}"} if driver else {}
        if access:
            labels[DEVICES] = ",".join(access.devices)
        if access and access.apptainer:
            labels[RUN_FLAGS] = " ".join(access.apptainer)
        if access and access.docker:
            labels[DOCKER_FLAGS] = " ".join(access.docker)
        if self.recipe.base.framework_version:
            labels[f"{LABEL}.framework-version"] = self.recipe.base.framework_version
        return labels

    def _statements(self) -> dict[str, str]:
        """The labels that say what is in the image: every field of the recipe, and what was chosen here."""
        recipe = self.recipe
        return {
            render.TITLE: f"sifmark {recipe.name}",
            "org.opencontainers.image.description": recipe.title,
            "org.opencontainers.image.version": __version__,
            "org.opencontainers.image.base.name": recipe.base.reference,
            BASE_DIGEST: self.base.digest,
            RECIPE: recipe.name,
            f"{LABEL}.framework": recipe.framework,
            f"{LABEL}.device": recipe.device,
            f"{LABEL}.python": self.base.python,
            **self._needs(),
            PLATFORM: self.platform,
            WORKLOADS: ",".join(workloads_of(recipe.name)),
            f"{LABEL}.base-licence": recipe.base.licence,
            f"{LABEL}.base-redistributable": str(recipe.base.redistributable).lower(),
            LOCK: self.lock_hash,
            BYTECODE: str(bytecode_python(self.base.python) is not None).lower(),
            STAND_IN: str(self.base.stand_in).lower(),
        }


def make_plan(recipe: str, chosen: Settings | None = None) -> Plan:
    """The plan for a recipe under the settings in force. Raises SifmarkError where its base has no digest."""
    site = chosen or settings()
    loaded = load_recipe(recipe)
    platform = platform_name()
    base = _stand_in(loaded, platform, site) if site.bases == "stand-in" else _pinned(loaded, platform, site)
    return Plan(loaded, platform, base, site.compression)


def _pinned(recipe: Recipe, platform: str, site: Settings) -> BaseImage:
    return BaseImage(
        address=(address := site.mirrored(recipe.base.image)),
        tag=recipe.base.tag,
        digest=pinned_digest(recipe, platform),
        python=recipe.base.python,
        framework_version=recipe.base.framework_version,
        stand_in=False,
        plain_http=is_loopback(address),
    )


def _stand_in(recipe: Recipe, platform: str, site: Settings) -> BaseImage:
    pins = stand_in_pins(site.stand_in_pins)
    pin = stand_in_pin(pins, recipe.base, platform)
    if pin is None:
        raise UnbuildableError(
            f"there is no stand-in for {recipe.base.reference} on {platform}",
            f"make one: ci/setup/stand-in {recipe.name}",
        )
    return BaseImage(
        address=(address := f"{pins['registry']}/{recipe.base.image.partition('/')[2]}"),
        tag=recipe.base.tag,
        digest=pin["digest"],
        python=pin["python"],
        framework_version=pin.get("framework_version"),
        stand_in=True,
        plain_http=is_loopback(address),
    )


def stand_in_pins(path: Path) -> dict[str, Any]:
    """The generated pins of the stand-in bases. Raises SifmarkError where there are none, or none that read."""
    try:
        pins: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise SifmarkError(f"no stand-in bases here ({path} is missing)", "make them: ci/setup/stand-in") from None
    except ValueError as error:
        raise SifmarkError(f"{path}: {error}", "make it anew: ci/setup/stand-in") from error
    check_document("pins-1.0", pins, str(path))
    return pins


def stand_in_pin(pins: Mapping[str, Any], base: Base, platform: str) -> Mapping[str, Any] | None:
    """The pin of the stand-in for a base, of those that were generated; None where there is none."""
    pin: Mapping[str, Any] | None = pins["bases"].get(base.reference, {}).get(platform)
    return pin


@cache
def _code_hash() -> str:
    return sha256_tree(shipped_files())


def shipped_files() -> dict[str, Path]:
    """The files of ours that go into every image, by their path below `/sifmark`."""
    code = [
        path for path in paths.ENTRYPOINTS.rglob("*") if path.suffix in SHIPPED or path == paths.ENTRYPOINTS / "run"
    ]
    contracts = paths.SCHEMAS.glob("*.json")  # not the examples below
    return {str(path.relative_to(paths.ROOT)): path for path in sorted([*code, *contracts]) if path.is_file()}
