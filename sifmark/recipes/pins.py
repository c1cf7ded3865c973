"""The pinned digests of bases, compared with those that their tags refer to in the registries."""

import difflib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import tomlkit

from sifmark.core import paths
from sifmark.core.console import step
from sifmark.core.errors import RegistryError
from sifmark.core.files import write_text
from sifmark.core.settings import Settings
from sifmark.oci.images import ResolvedTag, resolve
from sifmark.recipes.recipe import UNRESOLVED, Recipe, load_recipe


class PinState(StrEnum):
    """How a pinned digest relates to its registry."""

    AS_PINNED = "as pinned"
    DIFFERS = "differs"
    RESOLVABLE = "resolvable"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class PinCheck:
    """A base on one platform: the digest in the recipe, and the one that its tag refers to now."""

    recipe: str
    platform: str
    reference: str
    pinned: str
    registry_digest: str | None
    state: PinState
    reason: str

    def document(self) -> dict[str, str | None]:
        """Return the check for programs."""
        fields = asdict(self)
        digest = fields.pop("registry_digest")
        return {**fields, "found": digest}


@dataclass(frozen=True)
class RecipeUpdate:
    """A recipe's file with other digests."""

    path: Path
    text: str
    difference: str  # in unified format


def check_pins(recipe: Recipe, settings: Settings) -> list[PinCheck]:
    """Return the pins of a recipe, each with what its registry says."""
    address = settings.mirrored(recipe.base.image)
    try:
        with step(f"ask {address}:{recipe.base.tag}"):
            tag = resolve(address, recipe.base.tag)
    except RegistryError as error:
        return [_pin(recipe, platform, None, PinState.UNKNOWN, error.cause) for platform in recipe.base.digests]
    return [_compare(recipe, platform, tag) for platform in recipe.base.digests]


def updates(pins: Iterable[PinCheck]) -> list[RecipeUpdate]:
    """Return the recipes with the digests of their registries in place of those that are pinned."""
    by_recipe: dict[str, list[PinCheck]] = {}
    for pin in pins:
        by_recipe.setdefault(pin.recipe, []).append(pin)
    return [_update(recipe, by_recipe[recipe]) for recipe in sorted(by_recipe)]


def write_updates(changed: Iterable[RecipeUpdate]) -> None:
    """Write updated recipes."""
    for update in changed:
        write_text(update.path, update.text)
    load_recipe.cache_clear()


def _compare(recipe: Recipe, platform: str, tag: ResolvedTag) -> PinCheck:
    pinned, digest = recipe.base.digests[platform], tag.platforms.get(platform)
    if digest is None:
        return _pin(recipe, platform, None, PinState.UNKNOWN, f"its tag has nothing for {platform}")
    if pinned == UNRESOLVED:
        return _pin(recipe, platform, digest, PinState.RESOLVABLE, f"its tag refers to {digest}")
    if pinned in (digest, tag.digest):  # the manifest's digest, or that of the index of all platforms
        return _pin(recipe, platform, digest, PinState.AS_PINNED, pinned)
    return _pin(recipe, platform, digest, PinState.DIFFERS, f"pinned is {pinned}, its tag refers to {digest}")


def _pin(recipe: Recipe, platform: str, digest: str | None, state: PinState, reason: str) -> PinCheck:
    pinned = recipe.base.digests[platform]
    return PinCheck(recipe.name, platform, recipe.base.reference, pinned, digest, state, reason)


def _update(recipe: str, pins: Iterable[PinCheck]) -> RecipeUpdate:
    path = paths.RECIPES / f"{recipe}.toml"
    before = path.read_text(encoding="utf-8")
    document = tomlkit.parse(before)
    today = datetime.now(UTC).date().isoformat()
    for pin in pins:
        base: Any = document["base"]
        base["digests"][pin.platform].update(digest=pin.registry_digest, seen=f"the registry, on {today}")
    text = tomlkit.dumps(document)
    lines = difflib.unified_diff(before.splitlines(True), text.splitlines(True), path.name, path.name)
    return RecipeUpdate(path, text, "".join(lines).rstrip("\n"))
