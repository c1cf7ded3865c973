"""Resolving: from what a recipe requires to the lock of its wheels, for one Python and one platform."""

import json
import re
import tempfile
from pathlib import Path

from sifmark.core import paths
from sifmark.core.console import Step, step
from sifmark.core.environment import PLATFORMS, platform_name
from sifmark.core.errors import UsageError
from sifmark.core.settings import Settings
from sifmark.layers.installers import (
    PIP,
    UV,
    pip_configuration,
    pip_target_options,
    pip_variables,
    require_packages,
    run_with_indexes,
    uv_target_options,
    uv_variables,
)
from sifmark.recipes.lockfile import LockedWheel, write_lock
from sifmark.recipes.recipe import Recipe, Target

_TRUE = ("1", "true", "t", "yes", "y", "on")  # as pip reads its configuration


def lock_wheels(recipe: Recipe, settings: Settings, python: str | None = None, platform: str | None = None) -> Path:
    """Resolve what a recipe requires, write its lock completely or not at all, and return the path. Install nothing.

    By default it is for the Python of the recipe's base and this host's platform. Raises SifmarkError.
    """
    if not paths.IS_CHECKOUT:
        raise UsageError("locks are written in a clone", "clone the project, and lock there", code="checkout-missing")
    require_packages("a lock")
    target = Target(python or recipe.base.python, platform or platform_name())
    _check(target)
    with step(f"resolve the wheels of {recipe.name} for Python {target.python}, {target.platform}") as progress:
        wheels = _resolve(recipe, target, settings, progress)
    return write_lock(recipe, target, wheels)


def _check(target: Target) -> None:
    if re.fullmatch(r"3\.\d+", target.python) is None:
        raise UsageError(f"no Python {target.python!r}", "name a minor version, such as 3.11", code="invalid-option")
    if target.platform not in PLATFORMS:
        raise UsageError(f"no platform {target.platform!r}", f"known: {', '.join(PLATFORMS)}", code="invalid-option")


def _resolve(recipe: Recipe, target: Target, settings: Settings, progress: Step) -> list[LockedWheel]:
    """Return the wheels, each with the hash of the one file that fits best."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = folder / "report.json"
        command = [*PIP, "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
        command += ["--report", str(report), "--target", str(folder), *pip_target_options(target)]
        command += _versions(recipe, target, settings, folder, progress)
        run_with_indexes(command, recipe, settings, progress, environment=pip_variables(settings))
        items = json.loads(report.read_text())["install"]
    return [
        LockedWheel(
            item["metadata"]["name"].lower().replace("_", "-"),
            item["metadata"]["version"],
            item["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for item in items
    ]


def _versions(recipe: Recipe, target: Target, settings: Settings, folder: Path, progress: Step) -> list[str]:
    """Return `name==version` of each package that the recipe's requirements need on the target."""
    requirements, resolved = folder / "requirements.in", folder / "resolved.txt"
    requirements.write_text("".join(f"{requirement}\n" for requirement in recipe.requires))
    command = [*UV, "compile", str(requirements), "--output-file", str(resolved)]
    command += ["--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    command += ["--index-strategy", "unsafe-best-match", *uv_target_options(target)]
    configuration = pip_configuration(settings)
    if configuration.get("no-index", "").lower() in _TRUE:
        command.append("--no-index")
    run_with_indexes(command, recipe, settings, progress, environment=uv_variables(configuration))
    return resolved.read_text().split()
