"""The kinds of device that a framework has modules for, and the choice among them.

Each kind is a module of its framework, found by its file name, with these functions:

- `prepare(precision, threads, streams=1)` refuses what the hardware cannot do and undoes what an earlier call in the
  same process set. `threads` is the number for each of the request streams that compute at once.
- `free_mib()` returns the memory that is left on the device in MiB, or None if it is unknown.
- `use_memory(memory)`, where a device has it, is called before these with the run's `IpuMemory`.
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
# Files that drivers create. IPUs over a network have none, but a configuration or variables that name their partition.
# Other vendors' GPUs have the files of Intel's GPUs too, so these come last.
SIGNS = {
    "/dev/nvidia[0-9]*": "cuda",
    "/dev/kfd": "cuda",
    "/dev/ipu*": "ipu",
    "~/.ipuof.conf.d/*.conf": "ipu",
    "/dev/accel/accel_controlD*": "hpu",  # other accelerators have /dev/accel/accel* too
    "/dev/dri/renderD*": "xpu",
}
VARIABLES = {"IPUOF_CONFIG_PATH": "ipu", "IPUOF_VIPU_API_PARTITION_ID": "ipu"}


class Choice(NamedTuple):
    """A kind of device, and why it was chosen."""

    kind: str
    why: str


def require_precision(precision: str, supported: Sequence[str], name: str) -> None:
    """Raise RunError (`unsupported`) if the device called `name` does not support a precision."""
    if precision not in supported:
        raise RunError("unsupported", f"--precision {precision} on {name}: it can do {', '.join(supported)}")


def offered_kinds(framework: str, image_kind: str, in_image: bool) -> Sequence[str]:
    """Return the kinds that an option may name: in an image its own kind and the CPU, elsewhere all kinds."""
    return list(dict.fromkeys((image_kind, "cpu"))) if in_image else kinds(framework)


@lru_cache(maxsize=None)
def kinds(framework: str) -> Sequence[str]:
    """Return the kinds of device that a framework has modules for."""
    folder = Path(__file__).resolve().parent / framework
    return sorted(path.stem for path in folder.glob("[!_]*.py"))


def choose(offered: Sequence[str]) -> Choice:
    """Return the first of the offered kinds that variables or driver files point to, otherwise the CPU."""
    for variable, kind in VARIABLES.items():
        if kind in offered and os.environ.get(variable):
            return Choice(kind, f"{variable} is set")
    for pattern, kind in SIGNS.items():
        expanded = os.path.expanduser(pattern)  # noqa: PTH111 - a pattern
        files = sorted(glob.glob(expanded)) if kind in offered else []  # noqa: PTH207 - from the root
        if files:
            return Choice(kind, f"{files[0]} is here")
    looked = ", ".join(pattern for pattern, kind in SIGNS.items() if kind in offered)
    return Choice("cpu", f"there is no {looked}" if looked else "there is nothing else to choose")
