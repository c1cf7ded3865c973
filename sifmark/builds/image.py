"""Building one recipe by an engine: only if the image is stale, recorded, and under every workload's name."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sifmark.builds.records import lock_path, log_file, write_build_record
from sifmark.core.console import status
from sifmark.core.environment import temporary_folder
from sifmark.core.errors import SifmarkError
from sifmark.core.files import existing_part, free_space, human_size, is_full
from sifmark.core.locks import exclusive_lock
from sifmark.core.settings import Settings, with_options
from sifmark.engines import Engine, Forecast, ImageInfo
from sifmark.layers import installers
from sifmark.layers.assemble import build_context
from sifmark.layers.eviction import remove_all_stale_drafts, trim
from sifmark.recipes.labels import BUILD_KEY, COMPRESSION
from sifmark.recipes.names import find_images, recipes_in
from sifmark.recipes.plan import Plan, make_plan
from sifmark.recipes.render import PLAIN_BUILD, definition, dockerfile

_SPACE_REMEDY = (
    "free space (sifmark clean, sifmark clean --cache), or name another folder: cache and dist in sifmark.toml, "
    "APPTAINER_TMPDIR for temporary files"
)
FORMATS = ("def", "dockerfile")


class BuildState(StrEnum):
    """How an image relates to its recipe and code."""

    BUILT = "built"
    STALE = "stale"
    MISSING = "missing"


@dataclass(frozen=True)
class BuildReport:
    """One recipe's image after a build, or after it was left because it is up to date."""

    recipe: str
    names: tuple[str, ...]
    reused: bool
    seconds: float
    size: int  # bytes


def render(name: str, form: str, settings: Settings, bases: str | None = None) -> str:
    """Return the definition or Dockerfile of an image, and assemble the layers it names, for the plain tools."""
    if form not in FORMATS:
        raise SifmarkError(f"no format {form!r}", f"choose one of: {', '.join(FORMATS)}", code="unknown-name")
    installers.require_packages("a build")
    recipe = recipes_in(find_images(name))[0]
    plan = make_plan(recipe, with_options(settings, bases=bases))
    folder = context_folder(recipe, settings)
    with exclusive_lock(folder):
        build_context(plan, folder, settings, log_file(recipe, settings))
    if form == "dockerfile":
        return dockerfile(plan.recipe, plan.base.pull, plan.labels(), str(folder))
    status(f"  build it with: {PLAIN_BUILD}{' --no-https' if plan.base.plain_http else ''} IMAGE.sif FILE")
    return definition(plan.recipe, plan.base.pull, plan.labels(), str(folder))


def state(name: str, plan: Plan, engine: Engine) -> BuildState:
    """Return whether the image of a name or recipe exists, has the build key of today's inputs, and is the recipe's."""
    info = engine.image_info(engine.address(name))
    if info is None:
        return BuildState.MISSING
    current = is_current(info, plan) and _is_same(info, engine.image_info(engine.address(plan.recipe.name)))
    return BuildState.BUILT if current else BuildState.STALE


def _is_same(info: ImageInfo, whole: ImageInfo | None) -> bool:
    """Return whether a name's image seems to be its recipe's, as far as that shows without reading all of both.

    Another file of the same size may be a copy, on a file system without hard links: `engines.locate` compares them.
    """
    return whole is None or info.content == whole.content or info.size == whole.size


def context_folder(recipe: str, settings: Settings) -> Path:
    """Return the folder where the layers that rendered build files name are assembled."""
    return settings.dist / "context" / recipe


def build_recipe(
    plan: Plan, engine: Engine, settings: Settings, compression: str | None = None, force: bool = False
) -> BuildReport:
    """Build a recipe's image unless it is up to date, and give it its names. Raises SifmarkError.

    An image with another compression than `compression` is not up to date; None accepts any.
    """
    plan.require_resolved()
    recipe = plan.recipe.name
    started = time.monotonic()
    with exclusive_lock(lock_path(recipe, engine)):
        reused = not force and is_current(engine.image_info(engine.address(recipe)), plan, compression)
        if not reused:
            _build(plan, engine, settings)
        names = engine.tag_workloads(recipe)
        info = engine.image_info(engine.address(recipe))
    return BuildReport(recipe, names, reused, time.monotonic() - started, info.size if info else 0)


def is_current(info: ImageInfo | None, plan: Plan, compression: str | None = None) -> bool:
    """Return whether an image has the build key of today's inputs, and the compression, if one is given."""
    if info is None or info.labels.get(BUILD_KEY) != plan.build_key:
        return False
    return compression in (None, info.labels.get(COMPRESSION))


def require_space(forecasts: Iterable[Forecast], settings: Settings) -> None:
    """Raise SifmarkError if builds surely do not fit into the cache, the folder of images and the temporary folder.

    Of temporary files only those of one build count: builds need not run side by side.
    """
    estimates = list(forecasts)
    cached, stored = sum(each.cached for each in estimates), sum(each.stored for each in estimates)
    temporary = max((each.temporary for each in estimates), default=0)
    # Temporary files are gone when the first image is written.
    _require_free({settings.cache: cached, temporary_folder(): temporary})
    _require_free({settings.cache: cached, settings.dist: stored})


def _build(plan: Plan, engine: Engine, settings: Settings) -> None:
    """Make the recipe's image. It is recorded before it gets its name."""
    installers.require_packages("a build")
    remove_all_stale_drafts(settings.cache)
    address = engine.address(plan.recipe.name)
    log = log_file(plan.recipe.name, settings)
    reused = [stage for stage, kept in engine.stages(plan).items() if kept]
    started = time.monotonic()
    if plan.base.stand_in:
        status(f"  base: a test base in place of {plan.recipe.base.reference}; the image and its results say so")
    require_space([engine.forecast(plan)], settings)
    with _full_disk_explained(address), engine.build(plan, log) as image:
        seconds = round(time.monotonic() - started, 3)
        write_build_record(plan, engine, image, settings, log=str(log), seconds=seconds, reused=reused)
    trim(settings.cache, settings.cache_limit)
    status(f"  {address}: {human_size(image.size)}, {image.identity}")


@contextmanager
def _full_disk_explained(target: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise SifmarkError(
            f"no space left while building {target}: {error.filename or error}",
            "free space in the cache and dist folders, or name others in sifmark.toml; nothing was left half done",
            code="disk-full",
        ) from error


def _require_free(needed: Mapping[Path, int]) -> None:
    """Raise SifmarkError if what folders get at once does not fit on a file system that they share."""
    shared: dict[int, list[Path]] = defaultdict(list)
    for folder, size in needed.items():
        if size:
            shared[existing_part(folder).stat().st_dev].append(folder)
    for folders in shared.values():
        size, free = sum(needed[folder] for folder in folders), free_space(folders[0])
        if size > free:
            where = " and ".join(map(str, folders))
            cause = f"the builds add about {human_size(size)} to {where}, with no more than {human_size(free)} left"
            raise SifmarkError(cause, _SPACE_REMEDY, code="disk-full")
