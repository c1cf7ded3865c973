"""Operations on tensors or tuples of tensors, as models have them for inputs, targets and outputs."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import torch

from entrypoints.contract.session import Batch, EvaluationResult
from entrypoints.workloads.pytorch.build import Tensors


def to_host(output: Tensors) -> Any:
    """Return outputs as arrays, half precision as single precision."""
    if isinstance(output, tuple):
        return tuple(map(to_host, output))
    return (output.float() if output.dtype in (torch.bfloat16, torch.float16) else output).cpu().numpy()


def evaluation_result(batch: Batch, output: Tensors, loss: torch.Tensor) -> EvaluationResult:
    """Return the result of a batch, with the right predictions if its targets are labels."""
    labels = batch.targets
    right = None
    if isinstance(output, torch.Tensor) and isinstance(labels, torch.Tensor) and labels.dim() == 1:
        right = int((output.argmax(1) == labels).sum())
    return EvaluationResult(batch.samples, loss.item(), right, None if batch.numbers is None else to_host(output))


def as_tuple(tensors: Any) -> tuple[torch.Tensor, ...]:
    """Return a tensor as a tuple of one; return a tuple unchanged."""
    return tensors if isinstance(tensors, tuple) else (tensors,)


def to_float32(output: Any) -> Any:
    """Return outputs in single precision."""
    return tuple(map(to_float32, output)) if isinstance(output, tuple) else output.float()


def pad_batch(tensor: torch.Tensor, samples: int) -> torch.Tensor:
    """Return a tensor padded to `samples` samples by repeating the last."""
    missing = samples - len(tensor)
    return torch.cat([tensor, tensor[-1:].expand(missing, *tensor.shape[1:])]) if missing else tensor


def first_samples(output: Any, samples: int) -> Any:
    """Return the first samples of an output."""
    return tuple(first_samples(tensor, samples) for tensor in output) if isinstance(output, tuple) else output[:samples]


def micro_batches(batch: Batch, size: int) -> Sequence[Batch]:
    """Return a batch in pieces of `size` samples; the last piece may be smaller."""
    if batch.samples <= size:
        return [batch]
    pairs = zip(split(batch.inputs, size), split(batch.targets, size))
    return [batch._replace(inputs=inputs, targets=targets) for inputs, targets in pairs]


def combine_results(results: Sequence[EvaluationResult]) -> EvaluationResult:
    """Combine the results of the pieces of a batch into the result of the batch."""
    samples = sum(result.samples for result in results)
    rights = [result.right for result in results if result.right is not None]
    return EvaluationResult(
        samples,
        sum(result.loss * result.samples for result in results) / samples,
        sum(rights) if rights else None,
        None if results[0].output is None else concatenate([result.output for result in results]),
    )


def concatenate(outputs: Sequence[Any]) -> Any:
    """Concatenate arrays, or tuples of arrays element by element."""
    if isinstance(outputs[0], tuple):
        return tuple(map(concatenate, zip(*outputs)))
    return np.concatenate(outputs)


def split(tensors: Any, size: int) -> Sequence[Any]:
    """Split a tensor into pieces of `size` samples, or a tuple into tuples of pieces."""
    if isinstance(tensors, tuple):
        return list(zip(*(split(tensor, size) for tensor in tensors)))
    return list(tensors.split(size))


class Nesting:
    """The number of input and target tensors, which PopTorch takes one by one. None means a single tensor."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.inputs, self.targets = (
            len(tensors) if isinstance(tensors, tuple) else None for tensors in (inputs, targets)
        )

    def nested(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        """Return inputs and targets; None for targets if no tensors are left."""
        count = 1 if self.inputs is None else self.inputs
        inputs, targets = tuple(tensors[:count]), tuple(tensors[count:])
        return (
            inputs[0] if self.inputs is None else inputs,
            (targets[0] if self.targets is None else targets) if targets else None,
        )
