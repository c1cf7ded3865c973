"""Processes that die with their parent, and orphans that are left to it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

PATIENCE = 1.0  # seconds for killed processes to go; one that hangs in a driver stays
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when process `parent` dies; exit at once if it is dead already."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux, or a C library without prctl
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make the kernel give this process the orphans among its descendants: even those in sessions of their own."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux, or a C library without prctl
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> set[int]:
    """Return the processes whose parent is this one; none where /proc does not list them."""
    parent = str(os.getpid())
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent_of(path) == parent}


def kill_orphans(ours: set[int]) -> None:
    """Kill all children but `ours`, and the orphans that this brings, so that none of them disturbs the next run."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        orphans = children() - ours
        if not orphans:
            return
        for orphan in orphans:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, os.WNOHANG)
        time.sleep(PATIENCE / 100)


def _parent_of(process: Path) -> str:
    try:  # pid (name) state ppid ...: a name may have spaces and brackets
        return (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1]
    except (OSError, IndexError):
        return ""
