"""SIF files without an engine: read their descriptors, labels, identity and file system, and write whole ones.

Layout from the SIF 1.0 format as Apptainer writes it (github.com/apptainer/sif, pkg/sif/sif.go): a header of 128 bytes,
then descriptors of 585 bytes, integers little-endian.
"""

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sifmark.core.errors import SifmarkError
from sifmark.core.files import sha256_bytes, sha256_file

DEFINITION, PARTITION, SIGNATURE, METADATA, SBOM = 0x4001, 0x4004, 0x4005, 0x4006, 0x4009  # data types
CYCLONEDX_JSON, SPDX_JSON = (struct.pack("<i", number) for number in (1, 4))  # forms of an SBOM
SYSTEM = 2  # partition type: the primary system partition
INSPECT_NAME = "inspect-metadata.json"  # where `apptainer inspect` reads labels, apps and help

# Launch script, magic, version and architecture; UUID; made and changed, in seconds; free, total and place of the
# descriptors, their size; place and size of the data, in bytes.
_HEADER = struct.Struct("<32s10s3s3s16s8q")
# Kind, in use, number, group, link; place, size, size with padding; made and changed, in seconds; owner and group; name
# and what is special to its kind.
_DESCRIPTOR = struct.Struct("<i?III7q128s384s")
_MAGIC = b"SIF_MAGIC\0"
_LAUNCH = b"#!/usr/bin/env run-singularity\n"
_ARCHITECTURES = {"x86_64": b"02", "aarch64": b"04"}
_SQUASHFS = 1  # of file systems
_GROUP = 0xF0000000  # added to a group's number
_TABLE_START, _TABLE_ROWS = 4096, 48
DATA_START = 32768  # bytes: the first page after the table
_MOST_DESCRIPTORS = 4096
_MOST_METADATA = 64 * 1024 * 1024  # bytes


class SifError(SifmarkError):
    """The file is not a SIF, or not a whole one."""


@dataclass(frozen=True)
class Descriptor:
    """One object in the file: `offset` and `size` in bytes; `partition` is the partition type or 0."""

    id: int
    kind: int
    offset: int
    size: int
    name: str
    partition: int


@dataclass(frozen=True)
class SifObject:
    """A small object beside the file system, to be written."""

    kind: int
    content: bytes
    name: str = ""
    extra: bytes = b""


@dataclass(frozen=True)
class Sif:
    """A SIF file's table of contents."""

    path: Path
    descriptors: tuple[Descriptor, ...]

    @property
    def system(self) -> Descriptor:
        """The partition that becomes the container's root. Raises SifError where it is not alone."""
        partitions = sum(entry.kind == PARTITION for entry in self.descriptors)
        if partitions > 1:
            told = f"{self.path} has {partitions} partitions: an overlay changes what runs"
            raise SifError(told, "do not run it; build or fetch it again")
        return self._only(lambda entry: entry.kind == PARTITION and entry.partition == SYSTEM, "system partition")

    @property
    def metadata(self) -> Descriptor:
        """The object that `apptainer inspect` answers from."""
        return self._only(lambda entry: entry.kind == METADATA and entry.name == INSPECT_NAME, "inspect metadata")

    def named(self, name: str) -> Descriptor | None:
        """The object of a name; None where there is none or more than one."""
        found = [entry for entry in self.descriptors if entry.name == name]
        return found[0] if len(found) == 1 else None

    def _only(self, wanted: Any, what: str) -> Descriptor:
        found = [entry for entry in self.descriptors if wanted(entry)]
        if len(found) != 1:
            raise SifError(f"{self.path} has {len(found)} objects that could be its {what}", "build the image again")
        return found[0]

    def read(self, entry: Descriptor) -> bytes:
        """A small object's bytes. Raises SifError for one that no metadata would need."""
        if entry.size > _MOST_METADATA:
            raise SifError(f"{self.path}: object {entry.id} is too large to be metadata", "build the image again")
        with self.path.open("rb") as stream:
            stream.seek(entry.offset)
            return stream.read(entry.size)

    def copy(self, entry: Descriptor, target: Path, skip: int = 0) -> None:
        """Write an object's bytes to a file, after so many that are left free."""
        with target.open("wb") as sink:
            sink.seek(skip)
            for block in self._blocks(entry):
                sink.write(block)

    def attributes(self) -> dict[str, Any]:
        """The inspect metadata's attributes: labels, apps, runscript, deffile and so on."""
        try:
            document = json.loads(self.read(self.metadata))
            return dict(document["data"]["attributes"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SifError(f"{self.path}: its inspect metadata does not read ({error})", "build it again") from error

    def labels(self) -> dict[str, str]:
        """The image's labels. Raises SifError where they are no names with texts."""
        labels = self.attributes().get("labels") or {}
        if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
            raise SifError(f"{self.path}: its labels are no names with texts", "build it again")
        return labels

    def identity(self) -> str:
        """`sha256:<hex>` over system partition and inspect metadata: unchanged by signing and by file dates."""
        return sha256_bytes(self.digest(self.system) + self.digest(self.metadata))

    def digest(self, entry: Descriptor) -> bytes:
        """SHA-256 of an object."""
        digest = hashlib.sha256()
        for block in self._blocks(entry):
            digest.update(block)
        return digest.digest()

    def _blocks(self, entry: Descriptor, size: int = 1 << 20) -> Iterator[memoryview]:
        """The bytes of an object, each block gone when the next is asked for."""
        block = memoryview(bytearray(size))
        with self.path.open("rb") as stream:
            stream.seek(entry.offset)
            left = entry.size
            while left > 0:
                count = stream.readinto(block[: min(size, left)])
                if not count:
                    raise SifError(f"{self.path} ends in the middle of object {entry.id}", "build or fetch it again")
                left -= count
                yield block[:count]


def read_sif(path: Path) -> Sif:
    """The table of contents of a SIF file. Raises SifError when it is not one, or is cut short."""
    try:
        with path.open("rb") as stream:
            size = path.stat().st_size
            return Sif(path, tuple(_descriptors(path, stream, size)))
    except OSError as error:
        raise SifError(f"{path}: {error.strerror}", "name an image that exists: `inv list`") from error


def sha256_from(path: Path, start: int) -> str:
    """SHA-256 of a file's bytes from a place on, hexadecimal."""
    with path.open("rb") as stream:
        stream.seek(start)
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class Fingerprints:
    """Hashes of a SIF file: `identity` and `digest` as `sha256:<hex>`, and in hexadecimal what identity is over."""

    identity: str
    digest: str
    system: str
    metadata: str


def fingerprints(path: Path) -> Fingerprints:
    """All hashes of a SIF file, side by side. Raises SifError where it is none."""
    with ThreadPoolExecutor(1) as beside_us:
        digest = beside_us.submit(sha256_file, path)
        sif = read_sif(path)
        system, metadata = sif.digest(sif.system), sif.digest(sif.metadata)
        identity = sha256_bytes(system + metadata)
        return Fingerprints(identity, digest.result(), system.hex(), metadata.hex())


def write_sif(path: Path, architecture: str, parts: Iterable[SifObject], seconds: int, unique: bytes) -> None:
    """Make a SIF of a file that holds a squashfs from DATA_START on: other objects follow it, the table comes before.

    `architecture` is a platform's name, `seconds` the date of all, `unique` 16 bytes that tell this SIF from others.
    Nothing else gets in, so that the same parts give the same bytes.
    """
    with path.open("r+b") as stream:
        end = stream.seek(0, os.SEEK_END)
        system = struct.pack("<ii3s", _SQUASHFS, SYSTEM, _ARCHITECTURES[architecture])
        rows = [_row(1, PARTITION, DATA_START, end - DATA_START, seconds, extra=system)]
        for number, part in enumerate(parts, start=2):
            rows.append(_row(number, part.kind, stream.tell(), len(part.content), seconds, part.name, part.extra))
            stream.write(part.content)
        size = stream.tell() - DATA_START
        stream.seek(0)
        free = _TABLE_ROWS - len(rows)
        places = (seconds, seconds, free, _TABLE_ROWS, _TABLE_START, _TABLE_ROWS * _DESCRIPTOR.size, DATA_START, size)
        stream.write(_HEADER.pack(_LAUNCH, _MAGIC, b"01", _ARCHITECTURES[architecture], unique, *places))
        stream.seek(_TABLE_START)
        stream.write(b"".join(rows).ljust(_TABLE_ROWS * _DESCRIPTOR.size, b"\0"))


def _row(number: int, kind: int, start: int, size: int, seconds: int, name: str = "", extra: bytes = b"") -> bytes:
    """A descriptor, of root's group 1, which a signature covers as a whole."""
    place = (start, size, size, seconds, seconds, 0, 0)
    return _DESCRIPTOR.pack(kind, True, number, _GROUP | 1, 0, *place, name.encode(), extra)


def _descriptors(path: Path, stream: BinaryIO, size: int) -> Iterator[Descriptor]:
    raw = stream.read(_HEADER.size)
    if len(raw) < _HEADER.size or raw[32:42] != _MAGIC:
        raise SifError(f"{path} is not a SIF file", "name an image that sifmark or Apptainer built")
    *_, _free, total, offset, _size, _data, _data_size = _HEADER.unpack(raw)
    if not 0 < total <= _MOST_DESCRIPTORS:
        raise SifError(f"{path}: its header counts {total} objects", "the file is damaged: build or fetch it again")
    stream.seek(offset)
    table = stream.read(total * _DESCRIPTOR.size)
    if len(table) < total * _DESCRIPTOR.size:
        raise SifError(f"{path} ends within its table of contents", "build or fetch it again")
    for fields in _DESCRIPTOR.iter_unpack(table):
        (
            kind,
            used,
            number,
            _group,
            _link,
            start,
            length,
            _padded,
            _made,
            _changed,
            _uid,
            _gid,
            name,
            extra,
        ) = fields
        if not used:
            continue
        if start < 0 or length < 0 or start + length > size:
            raise SifError(f"{path}: object {number} reaches beyond the file's end", "build or fetch it again")
        partition = struct.unpack_from("<i", extra, 4)[0] if kind == PARTITION else 0
        yield Descriptor(number, kind, start, length, name.split(b"\0", 1)[0].decode(errors="replace"), partition)
