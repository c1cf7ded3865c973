"""The pins verb: what the recipes' tags stand for in their registries today, against what is pinned."""

import difflib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import tomlkit

from sifmark.core import paths
from sifmark.core.console import output, status, step
from sifmark.core.errors import RegistryError, SifmarkError, UsageError
from sifmark.core.files import write_text
from sifmark.core.settings import settings
from sifmark.dev.golden import refresh_texts
from sifmark.oci.images import ResolvedTag, resolve
from sifmark.recipes.recipe import UNRESOLVED, Recipe, load_recipe, recipe_names

AS_PINNED, DIFFERS, RESOLVABLE, UNKNOWN = "as pinned", "differs", "resolvable", "unknown"


@dataclass(frozen=True)
class PinCheck:
    """A base on one platform: the digest in the recipe, and what its tag stands for now."""

    recipe: str
    platform: str
    reference: str
    pinned: str
    found: str | None
    state: str
    reason: str


def pins(update: bool, names: Iterable[str] = (), as_json: bool = False) -> None:
    """Hold every pin against its registry; with `update` write what was found, all or nothing.

    Raises SifmarkError where a pin differs, or, of what is asked to be updated, any cannot be resolved.
    """
    if update and not paths.IS_CHECKOUT:
        raise UsageError("pins are updated in a clone", "clone the project, and do it there")
    recipes = [load_recipe(name) for name in (names or recipe_names())]
    found = [pin for recipe in recipes for pin in compare(recipe)]
    if as_json:
        output(json.dumps([asdict(pin) for pin in found], indent=2))
    else:
        for pin in found:
            output(f"{pin.state:<10} {pin.recipe} on {pin.platform}: {pin.reference}, {pin.reason}")
    lost = sorted({pin.recipe for pin in found if pin.state == UNKNOWN})
    if update:
        if lost:
            raise SifmarkError(
                f"nothing was written: no digest for {', '.join(lost)}", "name only recipes that resolve"
            )
        write([pin for pin in found if pin.state in (DIFFERS, RESOLVABLE)], status if as_json else output)
        return
    wrong = sorted({pin.recipe for pin in found if pin.state == DIFFERS})
    if wrong or lost:
        raise SifmarkError(
            f"differ: {', '.join(wrong) or 'none'}; could not be asked: {', '.join(lost) or 'none'}",
            "take what the registries say: inv pins --update --name RECIPE",
        )


def compare(recipe: Recipe) -> list[PinCheck]:
    """The pins of a recipe, each with what its registry says."""
    address = settings().mirrored(recipe.base.image)
    try:
        with step(f"ask {address}:{recipe.base.tag}"):
            tagged = resolve(address, recipe.base.tag)
    except RegistryError as error:
        return [_pin(recipe, platform, None, UNKNOWN, error.cause) for platform in recipe.base.digests]
    return [_compared(recipe, platform, tagged) for platform in recipe.base.digests]


def write(changed: list[PinCheck], tell: Callable[[str], None]) -> None:
    """Write new digests into their recipes and golden files, and tell what changes.

    All texts are made before the first is written.
    """
    texts = {paths.RECIPES / f"{name}.toml": _text(name, changed) for name in sorted({pin.recipe for pin in changed})}
    for path, text in texts.items():
        before = path.read_text(encoding="utf-8")
        lines = difflib.unified_diff(before.splitlines(True), text.splitlines(True), path.name, path.name)
        tell("".join(lines).rstrip("\n"))
    for path, text in texts.items():
        write_text(path, text)
    load_recipe.cache_clear()
    refresh_texts(path.stem for path in texts)  # the difference in the recipes is what there is to review
    status(f"{len(changed)} pins were written" if changed else "all pins are what the registries say")


def _compared(recipe: Recipe, platform: str, tagged: ResolvedTag) -> PinCheck:
    pinned, found = recipe.base.digests[platform], tagged.platforms.get(platform)
    if found is None:
        return _pin(recipe, platform, None, UNKNOWN, f"its tag has nothing for {platform}")
    if pinned == UNRESOLVED:
        return _pin(recipe, platform, found, RESOLVABLE, f"its tag stands for {found}")
    if pinned in (found, tagged.digest):  # the manifest's, or that of the index of all platforms
        return _pin(recipe, platform, found, AS_PINNED, pinned)
    return _pin(recipe, platform, found, DIFFERS, f"pinned is {pinned}, its tag stands for {found}")


def _pin(recipe: Recipe, platform: str, found: str | None, state: str, reason: str) -> PinCheck:
    digest = recipe.base.digests[platform]
    return PinCheck(recipe.name, platform, recipe.base.reference, digest, found, state, reason)


def _text(name: str, changed: list[PinCheck]) -> str:
    document = tomlkit.parse((paths.RECIPES / f"{name}.toml").read_text(encoding="utf-8"))
    today = datetime.now(UTC).date().isoformat()
    for pin in changed:
        if pin.recipe == name:
            base: Any = document["base"]
            base["digests"][pin.platform].update(digest=pin.found, seen=f"the registry, on {today}")
    return tomlkit.dumps(document)
