"""Tar shards in the format of WebDataset: the files of a sample are adjacent and share a name up to its first dot.

https://github.com/webdataset/webdataset: `KEY.jpg` (or jpeg, png) is the image, `KEY.cls` the class's index in digits.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import tarfile
from pathlib import Path
from typing import BinaryIO, Iterator, NamedTuple, Sequence

from entrypoints.contract.statuses import UsageError
from entrypoints.data.manifest import Manifest
from entrypoints.data.source import LARGEST, DataFile, Entry, Source, with_suffix

IMAGES = ("jpg", "jpeg", "png")
LABEL = "cls"
LONGEST_LABEL = 16  # bytes
BUFFER = 1 << 18  # bytes read at once
LONGEST_HEADER = 1 << 11  # bytes of a long name or of attributes, as which tarfile reads whatever a header says
PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)


class DamagedShardError(Exception):
    """A shard cannot be read further; the text says from where."""


class _Headers:
    """A shard for tarfile, which reads only headers."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.seek, self.tell = stream, stream.seek, stream.tell

    def read(self, size: int) -> bytes:
        """Return the next bytes. Raises ValueError for more than a header has."""
        if not 0 <= size <= LONGEST_HEADER:
            raise ValueError(f"a header of {size} bytes")
        return self._stream.read(size)


class ShardFile(NamedTuple):
    """A file in a shard: its name, and where its bytes are."""

    name: str
    offset: int
    size: int


class ShardSample(NamedTuple):
    """A complete sample in a shard."""

    image: ShardFile
    label: ShardFile


class Shards(Source):
    """Shards, each read from its start; an epoch is an order of shards."""

    sequential = True

    def __init__(self, path: Path, files: Sequence[DataFile], classes: int, lost: Sequence[str] = ()) -> None:
        super().__init__(path, sum(file.samples for file in files), classes, lost)
        self.files = files
        self.firsts = [0, *itertools.accumulate(file.samples for file in files)]

    @property
    def units(self) -> int:
        """Number of shards."""
        return len(self.files)

    def entries(self, order: Sequence[int], start: int) -> Iterator[Entry]:
        """Yield entries as `Source.entries` does. The bytes of each are read before the next one is found."""
        units, at = [int(unit) for unit in order], 0
        while start >= self.files[units[at]].samples:
            start -= self.files[units[at]].samples
            at += 1
        first, *others = units[at:] + units[:at]
        yield from self.stretch(first, start, self.files[first].samples)
        for unit in others:
            yield from self.stretch(unit, 0, self.files[unit].samples)
        yield from self.stretch(first, 0, start)

    def stretch(self, unit: int, start: int, stop: int) -> Iterator[Entry]:
        """Yield samples `start` to `stop` of a shard. A sample that cannot be read any more has no label."""
        name, numbers = self.files[unit].name, iter(range(self.firsts[unit] + start, self.firsts[unit] + stop))
        reason = "it holds less than was counted"
        try:
            with _opened(self.path, name) as stream:
                for member in itertools.islice(members(stream, []), start, stop):
                    image, label = _content(stream, member.image, LARGEST), _label(stream, member)
                    entry_name = f"{name}/{(member.label if label is None else member.image).name}"
                    yield Entry(entry_name, next(numbers), label, functools.partial(bytes, image))
        except DamagedShardError as error:
            reason = str(error)
        except OSError as error:
            reason = str(error.strerror)
        for number in numbers:
            yield Entry(f"{name} ({reason})", number, None, bytes)


def find(path: Path) -> list[Path]:
    """Return the shards at a path."""
    return with_suffix(path, ".tar")


def open_source(path: Path, files: Sequence[Path], _: str, manifest: Manifest | None) -> Shards:
    """Return the shards at a path, counted by the manifest, otherwise by their headers, which takes a while."""
    if manifest:
        return Shards(path, manifest.files, len(manifest.classes))
    labels: set[int] = set()
    lost: list[str] = []
    counted = [DataFile(file.name, count(file, labels, lost)) for file in files]
    whole = [file for file in counted if file.samples]
    if not whole:
        raise UsageError(
            f"--data {path}: its shards hold no sample{f' ({lost[0]})' if lost else ''}",
            f"each is an image KEY.{IMAGES[0]} or the like and its class, KEY.{LABEL}",
            code="data-missing",
        )
    return Shards(path, whole, len(labels), lost)


def count(file: Path, labels: set[int], lost: list[str]) -> int:
    """Return the number of samples in a shard; add their labels to `labels` and what is incomplete to `lost`."""
    damaged: list[str] = []
    samples = 0
    try:
        with file.open("rb", buffering=BUFFER) as stream:
            for member in members(stream, damaged):
                samples += 1
                label = _label(stream, member)
                labels.update([] if label is None else [label])
    except DamagedShardError as error:
        lost.append(f"{file.name} ({error})")
    except OSError as error:
        raise UsageError(
            f"--data {file}: {error.strerror}", "make it readable for this user", code="file-unreadable"
        ) from None
    lost.extend(f"{file.name}/{name}" for name in damaged)
    return samples


def members(stream: BinaryIO, lost: list[str]) -> Iterator[ShardSample]:
    """Yield the complete samples of a shard in order, and add the names of files without their counterpart to `lost`.

    Raises DamagedShardError, after the last complete sample, if the shard is cut short or damaged.
    """
    key, damage = "", None
    parts: dict[str, ShardFile] = {}
    try:
        for header in headers(stream):
            begun, kind = split(header.name)
            if begun != key:
                yield from _whole(parts, lost)
                key, parts = begun, {}
            parts[kind.lower()] = header
    except DamagedShardError as error:
        damage = error
    yield from _whole(parts, [] if damage else lost)
    if damage:
        raise damage


def _whole(parts: dict[str, ShardFile], lost: list[str]) -> Iterator[ShardSample]:
    """Yield the sample that these files form, if they are complete; add a lone image or label to `lost`."""
    image = next((parts[kind] for kind in IMAGES if kind in parts), None)
    label = parts.get(LABEL)
    if image and label:
        yield ShardSample(image, label)
    else:
        lost.extend(part.name for part in (image, label) if part)


def headers(stream: BinaryIO) -> Iterator[ShardFile]:
    """Yield the plain files of a shard in order. Raises DamagedShardError where the shard is cut short or damaged."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    reached, after = -1, 0
    try:
        archive = tarfile.TarFile(fileobj=_Headers(stream))  # type: ignore[arg-type]
        for member in iter(archive.next, None) if archive.firstmember else ():  # type: ignore[attr-defined]
            if not reached < member.offset <= member.offset_data <= member.offset_data + member.size <= size:
                break
            reached = member.offset
            archive.members = []  # type: ignore[attr-defined]  # else it would keep them all
            if member.type in PLAIN:
                yield ShardFile(member.name, member.offset_data, member.size)
        after = archive.offset
        stream.seek(after)
        whole = stream.read(tarfile.BLOCKSIZE) == tarfile.NUL * tarfile.BLOCKSIZE
    except MemoryError:
        raise
    except Exception:  # a damaged header makes tarfile raise nearly anything
        whole = False
    if not whole:
        raise DamagedShardError(f"cut short or damaged after byte {max(reached, 0)}: the rest is lost")


def split(name: str) -> tuple[str, str]:
    """Return key and extension: the last part of the path, split at its first dot."""
    folder, slash, last = name.rpartition("/")
    key, _, extension = last.partition(".")
    return f"{folder}{slash}{key}", extension


def as_label(content: bytes) -> int | None:
    """Return the index of a class, or None if the content is not one."""
    text = content[:LONGEST_LABEL].strip()
    return int(text) if re.fullmatch(rb"[0-9]{1,9}", text) else None


def _opened(path: Path, name: str) -> BinaryIO:
    return (path / name if path.is_dir() else path).open("rb", buffering=BUFFER)


def _label(stream: BinaryIO, sample: ShardSample) -> int | None:
    return as_label(_content(stream, sample.label, LONGEST_LABEL))


def _content(stream: BinaryIO, header: ShardFile, most: int) -> bytes:
    """Return the bytes of a file in a shard, of one that has more than `most` as many; such an image is damaged."""
    stream.seek(header.offset)
    return stream.read(min(header.size, most))
