"""The build verb: what is stale is built, once per recipe; every workload's name is linked to it."""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

from filelock import FileLock, Timeout

from sifmark import __version__
from sifmark.console import say
from sifmark.engines import engine
from sifmark.errors import SifmarkError
from sifmark.files import beside, human_size, sha256_file, sweep, write_json
from sifmark.images import Image, find_images, recipe_file, recipes_in, workloads_of
from sifmark.layers import context
from sifmark.plan import BUILD_KEY, COMPRESSION, Plan, make_plan
from sifmark.render import definition, dockerfile
from sifmark.settings import overridden, settings
from sifmark.sif import SifError, read_sif

FORMATS = ("def", "dockerfile")
CACHES = ("wheels", "layers", "bases", "stocked")  # folders in the cache that builds fill


class State(Enum):
    """How an image's file stands to its recipe and code."""

    BUILT = "built"
    STALE = "stale"
    MISSING = "missing"


@dataclass(frozen=True)
class Built:
    """One recipe's file after the verb: what was done, and what is there now."""

    recipe: str
    path: Path
    names: tuple[str, ...]
    reused: bool
    seconds: float
    size: int  # bytes


def build(
    pattern: str, *, bases: str | None = None, compression: str | None = None, force: bool = False
) -> list[Built]:
    """Build what a name, glob or recipe means, unless it is up to date. Raises SifmarkError."""
    site = overridden(bases=bases, compression=compression)
    asked = None if compression is None else site.compression
    return [_build_recipe(make_plan(name, site), asked, force) for name in recipes_in(find_images(pattern))]


def render(name: str, form: str, bases: str | None = None) -> str:
    """The definition or Dockerfile of an image, with its layers assembled so that the plain tools can build it."""
    if form not in FORMATS:
        raise SifmarkError(f"no format {form!r}", f"choose one of: {', '.join(FORMATS)}")
    recipe = recipes_in(find_images(name))[0]
    plan = make_plan(recipe, overridden(bases=bases))
    folder = context_folder(recipe)
    with alone(folder):
        context(plan, folder, log_file(recipe))
    if form == "dockerfile":
        return dockerfile(plan.recipe, plan.base.pull, plan.labels(), str(folder))
    say(f"  build it with: apptainer build{' --no-https' if plan.base.plain_http else ''} IMAGE.sif FILE")
    return definition(plan.recipe, plan.base.pull, plan.labels(), str(folder))


def state(image: Image, plan: Plan) -> State:
    """Whether an image's file is there and carries the build key of today's inputs."""
    if not image.path.exists():
        return State.MISSING
    return State.BUILT if _up_to_date(image.path, plan) else State.STALE


def context_folder(recipe: str) -> Path:
    """Where the layers that rendered build files name are assembled."""
    return settings().dist / "context" / recipe


def log_file(recipe: str) -> Path:
    """Where this build's commands and their output go."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return settings().dist / "logs" / f"{recipe}-{stamp}-{os.getpid()}.log"


def logs_of(recipe: str) -> list[Path]:
    """The logs that a recipe's builds have written."""
    return sorted((settings().dist / "logs").glob(f"{recipe}-*Z-*.log"))


def record_of(path: Path) -> Path:
    """The record beside an image: identity, digest, and what built it."""
    return path.with_name(f"{path.name}.json")


def _build_recipe(plan: Plan, compression: str | None, force: bool) -> Built:
    """`compression` is the one asked for on the command line, or None: then any that the image has will do."""
    plan.require_resolved()
    recipe = plan.recipe.name
    target = recipe_file(recipe)
    started = time.monotonic()
    with alone(target):
        reused = not force and _up_to_date(target, plan, compression)
        if not reused:
            _build_file(plan, target)
        names = _link_names(recipe, target)
    return Built(recipe, target, names, reused, time.monotonic() - started, target.stat().st_size)


def _build_file(plan: Plan, target: Path) -> None:
    """Make the recipe's file: drafted beside the target, read back, recorded, then renamed."""
    for folder in (target.parent, *(settings().cache / name for name in CACHES)):
        sweep(folder)
    log = log_file(plan.recipe.name)
    if plan.base.stand_in:
        say(f"  base: a stand-in for {plan.recipe.base.reference}; the image and its results say so")
    with _full_disk_explained(target), beside(target) as draft:
        engine().build(plan, draft, log)
        draft.chmod(0o755)
        image = read_sif(draft)
        record = {
            "name": target.name,
            "identity": image.identity(),
            "digest": sha256_file(draft),
            "build_key": image.labels()[BUILD_KEY],
            "compression": plan.compression,
            "stand_in": plan.base.stand_in,
            "sifmark": __version__,
            "apptainer": engine().version(),
            "built": datetime.now(UTC).isoformat(timespec="seconds"),
            "log": str(log),
        }
        write_json(record_of(target), record)
    say(f"  {target}: {human_size(target.stat().st_size)}, {record['identity']}")


def _up_to_date(path: Path, plan: Plan, compression: str | None = None) -> bool:
    try:
        labels = read_sif(path).labels()
    except SifError:
        return False
    return labels.get(BUILD_KEY) == plan.build_key and compression in (None, labels.get(COMPRESSION))


def _link_names(recipe: str, target: Path) -> tuple[str, ...]:
    """Give the file each workload's name; a name that is there is replaced in one step."""
    names = []
    for workload in workloads_of(recipe):
        image = Image(workload, recipe)
        names.append(image.name)
        if not (image.path.exists() and image.path.samefile(target)):
            with beside(image.path) as draft:
                _link(target, draft)
    return tuple(names)


def _link(target: Path, name: Path) -> None:
    try:
        os.link(target, name)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        say(f"  this file system has no hard links ({error.strerror}): {name.name} is a copy")
        shutil.copyfile(target, name)
        name.chmod(0o755)


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Builds of one image exclude each other, on every host that shares the folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"  waiting: another process builds {target.name}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _full_disk_explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise SifmarkError(
            f"no space left while building {target}: {error.filename or error}",
            "free space in the cache and dist folders, or name others in sifmark.toml; nothing was left half done",
        ) from error
