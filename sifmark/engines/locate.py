"""Finding the image that a name or a path refers to, and the options that a run of it needs on this host."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from sifmark.core.console import printable, status
from sifmark.core.environment import platform_name
from sifmark.core.errors import REBUILD_REMEDY, SifmarkError
from sifmark.core.process import CompletedCommand, run
from sifmark.core.settings import Settings
from sifmark.engines import APPTAINER, DOCKER, Engine, open_engine
from sifmark.recipes.base import needed_bases
from sifmark.recipes.hardware import Access
from sifmark.recipes.labels import DEVICES, DOCKER_FLAGS, PLATFORM, RECIPE, RUN_FLAGS
from sifmark.recipes.names import find_image, names_of
from sifmark.recipes.recipe import load_recipe, recipe_names

_LONGEST_ANSWER = 64 << 20  # characters; a result has at most 16 MiB
_LONGEST_SHOWN = 100  # characters of a label in a message
_NAMES_REMEDY = "set the names again: sifmark build NAME"
_FLAG_LABELS = {APPTAINER: RUN_FLAGS, DOCKER: DOCKER_FLAGS}


def names_file(name: str) -> bool:
    """Return whether a user means a file, not an image of this project: by its ending or a slash."""
    return name.endswith(".sif") or "/" in name


def engine_for(name: str, settings: Settings) -> Engine:
    """Return the engine of the image that a user names: Apptainer for a file, else the one that the settings choose."""
    return open_engine(settings, APPTAINER if names_file(name) else "")


def locate(name: str, engine: Engine) -> str:
    """Return the address of an image given by name, or by its path. Raises SifmarkError if there is none."""
    return _locate_file(name) if names_file(name) else _locate_image(name, engine)


def locate_any(name: str, engine: Engine) -> str:
    """Return the address of an image given by name, recipe or path. Raises SifmarkError if there is none."""
    return _locate_recipe(name, engine) if name in recipe_names() else locate(name, engine)


def _locate_file(name: str) -> str:
    path = Path(name).absolute()
    if not path.is_file():
        raise SifmarkError(f"there is no file {Path(name)}", "see what is built: sifmark list", code="file-missing")
    return str(path)


def _locate_image(name: str, engine: Engine) -> str:
    image = find_image(name)
    address = engine.address(image.name)
    info = engine.image_info(address)
    if info is None:
        raise _not_built(image.name, image.recipe, engine)
    if (recipe := info.labels.get(RECIPE)) not in (None, image.recipe):
        cause = f"{address} is an image of recipe {printable(recipe[:_LONGEST_SHOWN])}"
        raise SifmarkError(cause, REBUILD_REMEDY, code="recipe-mismatch")
    if info.workload not in (None, image.workload):
        cause = f"{address} is an image of workload {printable(info.workload[:_LONGEST_SHOWN])}"
        raise SifmarkError(cause, _NAMES_REMEDY, code="names-stale")
    _require_same(engine, address, engine.address(image.recipe))
    return address


def _not_built(name: str, recipe: str, engine: Engine) -> SifmarkError:
    """Return the error for an image that is not here: where it was looked for, and who chose that place."""
    settings, address = engine.settings, engine.address(name)
    file = Path(address)
    if engine.name == APPTAINER:
        cause = f"no {file.name} in {file.parent} ({settings.origin('dist')})"
    else:
        cause = f"{engine.name} has no image {address} ({settings.origin('engine')})"
    option = f" --engine {engine.name}" if settings.origin("engine").startswith("--") else ""
    bases, note = needed_bases(recipe, settings)
    remedy = f"build it: sifmark build {name}{option}{bases}, pull it: sifmark registry.pull {name}"
    return SifmarkError(cause, f"{remedy}, or name its file{note}", code="image-not-built")


def _require_same(engine: Engine, address: str, recipe: str) -> None:
    """Raise SifmarkError if a name's image is another one than its recipe's, where that is here.

    A name whose content seems another may be a copy, on a file system without hard links: what would run decides.
    """
    info, whole = engine.image_info(address), engine.image_info(recipe)
    if info is None or whole is None or info.content == whole.content:
        return
    if engine.inspect(address).identity() != engine.inspect(recipe).identity():
        cause = f"{address} is another image than that of its recipe, {recipe}"
        raise SifmarkError(cause, _NAMES_REMEDY, code="names-stale")


def _locate_recipe(recipe: str, engine: Engine) -> str:
    """Return the address of a recipe's image, which stands for no workload. Raises SifmarkError if there is none."""
    address, name = engine.address(recipe), names_of(recipe)[0]
    if engine.image_info(address) is None and engine.image_info(engine.address(name)) is None:
        raise _not_built(recipe, recipe, engine)
    _locate_image(name, engine)
    return address


def require_platform(engine: Engine, address: str) -> None:
    """Raise SifmarkError if an image is for another processor architecture than this host's."""
    info = engine.image_info(address)
    platform = info.labels.get(PLATFORM) if info else None
    if platform not in (None, platform_name()):
        shown = printable(platform[:_LONGEST_SHOWN])
        cause = f"{Path(address).name} is for {shown}, and this host is {platform_name()}"
        raise SifmarkError(cause, "pull or build the image on this host", code="platform-unsupported")


def has_device(engine: Engine, address: str) -> bool:
    """Return whether this host has the device that an image needs, if it needs one."""
    access = access_of_image(engine, address)
    return access is None or bool(access.existing_files())


def device_options(engine: Engine, address: str) -> list[str]:
    """Return the options by which the image's run reaches its device here, according to its labels.

    Raises SifmarkError if the labels ask for options that no recipe has.
    """
    access = access_of_image(engine, address)
    if access is None:
        return []
    if not access.is_allowed():
        remedy = "is it an image that sifmark built?"
        raise SifmarkError(f"{address}: its labels ask for {access}", remedy, code="not-sifmark-image")
    if not access.existing_files():
        status(f"  this host has no {' and no '.join(access.devices)}: {Path(address).name} will find no device")
    return engine.device_flags(access)


def isolated_options(engine: Engine, address: str, *, variables: bool = False) -> list[str]:
    """Return the options of a run that sees its device, but nothing of the user and no network that it can do without.

    With `variables` it sees those that other runs see. Raises SifmarkError as `device_options`.
    """
    return [
        *engine.isolation_flags(access_of_image(engine, address), variables=variables),
        *device_options(engine, address),
    ]


def run_isolated(
    engine: Engine,
    address: str,
    verb: str,
    arguments: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    check: bool = True,
) -> CompletedCommand:
    """Run, test or execute something in an image that is not trusted, with no more than `isolated_options` give it.

    With `variables` these are the only ones of its start, and as many of them as the engine shows to any run. Raises
    SifmarkError as `device_options`, CommandError as `process.run`.
    """
    options = isolated_options(engine, address, variables=variables is not None)
    name = f"sifmark-check-{secrets.token_hex(8)}"
    argv = engine.command(address, verb, arguments, [*options, *engine.name_flags(name)])
    if variables is not None:
        argv = ["env", "-i", *(f"{key}={value}" for key, value in variables.items()), *argv]
    try:
        return run(argv, time_limit=engine.settings.time_limit, check=check, most=_LONGEST_ANSWER)
    finally:
        engine.end_run(name)


def access_of_image(engine: Engine, address: str) -> Access | None:
    """Return how a run of the image reaches its device, or None if it needs no device files."""
    info = engine.image_info(address)
    return _access(info.labels if info else {})


def _access(labels: dict[str, str]) -> Access | None:
    """Return what a run needs, by the recipe here if there is one: an image's labels may be anybody's."""
    if DEVICES not in labels:
        return None
    flags = {name: tuple(labels.get(label, "").split()) for name, label in _FLAG_LABELS.items()}
    access = Access(tuple(labels[DEVICES].split(",")), **flags)
    if labels.get(RECIPE) in recipe_names():
        return load_recipe(labels[RECIPE]).access or access
    return access
