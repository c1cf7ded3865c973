"""Files that are whole or absent: written beside their target, then renamed."""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Wheels and ZIP files cannot hold an earlier date; ours carry no other.
FIXED_MTIME = 315_532_800  # 1980-01-01T00:00:00Z, seconds
_DRAFT = ".partial-"
_SMALL = 256 * 1024  # bytes


@contextmanager
def scratch_dir(folder: Path, name: str) -> Iterator[Path]:
    """A folder for unfinished work inside another, removed at the end.

    A killed process leaves it behind, without the lock that a living one holds; the next `sweep` removes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Named before it is made: a signal that unwinds us meanwhile leaves nothing that nobody knows of.
    holder = folder / f".{name}{_DRAFT}{secrets.token_hex(8)}"
    try:
        with _held(holder):
            yield holder
    finally:
        shutil.rmtree(holder, ignore_errors=True)


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A path on the target's file system that becomes the target, file or folder, when the block ends well."""
    with scratch_dir(target.parent, target.name) as holder:
        draft = holder / target.name
        yield draft
        _take_name(draft, target)


def _take_name(draft: Path, target: Path) -> None:
    try:
        draft.replace(target)
    except OSError as error:
        # Folders here are named by what they hold: one that another process finished meanwhile is as good as ours.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not draft.is_dir():
            raise


def remove_stale_drafts(folder: Path) -> None:
    """Remove the drafts in a folder whose writers are gone: the kernel has released their locks."""
    for holder in folder.glob(f".*{_DRAFT}*"):
        with suppress(OSError):
            lock = os.open(holder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(holder, ignore_errors=True)
            finally:
                os.close(lock)


@contextmanager
def _held(holder: Path) -> Iterator[None]:
    """Make and lock a folder. A sweep may take it between its making and its locking; then once more."""
    while (lock := _make_locked(holder)) is None:
        pass
    try:
        yield
    finally:
        os.close(lock)


def _make_locked(holder: Path) -> int | None:
    holder.mkdir(mode=0o700, exist_ok=True)
    try:
        lock = os.open(holder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # a file system without locks: its drafts are not swept either
        fcntl.flock(lock, fcntl.LOCK_EX)
    if holder.exists():
        return lock
    os.close(lock)
    return None


def write_text(target: Path, text: str) -> None:
    """Write a text whole or not at all."""
    with atomic_path(target) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(target: Path, document: Any) -> None:
    """Write a document, readable for people, whole or not at all."""
    write_text(target, json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n")


def sha256_file(path: Path) -> str:
    """`sha256:<hex>` of a file's bytes."""
    with path.open("rb", buffering=0) as stream:
        if os.fstat(stream.fileno()).st_size <= _SMALL:  # a buffer costs more than what would be read into it
            return sha256_bytes(stream.readall())
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def sha256_bytes(content: bytes) -> str:
    """`sha256:<hex>` of some bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def compact_json(document: Any) -> bytes:
    """A document as the same bytes each time: sorted keys, no blanks."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def sha256_json(document: Any) -> str:
    """`sha256:<hex>` of a document in canonical form: sorted keys, no blanks, UTF-8."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return sha256_bytes(text.encode())


def sha256_tree(files: dict[str, Path]) -> str:
    """`sha256:<hex>` over names and contents of a set of files, independent of order and dates."""
    with ThreadPoolExecutor() as pool:  # of the small ones each is done sooner than a thread is asked
        large = {name: pool.submit(sha256_file, path) for name, path in files.items() if path.stat().st_size > _SMALL}
        digests = {name: sha256_file(path) for name, path in files.items() if name not in large}
        return sha256_json(digests | {name: digest.result() for name, digest in large.items()})


def normalise_tree(folder: Path) -> None:
    """Make a tree readable for any uid and free of the moment and umask that made it."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_symlink():
            continue
        executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if executable else 0o644)
        os.utime(path, (FIXED_MTIME, FIXED_MTIME))


def human_size(size: float) -> str:
    """A byte count for people, in binary units."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def free_space(folder: Path) -> int:
    """Bytes left where a folder is, or will be."""
    return shutil.disk_usage(next(path for path in [folder, *folder.parents] if path.exists())).free
