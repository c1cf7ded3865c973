"""Building many recipes: planned first, then as many at once as this host can carry. A failure stops only itself."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from sifmark.builds.image import BuildReport, build_recipe, is_current
from sifmark.builds.records import read_record
from sifmark.core.console import status
from sifmark.core.environment import temporary_folder
from sifmark.core.errors import SifmarkError, UnbuildableError
from sifmark.core.files import free_space
from sifmark.core.process import CommandError, CompletedCommand, describe_failure, run_sifmark, thread_pool
from sifmark.core.settings import Settings, with_options
from sifmark.engines import Engine, Forecast
from sifmark.recipes.labels import BASE_DIGEST, LOCK
from sifmark.recipes.names import EVERYTHING, Image, cards, find_images, recipes_in, workloads_of
from sifmark.recipes.plan import Plan, make_plan
from sifmark.recipes.recipe import recipe_names

_BUILD_MEMORY = 2 * 1024**3  # bytes that one build's compressor may take
_BUILD_CORES = 2  # that one build keeps busy


class Action(StrEnum):
    """What is to be done about a recipe."""

    BUILD = "build"
    LEAVE = "leave"
    SKIP = "skip"
    BROKEN = "broken"


class OutcomeState(StrEnum):
    """How the build of a recipe ended."""

    BUILT = "built"
    UP_TO_DATE = "up to date"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True)
class PlannedBuild:
    """What is to be done about one recipe, and why."""

    recipe: str
    action: Action
    reason: str
    forecast: Forecast = field(default_factory=Forecast)
    cached_stages: tuple[str, ...] = ()  # stages that need not be made
    code: str = ""  # of the error that is the reason

    def document(self) -> dict[str, Any]:
        """Return the plan as programs read it; None is what cannot be estimated yet."""
        return {
            "recipe": self.recipe,
            "action": self.action.value,
            "reason": self.reason,
            "size": self.forecast.size,
            "seconds": self.forecast.seconds,
            "cached": self.forecast.cached,
            "cached_stages": list(self.cached_stages),
        }


@dataclass(frozen=True)
class BuildOutcome:
    """The outcome of building one recipe."""

    recipe: str
    state: OutcomeState
    seconds: float = 0.0
    size: int | None = None  # bytes
    identity: str | None = None
    digest: str | None = None
    reused: tuple[str, ...] = ()  # stages that were not made
    names: tuple[str, ...] = ()
    reason: str = ""
    code: str = ""  # of the error that is the reason

    def document(self) -> dict[str, Any]:
        """Return the outcome as programs read it."""
        return asdict(self)


@dataclass(frozen=True)
class BuildOptions:
    """What was asked of builds: None leaves it to the settings."""

    bases: str | None = None
    compression: str | None = None
    force: bool = False

    def apply(self, settings: Settings) -> Settings:
        """Return the settings with these options. Raises UsageError for bad values."""
        return with_options(settings, bases=self.bases, compression=self.compression)

    def arguments(self) -> list[str]:
        """Return the same as arguments of the `build` command."""
        options = {"--bases": self.bases, "--compression": self.compression}
        words = [word for option, value in options.items() if value is not None for word in (option, value)]
        return [*words, *(["--force"] if self.force else [])]


def matching_recipes(pattern: str) -> tuple[str, ...]:
    """Return the recipes that a name, glob or recipe refers to. Raises UsageError."""
    if pattern == EVERYTHING:
        return recipe_names()
    recipes = tuple(recipe for recipe in recipe_names() if pattern == recipe or _may_match(pattern, recipe))
    return recipes or recipes_in(find_images(pattern))


def _may_match(pattern: str, recipe: str) -> bool:
    """Return whether a pattern matches an image of a recipe; of a broken one, which has none, whether it could."""
    try:
        workloads = workloads_of(recipe)
    except SifmarkError:
        workloads = tuple(cards())
    return any(fnmatchcase(Image(workload, recipe).name, pattern) for workload in workloads)


def plan_build(recipe: str, options: BuildOptions, engine: Engine, settings: Settings) -> PlannedBuild:
    """Decide about one recipe from files, keys and the engine's forecast. Raises SifmarkError for a bad recipe."""
    try:
        plan = make_plan(recipe, options.apply(settings))
        plan.require_resolved()
        reason = _reason_to_build(plan, options, engine)
        if reason is None:
            return PlannedBuild(recipe, Action.LEAVE, "nothing changed")
        cached_stages = tuple(stage for stage, kept in engine.stages(plan).items() if kept)
        return PlannedBuild(recipe, Action.BUILD, reason, engine.forecast(plan), cached_stages)
    except UnbuildableError as error:
        return PlannedBuild(recipe, Action.SKIP, str(error), code=error.code)


def default_jobs(builds: Sequence[PlannedBuild], settings: Settings) -> int:
    """Return how many builds this host carries at once: by cores, memory, and space for images and temporary files."""
    limits = [len(os.sched_getaffinity(0)) // _BUILD_CORES, _available_memory() // _BUILD_MEMORY]
    forecasts = [build.forecast for build in builds]
    largest = (
        (settings.dist, max((each.stored for each in forecasts), default=0)),
        (temporary_folder(), max((each.temporary for each in forecasts), default=0)),
    )
    limits += [free_space(folder) // size for folder, size in largest if size]
    return max(1, min(len(builds), *limits))


def run_builds(
    builds: Sequence[PlannedBuild], options: BuildOptions, engine: Engine, settings: Settings, jobs: int
) -> list[BuildOutcome]:
    """Build side by side what is to be built, each in a process of its own. A failure is an outcome too."""
    with thread_pool(jobs) as pool:
        running = [pool.submit(_run_build, build, options, engine, settings) for build in builds]
        return [future.result() for future in running]


def build_one(recipe: str, options: BuildOptions, engine: Engine, settings: Settings) -> BuildOutcome:
    """Build one recipe in this process, unless it is up to date. Raises SifmarkError."""
    site = options.apply(settings)
    compression = None if options.compression is None else site.compression
    return _outcome(build_recipe(make_plan(recipe, site), engine, site, compression, options.force), engine)


def failed_outcome(recipe: str, error: Exception, started: float) -> BuildOutcome:
    """Return the outcome of a build that began at `started`, by the monotonic clock in seconds, and failed."""
    code = error.code if isinstance(error, SifmarkError) else "system-error"
    return BuildOutcome(recipe, OutcomeState.FAILED, time.monotonic() - started, reason=str(error), code=code)


def _run_build(build: PlannedBuild, options: BuildOptions, engine: Engine, settings: Settings) -> BuildOutcome:
    started = time.monotonic()
    try:
        if build.action is Action.SKIP:
            return BuildOutcome(build.recipe, OutcomeState.SKIPPED, reason=build.reason, code=build.code)
        if build.action is Action.BROKEN:
            return BuildOutcome(build.recipe, OutcomeState.FAILED, reason=build.reason, code=build.code)
        if build.action is Action.LEAVE:
            return build_one(build.recipe, options, engine, settings)  # its names are linked again
        return _build_in_process(build.recipe, options, settings)
    except (SifmarkError, OSError) as error:
        return failed_outcome(build.recipe, error, started)


def _build_in_process(recipe: str, options: BuildOptions, settings: Settings) -> BuildOutcome:
    arguments = ["build", recipe, "--json", *options.arguments()]
    command = run_sifmark(arguments, settings.environment(), watch_errors=partial(_report, recipe), check=False)
    return _read_outcome(command)


def _report(recipe: str, line: str) -> None:
    status(f"[{recipe}] {line}")


def _read_outcome(command: CompletedCommand) -> BuildOutcome:
    """Return the outcome that a build printed. Raises CommandError if it printed none: it was killed, for example."""
    if not command.output:
        raise CommandError(describe_failure(command, log=None), code="command-failed")
    (document,) = json.loads(command.output)
    state, reused, names = OutcomeState(document["state"]), tuple(document["reused"]), tuple(document["names"])
    return BuildOutcome(**{**document, "state": state, "reused": reused, "names": names})


def _outcome(report: BuildReport, engine: Engine) -> BuildOutcome:
    record = read_record(report.recipe, engine, strict=False)
    state = OutcomeState.UP_TO_DATE if report.reused else OutcomeState.BUILT
    return BuildOutcome(
        report.recipe,
        state,
        report.seconds,
        report.size,
        identity=record.identity if record else None,
        digest=record.digest if record else None,
        reused=("image",) if report.reused else record.reused if record else (),
        names=report.names,
    )


def _reason_to_build(plan: Plan, options: BuildOptions, engine: Engine) -> str | None:
    """Return why a recipe's image is to be built, or None if it need not be."""
    info = engine.image_info(engine.address(plan.recipe.name))
    if info is None:
        return "not built yet"
    if options.force:
        return "asked for"
    if is_current(info, plan, options.compression):
        return None
    if not info.labels:
        return "the file there is not a complete image"
    if info.labels.get(BASE_DIGEST) != plan.base.digest:
        return "another base"
    if info.labels.get(LOCK) != plan.lock_hash:
        return "other wheels"
    return "another compression" if is_current(info, plan) else "code or recipe changed"


def _available_memory() -> int:
    """Return the bytes that programs may still take, from /proc/meminfo."""
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(rows["MemAvailable"].split()[0]) * 1024
