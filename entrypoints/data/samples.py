"""Samples of a folder of images, in the order and the cuts that a seed gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Tuple

import numpy as np

from entrypoints.data import images
from entrypoints.data.folder import Listing

Place = Tuple[int, int]  # epoch, index of the image


class Sample(NamedTuple):
    """One image's pixels (None where no image at all was readable), its label, and the files passed over."""

    pixels: np.ndarray | None
    label: int
    skipped: tuple[str, ...]


class ImageFiles:
    """The images of a folder, cut for a task. A sample depends on seed, epoch and index alone."""

    def __init__(self, folder: Path, listing: Listing, rule: Mapping[str, Any], task: str, seed: int) -> None:
        self.folder, self.listing, self.rule, self.task, self.seed = folder, listing, rule, task, seed
        self.unreadable: set[int] = set()  # known to this worker: not tried twice

    def __getitem__(self, place: Place) -> Sample:
        """The image at `place`, or the next readable one after it, so that batches stay whole."""
        epoch, index = place
        count = len(self.listing.images)
        skipped: list[str] = []
        for candidate in ((index + offset) % count for offset in range(count)):
            name, label = self.listing.images[candidate]
            if candidate not in self.unreadable:
                try:
                    image = images.decode(self.folder / name)
                except MemoryError:
                    raise
                except Exception:  # a damaged file makes Pillow raise nearly anything
                    self.unreadable.add(candidate)
                else:
                    random = np.random.default_rng([self.seed, epoch, candidate])
                    pixels = images.pixels(image, self.rule, self.task, random)
                    return Sample(pixels, label, tuple(skipped))
            skipped.append(name)
        return Sample(None, 0, tuple(skipped))


class Order:
    """Endless batches of places: every epoch shuffled anew for training; a partial last batch is dropped."""

    def __init__(self, count: int, batch_size: int, shuffle: bool, seed: int) -> None:
        self.count, self.batch_size, self.shuffle, self.seed = count, batch_size, shuffle, seed

    def __iter__(self) -> Iterator[list[Place]]:
        """Yield lists of `batch_size` places, for ever."""
        epoch = 0
        while True:
            indices = np.arange(self.count)
            if self.shuffle:
                indices = np.random.default_rng([self.seed, epoch]).permutation(self.count)
            for start in range(0, self.count - self.batch_size + 1, self.batch_size):
                yield [(epoch, int(index)) for index in indices[start : start + self.batch_size]]
            epoch += 1
