"""Fully sharded data parallel training: each rank has a shard of each weight, and of its gradient and optimizer state.

Weights of a unit, which is a row of blocks, are gathered while it computes. On a mesh of two dimensions (HSDP), ranks
of a node share one copy of the weights, and nodes average their gradients.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from entrypoints.workloads.pytorch.build import Objective

# Numbers of a unit, at least: gathering 10^8 bytes is bound by links, and not by starting to.
# torchtitan's units of Llama 3 8B have 2.2e8.
LEAST_UNIT = 50_000_000
# PyTorch 2.7 refuses units with frozen weights in another precision than trained ones; this version does not.
FROZEN_APART = (2, 10)


def shard(
    model: Objective,
    root: nn.Module,
    blocks: Iterable[nn.Module],
    mesh: DeviceMesh,
    hardware: torch.device,
    dtype: torch.dtype | None,
    offload: bool,
    reshard: bool,
) -> None:
    """Shard a model, or the part `root` of it, unit by unit, so that the hardware never has all of it.

    With `reshard`, weights of a unit are gathered again on the way back. Gradients are reduced in single precision. The
    stream between blocks keeps its precision, as it does without shards.
    """
    place = CPUOffloadPolicy(pin_memory=hardware.type != "cpu") if offload else OffloadPolicy()
    policy = MixedPrecisionPolicy(
        param_dtype=gathered_dtype(model, dtype), reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    for layer in root.modules():
        if isinstance(layer, nn.Embedding):
            layer.register_forward_hook(widened)
    rest = (root, False)  # its weights are needed first on the way back
    for unit, again in (*((unit, reshard) for unit in units(blocks)), rest):
        for module in unit if isinstance(unit, list) else [unit]:
            model.fill(module, hardware)  # of a model that is deferred, so that no host has all of it either
            if policy.param_dtype is not None and torch.__version__ >= FROZEN_APART:
                narrow_frozen(module, policy.param_dtype)
        whole: Any = fully_shard(
            unit,
            mesh=mesh,
            mp_policy=policy,
            reshard_after_forward=again,
            offload_policy=place,  # type: ignore[arg-type]
        )
        # gloo's mean is a sum in torch 2.8: https://github.com/pytorch/pytorch/issues/162338
        if hardware.type == "cpu":
            (whole[0] if isinstance(unit, list) else whole).set_force_sum_reduction_for_comms(True)
    for buffer in root.buffers():
        buffer.data = buffer.to(hardware)


def units(blocks: Iterable[nn.Module]) -> Iterator[list[nn.Module]]:
    """Yield blocks in rows of at least `LEAST_UNIT` numbers; the last row has what is left."""
    row: list[nn.Module] = []
    numbers = 0
    for block in blocks:
        row.append(block)
        numbers += sum(weight.numel() for weight in block.parameters())
        if numbers >= LEAST_UNIT:
            yield row
            row, numbers = [], 0
    if row:
        yield row


def narrow_frozen(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast what is not trained of a module to the precision in which it is gathered, unless it is sharded already."""
    for parameter in module.parameters():
        if not parameter.requires_grad and not isinstance(parameter, DTensor):
            parameter.data = parameter.data.to(dtype)


def gathered_dtype(model: Objective, dtype: torch.dtype | None) -> torch.dtype | None:
    """Return the half precision in which weights are gathered, or None for single precision.

    Batch normalisation needs its weights in the precision of its statistics.
    """
    normalised = any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())
    return None if normalised else dtype


def widened(_: nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
    """Return what was looked up in a gathered table in single precision, which the stream has without shards."""
    return output.float()


def reshard(model: nn.Module) -> None:
    """Let each rank have its shards only, where weights are still gathered after a forward pass."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
