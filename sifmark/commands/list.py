"""The list command: recipes with the state of their images, the images of a recipe, or the workloads."""

import json
from shlex import quote
from typing import Any

from sifmark.build.listing import (
    Row,
    buildable,
    devices_with_bounds,
    image_rows,
    recipe_rows,
    recipe_state,
    with_bounds,
    workload_rows,
)
from sifmark.commands.answers import JSON, TABLE, Table, answer
from sifmark.core.console import output, status
from sifmark.core.errors import UsageError
from sifmark.core.files import human_size
from sifmark.core.settings import Settings
from sifmark.engines import Engine, open_engine
from sifmark.recipes.names import find_images, images, workloads_of
from sifmark.recipes.recipe import recipe_names
from sifmark.results.numbers import format_quantity, format_scaled

WORKLOADS = "workloads"


def show_matrix(settings: Settings) -> None:
    """Print a job for each recipe that can be built here, as pipelines read them: variables by name."""
    jobs = [
        {"RECIPE": recipe["name"], "REDISTRIBUTABLE": str(recipe["redistributable"]).lower()}
        for recipe in recipe_rows()
        if buildable(recipe["name"], settings)["buildable"]
    ]
    output(json.dumps(jobs))


def show_list(what: str, settings: Settings, form: str, device: str = "") -> None:
    """Print the recipes, or what a name stands for: the workloads, or images. Raises UsageError for an unknown name.

    With `device`, a part of the names of some, workloads have their bounds on these; nothing else has any.
    """
    if device and what != WORKLOADS:
        raise UsageError(
            "--device is for workloads", f"sifmark list {WORKLOADS} --device {quote(device)}", code="invalid-option"
        )
    engine = open_engine(settings)
    if device:
        _show_bounds(device, form)
    elif what == WORKLOADS:
        _show_workloads(form)
    elif what:
        _show_images(what, engine, settings, form)
    else:
        _show_recipes(engine, settings, form)


def _show_recipes(engine: Engine, settings: Settings, form: str) -> None:
    states = {recipe: recipe_state(recipe, engine, settings) for recipe in recipe_names()}
    rows = [_recipe_cells(recipe, states[recipe["name"]]) for recipe in recipe_rows()]
    table = Table(("recipe", "device and framework", "state", "size", "note"), rows)
    answer(form, _everything(engine, settings) if form == JSON else None, table)
    if form == TABLE:
        count = len(set().union(*map(workloads_of, recipe_names())))
        status(f"{count} workloads: sifmark list workloads.  The images of a recipe: sifmark list cpu.")


def _recipe_cells(recipe: Row, state: Row) -> list[Any]:
    size = human_size(state["size"]) if state["size"] else ""
    return [recipe["name"], recipe["title"], state["state"], size, state["note"]]


def _everything(engine: Engine, settings: Settings) -> dict[str, list[Row]]:
    recipes = [{**recipe, **buildable(recipe["name"], settings)} for recipe in recipe_rows()]
    rows = image_rows(images(), engine, settings)
    return {"recipes": recipes, "workloads": workload_rows(), "images": rows}


def _show_workloads(form: str) -> None:
    rows = workload_rows()
    cells = [[row["name"], _short_title(row), format_scaled(row["parameters"], ""), _operations(row)] for row in rows]
    answer(form, {"workloads": rows}, Table(("workload", "title", "parameters", "operations"), cells))
    if form == TABLE:
        others = [f"{row['name']}: {row['tasks'][0]}" for row in rows if len(row["tasks"]) == 1]
        status(f"Each for training and inference, but {', '.join(others)}. One in full: sifmark list workloads --json")
        status("gpt2 to gpt2_xxxl have GPT-2's layers and 67 characters; GPT-2 itself (124 M parameters) is gpt_117m.")


def _show_bounds(device: str, form: str) -> None:
    rows = with_bounds(workload_rows(), devices_with_bounds(device))
    cells = [[row["name"], *_bound_cells(bound)] for row in rows for bound in row["bounds"]]
    columns = ("workload", "task", "device", "precision", "batch size", "at most", "limit")
    answer(form, {"workloads": rows}, Table(columns, cells))
    if form == TABLE:
        without = [row["name"] for row in rows if not row["bounds"]]
        status(f"By peak operations and memory bandwidth (roofline). No bound: {', '.join(without)}.")


def _bound_cells(bound: Row) -> list[Any]:
    part = "" if bound["part"] == "package" else f" ({bound['part']})"
    highest = format_quantity(bound["throughput"], bound["unit"])
    device = f"{bound['device']}{part}"
    return [bound["task"], device, bound["precision"], bound["batch_size"], highest, bound["limit"]]


def _short_title(row: Row) -> str:
    return str(row["title"]).partition(",")[0].partition(" over ")[0]


def _operations(row: Row) -> str:
    return f"{format_scaled(row['flops'], 'FLOP')} per {row['unit'].removesuffix('s')}"


def _show_images(pattern: str, engine: Engine, settings: Settings, form: str) -> None:
    rows = image_rows(find_images(pattern), engine, settings)
    cells = [[row["name"], row["state"], row["file"]] for row in rows]
    answer(form, {"images": rows}, Table(("image", "state", "file"), cells))
    if form == TABLE and (reasons := dict.fromkeys(row["reason"] for row in rows if row["reason"])):
        status("\n".join(reasons))
