"""TFRecord files, as far as no framework is needed: finding them, and counting records by their lengths.

https://www.tensorflow.org/tutorials/load_data/tfrecord: each record is its length (8 bytes), the length's masked
CRC-32C (4), the bytes, and their masked CRC-32C (4), all little-endian.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Sequence

from entrypoints.contract.statuses import UsageError
from entrypoints.data.manifest import Manifest
from entrypoints.data.source import DataFile, Source, with_suffix

HEADER = struct.Struct("<QI")
FOOTER = 4  # bytes
BUFFER = 1 << 12  # bytes read at once: most of a record is skipped


class Records(Source):
    """TFRecord files; a framework reads them itself."""

    sequential = True

    def __init__(self, path: Path, files: Sequence[DataFile], classes: int | None, lost: Sequence[str] = ()) -> None:
        super().__init__(path, sum(file.samples for file in files), classes, lost)
        self.files = files

    @property
    def units(self) -> int:
        """Number of files."""
        return len(self.files)


def find(path: Path) -> list[Path]:
    """Return the record files at a path."""
    return with_suffix(path, ".tfrecord")


def open_source(path: Path, files: Sequence[Path], _: str, manifest: Manifest | None) -> Records:
    """Return the records at a path, counted by the manifest, or by their lengths if there is none."""
    if manifest:
        return Records(path, manifest.files, len(manifest.classes))
    lost: list[str] = []
    counted = [DataFile(file.name, count(file, lost)) for file in files]
    whole = [file for file in counted if file.samples]
    if not whole:
        raise UsageError(
            f"--data {path}: its files contain no record{f' ({lost[0]})' if lost else ''}",
            "write them again",
            code="data-damaged",
        )
    return Records(path, whole, None, lost)


def count(file: Path, lost: list[str]) -> int:
    """Return the records in a file, up to the first with a wrong length or cut short, which is added to `lost`."""
    try:
        with file.open("rb", buffering=BUFFER) as stream:
            size, at, records = stream.seek(0, os.SEEK_END), 0, 0
            while at < size:
                stream.seek(at)
                header = stream.read(HEADER.size)
                length, checksum = HEADER.unpack(header) if len(header) == HEADER.size else (size, None)
                after = at + HEADER.size + length + FOOTER
                wrong = checksum is not None and checksum != masked(crc32c(header[:8]))
                if wrong or after > size:
                    what = "a wrong length" if wrong else "cut short"
                    lost.append(f"{file.name} ({what} at byte {at}: the rest is lost)")
                    break
                at, records = after, records + 1
    except OSError as error:
        raise UsageError(
            f"--data {file}: {error.strerror}", "make it readable for this user", code="file-unreadable"
        ) from None
    return records


def masked(checksum: int) -> int:
    """Return a CRC as in TFRecord files, rotated and shifted: a CRC of a text that contains CRCs detects little."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(content: bytes) -> int:
    """Return the CRC-32C of bytes (RFC 3720, appendix B.4)."""
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum = TABLE[(checksum ^ byte) & 0xFF] ^ (checksum >> 8)
    return checksum ^ 0xFFFFFFFF


def _remainder(value: int) -> int:
    """Return the CRC of one byte by the reversed polynomial."""
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


TABLE = tuple(map(_remainder, range(256)))
