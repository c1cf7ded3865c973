"""The memory that a process may use: how much there is, how much of it a workload gets, and who dies first. Linux."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from typing import Iterator, NamedTuple

from entrypoints import host
from entrypoints.host import MIB

MEMBERSHIP = Path("/proc/self/cgroup")
OOM_SCORE = Path("/proc/self/oom_score_adj")
VICTIM = 500  # as if half of all memory came on top of a process's own: far beyond any parent's share


class Group(NamedTuple):
    """A control group of this process that limits memory, in MiB. `used` leaves out what the kernel can drop."""

    limit: float
    used: float


class Files(NamedTuple):
    """What a version of control groups calls its files, and the line of memory.stat for files read long ago."""

    root: Path
    controllers: str  # the field of /proc/self/cgroup by which the process's own group is found
    limit: str
    usage: str
    inactive: str


UNIFIED = Files(host.CGROUP, "", "memory.max", "memory.current", "inactive_file")
LEGACY = Files(
    host.CGROUP / "memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
)
SHARE = 0.9  # of the memory that is free: a host that swaps measures its disk
BOUNDLESS = 2**60  # bytes; version 1 says "none" by the largest number of whole pages


def default_limit(device: str) -> int | None:
    """What a workload gets where nobody asked, MiB: of the host's memory the most of what is free, so that nothing
    swaps; None where the device has memory of its own, or nobody knows."""
    free = free_mib() if device == "cpu" else None
    return int(SHARE * free) if free else None


def limit_process(mib: int | None) -> None:
    """Let allocations beyond `mib` fail in this process and, each on its own, in those that it starts.

    What counts is private memory that can be written (RLIMIT_DATA): it follows the resident set closely, where the
    address space (RLIMIT_AS) holds hundreds of MiB of libraries and, on GPUs, reservations of many GiB. Only the soft
    limit is set, so that `unlimit_process` can make room for the last words. To be called when libraries are loaded,
    because some abort, or wait for ever, where they cannot begin. Raises MemoryError where more is taken already.
    """
    if mib is None:
        return
    used = int(host.process_status("VmData").split()[0]) / 1024
    if used > mib:
        raise MemoryError(f"the framework alone takes {used:.0f} MiB")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = mib * MIB
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def unlimit_process() -> None:
    """Take back what `limit_process` did."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def die_first() -> None:
    """Have the kernel's out-of-memory killer prefer this process, and those that it starts, to the one above it."""
    with contextlib.suppress(OSError, ValueError):  # no /proc
        OOM_SCORE.write_text(str(max(VICTIM, int(OOM_SCORE.read_text()))))


def available_mib() -> float:
    """What can still be taken without swapping, within the control groups. Raises OSError or LookupError."""
    return min([host.meminfo("MemAvailable"), *(group.limit - group.used for group in groups())])


def free_mib() -> float | None:
    """The same; None where nobody knows."""
    available: float | None = host.fact(available_mib)["value"]
    return available


def groups() -> Iterator[Group]:
    """The control groups above this process that limit its memory, of either version, nearest first."""
    for files in (UNIFIED, LEGACY):
        for folder in _folders(files):
            with contextlib.suppress(OSError, ValueError, LookupError):  # no limit, or not for us to read
                limit = int((folder / files.limit).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                used = int((folder / files.usage).read_text()) - int(stat[files.inactive])
                if limit < BOUNDLESS:
                    yield Group(limit / MIB, used / MIB)


def _folders(files: Files) -> list[Path]:
    """From this process's own group up to the root."""
    with contextlib.suppress(OSError):
        fields = (line.split(":", 2) for line in MEMBERSHIP.read_text().splitlines())
        for _, controllers, path in fields:
            if files.controllers in controllers.split(","):
                return host.upwards(files.root / path.lstrip("/"), files.root)
    return []
