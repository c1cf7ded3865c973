"""What there is: recipes, workloads, and images with their state, as rows with the names that programs read."""

from collections.abc import Iterable
from typing import Any

from sifmark.builds.image import BuildState, state
from sifmark.core.errors import SifmarkError, UnbuildableError, unknown_name
from sifmark.core.paths import import_shared
from sifmark.core.settings import Settings
from sifmark.engines import Engine
from sifmark.recipes.labels import STAND_IN
from sifmark.recipes.names import Image, cards
from sifmark.recipes.plan import make_plan
from sifmark.recipes.recipe import Recipe, load_recipe, recipe_names

Row = dict[str, Any]
# Why a recipe cannot be built here, by the code of the error, in few words.
NOTES = {
    "base-unresolved": "base not pinned",
    "lock-missing": "no lock of wheels",
    "platform-unsupported": "not for this platform",
    "stand-ins-missing": "no test base here",
}


def recipe_rows() -> list[Row]:
    """Return all recipes."""
    return [_recipe(recipe) for recipe in map(load_recipe, recipe_names())]


def buildable(recipe: str, settings: Settings) -> Row:
    """Return whether a recipe can be built here, and the build key that its image would have.

    Raises SifmarkError for a damaged recipe: a pipeline must not go on without it.
    """
    try:
        plan = make_plan(recipe, settings)
        plan.require_resolved()
    except UnbuildableError as error:
        return {"buildable": False, "reason": error.cause, "build_key": None}
    return {"buildable": True, "reason": None, "build_key": plan.build_key}


def workload_rows(of_set: str = "") -> list[Row]:
    """Return all workloads, or those of a set, with the floating-point operations per unit."""
    return [
        {
            "name": name,
            "title": card["title"],
            "set": card["set"],
            "tasks": card["tasks"],
            "unit": card["problem"]["unit"],
            "parameters": card["problem"]["parameters"],
            "flops": card["flops"].get("forward_per_unit") or card["flops"][f"{card['tasks'][0]}_per_unit"],
        }
        for name, card in cards().items()
        if of_set in ("", card["set"])
    ]


def devices_with_bounds(text: str) -> list[str]:
    """Return the names of devices with a cited peak that contain a text. Raises UsageError if there are none."""
    containing = import_shared("cli.bounds").devices
    names: list[str] = containing(text)
    if not names:
        raise unknown_name("device with a cited peak", text, containing(""))
    return names


def with_bounds(rows: Iterable[Row], devices: Iterable[str]) -> list[Row]:
    """Return workloads with `bounds`: the highest throughput of each task on one of each device, by its roofline."""
    of_workload, loaded = import_shared("cli.bounds").bounds_of_workload, import_shared("contract.cards").load()
    names = list(devices)
    return [
        {
            **row,
            "bounds": [{"device": name, **bound} for name in names for bound in of_workload(loaded[row["name"]], name)],
        }
        for row in rows
    ]


def image_rows(images: Iterable[Image], engine: Engine, settings: Settings) -> list[Row]:
    """Return images with their state."""
    return [_image(image, engine, settings) for image in images]


def recipe_state(recipe: str, engine: Engine, settings: Settings) -> Row:
    """Return the state of a recipe's image, its size in bytes (None without an image), and what there is to note."""
    info = engine.image_info(engine.address(recipe))
    size = info.size if info else None
    try:
        plan = make_plan(recipe, settings)
        plan.require_resolved()
    except UnbuildableError as error:
        return {"state": "stale" if info else "", "size": size, "note": NOTES.get(error.code, error.code)}
    except SifmarkError as error:  # a broken recipe keeps no other from being listed
        return {"state": "broken", "size": size, "note": error.code}
    note = "test base" if info and info.labels.get(STAND_IN) == "true" else ""
    return {"state": state(recipe, plan, engine).value if info else "not built", "size": size, "note": note}


def _recipe(recipe: Recipe) -> Row:
    return {
        "name": recipe.name,
        "title": recipe.title,
        "framework": recipe.framework,
        "device": recipe.device,
        "base": recipe.base.reference,
        "redistributable": recipe.base.redistributable,
    }


def _image(image: Image, engine: Engine, settings: Settings) -> Row:
    address, reason = engine.address(image.name), None
    try:
        plan = make_plan(image.recipe, settings)
        plan.require_resolved()
        current = state(image.name, plan, engine)
    except SifmarkError as error:
        current, reason = BuildState.STALE if engine.image_info(address) else BuildState.MISSING, error.cause
    names = {"name": image.name, "workload": image.workload, "recipe": image.recipe}
    return {**names, "state": current.value, "reason": reason, "file": address}
