"""GPUs of NVIDIA and AMD, which PyTorch both calls cuda."""

from __future__ import annotations

import torch

from entrypoints.devices.absence import not_yet, require_files
from entrypoints.statuses import RunError


def prepare(*_: object) -> None:
    """Raises RunError: `no_device` where there is no GPU, `unsupported` where there is one."""
    if not torch.cuda.is_available():
        amd = torch.version.hip is not None
        require_files("/dev/kfd" if amd else "/dev/nvidia0", "--rocm" if amd else "--nv")
        runtime = torch.version.hip or torch.version.cuda or "neither CUDA nor ROCm: it is a build for the CPU"
        raise RunError("no_device", f"PyTorch {torch.__version__}, built with {runtime}, finds no GPU")
    raise not_yet(torch.cuda.get_device_name())
