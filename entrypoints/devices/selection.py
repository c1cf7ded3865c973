"""The kinds of device that a framework has modules for, and the choice among them.

Each kind is a module of its framework, found by its file name, with three functions:

- `prepare(precision, threads, streams=1)` refuses what the hardware cannot do and undoes what an earlier call in the
  same process set. `threads` is the number for each of the request streams that compute at once.
- `free_mib()` returns the memory that is left on the device in MiB, or None if it is unknown.
- `open_session(model, rule, precision, compiled, partition=None)` returns an `entrypoints.contract.session.Session`,
  also after an earlier session was closed.

Code that several kinds share is in the framework's `shared/`.
"""

from __future__ import annotations

import glob
import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Sequence

from entrypoints.contract.statuses import RunError

AUTO = "auto"
# Files that drivers make; IPUs over a network have none, but a configuration or variables that name their partition.
# Those of Intel's GPUs are other vendors' too, so they come last.
SIGNS = {
    "/dev/nvidia[0-9]*": "cuda",
    "/dev/kfd": "cuda",
    "/dev/ipu*": "ipu",
    "~/.ipuof.conf.d/*.conf": "ipu",
    "/dev/dri/renderD*": "xpu",
}
VARIABLES = {"IPUOF_CONFIG_PATH": "ipu", "IPUOF_VIPU_API_PARTITION_ID": "ipu"}


class Choice(NamedTuple):
    """A kind of device, and what spoke for it."""

    kind: str
    why: str


def require_precision(precision: str, known: Sequence[str], name: str) -> None:
    """Raise RunError (`unsupported`) for a precision that the device of a name has not."""
    if precision not in known:
        raise RunError("unsupported", f"--precision {precision} on {name}: it can do {', '.join(known)}")


def offered_kinds(framework: str, own: str, in_image: bool) -> Sequence[str]:
    """The kinds that may be asked for: an image's own and the CPU; outside of images, whatever there is."""
    return list(dict.fromkeys((own, "cpu"))) if in_image else kinds(framework)


@lru_cache(maxsize=None)
def kinds(framework: str) -> Sequence[str]:
    """The kinds of device that a framework has a module for."""
    folder = Path(__file__).resolve().parent / framework
    return sorted(path.stem for path in folder.glob("[!_]*.py"))


def choose(known: Sequence[str]) -> Choice:
    """Of the kinds that are known, the first that variables or the files of a driver tell of; else the processors."""
    for variable, kind in VARIABLES.items():
        if kind in known and os.environ.get(variable):
            return Choice(kind, f"{variable} is set")
    for pattern, kind in SIGNS.items():
        place = os.path.expanduser(pattern)  # noqa: PTH111 - a pattern
        found = sorted(glob.glob(place)) if kind in known else []  # noqa: PTH207 - from the root
        if found:
            return Choice(kind, f"{found[0]} is here")
    looked = ", ".join(pattern for pattern, kind in SIGNS.items() if kind in known)
    return Choice("cpu", f"there is no {looked}" if looked else "there is nothing else to choose")
