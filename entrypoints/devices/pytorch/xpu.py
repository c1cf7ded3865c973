"""GPUs of Intel, through PyTorch or through Intel's extension of it."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import torch

from entrypoints.devices import gpu, require_precision
from entrypoints.devices.absence import require_files
from entrypoints.meters import intel
from entrypoints.session import Division, Rule
from entrypoints.statuses import RunError
from entrypoints.workloads.pytorch.build import Objective

with contextlib.suppress(ImportError):  # before torch 2.4, this gives it `torch.xpu`
    import intel_extension_for_pytorch  # noqa: F401

PRECISIONS = ("fp32", "bf16", "fp16")
HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"


def runtime() -> Any:
    """`torch.xpu`, or None where neither PyTorch nor the extension brings it."""
    return getattr(torch, "xpu", None)


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Set the threads of the host's own part.

    Raises RunError: `no_device` where there is no GPU, `unsupported` for a precision that it has not.
    """
    xpu = runtime()
    if xpu is None or not xpu.is_available():
        require_files("/dev/dri/renderD*", "--bind /dev/dri")
        raise RunError(
            "no_device",
            f"PyTorch {torch.__version__} finds no GPU of Intel: may this user read /dev/dri/renderD* (group render)?",
        )
    require_precision(precision, PRECISIONS, "xpu")
    torch.set_num_threads(threads)


def free_mib() -> float | None:
    """Memory of the GPU that nobody has taken; None before torch 2.6, which does not tell."""
    return gpu.free_mib(runtime())


def open_session(
    model: Objective, rule: Rule, precision: str, compiled: bool = False, division: Division | None = None
) -> gpu.GpuSession:
    """A session over `model`, which it takes over.

    Raises RunError (`unsupported`) where it is to be compiled and this PyTorch compiles nothing.
    """
    xpu = runtime()
    properties = xpu.get_device_properties(xpu.current_device())
    described = gpu.facts(
        kind="xpu",
        vendor="Intel",
        name=xpu.get_device_name(),
        granularity=granularity(xpu.get_device_name()),
        memory=properties.total_memory,
    )
    return gpu.GpuSession(xpu, model, rule, precision, compiled, division, described, intel.conditions)


def granularity(name: str) -> str:
    """What one device is: PyTorch sees the tiles of a Max 1550, unless Level Zero is told to show cards."""
    flat = os.environ.get(HIERARCHY, "FLAT").upper() != "COMPOSITE"
    return "tile" if flat and "Max 1550" in name else "package"
