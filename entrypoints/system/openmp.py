"""How threads of OpenMP wait for work: which runtimes a process has loaded, and for how long they spin. Linux.

A thread that spins for work keeps its core from others, and on a busy host from those that would give it some.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Mapping, Sequence

MAPS = Path("/proc/self/maps")
GNU, INTEL, LLVM = NAMES = ("libgomp", "libiomp5", "libomp")  # the last two are one code
POLICY, SPIN_COUNT, BLOCK_TIME = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"
# By the policy: the documentation of GOMP_SPINCOUNT, of a team with a processor for each thread; and that of
# KMP_BLOCKTIME (openmp/docs/design/Runtimes.rst of LLVM).
SPINS = {"passive": "0 spins", "active": "30000000000 spins", "": "300000 spins"}
BLOCK_TIMES = {"passive": "0 ms", "active": "infinite", "": "200 ms"}
_LIBRARY = re.compile(rf"/({'|'.join(NAMES)})(?:-[0-9a-f]+)?\.so[^/]*$")  # a wheel adds a hash
_PASSIVE = re.compile(r"\w+: 0(?: spins| ms|ms|us) ")
# With one foreign process on two cores, two threads were 1.5 to 15 times slower than with the passive policy.
ADVICE = "Busy waiting of OpenMP on an occupied core may have made it slower still: try OMP_WAIT_POLICY=PASSIVE"
_SET = re.compile(r"\d{1,15}(?:[mu]s)?|infinit[ey]", re.IGNORECASE)


def runtimes(maps: Path = MAPS) -> list[str]:
    """Return the names of the OpenMP runtimes that this process has loaded, sorted."""
    try:
        lines = maps.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return sorted({found[1] for found in map(_LIBRARY.search, lines) if found})


def waits(names: Sequence[str], variables: Mapping[str, str]) -> str:
    """Return for each runtime how long its idle threads spin before they sleep, and which variable says so."""
    return ", ".join(f"{name}: {_wait(name, variables)}" for name in names if name in NAMES)


def spins(described: str | None, threads: int) -> bool:
    """Return whether threads of a process wait for each other by spinning, by what `waits` returned of it."""
    each = described.split(", ") if described and threads > 1 else []
    return not all(map(_PASSIVE.match, each))


def _wait(name: str, variables: Mapping[str, str]) -> str:
    own, unit, by_policy = (SPIN_COUNT, "spins", SPINS) if name == GNU else (BLOCK_TIME, "ms", BLOCK_TIMES)
    given = variables.get(own, "").strip().lower()
    if _SET.fullmatch(given):
        return f"{given} {unit} ({own})" if given.isdigit() else f"{given} ({own})"
    policy = variables.get(POLICY, "").strip().lower()
    return f"{by_policy[policy]} ({POLICY})" if policy in by_policy and policy else f"{by_policy['']} (default)"
