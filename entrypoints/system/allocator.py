"""Settings of glibc's malloc with which the workload's process keeps freed memory."""

from __future__ import annotations

from typing import Mapping

from entrypoints.system.environment import readable

# Otherwise glibc returns a large block to the kernel when it is freed, and the next step gets it again, cleared page by
# page: for a network with large activations, a quarter of a step on a CPU. Huge pages only if the kernel gives them on
# request. Each version uses the settings it knows (2.26, huge pages 2.35).
TUNABLES = {"mmap_max": 0, "trim_threshold": 2**40, "hugetlb": 1}
VARIABLE = "GLIBC_TUNABLES"


def tunables(environment: Mapping[str, str]) -> str:
    """Return the value of `VARIABLE` for a process that keeps its memory; the user's settings come last and win."""
    ours = [f"glibc.malloc.{name}={value}" for name, value in TUNABLES.items()]
    theirs = environment.get(VARIABLE)
    return ":".join([*ours, theirs] if theirs else ours)


def with_tunables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` for a process that keeps its memory."""
    return {**environment, VARIABLE: tunables(environment)}


def described(environment: Mapping[str, str]) -> str:
    """Return the settings for the workload's process, and the library that its user preloads, if any."""
    preloaded = environment.get("LD_PRELOAD")
    return readable(tunables(environment)) + (f"; LD_PRELOAD={readable(preloaded)}" if preloaded else "")
