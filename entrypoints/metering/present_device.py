"""The device that a run would use, as its driver describes it before any framework is imported."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from entrypoints.metering.meter import MeterError
from entrypoints.metering.nvidia.conditions import properties
from entrypoints.system.facts import MIB

DRM = Path("/sys/class/drm")
# Bytes of a GPU's memory in the kernel's folder of a card: amdgpu, and i915 where it knows local memory.
MEMORY_FILES = {"cuda": "device/mem_info_vram_total", "xpu": "lmem_total_bytes"}


class PresentDevice(NamedTuple):
    """A device; None for what its driver does not say."""

    name: str | None = None
    memory_mib: float | None = None
    capability: tuple[int, int] | None = None  # of CUDA


def find(kind: str) -> PresentDevice:
    """Return the first device of a kind that CUDA may use, or the one with the least memory that the kernel lists."""
    if kind == "cuda":
        try:
            return PresentDevice(*properties())
        except MeterError:  # no GPU of NVIDIA, or several that cannot be distinguished
            pass
    return PresentDevice(memory_mib=_least_memory(MEMORY_FILES.get(kind)))


def _least_memory(file: str | None) -> float | None:
    """Return the least memory of any card in MiB: which ones a framework uses is not known yet."""
    read = [_bytes(path) for path in (DRM.glob(f"card[0-9]*/{file}") if file else ())]
    return min((size / MIB for size in read if size), default=None)


def _bytes(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None
