"""Memory: how much there is, how much of it a workload gets, and which process is killed first. Linux."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from entrypoints.system import cgroups, host
from entrypoints.system.facts import MIB, fact

OOM_SCORE = Path("/proc/self/oom_score_adj")
VICTIM = 500  # as if half of all memory came on top of a process's own: far beyond any parent's share


SHARE = 0.9  # of the memory that is free: a host that swaps measures its disk


def default_limit(device: str) -> int | None:
    """Return the default memory limit of a workload in MiB: most of the host's free memory, so that nothing
    swaps; None where the device has its own memory, or the free memory cannot be read."""
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
    return min([host.meminfo("MemAvailable"), *(group.limit - group.used for group in cgroups.memory_cgroups())])


def free_mib() -> float | None:
    """Return the same, or None where it cannot be read."""
    available: float | None = fact(available_mib)["value"]
    return available
