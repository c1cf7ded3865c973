"""Data parallel training: each rank has the whole model, and gradients are averaged while they are computed."""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from entrypoints.contract.session import OptimizerRule
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.strategies.strategy import Strategy, seed_dropout_by_rank
from entrypoints.workloads.pytorch.build import Objective
from entrypoints.workloads.pytorch.optimizers import RULES, parameter_groups

# Devices of which a process has one. Gaudi: strategies/ddp.py in https://github.com/Lightning-AI/lightning-Habana.
WITHOUT_NUMBERS = ("cpu", "hpu")
# MiB of gradients that are reduced at once: PyTorch's 25, and more for models of more numbers than LARGE, since links
# of several nodes want larger messages, and what is left to reduce after backward is then a small share.
BUCKET, LARGE_BUCKET, LARGE = 25, 100, 500_000_000


class DataParallel(Strategy):
    """PyTorch's DistributedDataParallel. Its buckets are rebuilt after the first step."""

    engine = "DistributedDataParallel"
    wrapped: Any = None

    def wrap(self, model: Objective, hardware: torch.device) -> Any:
        """Return the model with hooks that average its gradients. Batch normalisation stays that of each rank."""
        seed_dropout_by_rank()
        self.wrapped = replicated(super().wrap(model, hardware), hardware)
        return self.wrapped

    def accumulating(self, last: bool) -> ContextManager[None]:
        """Return a context that leaves gradients to this rank until the last micro-batch of an update."""
        return contextlib.nullcontext() if last else self.wrapped.no_sync()


class SharedOptimizer(DataParallel):
    """ZeRO's stage 1 by PyTorch's ZeroRedundancyOptimizer: each rank updates a share of the tensors."""

    engine = "ZeroRedundancyOptimizer"

    def optimizer(self, model: Objective, rule: OptimizerRule, fused: bool) -> Any:
        """Return the optimizer. Raises RunError (`unsupported`) if there are fewer tensors than ranks.

        A rank sends its share in one message, unless weights are in channels_last: in one buffer they would lose that.
        """
        from torch.distributed.optim import ZeroRedundancyOptimizer

        tensors, ranks = len(list(model.parameters())), dist.get_world_size()
        if tensors < ranks:
            raise RunError(
                "unsupported",
                f"--strategy zero1 with --replicas {ranks}: the network has {tensors} tensors, and each rank updates "
                f"some of them. Give --replicas {tensors} or fewer, or --strategy ddp",
            )

        def of_share(groups: Any) -> torch.optim.Optimizer:
            return RULES[rule.name](groups, rule, fused)

        together = all(weight.is_contiguous() for weight in model.parameters())
        groups: Any = parameter_groups(model, rule)
        return ZeroRedundancyOptimizer(groups, of_share, parameters_as_bucket_view=together)


def replicated(model: Any, hardware: torch.device, group: dist.ProcessGroup | None = None) -> DistributedDataParallel:
    """Return a model whose gradients are averaged over the ranks of a group.

    Buffers stay those of each rank: broadcast before each forward pass, statistics of the first rank would replace
    those of all others.
    """
    numbers = sum(weight.numel() for weight in model.parameters())
    return DistributedDataParallel(
        model,
        device_ids=None if hardware.type in WITHOUT_NUMBERS else [hardware.index],
        process_group=group,
        broadcast_buffers=False,
        bucket_cap_mb=LARGE_BUCKET if numbers > LARGE else BUCKET,
        gradient_as_bucket_view=True,
    )
