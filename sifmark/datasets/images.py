"""Images in files that are read from the front, in an order mixed by a seed."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from sifmark.core.files import sha256_json
from sifmark.datasets.image_files import SourceImage, SourceImages, kind_of
from sifmark.datasets.shards import Sample, write_records, write_shard
from sifmark.datasets.source import DamagedError, OutputFile, SkipSample


class FileFormat(NamedTuple):
    """A kind of file: its suffix, and what writes samples and counts them."""

    suffix: str
    write: Callable[[BinaryIO, Iterable[Sample]], int]


FILE_FORMATS = {"shards": FileFormat("tar", write_shard), "records": FileFormat("tfrecord", write_records)}


class ImageSource:
    """Images packed as they are. They count by name, class and size."""

    noun = "images"

    def __init__(self, format: str, seed: int, samples_per_file: int, source: SourceImages) -> None:  # noqa: A002
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

    def chunks(self) -> Iterator[OutputFile]:
        """As `Order.chunks`."""
        keyed = list(zip(sample_keys(self.source.images), self.source.images, strict=True))
        random.Random(self.seed).shuffle(keyed)  # noqa: S311 - it mixes, and hides nothing
        for number, at in enumerate(range(0, len(keyed), self.samples_per_file)):
            images = keyed[at : at + self.samples_per_file]
            name = f"data-{number:06d}.{FILE_FORMATS[self.format].suffix}"
            yield OutputFile(name, len(images), partial(self.write, images))

    def write(self, images: Sequence[tuple[str, SourceImage]], stream: BinaryIO, skip: SkipSample) -> int:
        """Those that are whole."""
        return FILE_FORMATS[self.format].write(stream, undamaged(images, skip))


def undamaged(images: Iterable[tuple[str, SourceImage]], skip: SkipSample) -> Iterator[Sample]:
    """The images that are whole."""
    for key, image in images:
        try:
            content = image.read()
            kind = kind_of(content)
        except DamagedError as error:
            skip(image.name, str(error))
        else:
            yield Sample(key, kind, content, image.label)
            skip()


def sample_keys(images: Sequence[SourceImage]) -> Iterator[str]:
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
