"""Images in files that are read from the front, in an order mixed by a seed."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from sifmark.core.files import sha256_json
from sifmark.datasets.image_files import Original, Originals, kind_of
from sifmark.datasets.shards import Packed, write_records, write_shard
from sifmark.datasets.source import Chunk, DamagedError, Skip


class Form(NamedTuple):
    """A kind of file: its suffix, and what writes samples and counts them."""

    suffix: str
    write: Callable[[BinaryIO, Iterable[Packed]], int]


FORMS = {"shards": Form("tar", write_shard), "records": Form("tfrecord", write_records)}


class ImageOrder:
    """Images packed as they are. They count by name, class and size."""

    noun = "images"

    def __init__(self, format: str, seed: int, samples_per_file: int, source: Originals) -> None:  # noqa: A002
        self.format, self.seed, self.samples_per_file, self.source = format, seed, samples_per_file, source
        self.total = len(source.images)

    @property
    def plan(self) -> str:
        """As `Order.plan`."""
        images = [[ascii(image.name), image.label, image.size] for image in self.source.images]
        classes = [ascii(name) for name in self.source.classes]
        return sha256_json([self.format, self.seed, self.samples_per_file, classes, images])

    def described(self) -> dict[str, Any]:
        """As `Order.described`."""
        return {
            "format": self.format,
            "seed": self.seed,
            "samples_per_file": self.samples_per_file,
            "classes": self.source.classes,
        }

    def beside(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def chunks(self) -> Iterator[Chunk]:
        """As `Order.chunks`."""
        keyed = list(zip(keys(self.source.images), self.source.images, strict=True))
        random.Random(self.seed).shuffle(keyed)  # noqa: S311 - it mixes, and hides nothing
        for number, at in enumerate(range(0, len(keyed), self.samples_per_file)):
            images = keyed[at : at + self.samples_per_file]
            name = f"data-{number:06d}.{FORMS[self.format].suffix}"
            yield Chunk(name, len(images), partial(self.write, images))

    def write(self, images: Sequence[tuple[str, Original]], stream: BinaryIO, skip: Skip) -> int:
        """Those that are whole."""
        return FORMS[self.format].write(stream, whole(images, skip))


def whole(images: Iterable[tuple[str, Original]], skip: Skip) -> Iterator[Packed]:
    """The images that are whole."""
    for key, image in images:
        try:
            content = image.read()
            kind = kind_of(content)
        except DamagedError as error:
            skip(image.name, str(error))
        else:
            yield Packed(key, kind, content, image.label)
            skip()


def keys(images: Sequence[Original]) -> Iterator[str]:
    """A key for each image: its name without suffix and without dots, at which readers would cut; none twice."""
    taken: set[str] = set()
    for image in images:
        folder, _, file = image.name.rpartition("/")
        stem = f"{folder}/{file.rpartition('.')[0].replace('.', '_')}"
        key, number = stem, 1
        while key in taken:
            number += 1
            key = f"{stem}_{number}"
        taken.add(key)
        yield key
