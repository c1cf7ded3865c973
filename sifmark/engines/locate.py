"""Finding the image that a name or a path means, and the options that a run of it needs on this host."""

from pathlib import Path

from sifmark.core.console import status
from sifmark.core.errors import REBUILD_REMEDY, SifmarkError
from sifmark.core.settings import settings
from sifmark.engines import Engine, ImageInspection, engine
from sifmark.recipes.names import find_image
from sifmark.recipes.plan import DEVICES, DOCKER_FLAGS, RECIPE, RUN_FLAGS
from sifmark.recipes.recipe import Access, load_recipe, recipe_names


def names_file(name: str) -> bool:
    """Whether a user means a file, not an image of this project: by its ending or a slash."""
    return name.endswith(".sif") or "/" in name


def locate(name: str) -> tuple[Engine, str]:
    """The engine and the address of an image given by name, or of a file by its path. Raises SifmarkError for none."""
    if names_file(name):
        path = Path(name).absolute()
        if not path.is_file():
            raise SifmarkError(f"there is no file {Path(name)}", "see what is built: inv list")
        return engine("apptainer"), str(path)
    tool, image = engine(), find_image(name)
    address = tool.address(image.name)
    seen = tool.image_info(address)
    if seen is None:
        raise SifmarkError(f"{image.name} is not built", f"build it: inv build {image.name} --engine {tool.name}")
    if (recipe := seen.labels.get(RECIPE)) not in (None, image.recipe):
        raise SifmarkError(f"{address} is an image of recipe {recipe}", REBUILD_REMEDY)
    return tool, address


def device_options(tool: Engine, address: str) -> list[str]:
    """What lets the image's run reach its device here, by its labels. Raises SifmarkError where they are not ours."""
    seen = tool.image_info(address)
    labels = seen.labels if seen else {}
    if DEVICES not in labels:
        return []
    flags = {"apptainer": RUN_FLAGS, "docker": DOCKER_FLAGS}
    given = {engine: tuple(labels.get(label, "").split()) for engine, label in flags.items()}
    access = Access(tuple(labels[DEVICES].split(",")), **given)
    if labels.get(RECIPE) in recipe_names():  # what is here says it better than an image that may be anybody's
        access = load_recipe(labels[RECIPE]).access or access
    if not access.harmless():
        raise SifmarkError(f"{address}: its labels ask for {access}", "is it an image that sifmark built?")
    if not access.here():
        status(f"  this host has no {' and no '.join(access.devices)}: {Path(address).name} will find no device")
    return tool.device_flags(access)


def require_signed(image: ImageInspection) -> None:
    """Raise Refuted unless a trusted key has signed all of an image."""
    status(f"  signed by {image.signer(settings().keys)}")
