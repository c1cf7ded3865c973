"""Processes that die with their parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when process `parent` dies; exit at once if it is dead already."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux, or a C library without prctl
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
