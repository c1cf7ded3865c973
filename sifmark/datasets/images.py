"""Images in files that are read from the front, in an order shuffled by a seed."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from sifmark.core.files import sha256_json
from sifmark.datasets.image_files import SourceImage, SourceImages, kind_of
from sifmark.datasets.shards import Sample, write_records, write_shard
from sifmark.datasets.source import DamagedError, OutputFile, ReportItem


class FileFormat(NamedTuple):
    """A format of files: its suffix, and what writes samples and counts them."""

    suffix: str
    write: Callable[[BinaryIO, Iterable[Sample]], int]


FILE_FORMATS = {"shards": FileFormat("tar", write_shard), "records": FileFormat("tfrecord", write_records)}


class ImageSource:
    """Images, packed without decoding them. Their names, classes and sizes are in the plan."""

    noun = "images"

    def __init__(self, format: str, seed: int, samples_per_file: int, source: SourceImages) -> None:  # noqa: A002
        self.format, self.seed, self.samples_per_file, self.source = format, seed, samples_per_file, source
        self.total = len(source.images)

    @property
    def plan(self) -> str:
        """As `DatasetSource.plan`."""
        images = [[ascii(image.name), image.label, image.size] for image in self.source.images]
        classes = [ascii(name) for name in self.source.classes]
        return sha256_json([self.format, self.seed, self.samples_per_file, classes, images])

    def manifest_fields(self) -> dict[str, Any]:
        """As `DatasetSource.manifest_fields`."""
        return {
            "format": self.format,
            "seed": self.seed,
            "samples_per_file": self.samples_per_file,
            "classes": self.source.classes,
        }

    def sidecar_files(self) -> dict[str, Any]:
        """Return none."""
        return {}

    def output_files(self) -> Iterator[OutputFile]:
        """As `DatasetSource.output_files`."""
        keyed = list(zip(sample_keys(self.source.images), self.source.images, strict=True))
        random.Random(self.seed).shuffle(keyed)  # noqa: S311 - not for secrets
        for number, start in enumerate(range(0, len(keyed), self.samples_per_file)):
            images = keyed[start : start + self.samples_per_file]
            name = f"data-{number:06d}.{FILE_FORMATS[self.format].suffix}"
            yield OutputFile(name, len(images), partial(self.write, images))

    def write(self, images: Sequence[tuple[str, SourceImage]], stream: BinaryIO, report: ReportItem) -> int:
        """Write the undamaged ones of some images with their keys. Return their number."""
        return FILE_FORMATS[self.format].write(stream, undamaged(images, report))


def undamaged(images: Iterable[tuple[str, SourceImage]], report: ReportItem) -> Iterator[Sample]:
    """Yield the undamaged ones of some images with their keys as samples."""
    for key, image in images:
        try:
            content = image.read()
            kind = kind_of(content)
        except DamagedError as error:
            report(image.name, str(error))
        else:
            yield Sample(key, kind, content, image.label)
            report()


def sample_keys(images: Sequence[SourceImage]) -> Iterator[str]:
    """Yield a different key for each image: its name without suffix and without dots, at which readers would cut."""
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
