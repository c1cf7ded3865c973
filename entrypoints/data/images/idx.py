"""Images and labels in idx files, the format of MNIST (https://yann.lecun.com/exdb/mnist), plain or compressed."""

from __future__ import annotations

import functools
import gzip
import re
import struct
import zlib
from pathlib import Path
from typing import Iterator, Sequence

from entrypoints.contract.statuses import UsageError
from entrypoints.data.manifest import Manifest
from entrypoints.data.source import Entry, Source, listed

IMAGES = re.compile(r"(?P<set>.*)images(?P<mark>[-.])idx3-ubyte(?P<packed>\.gz)?")
PACKED = ".gz"
MAGIC = {"images": 0x00000803, "labels": 0x00000801}  # unsigned bytes, in three dimensions and in one
HEADERS = {"images": struct.Struct(">4I"), "labels": struct.Struct(">2I")}  # magic number and dimensions
# The set for each task, by the last word before `images`.
SETS = {"training": ("train",), "inference": ("t10k", "test")}
CHUNK = 1 << 20  # bytes
LARGEST = 1 << 30  # bytes of all images, which are held at once, and may be compressed a thousandfold


class Idx(Source):
    """Grey images of one size. Each is returned as a PGM file: a header and its pixels."""

    def __init__(self, path: Path, images: Path, labels: Path) -> None:
        count, self.height, self.width = _extents(images, "images")
        (labelled,) = _extents(labels, "labels")
        if labelled != count:
            raise UsageError(
                f"--data {path}: {images.name} says that it has {count} images, and {labels.name} {labelled} labels",
                "give files that belong together",
                code="data-missing",
            )
        if count * self.pixels > LARGEST:
            raise UsageError(
                f"--data {path}: {images.name} says that it has {count * self.pixels} bytes, and at most {LARGEST} are "
                "read",
                "give the images as files in class folders",
                code="data-damaged",
            )
        self.images, self.content, self.end = images, b"", HEADERS["images"].size + count * self.pixels
        self.labels = _read(labels, HEADERS["labels"].size + count)[HEADERS["labels"].size :]
        complete = {
            images.name: (_size(images, self.end) - HEADERS["images"].size) // self.pixels,
            labels.name: len(self.labels),
        }
        samples = min(complete.values())
        if not samples:
            raise UsageError(
                f"--data {path}: {images.name} and {labels.name} contain no complete sample",
                "download them again",
                code="data-damaged",
            )
        lost = [f"{name} (cut short: {has} of {count} are there)" for name, has in complete.items() if has < count]
        super().__init__(path, samples, len(set(self.labels[:samples])), lost)
        self.part = images.name

    @property
    def pixels(self) -> int:
        """Pixels of an image, one byte each."""
        return self.height * self.width

    def share(self) -> None:
        """Read all images."""
        self.content = self.content or _read(self.images, self.end)

    def entry(self, number: int) -> Entry:
        """Return the image of this number."""
        name = f"{self.images.name}/{number}"
        return Entry(name, number, self.labels[number], functools.partial(self.portable, number))

    def portable(self, number: int) -> bytes:
        """Return an image as a PGM file."""
        begins = HEADERS["images"].size + number * self.pixels
        return b"P5 %d %d 255\n" % (self.width, self.height) + self.content[begins : begins + self.pixels]


def find(path: Path) -> list[Path]:
    """Return the image files at a path."""
    files = [path / name for name in listed(path)] if path.is_dir() else [path]
    return [file for file in files if IMAGES.fullmatch(file.name)]


def open_source(path: Path, files: Sequence[Path], task: str, _: Manifest | None) -> Idx:
    """Return the images and labels at a path that are for the task.

    Raises UsageError if it is unclear which ones, if the labels are missing, and if a header is wrong.
    """
    images = _for_task(path, files, task)
    return Idx(path, images, _labels(images))


def _for_task(path: Path, files: Sequence[Path], task: str) -> Path:
    """Return the image file for a task; the plain one if a set is there both plain and compressed."""
    sets = {_set(file): file for file in sorted(files, reverse=True)}
    fit = {name: file for name, file in sets.items() if re.split(r"[^a-z0-9]+", name)[-1] in SETS[task]}
    chosen = list((fit or sets).values())
    if len(chosen) > 1:
        names = ", ".join(sorted(file.name for file in chosen))
        raise UsageError(
            f"--data {path}: which of its sets for {task}?", f"name one of the files: {names}", code="data-missing"
        )
    return chosen[0]


def _set(file: Path) -> str:
    matched = IMAGES.fullmatch(file.name)
    return matched["set"].strip("-._").lower() if matched else ""


def _labels(images: Path) -> Path:
    """Return the label file beside an image file, compressed or not."""
    plain = IMAGES.sub(r"\g<set>labels\g<mark>idx1-ubyte", images.name)
    for name in (plain, f"{plain}.gz"):
        if (images.parent / name).is_file():
            return images.parent / name
    raise UsageError(
        f"--data {images}: its labels are missing", f"put {plain} beside it, or {plain}.gz", code="data-missing"
    )


def _extents(file: Path, kind: str) -> list[int]:
    """Return the dimensions in the header of an idx file of images or labels. Raises UsageError if it is not one."""
    header = HEADERS[kind]
    begun = _read(file, header.size)
    if len(begun) < header.size:
        raise UsageError(
            f"--data {file}: it ends within its header, after {len(begun)} bytes",
            "download it again",
            code="data-damaged",
        )
    magic, *extents = header.unpack(begun)
    if magic != MAGIC[kind]:
        raise UsageError(
            f"--data {file}: its magic number is {magic}, and that of idx {kind} is {MAGIC[kind]}",
            "give another file",
            code="data-damaged",
        )
    if not all(extents):
        raise UsageError(
            f"--data {file}: its header says {' x '.join(map(str, extents))}",
            "give a file with samples",
            code="data-damaged",
        )
    return extents


def _size(file: Path, most: int) -> int:
    """Return the size of a file in bytes, uncompressed, up to `most`."""
    return sum(map(len, _chunks(file, most))) if file.suffix == PACKED else min(file.stat().st_size, most)


def _read(file: Path, most: int) -> bytes:
    """Return the first `most` bytes of a file, uncompressed. Of a damaged file, return what precedes the damage."""
    return b"".join(_chunks(file, most))


def _chunks(file: Path, most: int) -> Iterator[bytes]:
    """Yield the first `most` bytes of a file, uncompressed, in pieces, up to its end or first damage."""
    try:
        with gzip.open(file) if file.suffix == PACKED else file.open("rb") as stream:
            while most and (piece := stream.read1(min(CHUNK, most))):
                yield piece
                most -= len(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile):  # cut short or damaged
        return
    except OSError as error:
        raise UsageError(
            f"--data {file}: {error.strerror}", "make it readable for this user", code="file-unreadable"
        ) from None
