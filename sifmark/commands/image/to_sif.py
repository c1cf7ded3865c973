"""The image.to-sif command: convert a Docker image that was built here to a SIF."""

from sifmark.build.conversion import convert_to_sif
from sifmark.core.console import status
from sifmark.core.files import human_size
from sifmark.core.settings import Settings
from sifmark.recipes.names import find_recipe


def to_sif(name: str, settings: Settings, force: bool = False) -> None:
    """Convert a recipe's Docker image unless its SIF is up to date. Raises SifmarkError."""
    recipe = find_recipe(name)
    conversion = convert_to_sif(recipe, settings, force)
    if image := conversion.image:
        size = human_size(image.size)
        status(f"{recipe}.sif: converted from {conversion.source}, {size}, {image.identity}")
    else:
        status(f"{recipe}.sif is up to date: nothing to convert; --force does it all the same")
