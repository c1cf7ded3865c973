"""The choice among strategies."""

from __future__ import annotations

import torch

from entrypoints.contract.choices import DDP, SHARDED, ZERO
from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.devices.pytorch.strategies.strategy import Strategy


def strategy_of(group: Group | None, dtype: torch.dtype | None, trained: bool) -> Strategy:
    """Return the strategy of the ranks of a group that train, or that have parts of a model.

    Modules of others are not imported: versions differ.
    """
    if group is None or group.how.strategy is None:
        return Strategy(dtype)
    if group.how.strategy in SHARDED or group.mesh.pipeline * group.mesh.tensor > 1:
        from entrypoints.devices.pytorch.strategies.meshed import Meshed

        return Meshed(dtype, group.mesh, group.how)
    if not trained:
        return Strategy(dtype)
    from entrypoints.devices.pytorch.strategies.ddp import DataParallel, SharedOptimizer

    by_name = {DDP: DataParallel, ZERO[0]: SharedOptimizer}
    return by_name[group.how.strategy](dtype)
