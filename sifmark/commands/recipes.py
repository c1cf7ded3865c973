"""Commands for recipes, for maintainers and hosts without a network: pin, lock, fetch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands import framework as cli
from sifmark.commands.answers import JSON, TABLE, Table, answer, answer_record
from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UnbuildableError, UsageError
from sifmark.core.files import human_size
from sifmark.core.terminal import output, paint, status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sifmark.core.settings import Settings
    from sifmark.recipes.pins import PinCheck, PinState

FETCHED = ("recipe", "base_bytes", "wheels_bytes")
recipes_option = cli.option(
    "--name", "A recipe. Repeatable. [default: all]", "RECIPE", name="names", multiple=True, completes="recipe"
)


@cli.command("recipe.pin", example="recipe.pin --name cpu")
@recipes_option
@cli.flag("--check", "Only compare, which is the default.")
@cli.flag("--update", "Write the registries' digests into the recipes.")
@cli.format_option
def pin(
    names: Iterable[str], settings: Settings, *, check: bool = False, update: bool = False, form: str = TABLE
) -> None:
    """Check or update the pinned digests of base images."""
    from sifmark.recipes.pins import check_pins
    from sifmark.recipes.recipe import load_recipe, recipe_names

    if check and update:
        raise UsageError("--check and --update: choose one", "leave one of them out", code="invalid-option")
    if update and not paths.IS_CHECKOUT:
        remedy = "clone the project, and do it there"
        raise UsageError("pins are updated in a clone", remedy, code="checkout-missing")
    recipes = [load_recipe(name) for name in (tuple(names) or recipe_names())]
    pins = [pin for recipe in recipes for pin in check_pins(recipe, settings)]
    columns = ("recipe", "platform", "state", "reference", "reason")
    rows = [(pin.recipe, pin.platform, pin.state.value, pin.reference, pin.reason) for pin in pins]
    answer(form, [pin.document() for pin in pins], Table(columns, rows), lambda: _show_pins(pins))
    _update(pins, as_json=form == JSON) if update else _judge(pins)


def _show_pins(pins: Iterable[PinCheck]) -> None:
    for pin in pins:
        state = paint(f"{pin.state:<10}", word=pin.state)
        output(f"{state} {pin.recipe} on {pin.platform}: {pin.reference}, {pin.reason}")


def _judge(pins: Sequence[PinCheck]) -> None:
    """Raise SifmarkError if a pin differs or cannot be resolved."""
    from sifmark.recipes.pins import PinState

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
    from sifmark.recipes.golden import refresh_texts
    from sifmark.recipes.pins import PinState, updates, write_updates

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


@cli.command("recipe.lock", example="recipe.lock cpu")
@cli.argument("name", "A recipe.", "RECIPE", completes="recipe")
@cli.option("--python", "Minor version of Python. [default: that of the base]", "VERSION")
@cli.option("--platform", "[default: this machine's]", choices=("x86_64", "aarch64"))
@cli.format_option
def lock(name: str, settings: Settings, python: str = "", platform: str = "", form: str = TABLE) -> None:
    """Resolve a recipe's wheels and write their lock file."""
    from sifmark.layers.resolve import lock_wheels
    from sifmark.recipes.recipe import load_recipe

    path = lock_wheels(load_recipe(name), settings, python or None, platform or None)
    answer_record(form, {"recipe": name, "lock": str(path)}, lambda: output(str(path)))


@cli.command("recipe.fetch", example="recipe.fetch sources/ --name cpu")
@cli.argument("folder", "Folder for bases and wheels; existing files are kept.", completes="folder")
@recipes_option
@cli.format_option
@cli.bases_option
def fetch(folder: str, settings: Settings, names: Sequence[str] = (), form: str = TABLE) -> None:
    """Download what builds need, for hosts without a network."""
    from sifmark.recipes.recipe import recipe_names

    target = Path(folder).absolute()
    failed, fetched = [], []
    for recipe in names or recipe_names():
        try:
            fetched.append((recipe, *_fetch(recipe, target, settings)))
        except UsageError:
            raise
        except UnbuildableError as error:
            if names:
                raise
            status(f"left out: {error.cause}")
        except SifmarkError as error:  # the others are fetched all the same
            status(f"error: {error}")
            failed.append(recipe)
    if failed:
        remedy = "complete files are kept: run it again after the repair"
        raise SifmarkError(f"not fetched: {', '.join(failed)}", remedy, code="sources-incomplete")
    documents = [dict(zip(FETCHED, row, strict=True)) for row in fetched]
    answer(form, documents, Table(FETCHED, fetched), lambda: output(str(target)))


def _fetch(recipe: str, folder: Path, settings: Settings) -> tuple[int, int]:
    """Collect what a recipe needs, and return the bytes of its base and of its wheels."""
    from sifmark.layers.offline import fetch_sources
    from sifmark.recipes.plan import make_plan

    plan = make_plan(recipe, settings)
    plan.require_resolved()
    sources = fetch_sources(plan, folder, settings)
    status(f"  {recipe}: base {human_size(sources.base)}, wheels {human_size(sources.wheels)}")
    return sources.base, sources.wheels
