"""The image.to-sif command: convert a Docker image that was built here to a SIF."""

from sifmark.build.conversion import convert_to_sif
from sifmark.commands.answers import answer_record
from sifmark.core.console import status
from sifmark.core.files import human_size
from sifmark.core.settings import Settings
from sifmark.recipes.names import find_recipe


def to_sif(name: str, settings: Settings, form: str, force: bool = False) -> None:
    """Convert a recipe's Docker image unless its SIF is up to date. Raises SifmarkError."""
    recipe = find_recipe(name)
    conversion = convert_to_sif(recipe, settings, force)
    image = conversion.image
    if image:
        text = f"converted from {conversion.source}, {human_size(image.size)}, {image.identity}"
    else:
        text = "up to date, nothing to convert; --force does it all the same"
    facts = {"size": image.size, "identity": image.identity} if image else {"size": None, "identity": None}
    document = {"recipe": recipe, "source": conversion.source, "converted": image is not None, **facts}
    answer_record(form, document, lambda: status(f"{recipe}.sif: {text}"))
