"""Building many recipes: planned, then side by side as far as this host carries it. A failure stops only itself."""

import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

from sifmark.arguments import EVERYTHING
from sifmark.build import Built, build_recipe, is_current, read_record
from sifmark.cache import BASES, LAYERS, STOCKED, rate
from sifmark.console import say
from sifmark.engines import engine
from sifmark.engines.flat import stages
from sifmark.errors import SifmarkError, Unbuildable
from sifmark.files import human_size
from sifmark.images import Image, cards, find_images, recipes_in, workloads_of
from sifmark.plan import BASE_DIGEST, LOCK, Plan, make_plan
from sifmark.recipe import recipe_names
from sifmark.registry import RegistryError, weigh
from sifmark.run import CommandError, run, stop_running
from sifmark.settings import Settings, overridden, settings
from sifmark.wheels import size_at_hand

# Bytes a second that the making of each stage managed on 2 cores; the cache's own history comes before.
_RATES = {BASES: 15e6, LAYERS: 30e6, STOCKED: 100e6}
_FINISHING = 150e6  # bytes a second: copy, append the code, wrap, hash
_MEMORY = 2 * 1024**3  # bytes that one build's compressor may take
_CORES = 2  # that one build keeps busy


class What(Enum):
    """What is to be done about a recipe."""

    BUILD = "build"
    LEAVE = "leave"
    REFUSE = "skip"
    BROKEN = "broken"


@dataclass(frozen=True)
class Intent:
    """What is to be done about one recipe and why. None is what nobody knows yet."""

    recipe: str
    what: What
    why: str
    size: int | None = None  # bytes of the image
    seconds: float | None = None
    space: int = 0  # bytes more on disk, as far as known
    at_hand: tuple[str, ...] = ()  # stages in the cache


@dataclass(frozen=True)
class Outcome:
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
class Options:
    """What a command line asked of builds."""

    bases: str | None = None
    compression: str | None = None
    force: bool = False

    @property
    def site(self) -> Settings:
        """The settings with what was asked for. Raises UsageError for bad values."""
        return overridden(bases=self.bases, compression=self.compression)

    def words(self) -> list[str]:
        """The same, for a verb of our own."""
        given = {"--bases": self.bases, "--compression": self.compression}
        words = [word for option, value in given.items() if value is not None for word in (option, value)]
        return [*words, *(["--force"] if self.force else [])]


def recipes_meant(pattern: str) -> tuple[str, ...]:
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


def intend(recipe: str, options: Options) -> Intent:
    """Look at files, keys and the cache; of registries only sizes are asked. Raises SifmarkError for a bad recipe."""
    try:
        plan = make_plan(recipe, options.site)
        plan.require_resolved()
        why = _why(plan, options)
    except Unbuildable as error:
        return Intent(recipe, What.REFUSE, error.cause)
    if why is None:
        return Intent(recipe, What.LEAVE, "nothing changed", seconds=0.0)
    return _forecast(plan, why)


def require_space(intents: Iterable[Intent]) -> None:
    """Raise SifmarkError where what is to be built surely does not fit."""
    needed = sum(intent.space for intent in intents)
    for role, folder in {"cache": settings().cache, "dist": settings().dist}.items():
        if needed > (free := free_space(folder)):
            raise SifmarkError(
                f"the builds add at least {human_size(needed)}; the {role} folder {folder} has {human_size(free)} left",
                "free space (inv clean, inv clean --cache), or name another folder in sifmark.toml",
            )


def jobs_here(intents: Sequence[Intent]) -> int:
    """How many builds this host carries at once: by cores, memory and free space."""
    largest = max((intent.space for intent in intents), default=0)
    carried = [len(os.sched_getaffinity(0)) // _CORES, _available_memory() // _MEMORY]
    carried += [free_space(settings().dist) // largest] if largest else []
    return max(1, min(len(intents), *carried))


def carry_out(intents: Sequence[Intent], options: Options, jobs: int) -> list[Outcome]:
    """Build side by side what is to be built, each in a process of its own; a failure is an outcome too."""
    with ThreadPoolExecutor(jobs) as pool:
        try:
            running = [pool.submit(_carry_out, intent, options) for intent in intents]
            return [future.result() for future in running]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_running()
            raise


def build_one(recipe: str, options: Options) -> Outcome:
    """Build one recipe here, unless it is up to date. Raises SifmarkError."""
    asked = None if options.compression is None else options.site.compression
    return _outcome(build_recipe(make_plan(recipe, options.site), asked, options.force))


def free_space(folder: Path) -> int:
    """Bytes left where a folder is, or will be."""
    return shutil.disk_usage(next(path for path in [folder, *folder.parents] if path.exists())).free


def _carry_out(intent: Intent, options: Options) -> Outcome:
    recipe = intent.recipe
    if intent.what is What.REFUSE:
        return Outcome(recipe, "skipped", reason=intent.why)
    if intent.what is What.BROKEN:
        return Outcome(recipe, "failed", reason=intent.why)
    if intent.what is What.LEAVE:
        return build_one(recipe, options)  # its names are linked anew
    argv = [sys.executable, "-m", "sifmark", "build", recipe, *options.words()]
    started = time.monotonic()
    try:
        run(argv, watch=lambda line: say(f"[{recipe}] {line}"))
    except CommandError as error:
        return Outcome(recipe, "failed", time.monotonic() - started, reason=error.cause)
    seen = engine().look(engine().address(recipe))
    names = tuple(Image(workload, recipe).name for workload in workloads_of(recipe))
    return _outcome(Built(recipe, names, False, time.monotonic() - started, seen.size if seen else 0))


def _outcome(built: Built) -> Outcome:
    record = read_record(built.recipe, engine())
    state, reused = ("up to date", ("image",)) if built.reused else ("built", tuple(record.get("reused", ())))
    told = (record.get("identity"), record.get("digest"), reused, built.names)
    return Outcome(built.recipe, state, built.seconds, built.size, *told)


def _why(plan: Plan, options: Options) -> str | None:
    """Why a recipe's image is to be built; None where it need not be."""
    recipe = plan.recipe.name
    seen = engine().look(engine().address(recipe))
    if seen is None:
        return "not built yet"
    if options.force:
        return "asked for"
    if is_current(recipe, plan, options.compression):
        return None
    if not seen.labels:
        return "what is there is no whole image"
    if seen.labels.get(BASE_DIGEST) != plan.base.digest:
        return "another base"
    if seen.labels.get(LOCK) != plan.lock_hash:
        return "other wheels"
    return "another compression" if is_current(recipe, plan) else "code or recipe changed"


def _forecast(plan: Plan, why: str) -> Intent:
    """Sizes from the cache, the registry and the wheels at hand; times from how long the cache's entries took."""
    there = {kind: entry.seal() for kind, entry in stages(plan).items()}
    at_hand = tuple(kind for kind, seal in there.items() if seal)
    stocked, base = there[STOCKED], there[BASES]
    if stocked:
        size: int | None = stocked.size
    else:
        parts = (base.size if base else _weight(plan), size_at_hand(plan.recipe.lock(plan.target)))
        size = None if None in parts else sum(part or 0 for part in parts)
    if size is None:
        return Intent(plan.recipe.name, What.BUILD, why, at_hand=at_hand)
    missing = [] if stocked else [kind for kind, seal in there.items() if not seal]
    seconds = size / _FINISHING + sum(size / (rate(kind) or _RATES[kind]) for kind in missing)
    return Intent(plan.recipe.name, What.BUILD, why, size, seconds, size * (1 + len(missing)), at_hand)


def _weight(plan: Plan) -> int | None:
    """Bytes of the base's layers, packed: about what they are as squashfs."""
    try:
        return weigh(plan.base.address, plan.base.digest)
    except RegistryError:
        return None


def _available_memory() -> int:
    """Bytes that programs may still take."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
