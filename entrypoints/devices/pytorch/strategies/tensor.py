"""Tensor parallel training: each rank has a share of each block's matrices (Shoeybi et al., arXiv:1909.08053).

Attention is divided by heads, and the feed-forward network by its inner features. Two sums over all ranks complete a
block on the way forward, and two on the way back. Embedding, head and normalisations are the same on each rank, and so
are their gradients. Weights are slices, not the distributed tensors of torch.distributed.tensor, which older versions
lack and optimizers do not take together with others.
"""

from __future__ import annotations

import functools
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from entrypoints.contract.session import OptimizerRule
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared.observation import used_fraction
from entrypoints.devices.pytorch.strategies import shards
from entrypoints.devices.pytorch.strategies.strategy import Strategy
from entrypoints.workloads.pytorch.build import Objective, units
from entrypoints.workloads.pytorch.optimizers import Lamb
from entrypoints.workloads.pytorch.transformer import SelfAttention

SEEDS = 2**48  # of dropouts
OUTPUTS, INPUTS = 0, 1  # axes of a matrix


class Division(NamedTuple):
    """How a tensor is divided: along an axis, in each of so many equal groups along it, in pieces of so many."""

    axis: int
    groups: int = 1
    piece: int = 1

    def share(self, whole: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
        """Return a rank's share."""
        return self._grouped(whole).tensor_split(ranks, self.axis + 1)[rank].flatten(self.axis, self.axis + 2)

    def joined(self, shares: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the whole tensor of the shares of all ranks."""
        return torch.cat([self._grouped(share) for share in shares], self.axis + 1).flatten(self.axis, self.axis + 2)

    def _grouped(self, tensor: torch.Tensor) -> torch.Tensor:
        sizes = (self.groups, tensor.shape[self.axis] // (self.groups * self.piece), self.piece)
        return tensor.reshape(*tensor.shape[: self.axis], *sizes, *tensor.shape[self.axis + 1 :])


class CopyToGroup(torch.autograd.Function):
    """What is equal on all ranks, as the input of shares: its gradients are added up."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the input."""
        return x.view_as(x)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the sum over all ranks."""
        return summed(gradient)


class ReduceFromGroup(torch.autograd.Function):
    """The outputs of shares, added up: the gradient is that of each."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the sum over all ranks."""
        return summed(x)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the gradient."""
        return gradient


def summed(tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum of a tensor over all ranks. Not every gloo adds up bfloat16."""
    total = tensor.detach().to(torch.float32 if tensor.device.type == "cpu" else tensor.dtype, copy=True).contiguous()
    dist.all_reduce(total)
    return total.to(tensor.dtype)


class ColumnParallelLinear(nn.Module):
    """A linear layer with a share of the outputs."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., inputs) -> (..., share of the outputs)."""
        return functional.linear(CopyToGroup.apply(x), self.weight, self.bias)


class RowParallelLinear(ColumnParallelLinear):
    """A linear layer with a share of the inputs, and the whole bias."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., share of the inputs) -> (..., outputs)."""
        whole: torch.Tensor = ReduceFromGroup.apply(functional.linear(x, self.weight))
        return whole + self.bias.to(whole.dtype)


class TensorParallel(Strategy):
    """Blocks of a transformer whose matrices are divided. Each rank computes the whole batch."""

    engine = "heads and inner features"
    evaluating = torch.no_grad

    def wrap(self, model: Objective, hardware: torch.device) -> Any:
        """Keep a share of each block, and return the model.

        Raises RunError (`unsupported`) for a network without blocks of attention.
        """
        self.hardware, self.rank, self.ranks = hardware, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(torch.initial_seed())  # what is equal on all ranks is dropped equally
        blocks = getattr(model.network, "blocks", ())
        if not blocks:
            raise RunError("unsupported", "--strategy tensor: this network has no attention. Take --strategy fsdp")
        self.divisions = {}
        for number, block in enumerate(blocks):
            model.fill(block, hardware)  # if it is deferred: then a rank has one whole block at a time
            shares = divide(block, self.rank, self.ranks, hardware)
            self.divisions.update({f"blocks.{number}.{name}": division for name, division in shares.items()})
        dist.barrier()  # NCCL wants all ranks in its first call
        return super().wrap(model, hardware)

    def optimizer(self, model: Objective, rule: OptimizerRule, fused: bool) -> Any:
        """Return the optimizer of this rank's share."""
        made = super().optimizer(model, rule, fused)
        if isinstance(made, Lamb):
            divided = {id(weight) for weight in self.divided(model)}
            made.shard_norms = functools.partial(shards.norms, hardware=self.hardware, divided=divided)
        return made

    def divided(self, model: Objective) -> Sequence[nn.Parameter]:
        """Return the weights of which this rank has a share."""
        return [weight for name, weight in model.network.named_parameters() if name in self.divisions]

    def clip(self, model: Objective, norm: float) -> None:
        """Scale all gradients, of all shares together, to at most this L2 norm. What is equal counts once."""
        own = self.divided(model)
        equal = [weight for name, weight in model.network.named_parameters() if name not in self.divisions]
        counted, copies = ([*own, *equal], []) if self.rank == 0 else (own, equal)
        shards.clip(counted, norm, self.hardware, copies)

    def scaler(self, scaler: Any) -> Any:
        """Return a scaler whose ranks skip the same steps."""
        return scaler and shards.scaler(scaler)

    def weights(self, model: Objective) -> Mapping[str, np.ndarray]:
        """Return copies of all weights by name, joined from all ranks."""
        copies = {}
        for name, weight in model.network.named_parameters():
            division, whole = self.divisions.get(name), weight.detach()
            if division:
                whole = division.joined(self.shares(whole))
            copies[name] = whole.cpu().clone().numpy()
        return copies

    def shares(self, own: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the shares of all ranks, which may differ in size."""
        shapes: list[Any] = [None] * self.ranks
        dist.all_gather_object(shapes, tuple(own.shape))
        tensors = [own.clone() if rank == self.rank else own.new_empty(shape) for rank, shape in enumerate(shapes)]
        for rank, tensor in enumerate(tensors):
            dist.broadcast(tensor, rank)
        return tensors

    def used_units(self, model: Objective) -> Mapping[str, float]:
        """Return the `used_fraction` of each gradient of this rank's share, by name."""
        held = ((name, weight, axes) for name, weight, axes in units(model.network) if weight.numel())
        return {name: used_fraction(weight.grad, axes) for name, weight, axes in held}

    def inference_model(self, model: Objective) -> Any:
        """Return the model in evaluation mode."""
        return model.eval()


def divide(block: Any, rank: int, ranks: int, hardware: torch.device) -> Mapping[str, Division]:
    """Keep a rank's share of a block, and return how its weights are divided, by their names in the block."""
    attention, divided = block.attention, {}
    heads = attention.size  # features of a head, which stay together in the query, the key and the value
    by_layer = {
        "attention.query_key_value": Division(OUTPUTS, groups=3, piece=heads),
        "attention.project": Division(INPUTS, piece=heads),
        "widen": Division(OUTPUTS),
        "narrow": Division(INPUTS),
    }
    for name, division in by_layer.items():
        layer, (owner, _, last) = block.get_submodule(name), name.rpartition(".")
        divided[f"{name}.weight"] = division
        weight, bias = division.share(layer.weight.detach(), rank, ranks).clone(), layer.bias.detach()
        if division.axis == OUTPUTS:
            divided[f"{name}.bias"] = division
            bias = division.share(bias, rank, ranks).clone()
        share = ColumnParallelLinear(weight, bias) if division.axis == OUTPUTS else RowParallelLinear(weight, bias)
        setattr(block.get_submodule(owner), last, share)
    attention.heads = len(attention.query_key_value.bias) // (3 * heads)
    attention.attend = functools.partial(attend, attention, rank, hardware)
    return divided


def attend(attention: SelfAttention, rank: int, hardware: torch.device, *tensors: Any) -> torch.Tensor:
    """Attend by the heads of a rank, whose dropout is not that of other ranks' heads.

    Its seed is drawn from the random numbers that all ranks have, which a block that is computed again draws again.
    """
    if not attention.heads:  # fewer than ranks
        return tensors[0]
    if not (attention.training and attention.dropout.p):
        return SelfAttention.attend(attention, *tensors)
    seed = int(torch.randint(SEEDS, ()))
    on_device = {} if hardware.type in ("cpu", "cuda") else {"device_type": hardware.type}
    with torch.random.fork_rng([] if hardware.type == "cpu" else [hardware.index], **on_device):
        torch.manual_seed(seed + rank)
        return SelfAttention.attend(attention, *tensors)
