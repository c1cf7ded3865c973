"""One module per framework and kind of hardware, found by its file name.

Each has the same three functions in the same order: `prepare(precision, threads, streams=1)` refuses what the hardware
cannot do and undoes what an earlier call in the same process set (`threads` is for each of the streams of requests that
compute at once), `free_mib()` says how much memory is left there (None where nobody knows), and
`open_session(model, rule, precision, compiled, division=None)` returns an `entrypoints.session.Session`, also after an
earlier one was closed. What several of them have in common stands beside the folders.
"""

from __future__ import annotations

import glob
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Sequence

from entrypoints.statuses import RunError

AUTO = "auto"
# Files that drivers make. Those of Intel's GPUs are other vendors' too, so they come last.
SIGNS = {"/dev/nvidia0": "cuda", "/dev/kfd": "cuda", "/dev/ipu*": "ipu", "/dev/dri/renderD*": "xpu"}


class Choice(NamedTuple):
    """A kind of device, and what spoke for it."""

    kind: str
    why: str


def require_precision(precision: str, known: Sequence[str], name: str) -> None:
    """Raise RunError (`unsupported`) for a precision that the device of a name has not."""
    if precision not in known:
        raise RunError("unsupported", f"--precision {precision} on {name}: it can do {', '.join(known)}")


def askable(framework: str, own: str, in_image: bool) -> Sequence[str]:
    """The kinds that may be asked for: an image's own and the CPU; outside of images, whatever there is."""
    return list(dict.fromkeys((own, "cpu"))) if in_image else kinds(framework)


@lru_cache(maxsize=None)
def kinds(framework: str) -> Sequence[str]:
    """The kinds of device that a framework has a module for."""
    folder = Path(__file__).resolve().parent / framework
    return sorted(path.stem for path in folder.glob("[!_]*.py"))


def choose(known: Sequence[str]) -> Choice:
    """Of the kinds that are known, the first that the files of a driver tell of; the processors where none do."""
    for pattern, kind in SIGNS.items():
        found = sorted(glob.glob(pattern)) if kind in known else []  # noqa: PTH207 - a pattern from the root
        if found:
            return Choice(kind, f"{found[0]} is here")
    looked = ", ".join(pattern for pattern, kind in SIGNS.items() if kind in known)
    return Choice("cpu", f"there is no {looked}" if looked else "there is nothing else to choose")
