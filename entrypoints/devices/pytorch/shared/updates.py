"""Updates of weights: whether they are one fused kernel, and whether gradients overflowed before."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch

from entrypoints.contract.session import OptimizerRule

# Earlier fused optimizers refuse other devices than CUDA: github.com/pytorch/pytorch, 104517.
FUSED_ON_INTEL = "2.1.0a0"


def updates_fused(hardware: torch.device, rule: OptimizerRule, precision: str) -> bool:
    """Return whether an update is fused on the hardware.

    Never that of gradient descent in fp16: if the first step overflows, the fused kernel returns without writing the
    momentum, which stays what was in memory (torch/optim/sgd.py makes it by `empty_like`; seen with PyTorch 2.11).
    """
    if rule.name == "sgd" and precision == "fp16":
        return False
    return hardware.type == "cuda" or (hardware.type == "xpu" and torch.__version__ >= FUSED_ON_INTEL)


def overflowed(scaler: Any, optimizer: Any) -> Sequence[torch.Tensor]:
    """Return what a scaler found while it unscaled the gradients of an optimizer: above 0 if one was not finite."""
    by_device: Mapping[Any, torch.Tensor] = scaler._found_inf_per_device(optimizer)  # the same from torch 1.6 on
    return list(by_device.values())
