"""Reading SIF files without an engine: descriptors, labels, identity, the file system's bytes.

Layout from the SIF 1.0 format as Apptainer writes it (github.com/apptainer/sif, pkg/sif/sif.go): a header of 128 bytes,
then descriptors of 585 bytes, integers little-endian.
"""

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sifmark.errors import SifmarkError

PARTITION, SIGNATURE, METADATA = 0x4004, 0x4005, 0x4006  # data types
SYSTEM = 2  # partition type: the primary system partition
INSPECT_NAME = "inspect-metadata.json"  # where `apptainer inspect` reads labels, apps and help

_HEADER = struct.Struct("<32s10s3s3s16s8q")
_DESCRIPTOR = struct.Struct("<i?III7q128s384s")
_MAGIC = b"SIF_MAGIC\0"
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
class Sif:
    """A SIF file's table of contents."""

    path: Path
    descriptors: tuple[Descriptor, ...]

    @property
    def system(self) -> Descriptor:
        """The partition that becomes the container's root."""
        return self._only(lambda entry: entry.kind == PARTITION and entry.partition == SYSTEM, "system partition")

    @property
    def metadata(self) -> Descriptor:
        """The object that `apptainer inspect` answers from."""
        return self._only(lambda entry: entry.kind == METADATA and entry.name == INSPECT_NAME, "inspect metadata")

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

    def copy(self, entry: Descriptor, target: Path) -> None:
        """Write an object's bytes to a file."""
        with target.open("wb") as sink:
            for block in self._blocks(entry):
                sink.write(block)

    def attributes(self) -> dict[str, Any]:
        """The inspect metadata's attributes: labels, apps, runscript, deffile and so on."""
        try:
            document = json.loads(self.read(self.metadata))
            return dict(document["data"]["attributes"])
        except (ValueError, KeyError, TypeError) as error:
            raise SifError(f"{self.path}: its inspect metadata does not read ({error})", "build it again") from error

    def labels(self) -> dict[str, str]:
        """The image's labels. Raises SifError where they are no names with texts."""
        labels = self.attributes().get("labels") or {}
        if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
            raise SifError(f"{self.path}: its labels are no names with texts", "build it again")
        return labels

    def identity(self) -> str:
        """`sha256:<hex>` over system partition and inspect metadata: unchanged by signing and by file dates."""
        digest = hashlib.sha256()
        for entry in (self.system, self.metadata):
            part = hashlib.sha256()
            for block in self._blocks(entry):
                part.update(block)
            digest.update(part.digest())
        return f"sha256:{digest.hexdigest()}"

    def _blocks(self, entry: Descriptor, block: int = 1 << 20) -> Iterator[bytes]:
        with self.path.open("rb") as stream:
            stream.seek(entry.offset)
            left = entry.size
            while left > 0:
                data = stream.read(min(block, left))
                if not data:
                    raise SifError(f"{self.path} ends in the middle of object {entry.id}", "build or fetch it again")
                left -= len(data)
                yield data


def read_sif(path: Path) -> Sif:
    """The table of contents of a SIF file. Raises SifError when it is not one, or is cut short."""
    try:
        with path.open("rb") as stream:
            size = path.stat().st_size
            return Sif(path, tuple(_descriptors(path, stream, size)))
    except OSError as error:
        raise SifError(f"{path}: {error.strerror}", "name an image that exists: `inv list`") from error


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
