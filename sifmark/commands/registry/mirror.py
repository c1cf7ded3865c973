"""The registry.mirror command."""

from collections.abc import Sequence

from sifmark.commands.answers import TABLE, Table, answer
from sifmark.core.console import output
from sifmark.core.settings import Settings
from sifmark.publish.mirror import MirroredImage, mirror_images
from sifmark.publish.stores import open_store


def mirror(target: str, patterns: Sequence[str], registry: str, tag: str, settings: Settings, form: str) -> None:
    """Copy the images of recipes from one store to another, and print their references. Raises SifmarkError."""
    origin = open_store(registry, tag, settings)
    images = []
    for image in mirror_images(origin, open_store(target, tag, settings), patterns, settings):
        images.append(image)
        if form == TABLE:
            output(f"{image.reference}{'' if image.sent else ' was there already'}")
    if form != TABLE:
        rows = [(image.reference, image.sent) for image in images]
        answer(form, [image._asdict() for image in images], Table(MirroredImage._fields, rows))
