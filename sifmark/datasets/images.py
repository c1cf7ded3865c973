"""Images in files that are read from the front, in an order shuffled by a seed."""

import io
import random
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from sifmark.core.files import sha256_json
from sifmark.datasets.image_files import SourceImage, SourceImages, kind_of
from sifmark.datasets.source import DamagedError, OutputFile, ReportItem


class Sample(NamedTuple):
    """A sample of a file: its key, `jpg` or `png`, the image's bytes and the class's index."""

    key: str
    kind: str
    content: bytes
    label: int


def write_shard(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write a tar with `KEY.jpg` or `KEY.png` and `KEY.cls` per sample. Return the number of samples."""
    count = 0
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for sample in samples:
            for extension, content in ((sample.kind, sample.content), ("cls", b"%d" % sample.label)):
                member = tarfile.TarInfo(f"{sample.key}.{extension}")  # no owner, and the date 0
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            count += 1
    return count


def write_records(stream: BinaryIO, samples: Iterable[Sample]) -> int:
    """Write TFRecords with the features `image/encoded` and `image/class/label`. Return their number."""
    count = 0
    for sample in samples:
        stream.write(record(example(sample.content, sample.label)))
        count += 1
    return count


def example(content: bytes, label: int) -> bytes:
    """Return a serialised tf.train.Example (tensorflow/core/example/example.proto and feature.proto)."""
    encoded = _field(1, _field(1, content))  # Feature.bytes_list, its value
    labelled = _field(3, _field(1, _varint(label)))  # Feature.int64_list, its packed value
    features = {"image/class/label": labelled, "image/encoded": encoded}
    entries = [_field(1, _field(1, name.encode()) + _field(2, feature)) for name, feature in features.items()]
    return _field(1, b"".join(entries))  # Example.features


def record(content: bytes) -> bytes:
    """Return a TFRecord: length and content, each with its masked CRC-32C (tensorflow/core/lib/io/record_writer.h)."""
    length = struct.pack("<Q", len(content))
    return length + _masked_crc(length) + content + _masked_crc(content)


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
    taken: dict[str, int] = {}  # with the last number after each
    for image in images:
        folder, _, file = image.name.rpartition("/")
        key = stem = f"{folder}/{file.rpartition('.')[0].replace('.', '_')}"
        while key in taken:
            taken[stem] += 1
            key = f"{stem}_{taken[stem]}"
        taken[key] = 1
        yield key


def _masked_crc(content: bytes) -> bytes:
    from crc32c import crc32c  # of the extra `data`, which shards do not need

    checksum = crc32c(content)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _field(number: int, content: bytes) -> bytes:
    """Return a field of protobuf's wire type 2: tag, length, content."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Return a number by seven bits a byte, the lowest first, with the eighth bit set if more follow."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
