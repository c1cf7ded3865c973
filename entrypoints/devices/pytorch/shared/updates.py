"""Updates of weights: whether they are one fused kernel, and whether gradients overflowed before."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch

from entrypoints.contract.session import OptimizerRule

# Earlier fused optimizers refuse other devices than CUDA: github.com/pytorch/pytorch, 104517. On a CPU, operations on
# many tensors are loops over them: with torch 2.13 an update of AdamW took 6 to 9 times as long as fused.
FUSED_SINCE = {"cuda": "1.13.0a0", "xpu": "2.1.0a0", "cpu": "2.4"}


def updates_fused(hardware: torch.device, rule: OptimizerRule, precision: str) -> bool:
    """Return whether an update is fused on the hardware.

    Never that of gradient descent in fp16: if the first step overflows, the fused kernel returns without writing the
    momentum, which stays what was in memory (torch/optim/sgd.py makes it by `empty_like`; seen with PyTorch 2.11).
    """
    if rule.name == "sgd" and precision == "fp16":
        return False
    since = FUSED_SINCE.get(hardware.type)
    return since is not None and torch.__version__ >= since


def overflowed(scaler: Any, optimizer: Any) -> Sequence[torch.Tensor]:
    """Return what a scaler found while it unscaled the gradients of an optimizer: above 0 if one was not finite."""
    by_device: Mapping[Any, torch.Tensor] = scaler._found_inf_per_device(optimizer)  # the same from torch 1.6 on
    return list(by_device.values())
