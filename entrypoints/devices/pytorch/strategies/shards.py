"""Norms of whole tensors and gradients, of which each rank has a shard."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

EPSILON = 1e-6  # added to a norm before it divides, as torch.nn.utils.clip_grad_norm_ does


def norms(
    shards: Sequence[torch.Tensor],
    parameters: Sequence[nn.Parameter],
    hardware: torch.device,
    copies: Mapping[int, int],
    group: dist.ProcessGroup,
) -> Sequence[torch.Tensor]:
    """Return the L2 norm over the ranks of a group of each tensor. All of them give their shards of the same tensors.

    `copies` has, by the identity of a parameter, how many ranks have the same shard of it.
    """
    own = squares(shards)
    own = own / own.new_tensor([copies[id(parameter)] for parameter in parameters])
    return _total(own, hardware, group).sqrt().unbind()


def clip(parameters: Sequence[nn.Parameter], norm: float, hardware: torch.device, copies: Sequence[int]) -> None:
    """Scale the gradients of the parameters of all ranks together to at most this L2 norm.

    `copies` says of each parameter how many ranks have the same shard of it.
    """
    of_each = [(parameter.grad, times) for parameter, times in zip(parameters, copies) if parameter.grad is not None]
    gradients = [gradient for gradient, _ in of_each]
    square = torch.zeros((), device=hardware)
    if gradients:  # a stage of a pipeline may have no weight
        own = squares(gradients)
        square = (own / own.new_tensor([times for _, times in of_each])).sum()
    factor = (norm / (_total(square, hardware).sqrt() + EPSILON)).clamp(max=1.0)
    if gradients:
        torch._foreach_mul_(gradients, factor)


def squares(shards: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the squared L2 norm of each of some shards, by a few kernels for all of them. Shards may be empty."""
    wide = [shard if shard.dtype == torch.float32 else shard.float() for shard in shards]
    filled = [shard for shard in wide if shard.numel()]
    norms = iter(torch._foreach_norm(filled) if filled else ())
    nothing = wide[0].new_zeros(())
    return torch.stack([next(norms) if shard.numel() else nothing for shard in wide]).square()


def scaler(of_one: Any, hardware: torch.device) -> Any:
    """Return a scaler of gradients like that of one rank, whose ranks skip the same steps."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    return ShardedGradScaler(hardware.type, init_scale=of_one.get_scale())


def _total(numbers: torch.Tensor, hardware: torch.device, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Return the sums over the ranks of a group, or all of them, on the device of `numbers`.

    Ranks exchange what is on the hardware.
    """
    total = numbers.to(hardware)
    dist.all_reduce(total, group=group)
    return total.to(numbers.device)
