"""Building one recipe with the engine in use: if it is stale, recorded, and under every workload's name."""

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.build import ledger
from sifmark.core.console import status
from sifmark.core.errors import SifmarkError
from sifmark.core.files import human_size, write_json
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import settings, with_options
from sifmark.engines import BuiltImage, Engine, ImageInfo, engine
from sifmark.layers.assemble import build_context
from sifmark.layers.cache import remove_all_stale_drafts, trim
from sifmark.recipes.names import find_images, recipes_in
from sifmark.recipes.plan import BUILD_KEY, COMPRESSION, STAND_IN, Plan, make_plan
from sifmark.recipes.render import definition, dockerfile

FORMATS = ("def", "dockerfile")


class BuildState(Enum):
    """How an image stands to its recipe and code."""

    BUILT = "built"
    STALE = "stale"
    MISSING = "missing"


@dataclass(frozen=True)
class BuildReport:
    """One recipe's image after the verb: what was done, and what is there now."""

    recipe: str
    names: tuple[str, ...]
    reused: bool
    seconds: float
    size: int  # bytes


def render(name: str, form: str, bases: str | None = None) -> str:
    """The definition or Dockerfile of an image, with its layers assembled so that the plain tools can build it."""
    if form not in FORMATS:
        raise SifmarkError(f"no format {form!r}", f"choose one of: {', '.join(FORMATS)}")
    recipe = recipes_in(find_images(name))[0]
    plan = make_plan(recipe, with_options(settings(), bases=bases))
    folder = context_folder(recipe)
    with exclusive_lock(folder):
        build_context(plan, folder, log_file(recipe))
    if form == "dockerfile":
        return dockerfile(plan.recipe, plan.base.pull, plan.labels(), str(folder))
    status(f"  build it with: apptainer build{' --no-https' if plan.base.plain_http else ''} IMAGE.sif FILE")
    return definition(plan.recipe, plan.base.pull, plan.labels(), str(folder))


def state(name: str, plan: Plan) -> BuildState:
    """Whether the image of a name or recipe is there and carries the build key of today's inputs."""
    tool = engine()
    seen = tool.image_info(tool.address(name))
    if seen is None:
        return BuildState.MISSING
    return BuildState.BUILT if is_current(seen, plan) else BuildState.STALE


def context_folder(recipe: str) -> Path:
    """Where the layers that rendered build files name are assembled."""
    return settings().dist / "context" / recipe


def log_file(recipe: str) -> Path:
    """Where this build's commands and their output go."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return settings().dist / "logs" / f"{recipe}-{stamp}-{os.getpid()}.log"


def log_files(recipe: str) -> list[Path]:
    """The logs that a recipe's builds have written."""
    return sorted((settings().dist / "logs").glob(f"{recipe}-*Z-*.log"))


def lock_path(recipe: str, tool: Engine) -> Path:
    """What builds of a recipe by an engine exclude each other by."""
    return tool.home / f"{recipe}.{tool.suffix}"


def record_path(recipe: str, tool: Engine) -> Path:
    """The record of a recipe's build: identity, digest, and what built it."""
    return tool.home / f"{recipe}.{tool.suffix}.json"


def read_record(recipe: str, tool: Engine) -> dict[str, Any]:
    """What the build of a recipe recorded; empty where there is nothing that reads."""
    try:
        record = json.loads(record_path(recipe, tool).read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_build_record(plan: Plan, tool: Engine, made: BuiltImage, **more: Any) -> None:
    """Write down what was made and how."""
    ledger.record_trusted(made.digest)
    write_image_record(plan.recipe.name, tool, made, plan.labels(), built=_now(), **more)


def write_image_record(recipe: str, tool: Engine, made: BuiltImage, labels: Mapping[str, str], **more: Any) -> None:
    """Write down what there is of a recipe and how it came here."""
    record = {
        "name": Path(tool.address(recipe)).name,
        "identity": made.identity,
        "digest": made.digest,
        "build_key": labels.get(BUILD_KEY),
        "compression": labels.get(COMPRESSION),
        "stand_in": labels.get(STAND_IN) == "true",
        "sifmark": __version__,
        tool.name: tool.version(),
        **more,
    }
    write_json(record_path(recipe, tool), record)


def update_record(recipe: str, tool: Engine, **more: Any) -> None:
    """Write down what became of an image, beside what is known of it; where nothing is, nothing."""
    if record := read_record(recipe, tool):
        write_json(record_path(recipe, tool), {**record, **more})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def build_recipe(plan: Plan, compression: str | None = None, force: bool = False) -> BuildReport:
    """Build a recipe's image unless it is up to date, and give it its names. Raises SifmarkError.

    `compression` is the one asked for on the command line, or None: then any that the image has will do.
    """
    plan.require_resolved()
    recipe, tool = plan.recipe.name, engine()
    started = time.monotonic()
    with exclusive_lock(lock_path(recipe, tool)):
        reused = not force and is_current(tool.image_info(tool.address(recipe)), plan, compression)
        if not reused:
            _build(plan, tool)
        names = tool.tag_workloads(recipe)
        seen = tool.image_info(tool.address(recipe))
    return BuildReport(recipe, names, reused, time.monotonic() - started, seen.size if seen else 0)


def is_current(seen: ImageInfo | None, plan: Plan, compression: str | None = None) -> bool:
    """Whether an image carries the build key of today's inputs, and the compression asked for, if any."""
    if seen is None or seen.labels.get(BUILD_KEY) != plan.build_key:
        return False
    return compression in (None, seen.labels.get(COMPRESSION))


def _build(plan: Plan, tool: Engine) -> None:
    """Make the recipe's image: recorded before it takes its place."""
    remove_all_stale_drafts()
    log = log_file(plan.recipe.name)
    reused = [stage for stage, there in tool.stages(plan).items() if there]
    started = time.monotonic()
    if plan.base.stand_in:
        status(f"  base: a stand-in for {plan.recipe.base.reference}; the image and its results say so")
    with _full_disk_explained(tool.address(plan.recipe.name)), tool.build(plan, log) as made:
        seconds = round(time.monotonic() - started, 3)
        write_build_record(plan, tool, made, log=str(log), seconds=seconds, reused=reused)
    trim()
    status(f"  {tool.address(plan.recipe.name)}: {human_size(made.size)}, {made.identity}")


@contextmanager
def _full_disk_explained(target: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise SifmarkError(
            f"no space left while building {target}: {error.filename or error}",
            "free space in the cache and dist folders, or name others in sifmark.toml; nothing was left half done",
        ) from error
