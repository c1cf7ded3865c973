"""Fully sharded data parallel training: each rank has a shard of each weight, and of its gradient and optimizer state.

Weights of a block are gathered while it computes. In PyTorch this is `fully_shard` from 2.6 on, and before that
FullyShardedDataParallel, which keeps groups of weight decay apart from 2.0 on.
"""

from __future__ import annotations

import functools
from typing import Any, Mapping

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from entrypoints.contract.session import OptimizerRule
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared.observation import used_fraction
from entrypoints.devices.pytorch.strategies import shards
from entrypoints.devices.pytorch.strategies.strategy import Strategy, seed_dropout_by_rank
from entrypoints.workloads.pytorch.build import Objective, find_blocks, units
from entrypoints.workloads.pytorch.optimizers import Lamb

WRAPPED = "_fsdp_wrapped_module."  # in the name of what FullyShardedDataParallel has replaced
PUBLIC = (2, 6)  # versions with fully_shard and with groups of weight decay, on a CPU without a GPU beside it
BY_KIND = {"cpu": (2, 4)}
LEAST = (2, 0)


def require(kind: str, offload: bool = False) -> None:
    """Raise RunError (`unsupported`) if this PyTorch has no shards on a kind of device, or none on its host."""
    least = PUBLIC if offload else BY_KIND.get(kind, LEAST)
    if torch.__version__ < least:
        version, option = ".".join(map(str, least)), " with --offload" * offload
        raise RunError(
            "unsupported",
            f"--strategy fsdp{option} on {kind}: PyTorch {torch.__version__} cannot do it, from {version} on it can. "
            "Take --strategy ddp or zero1, or another image",
        )


def sharded(dtype: torch.dtype | None, offload: bool = False) -> Strategy:
    """Return the strategy of this PyTorch."""
    return FullyShard(dtype, offload) if torch.__version__ >= PUBLIC else FlatShards(dtype)


class Sharded(Strategy):
    """What both ways share. Gradients are reduced after each micro-batch, so that no rank has all of them."""

    evaluating = torch.no_grad  # FSDP would keep inference-mode tensors, which autograd rejects
    wrapped: Any = None
    hardware: torch.device

    def optimizer(self, model: Objective, rule: OptimizerRule, fused: bool) -> Any:
        """Return the optimizer of this rank's shards."""
        made = super().optimizer(model, rule, fused)
        if isinstance(made, Lamb):
            made.shard_norms = functools.partial(shards.norms, hardware=self.hardware)
        return made

    def clip(self, model: Objective, norm: float) -> None:
        """Scale all gradients, of all ranks together, to at most this L2 norm."""
        shards.clip(list(model.parameters()), norm, self.hardware)

    def inference_model(self, model: Objective) -> Any:  # noqa: ARG002 - others do
        """Return what is called in training, in evaluation mode: no rank has all that could be folded."""
        return self.wrapped.eval()

    def gathered_dtype(self, model: Objective) -> torch.dtype | None:
        """Return the half precision in which weights are gathered, or None for single precision.

        Batch normalisation needs its weights in the precision of its statistics.
        """
        normalised = any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())
        return None if normalised else self.dtype


class FullyShard(Sharded):
    """PyTorch's `fully_shard` of each recurring part of a network, and of what remains."""

    engine = "fully_shard"

    def __init__(self, dtype: torch.dtype | None, offload: bool = False) -> None:
        super().__init__(dtype)
        self.offload = offload

    def wrap(self, model: Objective, hardware: torch.device) -> Any:
        """Shard the model part by part, so that the hardware never has all of it."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

        seed_dropout_by_rank()
        self.hardware = hardware
        place = CPUOffloadPolicy(pin_memory=hardware.type != "cpu") if self.offload else OffloadPolicy()
        policy = MixedPrecisionPolicy(param_dtype=self.gathered_dtype(model), reduce_dtype=torch.float32)
        mesh = init_device_mesh(hardware.type, (dist.get_world_size(),))
        for part in (*find_blocks(model.network), model):
            model.fill(part, hardware)  # of a model that is deferred, so that no host has all of it either
            whole = fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=True, offload_policy=place)
            # gloo's mean is a sum in torch 2.8: https://github.com/pytorch/pytorch/issues/162338
            if hardware.type == "cpu" and hasattr(whole, "set_force_sum_reduction_for_comms"):
                whole.set_force_sum_reduction_for_comms(True)
        for buffer in model.buffers():
            buffer.data = buffer.to(hardware)
        self.wrapped = model
        return model

    def optimizer(self, model: Objective, rule: OptimizerRule, fused: bool) -> Any:
        """Return the optimizer of this rank's shards, where these are."""
        # PyTorch 2.13 has no fused gradient descent of distributed tensors.
        return super().optimizer(model, rule, fused and not self.offload and rule.name != "sgd")

    def whole(self, tensor: Any) -> torch.Tensor:
        """Return a weight or gradient, gathered from all ranks on the hardware."""
        gathered: torch.Tensor = tensor.detach().to(self.hardware).full_tensor()
        return gathered

    def weights(self, model: Objective) -> Mapping[str, np.ndarray]:
        """Return all weights by name, gathered from all ranks."""
        named = model.network.named_parameters()
        return {name: self.whole(weight).cpu().numpy() for name, weight in named}

    def used_units(self, model: Objective) -> Mapping[str, float]:
        """Return the `used_fraction` of each gradient, gathered from all ranks, by name."""
        whole = {name: (weight.grad, axes) for name, weight, axes in units(model.network)}
        return {
            name: used_fraction(gradient if gradient is None else self.whole(gradient), axes)
            for name, (gradient, axes) in whole.items()
        }


class FlatShards(Sharded):
    """PyTorch's FullyShardedDataParallel around each recurring part of a network, and around the model."""

    engine = "FullyShardedDataParallel"

    def wrap(self, model: Objective, hardware: torch.device) -> Any:
        """Replace parts of the model by wrapped ones, and return the model, wrapped."""
        from torch.distributed import fsdp
        from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

        seed_dropout_by_rank()
        self.hardware = hardware
        parts = {id(part) for part in find_blocks(model.network)}
        dtype = self.gathered_dtype(model)
        model.fill(model, torch.device("cpu"))
        self.wrapped = fsdp.FullyShardedDataParallel(
            model,
            auto_wrap_policy=functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda part: id(part) in parts),
            mixed_precision=fsdp.MixedPrecision(param_dtype=dtype, reduce_dtype=torch.float32) if dtype else None,
            device_id=hardware,
            backward_prefetch=fsdp.BackwardPrefetch.BACKWARD_PRE,
            limit_all_gathers=True,
            use_orig_params=True,
        )
        return self.wrapped

    def scaler(self, scaler: Any) -> Any:
        """Return a scaler whose ranks skip the same steps."""
        return scaler and shards.scaler(scaler)

    def weights(self, model: Objective) -> Mapping[str, np.ndarray]:
        """Return copies of all weights by name, gathered from all ranks."""
        with self.wrapped.summon_full_params(self.wrapped, writeback=False):
            named = model.network.named_parameters()
            return {name.replace(WRAPPED, ""): weight.detach().cpu().clone().numpy() for name, weight in named}

    def used_units(self, model: Objective) -> Mapping[str, float]:
        """Return the `used_fraction` of each gradient, gathered from all ranks, by name."""
        with self.wrapped.summon_full_params(self.wrapped, writeback=False, with_grads=True):
            return {name.replace(WRAPPED, ""): used for name, used in super().used_units(model).items()}
