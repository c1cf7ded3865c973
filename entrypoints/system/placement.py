"""The processors of a rank: its share of those of its parent, or those near its device. Linux."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import AbstractSet, Iterable

from entrypoints.system import host

NODES = Path("/sys/devices/system/node")
PCI = Path("/sys/bus/pci/devices")


def share_of(processors: AbstractSet[int], index: int, count: int) -> set[int]:
    """Return one of `count` equal parts of logical processors: neighbouring cores, as long as there are enough.

    Where there are fewer processors than parts, all share them.
    """
    parts = cores(processors)
    if len(parts) < count:
        parts = [{number} for number in sorted(processors)]
    size = len(parts) // count
    return set(processors) if not size else set().union(*parts[index * size : (index + 1) * size])


def cores(processors: AbstractSet[int]) -> list[set[int]]:
    """Return the cores of logical processors, neighbours together; each processor is one if the kernel does not say."""
    by_core: dict[tuple[int, int], set[int]] = {}
    for number in processors:
        try:
            (core,) = host.topology({number})
        except (OSError, ValueError):
            return [{each} for each in sorted(processors)]
        by_core.setdefault(core, set()).add(number)
    return [by_core[core] for core in sorted(by_core)]


def nearest(addresses: Iterable[str]) -> set[int]:
    """Return the logical processors nearest to the first of these PCI devices; none if the kernel does not say."""
    return next((_listed(PCI / address.lower() / "local_cpulist") for address in addresses), set())


def memory_nodes(processors: AbstractSet[int]) -> str | None:
    """Return the memory nodes of logical processors, such as 0-1; None if the kernel does not say."""
    folders = [folder for folder in NODES.glob("node[0-9]*") if processors & _listed(folder / "cpulist")]
    return host.ranges({int(folder.name[len("node") :]) for folder in folders}) or None


def _listed(path: Path) -> set[int]:
    """Return the processors of a file of the kernel: none for a node that has only memory."""
    with contextlib.suppress(OSError, ValueError):
        return host.parse_ranges(path.read_text())
    return set()


def bind(processors: AbstractSet[int]) -> None:
    """Let this process, and the threads that it starts from now on, run only on these processors."""
    os.sched_setaffinity(0, processors)
