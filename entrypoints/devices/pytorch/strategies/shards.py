"""Norms of whole tensors and gradients, of which each rank has a shard."""

from __future__ import annotations

from typing import Sequence

import torch
import torch.distributed as dist

from entrypoints.workloads.pytorch.optimizers import local

EPSILON = 1e-6  # added to a norm before it divides, as torch.nn.utils.clip_grad_norm_ does


def norms(shards: Sequence[torch.Tensor], hardware: torch.device) -> Sequence[torch.Tensor]:
    """Return the L2 norm over all ranks of each tensor. All ranks give their shards of the same tensors."""
    squares = torch.stack([shard.float().square().sum() for shard in shards])
    return _total(squares, hardware).sqrt().unbind()


def clip(parameters: Sequence[torch.nn.Parameter], norm: float, hardware: torch.device) -> None:
    """Scale the gradients of all parameters together to at most this L2 norm."""
    gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
    square = torch.stack([shard.float().square().sum() for shard in gradients]).sum()
    factor = (norm / (_total(square, hardware).sqrt() + EPSILON)).clamp(max=1.0)
    torch._foreach_mul_(gradients, factor)


def _total(numbers: torch.Tensor, hardware: torch.device) -> torch.Tensor:
    """Return the sums over all ranks, on the device of `numbers`. Ranks exchange what is on the hardware."""
    total = numbers.to(hardware)
    dist.all_reduce(total)
    return total.to(numbers.device)
