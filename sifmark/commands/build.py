"""The build command: what is to be done and why, then the builds, then a table of what became of each."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence

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
    run_builds,
)
from sifmark.build.space import require_space
from sifmark.commands.answers import JSON, TABLE, Table, answer
from sifmark.core.console import detail, output, output_table, status
from sifmark.core.environment import temporary_folder
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import free_space, human_size
from sifmark.core.settings import Settings
from sifmark.engines import Engine, open_engine
from sifmark.recipes.names import EVERYTHING


def patterns(names: Sequence[str], everything: bool) -> tuple[str, ...]:
    """Return the patterns that a command line names. Raises UsageError for none, or for names beside `--all`."""
    if everything and names:
        cause = f"--all and {names[0]!r} were both given"
        raise UsageError(cause, "leave one of them out", code="invalid-option")
    if not everything and not names:
        remedy = "sifmark build cpu, sifmark build 'resnet50-*', or sifmark build --all"
        raise UsageError("which image?", remedy, code="argument-missing")
    return (EVERYTHING,) if everything else tuple(names)


def build_images(
    patterns: Sequence[str], options: BuildOptions, settings: Settings, *, jobs: int, dry_run: bool, form: str
) -> None:
    """Build the images of names, globs or recipes, unless they are up to date. `jobs` is 0 for as many as fit.

    Raises SifmarkError: for one recipe its own error, for several after all have been tried.
    """
    options.apply(settings)  # bad values are reported before anything else
    engine = open_engine(settings)
    recipes = tuple(dict.fromkeys(recipe for pattern in patterns for recipe in matching_recipes(pattern)))
    if dry_run:
        _answer_plan(_plan(recipes, options, engine, settings), settings, form)
        return
    if len(recipes) == 1:
        outcomes = [_build_one(recipes[0], options, engine, settings, form)]
    else:
        builds = _plan(recipes, options, engine, settings)
        _show_plan(builds, settings)
        pending = [build for build in builds if build.action is Action.BUILD]
        require_space([build.forecast for build in pending], settings)
        outcomes = run_builds(builds, options, engine, settings, jobs or default_jobs(pending, settings))
    _answer_outcomes(outcomes, engine, form)
    if failed := [outcome.recipe for outcome in outcomes if outcome.state is OutcomeState.FAILED]:
        remedy = "see the reasons above"
        raise SifmarkError(f"not built: {', '.join(failed)}", remedy, code="build-failed")


def _plan(recipes: Iterable[str], options: BuildOptions, engine: Engine, settings: Settings) -> list[PlannedBuild]:
    return [_plan_one(recipe, options, engine, settings) for recipe in recipes]


def _plan_one(recipe: str, options: BuildOptions, engine: Engine, settings: Settings) -> PlannedBuild:
    try:
        return plan_build(recipe, options, engine, settings)
    except SifmarkError as error:  # a broken recipe keeps no other from being built
        return PlannedBuild(recipe, Action.BROKEN, str(error), code=error.code)


def _build_one(recipe: str, options: BuildOptions, engine: Engine, settings: Settings, form: str) -> BuildOutcome:
    started = time.monotonic()
    try:
        return build_one(recipe, options, engine, settings)
    except (SifmarkError, OSError) as error:
        if form == JSON:
            _answer_outcomes([failed_outcome(recipe, error, started)], engine, form)
        raise


def _answer_plan(builds: Sequence[PlannedBuild], settings: Settings, form: str) -> None:
    """Print what would be done."""
    answer(form, [build.document() for build in builds], _plan_table(builds))
    if form == TABLE:
        _show_totals(builds, settings)


def _show_plan(builds: Sequence[PlannedBuild], settings: Settings) -> None:
    """Print what is to be done on stderr: the answer comes later."""
    table = _plan_table(builds)
    output_table(*table.columns, rows=table.rows, stderr=True)
    _show_totals(builds, settings)


def _plan_table(builds: Sequence[PlannedBuild]) -> Table:
    columns = ("recipe", "to do", "why", "size", "time", "in the cache")
    return Table(columns, [_plan_row(build) for build in builds])


def _show_totals(builds: Sequence[PlannedBuild], settings: Settings) -> None:
    counts = Counter(build.action for build in builds)
    words = {Action.BROKEN: "broken", Action.REFUSE: "skipped"}
    total = ", ".join(f"{counts[act]} {words.get(act, f'to {act.value}')}" for act in Action if counts[act])
    status(f"{len(builds)} recipes: {total}")
    for role, folder in {"cache": settings.cache, "image": settings.dist, "temporary": temporary_folder()}.items():
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


def _answer_outcomes(outcomes: Sequence[BuildOutcome], engine: Engine, form: str) -> None:
    columns = ("recipe", "state", "seconds", "size", "digest", "reused", "names")
    table = Table(columns, [_outcome_row(outcome) for outcome in outcomes])
    document = [outcome.document() for outcome in outcomes]
    answer(
        form,
        document,
        table,
        (lambda: _show_one(outcomes[0], engine)) if len(outcomes) == 1 else None,
        summary="Built images",
    )


def _show_one(outcome: BuildOutcome, engine: Engine) -> None:
    state = f"built in {outcome.seconds:.1f} s" if outcome.state is OutcomeState.BUILT else outcome.state
    address = engine.address(outcome.recipe)
    output(f"{address}: {state}, {human_size(outcome.size or 0)}, {count_names(outcome.names)}")
    detail(f"  {', '.join(outcome.names)}")


def count_names(names: Sequence[str]) -> str:
    """Return how many names an image has, in words."""
    return f"{len(names)} names" if len(names) != 1 else "1 name"


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
