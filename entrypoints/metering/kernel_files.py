"""Kernel files that meters read, and the number by which drivers know this process. Linux."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from entrypoints.metering.meter import MeterError

PIDS, HOST_PIDS = "/proc/self/ns/pid", "pid:[4026531836]"  # the kernel's own number, PROC_PID_INIT_INO


class KernelFile:
    """A kernel file that stays open: opening takes longer than reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.descriptor = os.open(str(path), os.O_RDONLY)
        except OSError as error:
            raise _explained(path, error) from None
        weakref.finalize(self, os.close, self.descriptor)

    def number(self) -> int:
        """Read the whole number in the file. Raises MeterError."""
        try:
            text = os.pread(self.descriptor, 64, 0).strip()
        except OSError as error:
            raise _explained(self.path, error) from None
        if not text.isdigit():
            raise MeterError(f"{self.path} holds no number: {text[:40].decode('utf-8', 'replace')!r}")
        return int(text)


def kernel_text(path: Path) -> str:
    """Read the text of a kernel file. Raises MeterError."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError as error:
        raise _explained(path, error) from None


def host_pid() -> int:
    """Return the number by which drivers know this process. Raises MeterError in a container with its own numbers."""
    if os.readlink(PIDS) != HOST_PIDS:
        raise MeterError(
            "this container has its own process numbers: its processes cannot be found in the driver's list"
        )
    return os.getpid()


def _explained(path: Path, error: OSError) -> MeterError:
    if isinstance(error, PermissionError):
        return MeterError(f"{path} may be read by root only; ask the host's administrator to let you read it")
    return MeterError(f"{path}: {error.strerror}")
