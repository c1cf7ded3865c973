"""Norms of whole tensors and gradients, of which each rank has a shard."""

from __future__ import annotations

from typing import Any, Container, Sequence

import torch
import torch.distributed as dist
from torch import nn

from entrypoints.workloads.pytorch.optimizers import local

EPSILON = 1e-6  # added to a norm before it divides, as torch.nn.utils.clip_grad_norm_ does


def norms(
    shards: Sequence[torch.Tensor],
    parameters: Sequence[nn.Parameter],
    hardware: torch.device,
    divided: Container[int] | None = None,
) -> Sequence[torch.Tensor]:
    """Return the L2 norm over all ranks of each tensor. All ranks give their shards of the same tensors.

    If `divided` has the identities of some parameters, tensors of others are whole on each rank.
    """
    whole = [divided is not None and id(parameter) not in divided for parameter in parameters]
    ranks = dist.get_world_size()
    own = squares(shards)
    if any(whole):
        own = own / own.new_tensor([ranks if equal else 1 for equal in whole])
    return _total(own, hardware).sqrt().unbind()


def clip(
    parameters: Sequence[nn.Parameter], norm: float, hardware: torch.device, copies: Sequence[nn.Parameter] = ()
) -> None:
    """Scale the gradients of all parameters of all ranks together to at most this L2 norm.

    Gradients of `copies` are counted by another rank.
    """
    counted, others = _gradients(parameters), _gradients(copies)
    square = squares(counted).sum() if counted else torch.zeros((), device=hardware)
    factor = (norm / (_total(square, hardware).sqrt() + EPSILON)).clamp(max=1.0)
    if counted:  # a stage of a pipeline may have no weight
        torch._foreach_mul_([*counted, *others], factor)


def squares(shards: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the squared L2 norm of each of some shards, by a few kernels for all of them. Shards may be empty."""
    wide = [shard if shard.dtype == torch.float32 else shard.float() for shard in shards]
    filled = [shard for shard in wide if shard.numel()]
    norms = iter(torch._foreach_norm(filled) if filled else ())
    nothing = wide[0].new_zeros(())
    return torch.stack([next(norms) if shard.numel() else nothing for shard in wide]).square()


def scaler(of_one: Any) -> Any:
    """Return a scaler of gradients like that of one rank, whose ranks skip the same steps."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    return ShardedGradScaler(init_scale=of_one.get_scale())


def _gradients(parameters: Sequence[nn.Parameter]) -> list[torch.Tensor]:
    return [local(parameter.grad) for parameter in parameters if parameter.grad is not None]


def _total(numbers: torch.Tensor, hardware: torch.device) -> torch.Tensor:
    """Return the sums over all ranks, on the device of `numbers`. Ranks exchange what is on the hardware."""
    total = numbers.to(hardware)
    dist.all_reduce(total)
    return total.to(numbers.device)
