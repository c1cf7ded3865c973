"""Appending folders to a squashfs with `mksquashfs`: in place, or beside a squashfs that is only read.

An append writes the new data and new tables over the old tables, which are behind the old data, and then replaces the
superblock. It reads the old tables; the old data only to look for duplicates. So a sparse file with superblock and
tables, and a hole in place of the data, can be appended to in place of a copy, which may have 20 GB.
"""

import hashlib
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sifmark.core.errors import SifmarkError
from sifmark.core.files import FIXED_MTIME, read_once
from sifmark.core.process import run
from sifmark.engines.apptainer.squashfs import squashfs_tool

# Superblock (squashfs-tools, squashfs_fs.h), little-endian: magic, inodes, date, block size, fragments; compressor,
# log2 of the block size, flags, ids, version; root inode, bytes used; starts of the tables of ids, xattrs, inodes,
# directories, fragments and exports.
_SUPERBLOCK = struct.Struct("<4s4I6H8Q")
_MAGIC = b"hsqs"
_FLAGS_START, _FLAGS_SIZE = 24, 2  # bytes
_DUPLICATES = 0x40  # flag: an append looks for files that are there already
_ABSENT = 2**64 - 1  # start of a table that does not exist
_OPTIONS_END = 16384  # bytes: superblock and the options of the compressor, one block of metadata, end before
DISK_REMEDY = "free space in the cache, temporary and dist folders; `sifmark doctor` shows what each has"


@dataclass
class Appended:
    """A squashfs with a layer appended, in two files: the base, whose data begins it, and what follows that."""

    base: Path
    end: Path  # sparse: superblock, and from `data_end` on the new data and tables
    data_end: int  # bytes of the base that remain
    _base_hash: Any = field(default_factory=hashlib.sha256, init=False, repr=False)

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end.stat().st_size

    def send(self, *consumers: Callable[[Any], object]) -> None:
        """Give every block to each consumer, in order, and hash all of the base on the way."""
        self._base_hash = hashlib.sha256()
        with self.base.open("rb", buffering=0) as base, self.end.open("rb", buffering=0) as end:
            old = base.read(_SUPERBLOCK.size)
            self._base_hash.update(old)
            new = end.read(_SUPERBLOCK.size)
            new = _with_flags(new, _flags(new) | _flags(old) & _DUPLICATES)
            for consume in consumers:
                consume(new)
            read_once(base, self._base_hash.update, *consumers, size=self.data_end - len(old))
            read_once(base, self._base_hash.update)
            end.seek(self.data_end)
            read_once(end, *consumers)

    def base_digest(self) -> str:
        """Return `sha256:<hex>` of the base as it was sent."""
        return f"sha256:{self._base_hash.hexdigest()}"


def append(layer: Path, base: Path, end: Path, log: Path | None, time_limit: float) -> Appended:
    """Append a layer's folders to a squashfs without changing it; the new file `end` gets what differs.

    Files that the base has already are not looked for. Raises SifmarkError if the base is no squashfs or mksquashfs
    fails.
    """
    data_end = _copy_tables(base, end)
    append_in_place(layer, end, log, time_limit)
    return Appended(base, end, data_end)


def append_in_place(layer: Path, squashfs: Path, log: Path | None, time_limit: float) -> None:
    """Add a layer's folders to a squashfs. Raises SifmarkError naming command and log."""
    run(
        [squashfs_tool("mksquashfs"), layer, squashfs, "-all-root", "-no-progress", "-no-recovery"],
        log=log,
        time_limit=time_limit,
        remedy=DISK_REMEDY,
        environment={"SOURCE_DATE_EPOCH": str(FIXED_MTIME)},
    )


def _copy_tables(base: Path, target: Path) -> int:
    """Write a squashfs with a hole in place of its data. Return where the data ends."""
    with base.open("rb") as source, target.open("wb") as sink:
        superblock = source.read(_SUPERBLOCK.size)
        data_end = _data_end(base, superblock)
        sink.write(_with_flags(superblock, _flags(superblock) & ~_DUPLICATES))
        sink.write(source.read(min(_OPTIONS_END, data_end) - len(superblock)))
        for stream in (source, sink):
            stream.seek(data_end)
        shutil.copyfileobj(source, sink)
    return data_end


def _data_end(path: Path, superblock: bytes) -> int:
    """Return where the tables begin, in bytes. Raises SifmarkError."""
    if len(superblock) == _SUPERBLOCK.size and superblock.startswith(_MAGIC):
        tables: list[int] = [start for start in _SUPERBLOCK.unpack(superblock)[-6:] if start != _ABSENT]
        if tables and _SUPERBLOCK.size <= min(tables) <= path.stat().st_size:
            return min(tables)
    raise SifmarkError(f"{path} is no squashfs", "build it again: `sifmark build --force`", code="file-damaged")


def _flags(superblock: bytes) -> int:
    return int.from_bytes(superblock[_FLAGS_START : _FLAGS_START + _FLAGS_SIZE], "little")


def _with_flags(superblock: bytes, flags: int) -> bytes:
    packed = flags.to_bytes(_FLAGS_SIZE, "little")
    return superblock[:_FLAGS_START] + packed + superblock[_FLAGS_START + _FLAGS_SIZE :]
