"""The control groups of this process, of either version: their usage and limits. Linux."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Iterable, Iterator, NamedTuple

from entrypoints.system.facts import MIB

CGROUP = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
BOUNDLESS = 2**60  # bytes; version 1 expresses "no limit" by the largest number of whole pages


class MemoryCgroup(NamedTuple):
    """A control group of this process that limits memory, in MiB. `used` excludes what the kernel can drop."""

    limit: float
    used: float


class CgroupFiles(NamedTuple):
    """The file names in a version of control groups, and the line of memory.stat for files not read recently."""

    root: Path
    controllers: str  # the field of /proc/self/cgroup by which the process's own group is found
    limit: str
    usage: str
    inactive: str
    events: str  # the file that counts kills


UNIFIED = CgroupFiles(CGROUP, "", "memory.max", "memory.current", "inactive_file", "memory.events")
LEGACY = CgroupFiles(
    *(CGROUP / "memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    events="memory.oom_control",
)


def control_groups(name: str) -> list[str]:
    """Return a file of this process's control group and of those above it, nearest first (cgroup v2)."""
    if not (CGROUP / "cgroup.controllers").exists():
        raise LookupError("no unified control groups (cgroup v2)")
    folders = upwards(CGROUP / own_group(), CGROUP)
    return [(folder / name).read_text() for folder in folders if (folder / name).exists()]


def upwards(own: Path, root: Path) -> list[Path]:
    """Return a folder and those above it, up to the root."""
    return [folder for folder in (own, *own.parents) if folder == root or root in folder.parents]


def own_group() -> str:
    """Return this process's control group, as a path below the root (cgroup v2)."""
    lines = MEMBERSHIP.read_text().splitlines()
    return next((line[len("0::/") :] for line in lines if line.startswith("0::/")), "")


def min_limit(limits: Iterable[float]) -> float:
    """Return the tightest of the limits. Raises LookupError if there is none."""
    tightest = min(limits, default=None)
    if tightest is None:
        raise LookupError("no limit is set")
    return tightest


def memory_cgroups() -> Iterator[MemoryCgroup]:
    """Yield the control groups of this process that limit its memory, of either version, nearest first."""
    for files in (UNIFIED, LEGACY):
        for folder in _folders(files):
            with contextlib.suppress(OSError, ValueError, LookupError):  # no limit, or not readable for us
                limit = int((folder / files.limit).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                used = int((folder / files.usage).read_text()) - int(stat[files.inactive])
                if limit < BOUNDLESS:
                    yield MemoryCgroup(limit / MIB, used / MIB)


def oom_kills() -> int:
    """Return how many processes of this control group the out-of-memory killer has killed. Raises LookupError."""
    for files in (UNIFIED, LEGACY):
        for folder in _folders(files):
            with contextlib.suppress(OSError, KeyError):  # it is missing at the root, and "oom_kill" in old kernels
                return int(dict(line.split() for line in (folder / files.events).read_text().splitlines())["oom_kill"])
    raise LookupError("no control group counts kills")


def _folders(files: CgroupFiles) -> list[Path]:
    """Return the folders from this process's own group up to the root."""
    with contextlib.suppress(OSError):
        fields = (line.split(":", 2) for line in MEMBERSHIP.read_text().splitlines())
        for _, controllers, path in fields:
            if files.controllers in controllers.split(","):
                return upwards(files.root / path.lstrip("/"), files.root)
    return []
