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
from sifmark.builds.image import require_space
from sifmark.core.errors import SifmarkError, UsageError
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
    name: str,
    *,
    settings: Settings | None = None,
    engine: str = "",
    bases: str = "",
    compression: str = "",
    force: bool = False,
) -> Image:
    """Build the image of a recipe or of one of its workloads, and return it.

    One that is up to date is not built again. Raises UsageError for a name of several recipes, SifmarkError if the
    image cannot be built.
    """
    recipes = recipes_of([name])
    if len(recipes) != 1:
        cause = f"{name!r} is {', '.join(recipes)}"
        raise UsageError(cause, "name one recipe, or build several with build_all", code="invalid-option")
    site = with_options(settings or load_settings(), engine=engine)
    opened = open_engine(site)
    options = BuildOptions(bases or None, compression or None, force)
    return _image(build_one(recipes[0], options, opened, site), opened)


def build_all(
    patterns: Sequence[str],
    *,
    settings: Settings | None = None,
    engine: str = "",
    bases: str = "",
    compression: str = "",
    force: bool = False,
    jobs: int = 0,
) -> list[Image]:
    """Build the images of several names or globs, each recipe once, and return those that are not skipped.

    `jobs` is how many are built at once, 0 for as many as this host carries. Raises SifmarkError after all have been
    tried if one cannot be built.
    """
    site = with_options(settings or load_settings(), engine=engine)
    options = BuildOptions(bases or None, compression or None, force)
    opened = open_engine(site)
    planned = plan_builds(recipes_of(patterns), options, opened, site)
    outcomes = build_planned(planned, options, opened, site, jobs)
    require_built(outcomes)
    return [_image(each, opened) for each in outcomes if each.state is not OutcomeState.SKIPPED]


def _image(outcome: BuildOutcome, engine: Engine) -> Image:
    address = engine.address(outcome.recipe)
    return Image(outcome.recipe, engine.name, address, outcome.identity, outcome.names, outcome)


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
