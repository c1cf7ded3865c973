"""GPUs of Intel, through PyTorch or through Intel's extension of it."""

from __future__ import annotations

import contextlib

import torch

from entrypoints.devices.absence import not_yet, require_files
from entrypoints.statuses import RunError

with contextlib.suppress(ImportError):  # before torch 2.4, this gives it `torch.xpu`
    import intel_extension_for_pytorch  # noqa: F401


def prepare(*_: object) -> None:
    """Raises RunError: `no_device` where there is no GPU, `unsupported` where there is one."""
    xpu = getattr(torch, "xpu", None)
    if xpu is None or not xpu.is_available():
        require_files("/dev/dri/renderD*", "--bind /dev/dri")
        raise RunError("no_device", f"PyTorch {torch.__version__} finds no GPU of Intel")
    raise not_yet(xpu.get_device_name())
