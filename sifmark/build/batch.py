"""Building many recipes: planned, then side by side as far as this host carries it. A failure stops only itself."""

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from sifmark.build.image import BuildReport, build_recipe, is_current, read_record
from sifmark.core.console import status
from sifmark.core.errors import SifmarkError, UnbuildableError
from sifmark.core.files import free_space, human_size
from sifmark.core.process import CommandError, CompletedCommand, describe_failure, run, thread_pool
from sifmark.core.settings import Settings, settings, with_options
from sifmark.engines import engine
from sifmark.engines.apptainer.build import stages
from sifmark.layers.cache import BASES, LAYERS, STOCKED, rate
from sifmark.layers.offline import base_size, offline_base
from sifmark.layers.wheels import cached_size
from sifmark.oci.images import compressed_size
from sifmark.recipes.names import EVERYTHING, Image, cards, find_images, recipes_in, workloads_of
from sifmark.recipes.plan import BASE_DIGEST, LOCK, Plan, make_plan
from sifmark.recipes.recipe import recipe_names

# Bytes a second that the making of each stage managed on 2 cores; the cache's own history comes before.
_RATES = {BASES: 15e6, LAYERS: 30e6, STOCKED: 100e6}
_UNPACKED = 3  # times as large as packed is a wheel, with its bytecode
_FINISHING = 150e6  # bytes a second: copy, append the code, wrap, hash
_MEMORY = 2 * 1024**3  # bytes that one build's compressor may take
_CORES = 2  # that one build keeps busy


class Action(Enum):
    """What is to be done about a recipe."""

    BUILD = "build"
    LEAVE = "leave"
    REFUSE = "skip"
    BROKEN = "broken"


@dataclass(frozen=True)
class PlannedBuild:
    """What is to be done about one recipe and why. None is what nobody knows yet."""

    recipe: str
    what: Action
    why: str
    size: int | None = None  # bytes of the image
    seconds: float | None = None
    cached: int = 0  # bytes that the cache will take more, as far as known
    at_hand: tuple[str, ...] = ()  # stages in the cache


@dataclass(frozen=True)
class BuildOutcome:
    """What became of one recipe: `built`, `up to date`, `skipped` or `failed`."""

    recipe: str
    state: str
    seconds: float = 0.0
    size: int | None = None  # bytes
    identity: str | None = None
    digest: str | None = None
    reused: tuple[str, ...] = ()  # stages that the cache had
    names: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class BuildOptions:
    """What a command line asked of builds."""

    bases: str | None = None
    compression: str | None = None
    force: bool = False

    @property
    def site(self) -> Settings:
        """The settings with what was asked for. Raises UsageError for bad values."""
        return with_options(settings(), bases=self.bases, compression=self.compression)

    def words(self) -> list[str]:
        """The same, for a verb of our own."""
        given = {"--bases": self.bases, "--compression": self.compression}
        words = [word for option, value in given.items() if value is not None for word in (option, value)]
        return [*words, *(["--force"] if self.force else [])]


def matching_recipes(pattern: str) -> tuple[str, ...]:
    """The recipes that a name, glob or recipe means. Raises UsageError."""
    if pattern == EVERYTHING:
        return recipe_names()
    found = tuple(recipe for recipe in recipe_names() if pattern == recipe or _may_match(pattern, recipe))
    return found or recipes_in(find_images(pattern))


def _may_match(pattern: str, recipe: str) -> bool:
    """Whether a pattern means an image of a recipe; of a broken one, which has none, whether it could."""
    try:
        workloads = workloads_of(recipe)
    except SifmarkError:
        workloads = tuple(cards())
    return any(fnmatchcase(Image(workload, recipe).name, pattern) for workload in workloads)


def plan_build(recipe: str, options: BuildOptions) -> PlannedBuild:
    """Look at files, keys and the cache; of registries only sizes are asked. Raises SifmarkError for a bad recipe."""
    try:
        plan = make_plan(recipe, options.site)
        plan.require_resolved()
        why = _why(plan, options)
        return PlannedBuild(recipe, Action.LEAVE, "nothing changed") if why is None else _forecast(plan, why)
    except UnbuildableError as error:
        return PlannedBuild(recipe, Action.REFUSE, str(error))


def require_space(intents: Iterable[PlannedBuild]) -> None:
    """Raise SifmarkError where what is to be built surely does not fit."""
    needed = {
        settings().cache: sum(intent.cached for intent in intents),
        settings().dist: sum(intent.size or 0 for intent in intents),
    }
    for folder, size in needed.items():
        if size > (free := free_space(folder)):
            raise SifmarkError(
                f"the builds add about {human_size(size)} to {folder}, which has {human_size(free)} left",
                "free space (inv clean, inv clean --cache), or name another folder in sifmark.toml",
            )


def default_jobs(intents: Sequence[PlannedBuild]) -> int:
    """How many builds this host carries at once: by cores, memory and free space."""
    largest = max((intent.size or 0 for intent in intents), default=0)
    carried = [len(os.sched_getaffinity(0)) // _CORES, _available_memory() // _MEMORY]
    carried += [free_space(settings().dist) // largest] if largest else []
    return max(1, min(len(intents), *carried))


def run_builds(intents: Sequence[PlannedBuild], options: BuildOptions, jobs: int) -> list[BuildOutcome]:
    """Build side by side what is to be built, each in a process of its own; a failure is an outcome too."""
    with thread_pool(jobs) as pool:
        running = [pool.submit(_carry_out, intent, options) for intent in intents]
        return [future.result() for future in running]


def build_one(recipe: str, options: BuildOptions) -> BuildOutcome:
    """Build one recipe here, unless it is up to date. Raises SifmarkError."""
    asked = None if options.compression is None else options.site.compression
    return _outcome(build_recipe(make_plan(recipe, options.site), asked, options.force))


def failed_outcome(recipe: str, error: Exception, started: float) -> BuildOutcome:
    """The outcome of a build that began at `started`, by the monotonic clock, and failed."""
    return BuildOutcome(recipe, "failed", time.monotonic() - started, reason=str(error))


def _carry_out(intent: PlannedBuild, options: BuildOptions) -> BuildOutcome:
    started = time.monotonic()
    try:
        return _do(intent, options)
    except (SifmarkError, OSError) as error:
        return failed_outcome(intent.recipe, error, started)


def _do(intent: PlannedBuild, options: BuildOptions) -> BuildOutcome:
    recipe = intent.recipe
    if intent.what is Action.REFUSE:
        return BuildOutcome(recipe, "skipped", reason=intent.why)
    if intent.what is Action.BROKEN:
        return BuildOutcome(recipe, "failed", reason=intent.why)
    if intent.what is Action.LEAVE:
        return build_one(recipe, options)  # its names are linked anew
    # -P: a folder that is called sifmark where the user stands is not us.
    argv = [sys.executable, "-P", "-m", "sifmark", "build", recipe, "--json", *options.words()]
    progress = partial(_report, recipe)
    done = run(argv, watch_errors=progress, check=False, environment=settings().environment())
    return _told(done)


def _report(recipe: str, line: str) -> None:
    status(f"[{recipe}] {line}")


def _told(done: CompletedCommand) -> BuildOutcome:
    """What a build says of itself, failed or not. Raises CommandError where it said nothing: it was killed, say."""
    if not done.output:
        raise CommandError(describe_failure(done, log=None))
    (told,) = json.loads(done.output)
    return BuildOutcome(**{**told, "reused": tuple(told["reused"]), "names": tuple(told["names"])})


def _outcome(built: BuildReport) -> BuildOutcome:
    record = read_record(built.recipe, engine())
    state, reused = ("up to date", ("image",)) if built.reused else ("built", tuple(record.get("reused", ())))
    told = (record.get("identity"), record.get("digest"), reused, built.names)
    return BuildOutcome(built.recipe, state, built.seconds, built.size, *told)


def _why(plan: Plan, options: BuildOptions) -> str | None:
    """Why a recipe's image is to be built; None where it need not be."""
    seen = engine().image_info(engine().address(plan.recipe.name))
    if seen is None:
        return "not built yet"
    if options.force:
        return "asked for"
    if is_current(seen, plan, options.compression):
        return None
    if not seen.labels:
        return "what is there is no whole image"
    if seen.labels.get(BASE_DIGEST) != plan.base.digest:
        return "another base"
    if seen.labels.get(LOCK) != plan.lock_hash:
        return "other wheels"
    return "another compression" if is_current(seen, plan) else "code or recipe changed"


def _forecast(plan: Plan, why: str) -> PlannedBuild:
    """Sizes from the cache, the sources, the registry and the wheels at hand; times from the cache's own history."""
    there = {kind: entry.seal() for kind, entry in stages(plan).items()}
    at_hand = tuple(stage for stage, kept in engine().stages(plan).items() if kept)
    wheels, base = cached_size(plan.recipe.lock(plan.target)), there[BASES]
    packed = base.size if base else _weight(plan)
    missing: dict[str, int] = {}
    if stocked := there[STOCKED]:
        image = stocked.size
    elif packed is None or wheels is None:
        return PlannedBuild(plan.recipe.name, Action.BUILD, why, at_hand=at_hand)
    else:
        image = packed + wheels
        made = {BASES: packed, LAYERS: _UNPACKED * wheels, STOCKED: image}
        missing = {kind: size for kind, size in made.items() if not there[kind]}
    seconds = image / _FINISHING + sum(size / (rate(kind) or _RATES[kind]) for kind, size in missing.items())
    return PlannedBuild(plan.recipe.name, Action.BUILD, why, image, seconds, sum(missing.values()), at_hand)


def _weight(plan: Plan) -> int | None:
    """Bytes of the base's layers, packed: about what they are as squashfs."""
    try:
        if layout := offline_base(plan.base):
            return base_size(layout, plan.base.digest)
        return compressed_size(plan.base.address, plan.base.digest, plan.platform)
    except SifmarkError:
        return None


def _available_memory() -> int:
    """Bytes that programs may still take, by /proc/meminfo."""
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(rows["MemAvailable"].split()[0]) * 1024
