"""The choice among strategies."""

from __future__ import annotations

import torch

from entrypoints.contract.choices import DDP, FSDP, PIPELINED, TENSOR
from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.devices.pytorch.strategies.strategy import Strategy


def strategy_of(group: Group | None, dtype: torch.dtype | None, trained: bool, compiled: bool) -> Strategy:
    """Return the strategy of the ranks of a group that train, and not that of copies that answer.

    Modules of others are not imported: versions differ.
    """
    if group is None or group.strategy is None or not trained:
        return Strategy(dtype)
    if group.strategy == DDP:
        from entrypoints.devices.pytorch.strategies.ddp import DataParallel

        return DataParallel(dtype)
    if group.strategy == FSDP:
        from entrypoints.devices.pytorch.strategies.fsdp import sharded

        return sharded(dtype, group.offload)
    if group.strategy == PIPELINED:
        from entrypoints.devices.pytorch.strategies.pipeline import Pipeline

        return Pipeline(dtype)
    if group.strategy == TENSOR:
        from entrypoints.devices.pytorch.strategies.tensor import TensorParallel

        return TensorParallel(dtype)
    from entrypoints.devices.pytorch.strategies.zero import zero

    return zero(group.strategy, dtype, group.offload, compiled)
