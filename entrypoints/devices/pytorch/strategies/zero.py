"""ZeRO (Rajbhandari et al., arXiv:1910.02054): ranks divide optimizer states (stage 1), gradients (2) and weights (3).

DeepSpeed computes it. Stage 1 is also in PyTorch: for compiled models and fp16, and for images without DeepSpeed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from types import ModuleType
from typing import Any, ContextManager, Mapping

import numpy as np
import torch
import torch.distributed as dist

from entrypoints.contract.choices import ZERO
from entrypoints.contract.session import OptimizerRule
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared.observation import used_fraction
from entrypoints.devices.pytorch.strategies.ddp import DataParallel
from entrypoints.devices.pytorch.strategies.strategy import Strategy, seed_dropout_by_rank
from entrypoints.workloads.pytorch.build import Objective, units
from entrypoints.workloads.pytorch.optimizers import RULES, parameter_groups

BUCKET = 200_000_000  # most numbers that are reduced or gathered at once


def has_deepspeed() -> bool:
    """Return whether DeepSpeed is in this image."""
    return importlib.util.find_spec("deepspeed") is not None


def require(strategy: str) -> None:
    """Raise RunError (`unsupported`) if nothing here computes a stage."""
    if strategy != ZERO[0] and not has_deepspeed():
        raise RunError(
            "unsupported",
            f"--strategy {strategy}: DeepSpeed computes it, and is not in this image. Take --strategy zero1 or fsdp, "
            "or an image that has it",
        )


def zero(name: str, dtype: torch.dtype | None, offload: bool, compiled: bool) -> Strategy:
    """Return the strategy of a stage. For stage 1, PyTorch does what DeepSpeed cannot."""
    beyond = compiled or dtype == torch.float16
    if name == ZERO[0] and (beyond or not has_deepspeed()):
        return SharedOptimizer(dtype)
    return DeepSpeed(name, dtype, offload)


class SharedOptimizer(DataParallel):
    """Stage 1 by PyTorch's ZeroRedundancyOptimizer: each rank updates a share of the tensors."""

    engine = "ZeroRedundancyOptimizer"

    def optimizer(self, model: Objective, rule: OptimizerRule, fused: bool) -> Any:
        """Return the optimizer. Raises RunError (`unsupported`) if there are fewer tensors than ranks."""
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

        return ZeroRedundancyOptimizer(parameter_groups(model, rule), of_share)  # type: ignore[arg-type]


class DeepSpeed(Strategy):
    """A stage by DeepSpeed's engine, which does forward, backward and update itself."""

    chunked_loss = False  # weights are gathered for the layer that has them
    evaluating = torch.no_grad  # gathered weights would remain tensors of inference mode

    def __init__(self, name: str, dtype: torch.dtype | None, offload: bool = False) -> None:
        super().__init__(dtype)
        self.name, self.stage, self.offload = name, 1 + ZERO.index(name), offload
        self.computing: Any = None  # DeepSpeed's engine, once there is an optimizer
        self.used: dict[str, float] | None = None  # of the first step: the engine frees its gradients

    def wrap(self, model: Objective, hardware: torch.device) -> Any:
        """Return what calls the engine, which is made together with the optimizer.

        Raises RunError (`unsupported`) for fp16, which DeepSpeed would scale differently.
        """
        if self.dtype == torch.float16:
            raise RunError(
                "unsupported", f"--precision fp16 with --strategy {self.name}: take bf16, or --strategy fsdp"
            )
        seed_dropout_by_rank()
        self.library = library(hardware)
        self.engine = f"DeepSpeed {self.library.__version__}"
        self.model = model.to(hardware)
        return lambda inputs, targets=None: self.computing(inputs, targets)

    def optimizer(self, model: Objective, rule: OptimizerRule, fused: bool) -> Any:
        """Return what updates by the engine. Raises RunError (`unsupported`) for LAMB, which needs whole tensors."""
        if rule.name == "lamb":
            raise RunError(
                "unsupported",
                f"--strategy {self.name}: LAMB needs the norms of whole tensors, and DeepSpeed updates pieces of them. "
                "Take --strategy fsdp or ddp",
            )
        weights = sum(weight.numel() for weight in model.parameters())
        bucket = min(BUCKET, 1 << weights.bit_length())  # DeepSpeed wants it even
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": 1,  # for its own reports, which are off
            "steps_per_print": 2**62,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": {
                "stage": self.stage,
                **dict.fromkeys(("reduce_bucket_size", "allgather_bucket_size"), bucket),
            },
            "gradient_clipping": rule.gradient_norm or 0.0,
        }
        if self.offload:  # of weights, only those that ranks divide
            kept = ("offload_optimizer", "offload_param")[: self.stage - 1]
            config["zero_optimization"].update({part: {"device": "cpu"} for part in kept})
        if self.dtype:
            config["torch_autocast"] = {"enabled": True, "dtype": str(self.dtype).rpartition(".")[2]}
        made = super().optimizer(model, rule, fused and not self.offload)
        self.computing, *_ = self.library.initialize(model=model, optimizer=made, config=config)
        return Updates(self)

    def accumulating(self, last: bool) -> ContextManager[None]:
        """Say whether an update follows; gradients are reduced in any case from stage 2 on."""
        self.computing.set_gradient_accumulation_boundary(last)
        return contextlib.nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss, by the engine."""
        self.computing.backward(loss, scale_wrt_gas=False)

    def clip(self, model: Objective, norm: float) -> None:
        """Leave it to the engine."""

    def weights(self, model: Objective) -> Mapping[str, np.ndarray]:
        """Return copies of all weights by name, gathered from all ranks."""
        copies: dict[str, np.ndarray] = {}
        for name, weight in model.network.named_parameters():
            with self.library.zero.GatheredParameters([weight], enabled=self.stage == ZERO.index("zero3") + 1):
                copies[name] = weight.detach().cpu().clone().numpy()
        return copies

    def used_units(self, model: Objective) -> Mapping[str, float]:  # noqa: ARG002 - others do
        """Return the fractions of the first step."""
        return self.used or {}

    def inference_model(self, model: Objective) -> Any:
        """Return the engine, its model in evaluation mode."""
        model.eval()
        return self.computing

    def close(self) -> None:
        """Release what the engine keeps of the model."""
        if self.computing is not None:
            self.computing.destroy()
            self.computing = None


class Updates:
    """DeepSpeed's engine as an optimizer."""

    def __init__(self, strategy: DeepSpeed) -> None:
        self.strategy = strategy

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing: the engine frees gradients after each update."""

    def step(self) -> None:
        """Update; of the first step, note which units have gradients."""
        if self.strategy.used is None:
            from deepspeed.utils import safe_get_full_grad

            weights = units(self.strategy.model.network)
            self.strategy.used = {
                name: used_fraction(safe_get_full_grad(weight), axes) for name, weight, axes in weights
            }
        self.strategy.computing.step()


def library(hardware: torch.device) -> ModuleType:
    """Return DeepSpeed, set up for the ranks that have joined: without a launcher, MPI or a compiler."""
    ranks = {"RANK": dist.get_rank(), "WORLD_SIZE": dist.get_world_size(), "LOCAL_RANK": hardware.index or 0}
    os.environ.update({name: str(value) for name, value in ranks.items()}, DS_ACCELERATOR=hardware.type)
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled by every run
    deepspeed.init_distributed(dist.get_backend(), auto_mpi_discovery=False, verbose=False)
    return deepspeed
