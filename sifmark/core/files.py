"""Files that are complete or absent: written under another name beside their target, then renamed. Hashes and sizes."""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_type_hints

import orjson

from sifmark.core.errors import UsageError

# The earliest date that a ZIP file, and so a wheel, can hold. Our own files carry no other.
FIXED_MTIME = 315_532_800  # 1980-01-01T00:00:00Z, seconds
_DRAFT = ".partial-"
_SMALL = 256 * 1024  # bytes
_BLOCK = 4 * 1024 * 1024  # bytes read at once
_LARGEST_RECORD = 1024 * 1024  # bytes
Record = TypeVar("Record")


@contextmanager
def scratch_dir(folder: Path, name: str) -> Iterator[Path]:
    """Make a folder for unfinished work inside another one, and remove it at the end of the block.

    A killed process leaves it behind, but not its lock, so `remove_stale_drafts` can remove it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The path is chosen before the folder is made, so that a signal in between leaves nothing that is not removed.
    scratch = folder / f".{name}{_DRAFT}{secrets.token_hex(8)}"
    try:
        with _target_named(folder, scratch), _locked_folder(scratch):
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def atomic_path(target: Path, *, content_addressed: bool = False) -> Iterator[Path]:
    """Return a path on the target's file system; its file or folder becomes the target if the block succeeds.

    What is written is on the disk before it has its name, also if the power fails. A folder does not replace one that
    has other files: that raises UsageError. With `content_addressed` the name of a folder says what is in it, so that
    one which another process finished first is kept, and its content is checked when it is used, not synchronised.

    Raises UsageError for a device, a pipe or a link to standard output, which a rename would remove.
    """
    _require_replaceable(target)
    with scratch_dir(target.parent, target.name) as scratch, _target_named(target, scratch):
        draft = scratch / target.name
        yield draft
        if not content_addressed:
            _synchronise(draft)
        _rename(draft, target, content_addressed)
        _synchronise_folder(target.parent)


def _require_replaceable(target: Path) -> None:
    # /dev/stdout is a link into /proc, and what it leads to is a regular file if output is redirected to one.
    stream = target.is_symlink() and str(target.readlink()).startswith("/proc/")
    if stream or (target.exists() and not target.is_file() and not target.is_dir()):
        raise UsageError(f"{target} is not a regular file", "name a file that can be replaced", code="invalid-option")


def _rename(draft: Path, target: Path, content_addressed: bool) -> None:
    try:
        draft.replace(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not draft.is_dir():
            raise
        if not content_addressed and _digests(draft) != _digests(target):
            cause = f"{target} is there already, with other files"
            raise UsageError(cause, "remove it, or name another folder", code="folder-not-empty") from error


def _digests(folder: Path) -> dict[str, str]:
    return sha256_files({str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()})


def _synchronise(draft: Path) -> None:
    """Write a file, or a folder with all that is in it, to the disk."""
    for path in (draft, *draft.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            _synchronise_folder(path)
        elif path.is_file() and not path.is_symlink():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())


def _synchronise_folder(folder: Path) -> None:
    """Write the names in a folder to the disk."""
    with suppress(OSError):  # some network file systems refuse
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _target_named(target: Path, scratch: Path) -> Iterator[None]:
    """Let errors name the target: the kernel's error of a full disk names nothing, others a draft that nobody knows."""
    try:
        yield
    except OSError as error:
        named = error.filename is not None
        if Path(str(error.filename)).is_relative_to(scratch) if named else is_full(error):
            error.filename = str(target)
        raise


def is_full(error: OSError) -> bool:
    """Return whether an error is that of a full disk, or of a quota that is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def remove_stale_drafts(folder: Path) -> None:
    """Remove the drafts in a folder whose writers have died: the kernel has released their locks."""
    for scratch in folder.glob(f".*{_DRAFT}*"):
        with suppress(OSError):
            lock = os.open(scratch, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(scratch, ignore_errors=True)
            finally:
                os.close(lock)


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    """Make and lock a folder; again if `remove_stale_drafts` removed it before it was locked."""
    while (lock := _make_locked(folder)) is None:
        pass
    try:
        yield
    finally:
        os.close(lock)


def _make_locked(folder: Path) -> int | None:
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        lock = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # on a file system without locks, drafts are not removed either
        fcntl.flock(lock, fcntl.LOCK_EX)
    if folder.exists():
        return lock
    os.close(lock)
    return None


def write_text(target: Path, text: str) -> None:
    """Write a text file completely or not at all. Paths in the text need not be UTF-8: their bytes are kept."""
    with atomic_path(target) as draft:
        draft.write_text(text, encoding="utf-8", errors="surrogateescape")


def write_json(target: Path, document: Any) -> None:
    """Write a document with indentation, completely or not at all."""
    write_text(target, json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n")


def sha256_file(path: Path) -> str:
    """Return `sha256:<hex>` of a file's bytes."""
    with path.open("rb", buffering=0) as stream:
        if os.fstat(stream.fileno()).st_size <= _SMALL:  # for a small file, a buffer costs more than reading it
            return sha256_bytes(stream.readall())
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def read_once(stream: BinaryIO, *consumers: Callable[[memoryview], object], size: int | None = None) -> None:
    """Give the next `size` bytes of a stream, or all to its end, to every consumer, each in a separate thread.

    The next block is read meanwhile, so the slowest of reading and consuming sets the time. A block is only valid
    during the call. A stream that ends early is no error.
    """
    left = sys.maxsize if size is None else size
    # Two buffers: one is consumed while the other is filled. New memory for each block would cost more than its hash.
    blocks = cycle([memoryview(bytearray(_BLOCK)) for _ in range(2)])
    running: list[Future[object]] = []
    with ThreadPoolExecutor(len(consumers)) as pool:
        while count := stream.readinto((block := next(blocks))[: min(left, _BLOCK)]):  # type: ignore[attr-defined]
            for call in running:
                call.result()
            running = [pool.submit(consume, block[:count]) for consume in consumers]
            left -= count
        for call in running:
            call.result()


def sha256_bytes(content: bytes) -> str:
    """Return `sha256:<hex>` of some bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def compact_json(document: Any) -> bytes:
    """Return a document as the same bytes each time: sorted keys, no blanks."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def sha256_json(document: Any) -> str:
    """Return `sha256:<hex>` of a document in canonical form: sorted keys, no blanks, UTF-8."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return sha256_bytes(text.encode())


def sha256_tree(files: dict[str, Path]) -> str:
    """Return `sha256:<hex>` over the names and contents of some files, independent of their order and dates."""
    return sha256_json(sha256_files(files))


def sha256_files(files: dict[str, Path]) -> dict[str, str]:
    """Return `sha256:<hex>` of each of some files by its name."""
    with ThreadPoolExecutor() as pool:  # a small file is hashed sooner than a thread is started
        large = {name: pool.submit(sha256_file, path) for name, path in files.items() if path.stat().st_size > _SMALL}
        digests = {name: sha256_file(path) for name, path in files.items() if name not in large}
        return digests | {name: digest.result() for name, digest in large.items()}


def normalise_tree(folder: Path) -> None:
    """Make a tree readable for every user, and remove the dates and the umask of its making."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_symlink():
            continue
        executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if executable else 0o644)
        os.utime(path, (FIXED_MTIME, FIXED_MTIME))


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of an ordinary file of at most `most` bytes.

    Raises OSError if it is something else, such as a pipe that nobody writes to, or does not read; ValueError if it is
    larger.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:  # noqa: PTH123 - pathlib opens without these flags
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not an ordinary file", str(path))
        content = stream.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most} bytes")
    return content


def read_record(path: Path, kind: type[Record]) -> Record | None:
    """Return a JSON file of ours as a dataclass whose fields are texts, numbers or None. Other keys are left out.

    None for a file that is missing or damaged, a pipe for example: others may write to the folders of results too.
    """
    with suppress(OSError, ValueError):
        return as_record(orjson.loads(read_bounded(path, _LARGEST_RECORD)), kind)
    return None


def as_record(document: Any, kind: type[Record]) -> Record | None:
    """Return a JSON object as a dataclass, as `read_record`; None if it is none, or has other values."""
    hints = {name: hint | int if hint is float else hint for name, hint in get_type_hints(kind).items()}
    with suppress(TypeError):
        values = {name: document[name] for name in hints if name in document}
        if all(isinstance(value, hints[name]) for name, value in values.items()):
            return kind(**values)
    return None


def append_line(path: Path, document: Any) -> None:
    """Append a JSON document as a line to an ordinary file, which is made with its folder if need be.

    What is there stays, also of others who append at the same time: a line is one write. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    with open(descriptor, "ab", buffering=0) as stream:  # noqa: PTH123 - pathlib opens without these flags
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not an ordinary file", str(path))
        stream.write(orjson.dumps(document) + b"\n")


def human_size(size: float) -> str:
    """Return a number of bytes for people, in binary units."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def free_space(folder: Path) -> int:
    """Return the free bytes of the file system of a folder, which need not exist yet."""
    return shutil.disk_usage(existing_part(folder)).free


def existing_part(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    return next(path for path in [folder, *folder.parents] if path.exists())
