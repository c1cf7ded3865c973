"""Reading and writing SIF files without an engine: descriptors, labels, identity and file system.

Layout from the SIF 1.0 format as Apptainer writes it (github.com/apptainer/sif, pkg/sif/sif.go): a header of 128 bytes,
then descriptors of 585 bytes, integers little-endian.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from sifmark.core.errors import SifmarkError
from sifmark.core.files import human_size, read_once, sha256_bytes, sha256_file

DEFINITION, PARTITION, SIGNATURE, METADATA, SBOM = 0x4001, 0x4004, 0x4005, 0x4006, 0x4009  # data types
CYCLONEDX_JSON, SPDX_JSON = (struct.pack("<i", number) for number in (1, 4))  # forms of an SBOM
SYSTEM = 2  # partition type: the primary system partition
INSPECT_NAME = "inspect-metadata.json"  # where `apptainer inspect` reads labels, apps and help

# Launch script, magic, version and architecture; UUID; created and modified, in seconds; free and total descriptors,
# their offset and size; offset and size of the data, in bytes.
_HEADER = struct.Struct("<32s10s3s3s16s8q")
# Kind, in use, number, group, link; offset, size, size with padding; created and modified, in seconds; owner and group;
# name and what is special to its kind.
_DESCRIPTOR = struct.Struct("<i?III7q128s384s")
_MAGIC = b"SIF_MAGIC\0"
_LAUNCH = b"#!/usr/bin/env run-singularity\n"
_ARCHITECTURES = {"x86_64": b"02", "aarch64": b"04"}
_SQUASHFS = 1  # of file systems
_GROUP = 0xF0000000  # added to a group's number
_TABLE_START, _TABLE_ROWS = 4096, 48
DATA_START = 32768  # bytes: the first page after the table
_MAX_DESCRIPTORS = 4096
_ANY_HASH = "0" * 64  # as long as every other
_BLOCK = 1 << 20  # bytes that are read at once
_MAX_METADATA_SIZE = 64 * 1024 * 1024  # bytes


class SifError(SifmarkError):
    """A file is not a SIF, or not a whole one."""


@dataclass(frozen=True)
class SifDescriptor:
    """One object in the file: `offset` and `size` in bytes; `partition` is the partition type or 0.

    `architecture` is that of a partition, as the header has it.
    """

    id: int
    kind: int
    offset: int
    size: int
    name: str
    partition: int
    architecture: bytes

    @property
    def end(self) -> int:
        """The place behind its last byte."""
        return self.offset + self.size


class SifHeader(NamedTuple):
    """The fields of a header. Dates are in seconds since 1970; places and sizes in bytes."""

    launch: bytes
    magic: bytes
    version: bytes
    architecture: bytes
    unique: bytes
    created: int
    modified: int
    free: int  # descriptors
    total: int  # descriptors
    table: int
    table_size: int
    data: int
    data_size: int


@dataclass(frozen=True)
class SifObject:
    """A small object that is written beside the file system."""

    kind: int
    content: bytes
    name: str = ""
    extra: bytes = b""


@dataclass(frozen=True)
class Sif:
    """A SIF file's table of contents."""

    path: Path
    header: SifHeader
    descriptors: tuple[SifDescriptor, ...]
    unused: bytes  # the packed descriptors that are not in use

    def parts(self) -> list[tuple[int, int]]:
        """Return where header, table and objects begin and end, in the order of the file."""
        table = self.header.table
        others = [(0, _HEADER.size), (table, table + self.header.total * _DESCRIPTOR.size)]
        return sorted([*others, *((entry.offset, entry.end) for entry in self.descriptors)])

    @property
    def end(self) -> int:
        """The place behind its last object, and so the size that the file should have."""
        return max(end for _, end in self.parts())

    @property
    def system(self) -> SifDescriptor:
        """The partition that becomes the container's root. Raises SifError if there are others."""
        partitions = sum(entry.kind == PARTITION for entry in self.descriptors)
        if partitions > 1:
            cause = f"{self.path} has {partitions} partitions: an overlay changes what runs"
            raise SifError(cause, "do not run it; build or fetch it again", code="image-altered")
        return self._only(lambda entry: entry.kind == PARTITION and entry.partition == SYSTEM, "system partition")

    @property
    def metadata(self) -> SifDescriptor:
        """The object that holds the answers of `apptainer inspect`."""
        return self._only(lambda entry: entry.kind == METADATA and entry.name == INSPECT_NAME, "inspect metadata")

    def named(self, name: str) -> SifDescriptor | None:
        """Return the object with a name, or None if there is none or more than one."""
        entries = [entry for entry in self.descriptors if entry.name == name]
        return entries[0] if len(entries) == 1 else None

    def _only(self, wanted: Callable[[SifDescriptor], bool], what: str) -> SifDescriptor:
        entries = [entry for entry in self.descriptors if wanted(entry)]
        if len(entries) != 1:
            cause = f"{self.path} has {len(entries)} objects that could be its {what}"
            raise SifError(cause, "build the image again", code="file-damaged")
        return entries[0]

    def read(self, entry: SifDescriptor) -> bytes:
        """Return a small object's bytes. Raises SifError if it is too large for metadata."""
        if entry.size > _MAX_METADATA_SIZE:
            cause = f"{self.path}: object {entry.id} is too large to be metadata"
            raise SifError(cause, "build the image again", code="file-damaged")
        with self.path.open("rb") as stream:
            stream.seek(entry.offset)
            return stream.read(entry.size)

    def copy(self, entry: SifDescriptor, target: Path) -> None:
        """Write an object's bytes to a file."""
        with target.open("wb") as sink:
            for block in self._blocks(entry):
                sink.write(block)

    def attributes(self) -> dict[str, Any]:
        """Return the inspect metadata's attributes: labels, apps, runscript, deffile and so on. Raises SifError."""
        try:
            document = json.loads(self.read(self.metadata))
            return dict(document["data"]["attributes"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            cause = f"{self.path}: its inspect metadata does not read ({error})"
            raise SifError(cause, "build it again", code="document-invalid") from error

    def labels(self) -> dict[str, str]:
        """Return the image's labels. Raises SifError if they are not names with texts."""
        labels = self.attributes().get("labels") or {}
        if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
            cause = f"{self.path}: its labels are no names with texts"
            raise SifError(cause, "build it again", code="document-invalid")
        return labels

    def identity(self) -> str:
        """Return `sha256:<hex>` over system partition and inspect metadata, which signing does not change."""
        return sha256_bytes(self.digest(self.system) + self.digest(self.metadata))

    def digest(self, entry: SifDescriptor) -> bytes:
        """Return the SHA-256 of an object, 32 bytes."""
        digest = hashlib.sha256()
        for block in self._blocks(entry):
            digest.update(block)
        return digest.digest()

    def _blocks(self, entry: SifDescriptor) -> Iterator[memoryview]:
        """Yield the bytes of an object. A block is only valid until the next one is requested."""
        block = memoryview(bytearray(_BLOCK))
        with self.path.open("rb") as stream:
            stream.seek(entry.offset)
            left = entry.size
            while left > 0:
                count = stream.readinto(block[:left])
                if not count:
                    cause = f"{self.path} ends in the middle of object {entry.id}"
                    raise SifError(cause, "build or fetch it again", code="file-damaged")
                left -= count
                yield block[:count]


def read_sif(path: Path) -> Sif:
    """Read the table of contents of a SIF file. Raises SifError if it is not one, or is cut short."""
    try:
        if path.exists() and not path.is_file():  # nobody may ever write to a pipe
            raise SifError(f"{path} is not a SIF file", "name a file", code="not-a-sif")
        with path.open("rb") as stream:
            header = _read_header(path, stream)
            rows = _read_rows(path, stream, header)
            size = path.stat().st_size
            unused = b"".join(row for row in rows if not _is_used(row))
            return Sif(path, header, tuple(_descriptors(path, filter(_is_used, rows), size)), unused)
    except OSError as error:
        remedy = "name an image that exists: `sifmark list`"
        raise SifError(f"{path}: {error.strerror}", remedy, code="file-unreadable") from error


class FileSystem(Protocol):
    """A file system on its way into a SIF."""

    @property
    def size(self) -> int:
        """Its bytes."""

    def send(self, *consumers: Callable[[Any], object]) -> None:
        """Give every block to each consumer, in order."""


@dataclass(frozen=True)
class Extent:
    """A file system that is `size` bytes of a file, from byte `start` on."""

    path: Path
    start: int
    size: int

    def send(self, *consumers: Callable[[Any], object]) -> None:
        """Give every block to each consumer, in order."""
        with self.path.open("rb", buffering=0) as stream:
            stream.seek(self.start)
            read_once(stream, *consumers, size=self.size)


@dataclass(frozen=True)
class Fingerprints:
    """Hashes of a SIF file.

    `identity` and `digest` are `sha256:<hex>`; `system` and `metadata`, which identity is computed from, hexadecimal.
    """

    identity: str
    digest: str
    system: str
    metadata: str


def fingerprints(path: Path) -> Fingerprints:
    """Compute all hashes of a SIF file, in two threads. Raises SifError if it is none."""
    with ThreadPoolExecutor(1) as pool:
        digest = pool.submit(sha256_file, path)
        sif = read_sif(path)
        system, metadata = sif.digest(sif.system), sif.digest(sif.metadata)
        identity = sha256_bytes(system + metadata)
        return Fingerprints(identity, digest.result(), system.hex(), metadata.hex())


def write_sif(
    path: Path,
    system: FileSystem,
    architecture: str,
    parts: Callable[[str], Sequence[SifObject]],
    seconds: int,
    unique: bytes,
) -> Fingerprints:
    """Write a SIF: the table, a squashfs from DATA_START on, and objects.

    `architecture` is a platform's name, `seconds` the date of everything in seconds since 1970, `unique` 16 bytes that
    identify this SIF. Nothing else gets in, so that the same parts give the same bytes. `parts` makes the objects,
    given the hexadecimal SHA-256 of the file system; their sizes do not depend on it. So the table is known before the
    file system is read, and it is read once, for all hashes.
    """
    end = DATA_START + system.size
    head = _head(architecture, end, parts(_ANY_HASH), seconds, unique)
    content, digest = hashlib.sha256(), hashlib.sha256(head)
    with path.open("wb") as stream:
        stream.write(head)
        system.send(content.update, digest.update, stream.write)
        objects = parts(content.hexdigest())
        if stream.tell() != end:
            raise SifError(f"the file system of {path} ended early", "build it again", code="file-damaged")
        if _head(architecture, end, objects, seconds, unique) != head:
            raise ValueError("the sizes of a SIF's objects depend on the hash of its file system")
        for part in objects:
            stream.write(part.content)
            digest.update(part.content)
    metadata = hashlib.sha256(b"".join(part.content for part in objects if part.name == INSPECT_NAME))
    identity = sha256_bytes(content.digest() + metadata.digest())
    return Fingerprints(identity, f"sha256:{digest.hexdigest()}", content.hexdigest(), metadata.hexdigest())


def _head(architecture: str, end: int, parts: Iterable[SifObject], seconds: int, unique: bytes) -> bytes:
    """Pack what precedes a file system that ends at byte `end`: header, table and padding."""
    system = struct.pack("<ii3s", _SQUASHFS, SYSTEM, _ARCHITECTURES[architecture])
    rows = [_row(1, PARTITION, DATA_START, end - DATA_START, seconds, extra=system)]
    for number, part in enumerate(parts, start=2):
        rows.append(_row(number, part.kind, end, len(part.content), seconds, part.name, part.extra))
        end += len(part.content)
    table = (_TABLE_ROWS - len(rows), _TABLE_ROWS, _TABLE_START, _TABLE_ROWS * _DESCRIPTOR.size)
    fields = (seconds, seconds, *table, DATA_START, end - DATA_START)
    header = _HEADER.pack(_LAUNCH, _MAGIC, b"01", _ARCHITECTURES[architecture], unique, *fields)
    return (header.ljust(_TABLE_START, b"\0") + b"".join(rows)).ljust(DATA_START, b"\0")


def _row(number: int, kind: int, start: int, size: int, seconds: int, name: str = "", extra: bytes = b"") -> bytes:
    """Pack a descriptor of an object in root's group 1, which a signature covers as a whole."""
    fields = (start, size, size, seconds, seconds, 0, 0)
    return _DESCRIPTOR.pack(kind, True, number, _GROUP | 1, 0, *fields, name.encode(), extra)


def _is_used(row: bytes) -> bool:
    return bool(_DESCRIPTOR.unpack(row)[1])


def _descriptors(path: Path, rows: Iterable[bytes], size: int) -> Iterator[SifDescriptor]:
    """Yield the descriptors in packed rows of a file of `size` bytes. Raises SifError."""
    for row in rows:
        kind, _used, number, _group, _link, start, length, *_, name, extra = _DESCRIPTOR.unpack(row)
        if start < 0 or length < 0 or start + length > size:
            whole = human_size(start + length) if min(start, length) >= 0 else "an unknown size"
            sizes = f"{human_size(size)} of {whole}"
            cause = f"{path} is incomplete: object {number} reaches beyond the file's end ({sizes})"
            raise SifError(cause, "build or pull it again", code="file-damaged")
        partition = struct.unpack_from("<i", extra, 4)[0] if kind == PARTITION else 0
        # As Apptainer does it: `apptainer inspect` starts an image whose metadata it does not find.
        text = name.rstrip(b"\0").decode(errors="replace")
        yield SifDescriptor(number, kind, start, length, text, partition, extra[8:11])


def _read_header(path: Path, stream: BinaryIO) -> SifHeader:
    """Return the header. Raises SifError."""
    packed = stream.read(_HEADER.size)
    if len(packed) < _HEADER.size or packed[32:42] != _MAGIC:
        remedy = "name an image that sifmark or Apptainer built"
        raise SifError(f"{path} is not a SIF file", remedy, code="not-a-sif")
    header = SifHeader(*_HEADER.unpack(packed))
    if not 0 < header.total <= _MAX_DESCRIPTORS:
        remedy = "the file is damaged: build or fetch it again"
        raise SifError(f"{path}: its header counts {header.total} objects", remedy, code="file-damaged")
    return header


def _read_rows(path: Path, stream: BinaryIO, header: SifHeader) -> list[bytes]:
    """Return the packed descriptors. Raises SifError."""
    size = _DESCRIPTOR.size
    stream.seek(header.table)
    table = stream.read(header.total * size)
    if len(table) < header.total * size:
        cause = f"{path} ends within its table of contents"
        raise SifError(cause, "build or fetch it again", code="file-damaged")
    return [table[start : start + size] for start in range(0, len(table), size)]
