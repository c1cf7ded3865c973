"""What PyTorch hands to a device: counted on the CPU, by the rules of PyTorch's multi-tensor operations."""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Operations that start nothing: they return another view of a tensor, or memory.
WITHOUT_KERNEL = (
    "empty",
    "view",
    "detach",
    "unbind",
    "alias",
    "t",
    "transpose",
    "permute",
    "expand",
    "select",
    "slice",
)


class Launches(TorchDispatchMode):
    """Counts what a GPU would at least be told to start.

    A multi-tensor operation counts once where GPUs take the lists together, which wants tensors of the same number to
    agree in shape and strides over all lists (ATen/native/ForeachUtils.h, `can_use_fast_route`); otherwise once for
    each tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation and do it."""
        self.count += launches(operation.overloadpacket.__name__, args)
        return operation(*args, **(kwargs or {}))


class Traffic(TorchDispatchMode):
    """Counts the bytes of large tensors that operations read and write, each once.

    A GPU casts what a log-softmax reads in its kernel, where a CPU has an operation of its own for that.
    """

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least, self.bytes = least, 0  # numbers of a tensor that is large

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation and do it."""
        made = operation(*args, **(kwargs or {}))
        name = operation.overloadpacket.__name__
        if name == "_log_softmax":
            self.bytes += self.of(made) * 3 // 2  # from half precision
        elif name not in (*WITHOUT_KERNEL, "device", "_to_copy", "gather", "scatter_"):
            self.bytes += sum(self.of(each) for each in (*args, made))
        return made

    def of(self, value: Any) -> int:
        """Return the bytes of a large tensor, and 0 of what is none."""
        large = isinstance(value, torch.Tensor) and value.numel() >= self.least
        return value.numel() * value.element_size() if large else 0


def launches(name: str, args: Sequence[Any]) -> int:
    """Return how many kernels an operation starts on a GPU, at least."""
    if name in WITHOUT_KERNEL or name.startswith(("empty_", "_unsafe_view")):
        return 0
    if not name.startswith("_foreach_"):
        return 1
    lists = [each for each in args if isinstance(each, (list, tuple)) and isinstance(each[0], torch.Tensor)]
    alike = all(len({(tensor.shape, tensor.stride()) for tensor in column}) == 1 for column in zip(*lists))
    return 1 if alike else len(lists[0])
