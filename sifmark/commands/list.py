"""What there is and how it stands: for people as a table, for programs as JSON."""

import json
from typing import Any

from sifmark.build.image import BuildState, state
from sifmark.core.console import output, output_table
from sifmark.core.errors import SifmarkError, UnbuildableError
from sifmark.core.settings import settings
from sifmark.engines import Engine, open_engine
from sifmark.recipes.names import Image, cards, images
from sifmark.recipes.plan import make_plan
from sifmark.recipes.recipe import load_recipe, recipe_names


def show_matrix() -> None:
    """Print a job for each recipe that can be built here, as pipelines take them: variables by name."""
    jobs = [
        {"RECIPE": recipe["name"], "REDISTRIBUTABLE": str(recipe["redistributable"]).lower()}
        for recipe in _recipes()
        if _buildable(recipe["name"])["buildable"]
    ]
    output(json.dumps(jobs))


def show_list(as_json: bool) -> None:
    """Print recipes, workloads and images with their state."""
    engine = open_engine(settings())
    rows = [_row(image, engine) for image in images()]
    if as_json:
        recipes = [{**recipe, **_buildable(recipe["name"])} for recipe in _recipes()]
        output(json.dumps({"recipes": recipes, "workloads": _workloads(), "images": rows}, indent=2))
        return
    output_table("recipe", "title", "framework", "device", "base", rows=[list(r.values())[:-1] for r in _recipes()])
    columns = ("workload", "title", "tasks", "unit", "parameters", "GFLOP/unit")
    output_table(*columns, rows=[[*list(r.values())[:-1], f"{r['flops'] / 1e9:.3f}"] for r in _workloads()])
    output_table("image", "state", "file", rows=[[r["name"], _said(r), r["file"]] for r in rows])


def _row(image: Image, engine: Engine) -> dict[str, Any]:
    row: dict[str, Any] = {"name": image.name, "workload": image.workload, "recipe": image.recipe}
    address = engine.address(image.name)
    try:
        plan = make_plan(image.recipe)
        plan.require_resolved()
        found, reason = state(image.name, plan, engine), None
    except SifmarkError as error:
        found, reason = BuildState.STALE if engine.image_info(address) else BuildState.MISSING, error.cause
    return {**row, "state": found.value, "reason": reason, "file": address}


def _said(row: dict[str, Any]) -> str:
    return f"{row['state']} ({row['reason']})" if row["reason"] else str(row["state"])


def _recipes() -> list[dict[str, Any]]:
    return [
        {
            "name": r.name,
            "title": r.title,
            "framework": r.framework,
            "device": r.device,
            "base": r.base.reference,
            "redistributable": r.base.redistributable,
        }
        for r in map(load_recipe, recipe_names())
    ]


def _buildable(recipe: str) -> dict[str, Any]:
    """What pipelines ask of a recipe: whether it can be built here, and the key that says what its image is.

    Raises SifmarkError for a recipe that is damaged: no pipeline is to go on without it.
    """
    try:
        plan = make_plan(recipe)
        plan.require_resolved()
        return {"buildable": True, "reason": None, "build_key": plan.build_key}
    except UnbuildableError as error:
        return {"buildable": False, "reason": error.cause, "build_key": None}


def _workloads() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "title": card["title"],
            "tasks": card["tasks"],
            "unit": card["problem"]["unit"],
            "parameters": card["problem"]["parameters"],
            "flops": card["flops"].get("forward_per_unit") or card["flops"][f"{card['tasks'][0]}_per_unit"],
        }
        for name, card in cards().items()
    ]
