"""GPUs of Intel, through PyTorch, with Intel's extension of it if that is installed.

Calls of the extension and their arguments are those of its documentation for torch 1.13 to 2.8:
https://intel.github.io/intel-extension-for-pytorch/xpu/latest/tutorials/api_doc.html
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from entrypoints.contract.session import BatchPartition, Rule
from entrypoints.contract.statuses import RunError
from entrypoints.devices.missing_device import kernel_driver, require_files
from entrypoints.devices.pytorch.shared import gpu
from entrypoints.devices.pytorch.shared.compiling import require_triton
from entrypoints.devices.pytorch.shared.threads import compute_on
from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.devices.selection import require_precision
from entrypoints.metering.meters import intel
from entrypoints.workloads.pytorch.build import Objective

try:
    import intel_extension_for_pytorch as extension  # before torch 2.4 it provides `torch.xpu`
except ImportError:
    extension = None

PRECISIONS = ("fp32", "bf16", "fp16")
UNTIMED = (2, 3), (2, 6)  # versions of PyTorch whose events have no timestamps, without and with the extension


def libraries() -> dict[str, str | None]:
    """Return the versions of the compiler that built PyTorch, from torch 2.6 on, and of the extension."""
    return {
        "oneapi": getattr(torch.version, "xpu", None),
        "intel_extension_for_pytorch": getattr(extension, "__version__", None),
    }


def runtime() -> Any:
    """Return `torch.xpu`, or None if neither PyTorch nor the extension provides it."""
    return getattr(torch, "xpu", None)


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Set the threads that compute on the host.

    Raises RunError: `no_device` if there is no GPU, `unsupported` if the GPU does not support the precision, or this
    PyTorch cannot time GPUs of Intel.
    """
    xpu = runtime()
    if xpu is None or not xpu.is_available():
        require_files("/dev/dri/renderD*", "--bind /dev/dri")
        raise RunError(
            "no_device",
            f"PyTorch {torch.__version__} finds no GPU of Intel: may this user read /dev/dri/renderD* (group render)? "
            f"If so: does {kernel_driver('xe', 'i915')} go with the compute runtime in this image?",
        )
    if UNTIMED[0] <= torch.__version__ < UNTIMED[1]:
        raise RunError(
            "unsupported", f"PyTorch {torch.__version__} times nothing on GPUs of Intel: from 2.6 on it does. Take that"
        )
    require_precision(precision, PRECISIONS, "xpu")
    compute_on(threads)


def free_mib() -> float | None:
    """Return the free memory of the GPU in MiB, or None before torch 2.6."""
    return gpu.free_mib(runtime())


def open_session(
    model: Objective,
    rule: Rule,
    precision: str,
    compiled: str | None = None,
    partition: BatchPartition | None = None,
    group: Group | None = None,
) -> gpu.GpuSession:
    """Return a session that takes over `model`.

    Raises RunError (`unsupported`) if it is to be compiled and cannot be compiled here.
    """
    if compiled:
        require_triton()
    xpu = runtime()
    properties = xpu.get_device_properties(xpu.current_device())
    device_facts = gpu.facts(
        kind="xpu",
        vendor="Intel",
        name=xpu.get_device_name(),
        granularity=granularity(xpu.get_device_name()),
        memory=properties.total_memory,
    )
    read_conditions = functools.partial(
        intel.conditions, getattr(properties, "driver_version", None)
    )  # from torch 2.4 on
    return XpuSession(xpu, model, rule, precision, compiled, partition, device_facts, read_conditions, group)


class XpuSession(gpu.GpuSession):
    """A session whose training Intel's extension optimizes, if it is installed.

    It does not if something is compiled, or several ranks train together. Its main gain is fused updates. Weights stay
    fp32, since it is given no precision. Its changes for inference are made already, or are for CPUs.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if extension is None or self.compiled or self.strategy.engine:
            return
        self.note(f"by intel_extension_for_pytorch {extension.__version__}")
        if self.optimizer:
            self.train_model, self.optimizer = extension.optimize(self.model, optimizer=self.optimizer, inplace=True)
            gpu.skip_by_the_scaler(self.optimizer)  # the extension's steps ignore the scaler's check


def granularity(name: str) -> str:
    """Return what one device is: PyTorch sees the tiles of a Max 1550, unless Level Zero is set to show cards."""
    return "package" if intel.whole_card() or "Max 1550" not in name else "tile"
