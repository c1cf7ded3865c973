"""Copying published images from one store to another."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from sifmark.core.settings import Settings
from sifmark.engines.apptainer.sif import read_sif
from sifmark.publish.catalog import published_images
from sifmark.publish.sif import fetch_file, require_space, send_file
from sifmark.publish.stores import ImageStore, require_allowed
from sifmark.recipes.names import names_of


class MirroredImage(NamedTuple):
    """An image that the target store has now."""

    reference: str  # with the digest
    sent: bool  # False if it was there already


def mirror_images(
    origin: ImageStore, target: ImageStore, patterns: Sequence[str], settings: Settings
) -> Iterator[MirroredImage]:
    """Copy the images of recipes to another store, with all their names. Yield each when it is there.

    What the origin lacks is reported and left out. Each file is compared with its digest on the way. Raises
    SifmarkError.
    """
    images = published_images(origin, patterns)
    for recipe, image in images.items():
        require_allowed(target.host, recipe, image.annotations, settings)
    with TemporaryDirectory(prefix="sifmark-") as folder:
        for recipe, image in images.items():
            require_space(origin.reference(recipe), image.size, Path(folder))
            file = Path(folder) / f"{recipe}.sif"
            fetch_file(origin, recipe, image, file)
            # The labels decide, whatever was announced.
            require_allowed(target.host, recipe, read_sif(file).labels(), settings)
            sent = send_file(target, (recipe, *names_of(recipe)), image, file)
            file.unlink()
            yield MirroredImage(f"{target.reference(recipe)}@{image.digest}", sent)
