"""Convolutions of residual networks in one operation with what follows: the sum with a shortcut, and the ReLU.

On a GPU, eager PyTorch adds the bias of a convolution in a kernel of its own (aten/src/ATen/native/cudnn/ConvShared.cpp)
and the sum and the ReLU in two more, each of which reads and writes the whole output. cuDNN and MIOpen do all in one, but
not for every shape and precision, and for some slower by far: 17 times for 7x7 in channels_last
(github.com/pytorch/pytorch, issue 68506). So each layer is timed both ways when it is first called, in the warm-up, just
as cudnn.benchmark tries algorithms.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch import nn

from entrypoints.workloads.pytorch.resnet import Bottleneck, ResNet

WARM_UP, REPEATS = 2, 5  # calls: the first searches for an algorithm
MS = 1e-3
Timing = Callable[[Callable[[], Any]], float]  # of a call, in s


class FusingLibrary(NamedTuple):
    """A library below PyTorch, and its operations that end in a ReLU: of a convolution, and of one with a sum."""

    name: str
    rectified: Callable[..., torch.Tensor]
    added: Callable[..., torch.Tensor]


def library(kind: str) -> FusingLibrary | None:
    """Return this PyTorch's library for a kind of device, or None without such operations."""
    if kind != "cuda":
        return None
    name = "miopen" if torch.version.hip else "cudnn"
    rectified, added = (getattr(torch, f"{name}_convolution_{what}", None) for what in ("relu", "add_relu"))
    return FusingLibrary(name, rectified, added) if rectified and added else None


class FusedConvolution(nn.Module):
    """A convolution for inference that is followed by a ReLU, in one operation with it where that is faster."""

    def __init__(self, layer: nn.Conv2d, library: FusingLibrary, seconds: Timing) -> None:
        super().__init__()
        self.layer, self.library, self.seconds = layer, library, seconds
        self.fused: bool | None = None  # not tried yet

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels_in, H, W) -> (N, channels_out, H / stride, W / stride), without a ReLU."""
        return self.layer(x)  # type: ignore[no-any-return]

    def rectified(self, x: torch.Tensor, shortcut: torch.Tensor | None = None) -> torch.Tensor:
        """Return the ReLU of the convolution, or of its sum with a tensor of its shape."""
        if self.fused is None:
            self.fused = self.is_faster_fused(x, shortcut)
        return self.in_one(x, shortcut) if self.fused else self.one_by_one(x, shortcut)

    def in_one(self, x: torch.Tensor, shortcut: torch.Tensor | None) -> torch.Tensor:
        """Return `rectified` by one operation, which autocast does not know."""
        layer = self.layer
        how = (layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
        x = x.to(layer.weight.dtype)
        if shortcut is None:
            return self.library.rectified(x, layer.weight, *how)
        return self.library.added(x, layer.weight, shortcut.to(x.dtype), 1.0, *how)

    def one_by_one(self, x: torch.Tensor, shortcut: torch.Tensor | None) -> torch.Tensor:
        """Return `rectified` by an operation each."""
        y = self.layer(x)
        return torch.relu_(y if shortcut is None else y + shortcut)

    def is_faster_fused(self, x: torch.Tensor, shortcut: torch.Tensor | None) -> bool:
        """Return whether one operation takes less time; not if the library has none for this shape and precision."""
        try:
            fused = self.seconds(lambda: self.in_one(x, shortcut))
        except RuntimeError:  # also without memory to try: then the other way needs no more than it ever did
            return False
        return fused < self.seconds(lambda: self.one_by_one(x, shortcut))


def fuse(model: nn.Module, library: FusingLibrary, seconds: Timing) -> Sequence[FusedConvolution]:
    """Replace the convolutions of a residual network for inference whose normalisations are folded; return them.

    Of any other network there are none.
    """
    replaced: list[FusedConvolution] = []
    for owner in [module for module in model.modules() if isinstance(module, (ResNet, Bottleneck))]:
        layers = list(owner.named_children())
        for (name, layer), (_, after) in zip(layers, layers[1:]):
            if isinstance(layer, nn.Conv2d) and isinstance(after, nn.Identity):
                replaced.append(FusedConvolution(layer, library, seconds))
                setattr(owner, name, replaced[-1])
    return replaced


def described(layers: Sequence[FusedConvolution]) -> str | None:
    """Return how the convolutions of a network were computed, for a result; None if there are none to fuse."""
    tried = [layer for layer in layers if layer.fused is not None]
    if not tried:
        return None
    fused = sum(bool(layer.fused) for layer in tried)
    return f"{fused} of {len(tried)} in one operation with their ReLU, by {tried[0].library.name}"


def timing(runtime: Any) -> Timing:
    """Return what times a call by the events of `runtime`, which is `torch.cuda`: its fastest of several."""

    def seconds(call: Callable[[], Any]) -> float:
        for _ in range(WARM_UP):
            call()
        events = [runtime.Event(enable_timing=True) for _ in range(REPEATS + 1)]
        events[0].record()
        for event in events[1:]:
            call()
            event.record()
        events[-1].synchronize()
        return min(earlier.elapsed_time(later) for earlier, later in zip(events, events[1:])) * MS

    return seconds
