"""Which GPU of NVIDIA a run uses. NVML lists them whatever CUDA_VISIBLE_DEVICES says."""

from __future__ import annotations

import os
from typing import Any

from entrypoints.metering.meter import MeterError
from entrypoints.metering.nvidia.library import pynvml, supported_answer, text

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


def visible(number: int) -> Any:
    """Return the GPU that CUDA numbers so. Raises MeterError where NVML's numbers do not identify it."""
    allowed = os.environ.get(VISIBLE)
    if allowed is None:
        return _by_number(number)
    words = [word.strip() for word in allowed.split(",")]
    word = words[number] if number < len(words) else ""
    if not word or word.startswith("-"):
        raise MeterError(f"{VISIBLE}={allowed} leaves no GPU{f' {number}' if number else ''}")
    return _by_number(int(word)) if word.isdigit() else _by_uuid(word)


def at(place: str) -> Any:
    """Return the GPU at a place: a UUID, a PCI address or NVML's number."""
    if place.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(place))
    if place.startswith(("GPU-", "MIG-")):
        return _by_uuid(place)
    return pynvml.nvmlDeviceGetHandleByPciBusId(place.encode())


def _by_number(number: int) -> Any:
    """Return the GPU of CUDA's number, which is NVML's if CUDA counts so or all GPUs are alike. Raises MeterError."""
    count = pynvml.nvmlDeviceGetCount()
    if number >= count:
        raise MeterError(f"{VISIBLE} names GPU {number}, and NVML sees {count}")
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    kinds = {text(pynvml.nvmlDeviceGetName(handle)) for handle in handles}
    if len(kinds) > 1 and os.environ.get(ORDER) != "PCI_BUS_ID":
        raise MeterError(
            f"this host has {', '.join(sorted(kinds))}, which CUDA numbers by speed and NVML by address: "
            f"set {ORDER}=PCI_BUS_ID, or name the GPU's UUID in {VISIBLE}"
        )
    return handles[number]


def _by_uuid(start: str) -> Any:
    """Return the GPU whose UUID begins so, as CUDA reads it, or the MIG instance of a whole UUID. Raises MeterError."""
    if start.startswith("MIG-"):
        return pynvml.nvmlDeviceGetHandleByUUID(start.encode())
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    matching = [handle for handle in handles if text(pynvml.nvmlDeviceGetUUID(handle)).startswith(start)]
    if len(matching) != 1:
        raise MeterError(f"{len(matching)} GPUs have a UUID that begins with {start}")
    return matching[0]


def whole(handle: Any) -> tuple[Any, str]:
    """Return the GPU itself, and a name for it: a MIG instance has no separate meter."""
    instance = pynvml.nvmlDeviceIsMigDeviceHandle(handle)
    gpu = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if instance else handle
    shared = " with all its MIG instances" if divided(gpu) else ""
    return gpu, text(pynvml.nvmlDeviceGetUUID(gpu)) + shared


def divided(handle: Any) -> bool:
    """Return whether a GPU is divided into MIG instances."""
    mode = supported_answer(pynvml.nvmlDeviceGetMigMode, handle)
    return bool(mode and mode[0])
