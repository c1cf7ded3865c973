"""Tensors of PyTorch, one by one or in tuples, as the inputs, targets and outputs of models are."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import torch

from entrypoints.contract.session import Batch, Judged
from entrypoints.workloads.pytorch.build import Tensors


def to_host(output: Tensors) -> Any:
    """Outputs as arrays, of halves in single precision."""
    if isinstance(output, tuple):
        return tuple(map(to_host, output))
    return (output.float() if output.dtype in (torch.bfloat16, torch.float16) else output).cpu().numpy()


def evaluation_result(batch: Batch, output: Tensors, loss: torch.Tensor) -> Judged:
    """How a batch was told: what is likeliest counts where its targets are labels."""
    labels = batch.targets
    right = None
    if isinstance(output, torch.Tensor) and isinstance(labels, torch.Tensor) and labels.dim() == 1:
        right = int((output.argmax(1) == labels).sum())
    return Judged(batch.samples, loss.item(), right, None if batch.numbers is None else to_host(output))


def as_tuple(tensors: Any) -> tuple[torch.Tensor, ...]:
    """A tensor, or each of a tuple."""
    return tensors if isinstance(tensors, tuple) else (tensors,)


def to_float32(output: Any) -> Any:
    """Outputs in single precision."""
    return tuple(map(to_float32, output)) if isinstance(output, tuple) else output.float()


def pad_batch(tensor: torch.Tensor, samples: int) -> torch.Tensor:
    """So many samples: the last one again and again."""
    missing = samples - len(tensor)
    return torch.cat([tensor, tensor[-1:].expand(missing, *tensor.shape[1:])]) if missing else tensor


def first_samples(output: Any, samples: int) -> Any:
    """The first samples of an output."""
    return tuple(first_samples(one, samples) for one in output) if isinstance(output, tuple) else output[:samples]


def micro_batches(batch: Batch, size: int) -> Sequence[Batch]:
    """A batch in pieces of so many samples, the last one perhaps of fewer."""
    if batch.samples <= size:
        return [batch]
    cut = zip(split(batch.inputs, size), split(batch.targets, size))
    return [batch._replace(inputs=one, targets=other) for one, other in cut]


def combine_results(found: Sequence[Judged]) -> Judged:
    """What was told of the pieces of a batch, as if it had been told at once."""
    samples = sum(one.samples for one in found)
    rights = [one.right for one in found if one.right is not None]
    return Judged(
        samples,
        sum(one.loss * one.samples for one in found) / samples,
        sum(rights) if rights else None,
        None if found[0].output is None else concatenate([one.output for one in found]),
    )


def concatenate(outputs: Sequence[Any]) -> Any:
    """Arrays one after the other, or tuples of them one by one."""
    if isinstance(outputs[0], tuple):
        return tuple(map(concatenate, zip(*outputs)))
    return np.concatenate(outputs)


def split(tensors: Any, size: int) -> Sequence[Any]:
    """A tensor in pieces of so many samples, or a tuple as tuples of pieces."""
    if isinstance(tensors, tuple):
        return list(zip(*(split(tensor, size) for tensor in tensors)))
    return list(tensors.split(size))


class Nesting:
    """How many tensors inputs and targets are: PopTorch takes them one after the other. None: a single one."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.inputs, self.targets = (len(one) if isinstance(one, tuple) else None for one in (inputs, targets))

    def nested(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        """Inputs and targets; no targets where there are no tensors left."""
        count = 1 if self.inputs is None else self.inputs
        inputs, targets = tuple(tensors[:count]), tuple(tensors[count:])
        return (
            inputs[0] if self.inputs is None else inputs,
            (targets[0] if self.targets is None else targets) if targets else None,
        )
