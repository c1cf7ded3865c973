"""A folder of images, one folder per class. Standard library only: the parent checks it before a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from entrypoints.statuses import UsageError

SUFFIXES = (".jpg", ".jpeg", ".png")


class Listing(NamedTuple):
    """Class names in sorted order, and per image its path below the folder and its class's index."""

    classes: tuple[str, ...]
    images: tuple[tuple[str, int], ...]


def list_images(folder: Path) -> Listing:
    """What `folder` holds as `<class>/<image>`; hidden files, broken links and other files are passed over.

    Raises UsageError where the folder is missing or unreadable or holds no such image.
    """
    if not folder.is_dir():
        raise UsageError(f"--data {folder}: no such folder. Give a folder with one folder of images per class")
    names = _entries(folder, directories=True)
    found = [(name, _images(folder / name)) for name in names]
    classes = tuple(name for name, files in found if files)
    if not classes:
        what = "folders without images" if names else "no class folders"
        wanted = f"<class>/<image> with {', '.join(SUFFIXES)}"
        raise UsageError(f"--data {folder}: it holds {what}. Arrange the images as {wanted}")
    kept = [(name, files) for name, files in found if files]
    images = tuple((f"{name}/{file}", label) for label, (name, files) in enumerate(kept) for file in files)
    return Listing(classes, images)


def _images(folder: Path) -> list[str]:
    return [name for name in _entries(folder, directories=False) if name.lower().endswith(SUFFIXES)]


def _entries(folder: Path, directories: bool) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".")
                # Through links: subsets of large data sets are often made of them.
                and (entry.is_dir if directories else entry.is_file)()
            )
    except OSError as error:
        raise UsageError(f"--data {folder}: {error.strerror}. Make it readable for this user") from None
