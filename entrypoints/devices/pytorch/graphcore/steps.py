"""Steps of training and inference as PopTorch compiles them: modules from tensors to tensors."""

from __future__ import annotations

from typing import Any, Sequence

import poptorch
import torch
from torch import nn

from entrypoints.devices.pytorch.shared.tensors import Nesting, to_float32
from entrypoints.workloads.pytorch.build import Objective

PIECE = 128  # tokens of a text whose loss is computed at once, as in Graphcore's GPT-2


class TrainingStep(nn.Module):
    """A whole training step in PopTorch's form: a module from tensors to the loss, where autograd begins."""

    def __init__(self, objective: Objective, shape: Nesting, single: bool, overlapped: bool = False) -> None:
        super().__init__()
        self.objective, self.shape, self.single, self.overlapped = objective, shape, single, overlapped

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Map inputs and targets, one after the other, to a scalar."""
        inputs, targets = self.shape.nested(overlapped_inputs(tensors) if self.overlapped else tensors)
        output, _ = self.objective(inputs)
        loss = poptorch.identity_loss(self.mean_loss(output, targets), reduction="none")
        return overlapped_output(loss) if self.overlapped else loss

    def mean_loss(self, output: Any, targets: Any) -> torch.Tensor:
        """Return the mean loss; of many tokens as the sum of that of pieces, so that no copy of all logits is made."""
        pieces = zip(*(tensor.split(PIECE, 1) for tensor in (output, targets))) if by_token(output, targets) else None
        if pieces is None:
            return self.objective.loss_of(to_float32(output) if self.single else output, targets)
        shares = [self.share_of_loss(piece, expected, output.shape[1]) for piece, expected in pieces]
        return torch.stack(shares).sum()

    def share_of_loss(self, output: torch.Tensor, targets: torch.Tensor, length: int) -> torch.Tensor:
        """Return what a piece of texts of `length` tokens adds to the mean loss."""
        loss = self.objective.loss_of(to_float32(output) if self.single else output, targets)
        return loss * (output.shape[1] / length)


class InferenceStep(nn.Module):
    """The network alone, in PopTorch's form."""

    def __init__(self, objective: Objective, shape: Nesting, overlapped: bool = False) -> None:
        super().__init__()
        self.objective, self.shape, self.overlapped = objective, shape, overlapped

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Map inputs, one after the other, to the output."""
        inputs, _ = self.shape.nested(overlapped_inputs(tensors) if self.overlapped else tensors)
        output = self.objective(inputs)[0]
        return overlapped_output(output) if self.overlapped else output


def by_token(output: Any, targets: Any) -> bool:
    """Return whether the loss is a mean over tokens, in texts of more than one piece, whose logits are large."""
    one_each = isinstance(output, torch.Tensor) and isinstance(targets, torch.Tensor) and output.dim() == 3
    return one_each and output.shape[:2] == targets.shape and output.shape[1] > PIECE


def overlapped_inputs(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return inputs that are sent while the call before is computed."""
    mode = poptorch.OverlapMode.OverlapDeviceIterationLoop
    return [poptorch.set_overlap_for_input(tensor, mode) for tensor in tensors]


def overlapped_output(output: Any) -> Any:
    """Return outputs that are fetched while the next ones are computed."""
    return poptorch.set_overlap_for_output(output, poptorch.OverlapMode.OverlapDeviceIterationLoop)
