"""The recipe.pin command: compare pinned base digests with the registries, or update them."""

from collections.abc import Iterable, Sequence

from sifmark.commands.answers import JSON, Table, answer
from sifmark.core import paths
from sifmark.core.console import output, paint, status
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.recipes.golden import refresh_texts
from sifmark.recipes.pins import PinCheck, PinState, check_pins, updates, write_updates
from sifmark.recipes.recipe import load_recipe, recipe_names


def pin(names: Iterable[str], settings: Settings, *, check: bool, update: bool, form: str) -> None:
    """Compare the pins of recipes, or of all, with the registries; with `update` write what these say.

    Raises SifmarkError if a pin differs, or with `update` if one cannot be resolved: then nothing is written.
    """
    if check and update:
        raise UsageError("--check and --update: choose one", "leave one of them out", code="invalid-option")
    if update and not paths.IS_CHECKOUT:
        remedy = "clone the project, and do it there"
        raise UsageError("pins are updated in a clone", remedy, code="checkout-missing")
    recipes = [load_recipe(name) for name in (tuple(names) or recipe_names())]
    pins = [pin for recipe in recipes for pin in check_pins(recipe, settings)]
    columns = ("recipe", "platform", "state", "reference", "reason")
    rows = [(pin.recipe, pin.platform, pin.state.value, pin.reference, pin.reason) for pin in pins]
    answer(form, [pin.document() for pin in pins], Table(columns, rows), lambda: _show(pins))
    _update(pins, as_json=form == JSON) if update else _judge(pins)


def _show(pins: Iterable[PinCheck]) -> None:
    for pin in pins:
        state = paint(f"{pin.state:<10}", word=pin.state)
        output(f"{state} {pin.recipe} on {pin.platform}: {pin.reference}, {pin.reason}")


def _judge(pins: Sequence[PinCheck]) -> None:
    """Raise SifmarkError if a pin differs or cannot be resolved."""
    differing, unresolved = _recipes(pins, PinState.DIFFERS), _recipes(pins, PinState.UNKNOWN)
    if differing:
        cause = f"pins differ from the registries: {', '.join(differing)}"
        remedy = f"take the registries' digests: sifmark recipe.pin --update --name {differing[0]}"
        raise SifmarkError(cause, remedy, code="pins-differ")
    if unresolved:
        cause = f"these could not be checked, for the reasons above: {', '.join(unresolved)}"
        raise SifmarkError(
            cause, "check the network, or set a mirror: [mirrors] in sifmark.toml", code="pins-unchecked"
        )


def _update(pins: Sequence[PinCheck], as_json: bool) -> None:
    """Write all new digests with the golden files that change with them, and print the differences."""
    if unresolved := _recipes(pins, PinState.UNKNOWN):
        cause = f"nothing was written: no digest for {', '.join(unresolved)}"
        raise SifmarkError(cause, "name only recipes that resolve", code="base-unresolved")
    outdated = [pin for pin in pins if pin.state in (PinState.DIFFERS, PinState.RESOLVABLE)]
    changed = updates(outdated)
    for update in changed:
        (status if as_json else output)(update.difference)
    write_updates(changed)
    refresh_texts(update.path.stem for update in changed)  # for the review of the change
    status(f"{len(outdated)} pins were written" if outdated else "all pins are what the registries say")


def _recipes(pins: Iterable[PinCheck], state: PinState) -> list[str]:
    return sorted({pin.recipe for pin in pins if pin.state is state})
