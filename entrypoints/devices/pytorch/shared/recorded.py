"""Calls that a GPU replays: recorded once as a graph, so that the host starts all their kernels at once."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Sequence, Tuple

import torch

Replay = Callable[[], None]
Capture = Callable[[Callable[[], Any]], Tuple[Replay, Any]]  # records a call; returns its replay and its outputs
WARM_UP = 3  # calls before the recording, in which libraries choose kernels and get workspaces
RECORDED, REFUSED = "recorded", "refused"
COUNTS: Counter[str] = Counter()  # recordings of this process, by the two names above


class RecordingError(RuntimeError):
    """A call that computes, but cannot be recorded: nothing of the recording was computed."""


def record(call: Callable[[], Any], warm_up: Callable[[], Any], runtime: Any) -> tuple[Any, Any]:
    """Record a call as a graph of `runtime`, which is `torch.cuda`; return the graph and the call's outputs.

    https://pytorch.org/docs/stable/notes/cuda.html#cuda-graphs. Raises RecordingError.
    """
    own, current = runtime.Stream(), runtime.current_stream()
    own.wait_stream(current)
    with runtime.stream(own):
        for _ in range(WARM_UP):
            warm_up()
    current.wait_stream(own)
    graph = runtime.CUDAGraph()
    try:
        with runtime.graph(graph):
            outputs = call()
    except RuntimeError as error:
        COUNTS[REFUSED] += 1
        runtime.set_stream(current)  # PyTorch may leave the stream of a recording that failed
        raise RecordingError(str(error)) from error
    COUNTS[RECORDED] += 1
    return graph, outputs


def capture(function: Callable[[], Any]) -> tuple[Replay, Any]:
    """Record a call as a CUDA graph."""
    graph, outputs = record(function, function, torch.cuda)
    return graph.replay, outputs


class Recorded:
    """A function of tensors, without side effects, as a recording that is replayed for each call.

    The outputs are always the same tensors: the next call overwrites them, and may have them as inputs. An input that
    is the tensor of the call before must not have been changed since.
    """

    def __init__(self, function: Callable[..., Any], capture: Capture = capture) -> None:
        self.function, self.capture = function, capture
        self.inputs: Sequence[torch.Tensor] = ()  # which the recording reads
        self.given: Sequence[torch.Tensor] = ()  # at the call before

    def __call__(self, *given: Any) -> Any:
        """Return what the function returns."""
        from torch.utils._pytree import tree_flatten, tree_unflatten

        flat, structure = tree_flatten(given)
        if [tensor.shape for tensor in flat] != [tensor.shape for tensor in self.inputs]:
            self.inputs = [tensor.clone() for tensor in flat]
            arguments = tree_unflatten(self.inputs, structure)
            self.replay, self.outputs = self.capture(lambda: self.function(*arguments))
            self.overwritten = {id(output) for output in tree_flatten(self.outputs)[0]}
            self.given = flat
        for kept, tensor, before in zip(self.inputs, flat, self.given):
            if tensor is not before or id(tensor) in self.overwritten:
                kept.copy_(tensor)
        self.given = flat
        self.replay()
        return self.outputs
