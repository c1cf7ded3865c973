"""Data parallel training: each rank has the whole model, and gradients are averaged while they are computed."""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager

import torch
from torch.nn.parallel import DistributedDataParallel

from entrypoints.devices.pytorch.strategies.strategy import Strategy, seed_dropout_by_rank
from entrypoints.workloads.pytorch.build import Objective

# Devices of which a process has one. Gaudi: strategies/ddp.py in https://github.com/Lightning-AI/lightning-Habana.
WITHOUT_NUMBERS = ("cpu", "hpu")


class DataParallel(Strategy):
    """PyTorch's DistributedDataParallel. Its buckets are rebuilt after the first step."""

    engine = "DistributedDataParallel"
    wrapped: Any = None

    def wrap(self, model: Objective, hardware: torch.device) -> Any:
        """Return the model with hooks that average its gradients. Batch normalisation stays that of each rank."""
        seed_dropout_by_rank()
        devices = None if hardware.type in WITHOUT_NUMBERS else [hardware.index]
        on_hardware = super().wrap(model, hardware)
        self.wrapped = DistributedDataParallel(on_hardware, device_ids=devices, gradient_as_bucket_view=True)
        return self.wrapped

    def accumulating(self, last: bool) -> ContextManager[None]:
        """Return a context that leaves gradients to this rank until the last micro-batch of an update."""
        return contextlib.nullcontext() if last else self.wrapped.no_sync()
