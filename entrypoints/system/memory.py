"""Memory: how much there is, a workload's part of it, and which process is killed first. Linux."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from pathlib import Path
from typing import Iterable

from entrypoints.system import cgroups, host
from entrypoints.system.facts import MIB, fact

MADV_WILLNEED, MADV_POPULATE_READ = 3, 22  # linux/mman.h; the latter from Linux 5.14 on
OOM_SCORE = Path("/proc/self/oom_score_adj")
VICTIM = 500  # as if the process used half of all memory in addition: far above any parent


SHARE = 0.9  # of the free memory: on a host that swaps, the disk would be measured


def default_limit(device: str, parts: int = 1) -> int | None:
    """Return the default memory limit of a workload's process in MiB, one of several that share the host.

    Most of the host's free memory, so that nothing swaps; None if the device has its own memory, or the free memory
    cannot be read.
    """
    free = free_mib() if device == "cpu" else None
    return int(SHARE * free / parts) if free else None


def limit_process(mib: int | None) -> None:
    """Make allocations above `mib` fail in this process and, counted separately, in each one it starts.

    Private writable memory counts (RLIMIT_DATA): it follows the resident set closely, whereas the address space
    (RLIMIT_AS) has hundreds of MiB of libraries and, on GPUs, reservations of many GiB. Only the soft limit is set, so
    that `unlimit_process` can make room for the last message. Call it when libraries are loaded, because some abort or
    hang if they cannot start. Raises MemoryError if more is used already.
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
    """Undo `limit_process`."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def keep_pages() -> None:
    """Read the pages of all files that this process has mapped, so that none has to be read later.

    An image's file system may be gone when a run ends: Slurm's SIGTERM also reaches the program that mounts it, and a
    page of a library that is not in memory by then is a bus error. Old kernels read them in the background.
    """
    with contextlib.suppress(OSError, AttributeError, ValueError):  # no /proc, or a C library without madvise
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
            addresses, rights, _, _, inode = line.split()[:5]
            if inode != "0" and rights.startswith("r"):
                start, end = (int(address, 16) for address in addresses.split("-"))
                if madvise(start, end - start, MADV_POPULATE_READ):
                    madvise(start, end - start, MADV_WILLNEED)


def die_first() -> None:
    """Make the kernel's out-of-memory killer prefer this process, and those it starts, to its parent."""
    with contextlib.suppress(OSError, ValueError):  # no /proc
        OOM_SCORE.write_text(str(max(VICTIM, int(OOM_SCORE.read_text()))))


def resident_mib(processes: Iterable[int]) -> float | None:
    """Return the MiB of memory that processes have together; None if all of them are gone."""
    pages = sum(map(_resident_pages, processes))
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB if pages else None


def _resident_pages(process: int) -> int:
    """Return the pages of a process; 0 if it has ended."""
    try:
        return int((host.PROC / str(process) / "statm").read_text().split()[1])
    except (OSError, LookupError, ValueError):
        return 0


def available_mib() -> float:
    """Return the MiB that are free without swapping, within the control groups. Raises OSError or LookupError."""
    return min([host.meminfo("MemAvailable"), *(group.limit - group.used for group in cgroups.memory_cgroups())])


def free_mib() -> float | None:
    """Return the memory in MiB that is free without swapping, or None if it cannot be read."""
    available: float | None = fact(available_mib)["value"]
    return available
