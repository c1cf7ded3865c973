"""The build verb: what is to be done and why, then the work, then a table of what became of each."""

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
from sifmark.core.settings import Settings, settings
from sifmark.engines import Engine, open_engine


def build_images(pattern: str, options: BuildOptions, *, jobs: int, dry_run: bool, as_json: bool) -> None:
    """Build what a name, glob or recipe means, unless it is up to date.

    Raises SifmarkError: of one recipe its own error, of several after all have been tried.
    """
    site = settings()
    options.apply(site)  # bad values are reported before anything else
    engine = open_engine(site)
    recipes = matching_recipes(pattern)
    if len(recipes) == 1 and not dry_run:
        outcomes = [_build_alone(recipes[0], options, engine, site, as_json)]
    else:
        intents = [_look_at(recipe, options, engine, site) for recipe in recipes]
        if dry_run and as_json:
            output(json.dumps([intent.document() for intent in intents], indent=2))
        else:
            _show_plan(intents, site)
        if dry_run:
            return
        outcomes = _carry_out(intents, options, engine, site, jobs)
    if as_json:
        _show_for_programs(outcomes)
    elif len(outcomes) == 1:
        _tell(outcomes[0], engine)
    else:
        _show_outcomes(outcomes)
    if failed := [outcome.recipe for outcome in outcomes if outcome.state is OutcomeState.FAILED]:
        raise SifmarkError(
            f"not built: {', '.join(failed)}", "the reasons stand above; the others are as the table says"
        )


def _look_at(recipe: str, options: BuildOptions, engine: Engine, site: Settings) -> PlannedBuild:
    try:
        return plan_build(recipe, options, engine, site)
    except SifmarkError as error:  # one broken recipe keeps no other from being built
        return PlannedBuild(recipe, Action.BROKEN, str(error))


def _build_alone(recipe: str, options: BuildOptions, engine: Engine, site: Settings, as_json: bool) -> BuildOutcome:
    started = time.monotonic()
    try:
        return build_one(recipe, options, engine, site)
    except (SifmarkError, OSError) as error:
        if as_json:
            _show_for_programs([failed_outcome(recipe, error, started)])
        raise


def _carry_out(
    intents: Sequence[PlannedBuild], options: BuildOptions, engine: Engine, site: Settings, jobs: int
) -> list[BuildOutcome]:
    todo = [intent for intent in intents if intent.action is Action.BUILD]
    require_space(todo, site)
    return run_builds(intents, options, engine, site, jobs or default_jobs(todo, site))


def _show_plan(intents: Iterable[PlannedBuild], site: Settings) -> None:
    """What is to be done, on stderr: the answer comes later."""
    rows = [
        [
            intent.recipe,
            intent.action.value,
            intent.reason.splitlines()[0],
            _about(intent, human_size(intent.forecast.size) if intent.forecast.size else None),
            _about(intent, f"{intent.forecast.seconds:.0f} s" if intent.forecast.seconds else None),
            ", ".join(intent.at_hand),
        ]
        for intent in intents
    ]
    output_table("recipe", "to do", "why", "size", "time", "in the cache", rows=rows, aside=True)
    for role, folder in {"cache": site.cache, "dist": site.dist}.items():
        status(f"  {role} folder {folder}: {human_size(free_space(folder))} free")


def _about(intent: PlannedBuild, value: str | None) -> str:
    if intent.action is not Action.BUILD:
        return ""
    return f"about {value}" if value else "unknown"


def _show_for_programs(outcomes: Iterable[BuildOutcome]) -> None:
    output(json.dumps([outcome.document() for outcome in outcomes], indent=2))


def _tell(outcome: BuildOutcome, engine: Engine) -> None:
    what = f"built in {outcome.seconds:.1f} s" if outcome.state is OutcomeState.BUILT else outcome.state
    name = Path(engine.address(outcome.recipe)).name
    status(f"{name}: {what}, {human_size(outcome.size or 0)}; also called {', '.join(outcome.names)}")


def _show_outcomes(outcomes: Iterable[BuildOutcome]) -> None:
    columns = ("recipe", "state", "seconds", "size", "digest", "reused", "names")
    rows = [
        [
            outcome.recipe,
            f"{outcome.state}: {outcome.reason.splitlines()[0]}" if outcome.reason else outcome.state,
            f"{outcome.seconds:.1f}",
            human_size(outcome.size) if outcome.size else "",
            outcome.digest or "",
            ", ".join(outcome.reused),
            str(len(outcome.names)),
        ]
        for outcome in outcomes
    ]
    output_table(*columns, rows=rows)
