"""Which GPU of AMD a run uses, and the dies of its module."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Sequence

from entrypoints.metering.amd.libraries import AmdSmi, RocmSmi
from entrypoints.metering.meter import MeterError

VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
PCI = Path("/sys/bus/pci/drivers/amdgpu")  # a link for each GPU of the host
# The second die of a module shows no power and no energy: the first one shows the module's. HPE has another name for
# MI250X.
TWO_DIES = ("MI250", "MI200 (MCM)")


def chosen(library: AmdSmi | RocmSmi, handles: Sequence[Any], place: str | None, number: int = 0) -> Any:
    """Return the GPU of a number or UUID, or else the one of a `number` among those that the environment allows.

    The variables apply in turn: the numbers in a later one count the GPUs that the earlier ones leave.
    """
    left = list(handles)
    if place is not None:
        return _numbered(left, place)
    for variable in VISIBLE:
        named = os.environ.get(variable)
        if named is not None:
            left = [_named(library, left, word.strip()) for word in named.split(",") if word.strip()]
            if variable != VISIBLE[0]:
                break  # HIP reads only one of the two
    if number >= len(left):
        which = f"GPU {number}" if number else "GPU"
        raise MeterError(f"no {which} is left: " + ", ".join(f"{name}={os.environ.get(name)}" for name in VISIBLE))
    return left[number]


def _named(library: AmdSmi | RocmSmi, handles: Sequence[Any], word: str) -> Any:
    if not word.startswith("GPU-"):
        return _numbered(handles, word)
    serial = _number(word[len("GPU-") :])
    matching = [handle for handle in handles if serial is not None and _number(library.serial(handle)) == serial]
    if len(matching) != 1:
        raise MeterError(f"{len(matching)} GPUs have the UUID {word}")
    return matching[0]


def _number(text: str) -> int | None:
    """Return the value of hexadecimal digits, with or without 0x; None for other text, such as N/A."""
    try:
        return int(text, 16)
    except ValueError:
        return None


def _numbered(handles: Sequence[Any], word: str) -> Any:
    if not word.isdigit() or int(word) >= len(handles):
        raise MeterError(f"there is no GPU {word}: {len(handles)} are visible")
    return handles[int(word)]


def dies(library: AmdSmi | RocmSmi, handles: Sequence[Any], die: Any) -> Sequence[Any]:
    """Return the dies of a module, that first which reports its power and energy; only the given one if the job may
    not use the other.

    Raises MeterError if a scheduler hides the first: the libraries leave out hidden dies, and the entry before the
    second die then belongs to another module.
    """
    at, on_host = list(handles).index(die), len(list(PCI.glob("*:*:*.*")))
    whole = len(handles) == on_host  # then modules have an even number and the next
    if whole and len(handles) % 2 == 0:
        return sorted(handles[at - at % 2 : at - at % 2 + 2], key=lambda each: not _reports(library, each))
    if _reports(library, die):
        return [die]
    raise MeterError(f"{library.address(die)} is the second die of a module, whose first one is hidden here")


def _reports(library: AmdSmi | RocmSmi, die: Any) -> bool:
    return bool(library.watts(die) or library.joules(die))
