"""Paths of the project's data: beside the package in a clone, inside it in a wheel."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
CHECKOUT = PACKAGE.parent
IS_CHECKOUT = (CHECKOUT / "recipes").is_dir() and (CHECKOUT / "pyproject.toml").is_file()
ROOT = CHECKOUT if IS_CHECKOUT else PACKAGE / "bundle"

RECIPES = ROOT / "recipes"
LOCKS = RECIPES / "locks"
SCHEMAS = ROOT / "schemas"
ENTRYPOINTS = ROOT / "entrypoints"
CARDS = ENTRYPOINTS / "workloads"
GOLDEN = CHECKOUT / "tests" / "golden"
