"""The base image that a recipe is built on: the one that it pins, or a stand-in for it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifmark.core.environment import platform_name
from sifmark.core.errors import SifmarkError, UnbuildableError
from sifmark.core.schemas import check_document
from sifmark.core.settings import Settings
from sifmark.oci.manifest import is_loopback
from sifmark.recipes.recipe import UNRESOLVED, Base, Recipe, load_recipe, pinned_digest

PINNED = "pinned"  # the setting `bases` of the recipes' own


def read_stand_in_pins(path: Path) -> dict[str, Any]:
    """Return the generated pins of the stand-in bases. Raises SifmarkError if they are missing or cannot be read."""
    try:
        pins: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        cause = f"no test bases in the cache ({path} is missing)"
        remedy = "build on the vendors' bases: --bases pinned; or make test bases: ci/setup/stand-in"
        raise SifmarkError(cause, remedy, code="stand-ins-missing") from None
    except ValueError as error:
        raise SifmarkError(f"{path}: {error}", "make it again: ci/setup/stand-in", code="document-invalid") from error
    check_document("pins-1.0", pins, str(path))
    return pins


def stand_in_pin(pins: Mapping[str, Any], base: Base, platform: str) -> Mapping[str, Any] | None:
    """Return the pin of the stand-in for a base on a platform, or None if there is none."""
    pin: Mapping[str, Any] | None = pins["bases"].get(base.reference, {}).get(platform)
    return pin


@dataclass(frozen=True)
class BaseImage:
    """A base image: the pinned one or a stand-in, at its `address` after mirrors."""

    address: str  # registry/repository, where it is fetched
    tag: str
    digest: str  # or UNRESOLVED
    python: str  # minor version
    framework_version: str | None  # or how it begins; None where we add the framework as a wheel
    stand_in: bool
    plain_http: bool

    @property
    def pull(self) -> str:
        """The reference that an engine fetches: by digest alone, since engines ignore a tag beside it.

        If the digest is unresolved it is the tag, for people who render the build file and build it themselves.
        """
        return f"{self.address}:{self.tag}" if self.digest == UNRESOLVED else f"{self.address}@{self.digest}"


def pinned_base(recipe: Recipe, platform: str, address: str) -> BaseImage:
    """Return the base that a recipe pins, fetched from `address`. Raises UnbuildableError for another platform."""
    return BaseImage(
        address=address,
        tag=recipe.base.tag,
        digest=pinned_digest(recipe, platform),
        python=recipe.base.python,
        framework_version=recipe.base.framework_version,
        stand_in=False,
        plain_http=is_loopback(address),
    )


def needed_bases(recipe: str, settings: Settings) -> tuple[str, str]:
    """Return the option that a build of a recipe needs, and a note that says why; nothing if it needs none.

    Where test bases were chosen, there need not be one for the recipe.
    """
    if settings.bases == PINNED:
        return "", ""
    try:
        loaded = load_recipe(recipe)
        if stand_in_pin(read_stand_in_pins(settings.stand_in_pins), loaded.base, platform_name()) is not None:
            return "", ""
    except SifmarkError:
        pass
    return f" --bases {PINNED}", f"; {settings.origin('bases')} chose test bases, and there is none for {recipe}"


def stand_in_base(recipe: Recipe, platform: str, settings: Settings) -> BaseImage:
    """Return the stand-in for a recipe's base. Raises SifmarkError if none was generated on this host."""
    pins = read_stand_in_pins(settings.stand_in_pins)
    pin = stand_in_pin(pins, recipe.base, platform)
    if pin is None:
        raise UnbuildableError(
            f"there is no test base for {recipe.base.reference} on {platform}, "
            f"and {settings.origin('bases')} chose test bases",
            f"build on the vendor's base: --bases pinned; or make one: ci/setup/stand-in {recipe.name}",
            code="stand-ins-missing",
        )
    address = f"{pins['registry']}/{recipe.base.image.partition('/')[2]}"
    return BaseImage(
        address=address,
        tag=recipe.base.tag,
        digest=pin["digest"],
        python=pin["python"],
        framework_version=pin.get("framework_version"),
        stand_in=True,
        plain_http=is_loopback(address),
    )
