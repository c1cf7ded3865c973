"""The build command: what is to be done and why, then the builds, then a table of what became of each."""

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from sifmark.build.batch import (
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
    require_space,
    run_builds,
)
from sifmark.core.console import output, output_table, status
from sifmark.core.errors import SifmarkError
from sifmark.core.files import free_space, human_size
from sifmark.core.settings import Settings
from sifmark.engines import Engine, open_engine


def build_images(
    pattern: str, options: BuildOptions, settings: Settings, *, jobs: int, dry_run: bool, as_json: bool
) -> None:
    """Build the images of a name, glob or recipe, unless they are up to date. `jobs` is 0 for as many as fit.

    Raises SifmarkError: for one recipe its own error, for several after all have been tried.
    """
    options.apply(settings)  # bad values are reported before anything else
    engine = open_engine(settings)
    recipes = matching_recipes(pattern)
    if dry_run:
        _print_plan(_plan(recipes, options, engine, settings), settings, as_json)
        return
    if len(recipes) == 1:
        outcomes = [_build_one(recipes[0], options, engine, settings, as_json)]
    else:
        builds = _plan(recipes, options, engine, settings)
        _print_plan(builds, settings, as_json=False)
        pending = [build for build in builds if build.action is Action.BUILD]
        require_space(pending, settings)
        outcomes = run_builds(builds, options, engine, settings, jobs or default_jobs(pending, settings))
    _print_outcomes(outcomes, engine, as_json)
    if failed := [outcome.recipe for outcome in outcomes if outcome.state is OutcomeState.FAILED]:
        remedy = "the reasons stand above; the others are as the table says"
        raise SifmarkError(f"not built: {', '.join(failed)}", remedy, code="build-failed")


def _plan(recipes: Iterable[str], options: BuildOptions, engine: Engine, settings: Settings) -> list[PlannedBuild]:
    return [_plan_one(recipe, options, engine, settings) for recipe in recipes]


def _plan_one(recipe: str, options: BuildOptions, engine: Engine, settings: Settings) -> PlannedBuild:
    try:
        return plan_build(recipe, options, engine, settings)
    except SifmarkError as error:  # a broken recipe keeps no other from being built
        return PlannedBuild(recipe, Action.BROKEN, str(error), code=error.code)


def _build_one(recipe: str, options: BuildOptions, engine: Engine, settings: Settings, as_json: bool) -> BuildOutcome:
    started = time.monotonic()
    try:
        return build_one(recipe, options, engine, settings)
    except (SifmarkError, OSError) as error:
        if as_json:
            _print_outcomes([failed_outcome(recipe, error, started)], engine, as_json=True)
        raise


def _print_plan(builds: Sequence[PlannedBuild], settings: Settings, as_json: bool) -> None:
    """Print what is to be done: for programs as the answer, for people on stderr, because the answer comes later."""
    if as_json:
        output(json.dumps([build.document() for build in builds], indent=2))
        return
    columns = ("recipe", "to do", "why", "size", "time", "in the cache")
    output_table(*columns, rows=map(_plan_row, builds), aside=True)
    for role, folder in {"cache": settings.cache, "dist": settings.dist}.items():
        status(f"  {role} folder {folder}: {human_size(free_space(folder))} free")


def _plan_row(build: PlannedBuild) -> list[str]:
    size, seconds = build.forecast.size, build.forecast.seconds
    return [
        build.recipe,
        build.action.value,
        build.reason.splitlines()[0],
        _estimate(build, human_size(size) if size else ""),
        _estimate(build, f"{seconds:.0f} s" if seconds else ""),
        ", ".join(build.at_hand),
    ]


def _estimate(build: PlannedBuild, value: str) -> str:
    if build.action is not Action.BUILD:
        return ""
    return f"about {value}" if value else "unknown"


def _print_outcomes(outcomes: Sequence[BuildOutcome], engine: Engine, as_json: bool) -> None:
    if as_json:
        output(json.dumps([outcome.document() for outcome in outcomes], indent=2))
    elif len(outcomes) == 1:
        _print_one(outcomes[0], engine)
    else:
        columns = ("recipe", "state", "seconds", "size", "digest", "reused", "names")
        output_table(*columns, rows=map(_outcome_row, outcomes))


def _print_one(outcome: BuildOutcome, engine: Engine) -> None:
    state = f"built in {outcome.seconds:.1f} s" if outcome.state is OutcomeState.BUILT else outcome.state
    name = Path(engine.address(outcome.recipe)).name
    status(f"{name}: {state}, {human_size(outcome.size or 0)}; also called {', '.join(outcome.names)}")


def _outcome_row(outcome: BuildOutcome) -> list[str]:
    return [
        outcome.recipe,
        f"{outcome.state}: {outcome.reason.splitlines()[0]}" if outcome.reason else outcome.state,
        f"{outcome.seconds:.1f}",
        human_size(outcome.size) if outcome.size else "",
        outcome.digest or "",
        ", ".join(outcome.reused),
        str(len(outcome.names)),
    ]
