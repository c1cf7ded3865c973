"""Who may change a file: what a decision rests on has to be this user's or the system's alone, as ssh asks of keys."""

import grp
import os
import pwd
import shlex
import stat
from pathlib import Path
from typing import NamedTuple

from sifmark.core.errors import SifmarkError


class FileState(NamedTuple):
    """What changes if a file is replaced or written to."""

    device: int
    inode: int
    size: int
    modified: int  # ns
    changed: int  # ns


def file_state(path: Path) -> FileState:
    """Return the state of a file. Raises OSError."""
    status = path.stat()
    return FileState(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def require_unshared(path: Path, what: str) -> None:
    """Raise SifmarkError if other users may change or replace what is at a path. Nothing there is allowed."""
    if not path.exists() or (shared := changeable_by_others(path)) is None:
        return
    raise SifmarkError(
        f"other users may change {what}: {shared} is {_how(shared)}",
        f"take their rights away: chmod go-w {shlex.quote(str(shared))}; or use another folder",
        code="path-shared",
    )


def changeable_by_others(path: Path) -> Path | None:
    """Return the first of a path and the folders above it that other users may change; None if there is none.

    In a sticky folder, such as /tmp, users can only replace what is theirs.
    """
    whole = path.resolve()
    return next((each for each in (whole, *whole.parents) if _is_shared(each.stat())), None)


def _is_shared(status: os.stat_result) -> bool:
    if status.st_uid not in (0, os.geteuid()):
        return True
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return False
    by_group = bool(status.st_mode & stat.S_IWGRP) and not _is_private_group(status.st_uid, status.st_gid)
    return by_group or bool(status.st_mode & stat.S_IWOTH)


def _is_private_group(owner: int, group: int) -> bool:
    """Return whether a group is its owner's alone, as distributions make one for each user."""
    try:
        user, entry = pwd.getpwuid(owner).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == user and set(entry.gr_mem) <= {user}


def _how(path: Path) -> str:
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        return f"owned by user {status.st_uid}"
    return f"writable for others (mode {stat.S_IMODE(status.st_mode):o})"
