"""Tensor parallel layers by torch.distributed.tensor: each rank has some of the numbers of each matrix.

A network says by `entrypoints.workloads.pytorch.roles` which layer is divided how.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Mapping

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle

from entrypoints.contract.statuses import RunError
from entrypoints.workloads.pytorch import roles
from entrypoints.workloads.pytorch.build import Objective

POSITIONS = Shard(1)  # of activations (N, T, width)
PARTS = 3  # of a packed layer: query, key and value
COMPUTED_IN = (roles.COLUMNS, roles.PACKED, roles.LOGITS)  # roles whose input is cast before it is sent

__all__ = ["divide", "loss_parallel", "unpacked", "whole"]


class PackedColumns(ColwiseParallel):
    """A linear layer with query, key and value in a row, of which each rank has the same heads."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        ranks = device_mesh.size()
        for parameter in module.parameters():
            rows = parameter.data.unflatten(0, (PARTS, ranks, -1))
            parameter.data = rows.transpose(0, 1).flatten(0, 2).contiguous()
        return super()._apply(module, device_mesh)


def unpacked(tensor: torch.Tensor, ranks: int) -> torch.Tensor:
    """Return a tensor of a `PackedColumns` layer with its rows in the order of the network."""
    return tensor.unflatten(0, (ranks, PARTS, -1)).transpose(0, 1).flatten(0, 2)


class Table(ParallelStyle):
    """An embedding that each rank looks up whole, (..., T, width), and keeps its positions of."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def looked_up(_: nn.Module, inputs: Any, __: DeviceMesh) -> Any:
            tensors = (DTensor.from_local(each, run_check=False, device_mesh=device_mesh) for each in inputs)
            return tuple(tensors) if isinstance(inputs[0], torch.Tensor) else inputs

        def kept(_: nn.Module, output: DTensor, __: DeviceMesh) -> torch.Tensor:
            return output.redistribute(placements=[Shard(output.dim() - 2)]).to_local()

        return distribute_module(module, device_mesh, None, looked_up, kept)  # type: ignore[arg-type]


def styles(trained: bool) -> Mapping[str, Callable[[], ParallelStyle]]:
    """Return how a layer of each role is divided. A model that only answers has all positions on each rank."""
    stream: Placement = POSITIONS if trained else Replicate()
    answers = {roles.LOGITS: lambda: ColwiseParallel(output_layouts=Replicate())}
    learns = {
        roles.LOGITS: lambda: ColwiseParallel(input_layouts=stream, use_local_output=False),
        roles.STREAM: lambda: SequenceParallel(use_local_output=True),
        roles.TABLE: Table,
        roles.WHOLE: Whole,
    }
    return {
        roles.COLUMNS: lambda: ColwiseParallel(input_layouts=stream),
        roles.PACKED: lambda: PackedColumns(input_layouts=stream),
        roles.ROWS: lambda: RowwiseParallel(output_layouts=stream),
        roles.VOCABULARY: lambda: RowwiseParallel(input_layouts=Replicate(), output_layouts=stream),
        roles.CLASSES: lambda: ColwiseParallel(output_layouts=Replicate()),
        **(learns if trained else answers),
    }


class Whole(ParallelStyle):
    """A module whose first input (N, T, width) has some positions of each rank, and which computes on all of them."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def gathered(_: nn.Module, inputs: Any) -> Any:
            own = DTensor.from_local(inputs[0], device_mesh, [POSITIONS], run_check=False)
            return own.redistribute(placements=[Replicate()]).to_local(), *inputs[1:]

        module.register_forward_pre_hook(gathered)
        return module


def divide(
    model: Objective, mesh: DeviceMesh, hardware: torch.device, dtype: torch.dtype | None, trained: bool
) -> set[str]:
    """Keep a rank's share of each layer with a role. Return the names of weights that are packed otherwise then.

    Only one module at a time is whole on the hardware, if the model is deferred. Raises RunError (`unsupported`) for a
    network without such roles.
    """
    named = [(name, module) for name, module in model.network.named_modules() if hasattr(module, "roles")]
    if not named:
        raise RunError("unsupported", "--tensor: this network does not say how it is divided. Take --strategy fsdp")
    by_role = styles(trained)
    packed: set[str] = set()
    shares: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # by what was divided: this, and what came of it
    for name, module in named:
        model.fill(module, hardware)
        module.to(hardware)
        layers = dict(module.named_modules())
        for of_layer, role in module.roles.items():
            layer: Any = layers.get(of_layer)
            if role not in by_role or layer is None or next(layer.parameters(), None) is None:
                continue
            before = {key: own for key, own in layer._parameters.items() if own is not None}
            if dtype and role in COMPUTED_IN:
                layer.register_forward_pre_hook(functools.partial(cast, dtype))
            parallelize_module(layer, mesh, by_role[role](), src_data_rank=None)
            for key, own in before.items():  # a tied weight is divided once
                _, layer._parameters[key] = shares.setdefault(id(own), (own, layer._parameters[key]))
            if role == roles.PACKED:
                packed.update(f"{name}.{of_layer}.{key}" for key in before)
    return packed


def cast(dtype: torch.dtype, _: nn.Module, inputs: Any) -> Any:
    """Return the inputs of a layer with the first one in the precision in which it is computed, and sent before."""
    return inputs[0].to(dtype), *inputs[1:]


def whole(tensor: Any) -> torch.Tensor:
    """Return all of a tensor; one that is not distributed is returned itself."""
    gathered: torch.Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return gathered
