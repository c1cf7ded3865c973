"""The build verb: what is to be done and why, then the work, then a table of what became of each."""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from sifmark.build.batch import (
    Action,
    BuildOptions,
    BuildOutcome,
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
from sifmark.core.settings import settings
from sifmark.engines import engine


def build_images(pattern: str, options: BuildOptions, *, jobs: int, dry_run: bool, as_json: bool) -> None:
    """Build what a name, glob or recipe means, unless it is up to date.

    Raises SifmarkError: of one recipe its own error, of several after all have been tried.
    """
    _ = options.site  # bad values are told before anything else
    recipes = matching_recipes(pattern)
    if len(recipes) == 1 and not dry_run:
        outcomes = [_build_alone(recipes[0], options, as_json)]
    else:
        intents = [_look_at(recipe, options) for recipe in recipes]
        if dry_run and as_json:
            output(json.dumps([{**asdict(intent), "what": intent.what.value} for intent in intents], indent=2))
        else:
            _show_plan(intents)
        if dry_run:
            return
        outcomes = _carry_out(intents, options, jobs)
    if as_json:
        _show_for_programs(outcomes)
    elif len(outcomes) == 1:
        _tell(outcomes[0])
    else:
        _show_outcomes(outcomes)
    if failed := [outcome.recipe for outcome in outcomes if outcome.state == "failed"]:
        raise SifmarkError(
            f"not built: {', '.join(failed)}", "the reasons stand above; the others are as the table says"
        )


def _look_at(recipe: str, options: BuildOptions) -> PlannedBuild:
    try:
        return plan_build(recipe, options)
    except SifmarkError as error:  # one broken recipe keeps no other from being built
        return PlannedBuild(recipe, Action.BROKEN, str(error))


def _build_alone(recipe: str, options: BuildOptions, as_json: bool) -> BuildOutcome:
    started = time.monotonic()
    try:
        return build_one(recipe, options)
    except (SifmarkError, OSError) as error:
        if as_json:
            _show_for_programs([failed_outcome(recipe, error, started)])
        raise


def _carry_out(intents: Sequence[PlannedBuild], options: BuildOptions, jobs: int) -> list[BuildOutcome]:
    todo = [intent for intent in intents if intent.what is Action.BUILD]
    require_space(todo)
    return run_builds(intents, options, jobs or default_jobs(todo))


def _show_plan(intents: Iterable[PlannedBuild]) -> None:
    """What is to be done, on stderr: the answer comes later."""
    rows = [
        [
            intent.recipe,
            intent.what.value,
            intent.why.splitlines()[0],
            _about(intent, human_size(intent.size) if intent.size else None),
            _about(intent, f"{intent.seconds:.0f} s" if intent.seconds else None),
            ", ".join(intent.at_hand),
        ]
        for intent in intents
    ]
    output_table("recipe", "to do", "why", "size", "time", "in the cache", rows=rows, aside=True)
    for role, folder in {"cache": settings().cache, "dist": settings().dist}.items():
        status(f"  {role} folder {folder}: {human_size(free_space(folder))} free")


def _about(intent: PlannedBuild, value: str | None) -> str:
    if intent.what is not Action.BUILD:
        return ""
    return f"about {value}" if value else "unknown"


def _show_for_programs(outcomes: Iterable[BuildOutcome]) -> None:
    output(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))


def _tell(outcome: BuildOutcome) -> None:
    what = f"built in {outcome.seconds:.1f} s" if outcome.state == "built" else outcome.state
    name = Path(engine().address(outcome.recipe)).name
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
