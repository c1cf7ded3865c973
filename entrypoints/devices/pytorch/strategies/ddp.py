"""Data parallel training: each rank has the whole model, and gradients are averaged while they are computed."""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from entrypoints.workloads.pytorch.build import Objective


class DataParallel:
    """PyTorch's DistributedDataParallel. Its buckets are rebuilt after the first step."""

    wrapped: Any = None

    def wrap(self, model: Objective) -> Any:
        """Return the model with hooks that average its gradients. Batch normalisation stays that of each rank."""
        first = next(model.parameters())
        devices = None if first.device.type == "cpu" else [first.device.index]
        torch.manual_seed(torch.initial_seed() + dist.get_rank())  # each rank drops other values of other samples
        self.wrapped = DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
        return self.wrapped

    def accumulating(self, last: bool) -> ContextManager[None]:
        """Return a context that leaves gradients to this rank until the last micro-batch of an update."""
        return contextlib.nullcontext() if last else self.wrapped.no_sync()
