"""The list command: recipes, workloads and images, as tables for people or as JSON for programs."""

import json

from sifmark.build.listing import Row, buildable, image_rows, recipe_rows, workload_rows
from sifmark.core.console import output, output_table
from sifmark.core.settings import Settings
from sifmark.engines import open_engine


def show_matrix(settings: Settings) -> None:
    """Print a job for each recipe that can be built here, as pipelines read them: variables by name."""
    jobs = [
        {"RECIPE": recipe["name"], "REDISTRIBUTABLE": str(recipe["redistributable"]).lower()}
        for recipe in recipe_rows()
        if buildable(recipe["name"], settings)["buildable"]
    ]
    output(json.dumps(jobs))


def show_list(settings: Settings, as_json: bool) -> None:
    """Print recipes, workloads and images with their state."""
    images = image_rows(open_engine(settings), settings)
    if as_json:
        recipes = [{**recipe, **buildable(recipe["name"], settings)} for recipe in recipe_rows()]
        output(json.dumps({"recipes": recipes, "workloads": workload_rows(), "images": images}, indent=2))
        return
    columns = ("title", "framework", "device", "base")
    output_table("recipe", *columns, rows=[[row["name"], *map(row.get, columns)] for row in recipe_rows()])
    columns = ("title", "tasks", "unit", "parameters")
    rows = [[row["name"], *map(row.get, columns), f"{row['flops'] / 1e9:.3f}"] for row in workload_rows()]
    output_table("workload", *columns, "GFLOP/unit", rows=rows)
    output_table("image", "state", "file", rows=[[row["name"], _state(row), row["file"]] for row in images])


def _state(row: Row) -> str:
    return f"{row['state']} ({row['reason']})" if row["reason"] else str(row["state"])
