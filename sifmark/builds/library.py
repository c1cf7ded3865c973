"""Build images by their names: what `sifmark.build` and the command `build` call."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sifmark.builds.batch import (
    Action,
    BuildOptions,
    BuildOutcome,
    OutcomeState,
    PlannedBuild,
    build_one,
    default_jobs,
    failed_outcome,
    matching_recipes,
    plan_build,
    run_builds,
)
from sifmark.builds.space import require_space
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings, load_settings, with_options
from sifmark.engines import Engine, open_engine


@dataclass(frozen=True)
class Image:
    """An image that was built here, or was up to date."""

    recipe: str
    engine: str  # its name
    path: str  # address for the engine: a SIF's path, or the reference of a Docker image
    identity: str | None  # hash of what runs
    names: tuple[str, ...]  # of its workloads' images
    outcome: BuildOutcome


def build(
    pattern: str | Sequence[str],
    *,
    settings: Settings | None = None,
    engine: str = "",
    bases: str = "",
    compression: str = "",
    force: bool = False,
    jobs: int = 0,
) -> Image | list[Image]:
    """Build the image of a recipe or image name; for a glob or several names build all and return a list.

    Images that are up to date are not built again. `jobs` is how many are built at once, 0 for as many as this host
    carries. Raises SifmarkError: for one recipe its own error, for several after all have been tried.
    """
    site = with_options(settings or load_settings(), engine=engine)
    options = BuildOptions(bases or None, compression or None, force)
    opened = open_engine(site)
    patterns = [pattern] if isinstance(pattern, str) else pattern
    recipes = recipes_of(patterns)
    if len(recipes) == 1:
        outcomes = [build_one(recipes[0], options, opened, site)]
    else:
        outcomes = build_planned(plan_builds(recipes, options, opened, site), options, opened, site, jobs)
    require_built(outcomes)
    images = [
        Image(each.recipe, opened.name, opened.address(each.recipe), each.identity, each.names, each)
        for each in outcomes
        if each.state is not OutcomeState.SKIPPED
    ]
    return images[0] if isinstance(pattern, str) and len(images) == len(recipes) == 1 else images


def recipes_of(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the recipes that names, globs or recipes refer to, each once. Raises UsageError."""
    return tuple(dict.fromkeys(recipe for pattern in patterns for recipe in matching_recipes(pattern)))


def plan_builds(
    recipes: Iterable[str], options: BuildOptions, engine: Engine, settings: Settings
) -> list[PlannedBuild]:
    """Decide about each recipe; a broken one keeps no other from being built."""
    return [_plan(recipe, options, engine, settings) for recipe in recipes]


def build_planned(
    builds: Sequence[PlannedBuild], options: BuildOptions, engine: Engine, settings: Settings, jobs: int = 0
) -> list[BuildOutcome]:
    """Build what is planned, `jobs` at once, or as many as this host carries. Raises SifmarkError for lack of space."""
    pending = [build for build in builds if build.action is Action.BUILD]
    require_space([build.forecast for build in pending], settings)
    return run_builds(builds, options, engine, settings, jobs or default_jobs(pending, settings))


def build_alone(
    recipe: str, options: BuildOptions, engine: Engine, settings: Settings
) -> tuple[BuildOutcome, SifmarkError | OSError | None]:
    """Build one recipe in this process, and return the outcome with the error if it failed."""
    started = time.monotonic()
    try:
        return build_one(recipe, options, engine, settings), None
    except (SifmarkError, OSError) as error:
        return failed_outcome(recipe, error, started), error


def require_built(outcomes: Iterable[BuildOutcome]) -> None:
    """Raise SifmarkError if a build failed."""
    if failed := [outcome.recipe for outcome in outcomes if outcome.state is OutcomeState.FAILED]:
        raise SifmarkError(f"not built: {', '.join(failed)}", "see the reason of each", code="build-failed")


def _plan(recipe: str, options: BuildOptions, engine: Engine, settings: Settings) -> PlannedBuild:
    try:
        return plan_build(recipe, options, engine, settings)
    except SifmarkError as error:
        return PlannedBuild(recipe, Action.BROKEN, str(error), code=error.code)
