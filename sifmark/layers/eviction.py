"""Removal from the cache: drafts of killed builds, entries over the limit, everything. And the rate of its filling."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sifmark.core.console import status
from sifmark.core.files import human_size, remove_stale_drafts
from sifmark.core.locks import LockHeldError
from sifmark.layers.cache import CHECKSUM_FILE, KINDS, entry_folders, lock_entry, read_checksum

_GIB = 1024**3


class _Usage(NamedTuple):
    """An entry's last use, in seconds since 1970, its size in bytes, and its folder."""

    last_used: float
    size: int
    folder: Path


def rate(cache: Path, kind: str) -> float | None:
    """Return the bytes a second at which this host made the entries of a kind, or None if there are none."""
    checksums = [checksum for folder in entry_folders(cache, kind) if (checksum := read_checksum(folder))]
    seconds = sum(checksum.seconds for checksum in checksums)
    return sum(checksum.size for checksum in checksums) / seconds if seconds else None


def remove_all_stale_drafts(cache: Path) -> None:
    """Remove the unfinished entries of killed builds."""
    for kind in KINDS:
        remove_stale_drafts(cache / kind)


def remove_all(cache: Path) -> Iterator[str]:
    """Remove every entry once no process uses or makes it, and yield its name. Lock files stay: they may be held."""
    for kind in KINDS:
        for folder in list(entry_folders(cache, kind)):
            with lock_entry(folder):
                shutil.rmtree(folder, ignore_errors=True)
            yield _name(folder)


def trim(cache: Path, limit: float | None) -> None:
    """Remove the entries that were unused for longest until the cache is within `limit` GiB, if there is a limit.

    Entries in use stay.
    """
    if limit is None:
        return
    entries = sorted(_usages(cache), key=lambda entry: entry.last_used)
    total = sum(entry.size for entry in entries)
    for entry in entries:
        if total <= limit * _GIB:
            return
        if _remove_unused(entry.folder):
            size = human_size(entry.size)
            status(f"  cache over its limit of {limit:g} GiB: removed {_name(entry.folder)}, {size}")
            total -= entry.size


def _usages(cache: Path) -> Iterator[_Usage]:
    for kind in KINDS:
        for folder in entry_folders(cache, kind):
            with suppress(OSError):
                size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                yield _Usage(_last_used(folder), size, folder)


def _last_used(folder: Path) -> float:
    """Return the date of the checksum file, which each use sets, or of the wheel in a folder of a wheel."""
    dated = [folder / CHECKSUM_FILE] if (folder / CHECKSUM_FILE).is_file() else [*folder.glob("*")]
    return max((path.stat().st_mtime for path in dated), default=0.0)


def _remove_unused(folder: Path) -> bool:
    try:
        with lock_entry(folder, wait=False):
            shutil.rmtree(folder, ignore_errors=True)
            return True
    except LockHeldError:
        return False


def _name(folder: Path) -> str:
    """Return an entry's name in messages: its kind, and the start of its key."""
    return f"{folder.parent.name}/{folder.name[:12]}"
