"""File locks between processes: exclusive for writers, shared for readers. The kernel releases those of a dead one."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sifmark.core.console import status
from sifmark.core.errors import SifmarkError


class LockHeldError(Exception):
    """Another process holds a lock, and `wait` was false."""


@contextmanager
def file_lock(path: Path, *, shared: bool = False, wait: bool = True, waiting: str = "") -> Iterator[int]:
    """Hold the lock file `path` until the block ends; its folder is made if need be.

    The descriptor is for processes that are to hold the lock too, for as long as they have it open. `waiting` is shown
    when another process holds the lock. Raises LockHeldError with `wait=False`, and SifmarkError where the file system
    has no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _acquire(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, wait, waiting)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock(target: Path) -> Iterator[None]:
    """Exclude other work on `target`, on every host that shares its folder; meanwhile a lock file lies beside it."""
    path = lock_file(target)
    with file_lock(path, waiting=f"another process works on {target.name}"):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # who waits for it makes a new one


def is_held(path: Path) -> bool:
    """Return whether somebody holds a lock file exclusively. A file that is not there is held by nobody, and not made.

    Who tries to take it without waiting in this moment may find it held: to ask is to hold it for an instant.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def lock_file(target: Path) -> Path:
    """Return the lock file of a file or folder: a hidden one beside it."""
    return target.with_name(f".{target.name}.lock")


def _acquire(path: Path, kind: int, wait: bool, waiting: str) -> int:
    """Open and lock a file; again if its owner removed it before we had the lock."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _flock(descriptor, path, kind, wait, waiting)
            with suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _flock(descriptor: int, path: Path, kind: int, wait: bool, waiting: str) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            raise LockHeldError(path) from None
        status(f"  waiting: {waiting or f'{path} is in use'}")
        fcntl.flock(descriptor, kind)
    except OSError as error:
        raise SifmarkError(
            f"the file system of {path.parent} has no locks ({error.strerror})",
            "use a folder on another file system: cache and dist in sifmark.toml",
            code="locks-unsupported",
        ) from error
