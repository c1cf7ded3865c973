"""How the workload's process gets memory from the system: glibc's malloc, told to keep what it has."""

from __future__ import annotations

from typing import Mapping

# Else glibc gives a large block back to the kernel as soon as it is free, and in the next step gets it anew, cleared
# page by page: for a network whose activations are large, a quarter of a step on a CPU. Huge pages only where the
# kernel has them to be asked for. Each version takes of these what it knows (2.26, huge pages 2.35).
TUNABLES = {"mmap_max": 0, "trim_threshold": 2**40, "hugetlb": 1}
VARIABLE = "GLIBC_TUNABLES"


def tunables(environment: Mapping[str, str]) -> str:
    """The value of `VARIABLE` for a process that keeps its memory. What its user set comes last, and so counts."""
    ours = [f"glibc.malloc.{name}={value}" for name, value in TUNABLES.items()]
    theirs = environment.get(VARIABLE)
    return ":".join([*ours, theirs] if theirs else ours)


def with_tunables(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` for such a process."""
    return {**environment, VARIABLE: tunables(environment)}


def described(environment: Mapping[str, str]) -> str:
    """What the workload's process is told, and what its user loads in glibc's place or beside it."""
    preloaded = environment.get("LD_PRELOAD")
    return tunables(environment) + (f"; LD_PRELOAD={preloaded}" if preloaded else "")
