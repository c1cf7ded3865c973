"""The registry.mirror command."""

from collections.abc import Sequence

from sifmark.core.console import output
from sifmark.core.settings import Settings
from sifmark.publish.mirror import mirror_images
from sifmark.publish.stores import open_store


def mirror(target: str, patterns: Sequence[str], registry: str, tag: str, settings: Settings) -> None:
    """Copy the images of recipes from one store to another, and print their references. Raises SifmarkError."""
    origin = open_store(registry, tag, settings)
    for image in mirror_images(origin, open_store(target, tag, settings), patterns, settings):
        output(f"{image.reference}{'' if image.sent else ' was there already'}")
