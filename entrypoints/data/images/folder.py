"""A folder of images, one folder per class."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from entrypoints.contract.statuses import UsageError
from entrypoints.data.source import Entry, Source, listed, read_whole
from entrypoints.system.image import binding_hint

SUFFIXES = (".jpg", ".jpeg", ".png")


class Listing(NamedTuple):
    """Class names in sorted order, and for each image its path below the folder and the index of its class."""

    classes: tuple[str, ...]
    images: tuple[tuple[str, int], ...]


class Folder(Source):
    """Image files, each read when its turn comes."""

    def __init__(self, path: Path) -> None:
        self.listing = list_images(path)
        super().__init__(path, len(self.listing.images), len(self.listing.classes))
        self.names = self.listing.classes

    def entry(self, number: int) -> Entry:
        """Return the file of this number."""
        name, label = self.listing.images[number]
        return Entry(name, number, label, functools.partial(read_whole, self.path / name))


def list_images(folder: Path) -> Listing:
    """Return the images of `folder`, as `<class>/<image>`. Hidden files, broken links and other files are ignored.

    Raises UsageError if the folder is missing or unreadable, or holds no such image.
    """
    if not folder.is_dir():
        raise UsageError(
            f"--data {folder}: no such folder",
            f"give a folder with one folder of images per class{binding_hint(folder)}",
            code="file-missing",
        )
    names = listed(folder, directories=True)
    folders = [(name, _images(folder / name)) for name in names]
    classes = tuple(name for name, files in folders if files)
    if not classes:
        what = "folders without images" if names else "no class folders"
        wanted = f"<class>/<image> with {', '.join(SUFFIXES)}"
        raise UsageError(f"--data {folder}: it holds {what}", f"arrange the images as {wanted}", code="data-missing")
    kept = [(name, files) for name, files in folders if files]
    images = tuple((f"{name}/{file}", label) for label, (name, files) in enumerate(kept) for file in files)
    return Listing(classes, images)


def _images(folder: Path) -> list[str]:
    return [name for name in listed(folder) if name.lower().endswith(SUFFIXES)]
