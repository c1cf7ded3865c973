"""What a session leaves to its strategy."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Mapping, Protocol, Sequence

import numpy as np
import torch
import torch.distributed as dist

from entrypoints.contract.session import Batch, OptimizerRule
from entrypoints.devices.pytorch.shared.layout import LAYOUT
from entrypoints.devices.pytorch.shared.observation import used_fraction
from entrypoints.workloads.pytorch.build import (
    Objective,
    fold_batch_norms,
    half_weights,
    halve_frozen,
    loaded_for_inference,
    units,
    weights,
)
from entrypoints.workloads.pytorch.optimizers import optimizer


class MicroBatches(Protocol):
    """What computes micro-batches: a session."""

    def autocast(self) -> Any:
        """Return a context that computes in the run's half precision, if it has one."""

    def training_loss(self, batch: Batch) -> torch.Tensor:
        """Do the forward pass; return the loss."""

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return what of a loss is differentiated."""

    def forward_backward(self, batch: Batch, last: bool = True) -> torch.Tensor:
        """Do forward and backward, of the `last` micro-batch of an update or not; return the loss."""


class Strategy:
    """How a model is trained; this one is for a rank that trains alone, or that only answers.

    `dtype` is the half precision that a session computes in, or None. `engine` names what trains in PyTorch's place.
    """

    engine: str | None = None
    chunked_loss = True  # whether a loss may use the head's weight outside of the head
    evaluating: Any = torch.inference_mode  # the context of a forward pass without gradients

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype

    def wrap(self, model: Objective, hardware: torch.device) -> Any:
        """Move the model to the hardware, and return what is called in training in its place."""
        model.fill(model, hardware)
        if self.dtype is not None:
            halve_frozen(model, self.dtype)
        # channels_last saved a fifth (fp32) to two fifths (bf16) of a ResNet-50 step on a CPU with torch 2.13.
        return model.to(hardware, memory_format=LAYOUT.format)

    def compiled(self, wrapped: Any, compiler: Callable[[Any], Any]) -> Any:
        """Return what `wrap` or `inference_model` has returned, compiled by `compiler`."""
        return compiler(wrapped)

    def loaded_for_inference(self, model: Objective, hardware: torch.device) -> Objective:
        """Move a model that is never trained to the hardware, in the form that `inference_model` has."""
        return loaded_for_inference(model, hardware, self.dtype).to(memory_format=LAYOUT.format)

    def optimizer(self, model: Objective, rule: OptimizerRule, fused: bool) -> Any:
        """Return the optimizer of a rule for a model that was wrapped before."""
        return optimizer(model, rule, fused)

    def zero_grad(self, optimizer: Any) -> None:
        """Forget all gradients."""
        optimizer.zero_grad(set_to_none=True)

    def accumulate(self, parts: Sequence[Batch], computes: MicroBatches) -> Sequence[torch.Tensor]:
        """Add the gradients of the micro-batches of an update, in order; return their losses."""
        *others, last = parts
        return [*(computes.forward_backward(part, last=False) for part in others), computes.forward_backward(last)]

    def accumulating(self, last: bool) -> ContextManager[None]:  # noqa: ARG002 - others do
        """Return a context for the forward and backward pass of a micro-batch, the `last` one of an update or not."""
        return contextlib.nullcontext()

    def clip(self, model: Objective, norm: float) -> None:
        """Scale all gradients together to at most this L2 norm."""
        torch.nn.utils.clip_grad_norm_(model.parameters(), norm)

    def scaler(self, scaler: Any) -> Any:
        """Return what scales gradients in place of `scaler`, so that all ranks skip the same steps."""
        return scaler

    def weights(self, model: Objective) -> Mapping[str, np.ndarray]:
        """Return all weights by name, on the host. All ranks call it together."""
        return weights(model)

    def used_units(self, model: Objective) -> Mapping[str, float]:
        """Return the `used_fraction` of each gradient of `units`, by name. All ranks call it together."""
        return {name: used_fraction(weight.grad, axes) for name, weight, axes in units(model.network)}

    def inference_model(self, model: Objective) -> Any:
        """Return the model in evaluation mode, in the form in which it is fastest."""
        folded = fold_batch_norms(model).to(memory_format=LAYOUT.format)
        return folded if self.dtype is None else half_weights(folded, self.dtype)

    def require_equal(self) -> None:
        """Raise RunError (`crashed`) if what ranks have alike differs. All ranks call it together, outside of steps."""

    def close(self) -> None:
        """Release what the strategy keeps."""


def seed_dropout_by_rank() -> None:
    """Seed dropout differently on each rank."""
    torch.manual_seed(torch.initial_seed() + dist.get_rank())
