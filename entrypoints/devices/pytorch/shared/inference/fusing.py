"""Convolutions of residual networks in one operation with what follows: the sum with a shortcut, and the ReLU.

On a GPU, eager PyTorch adds the bias of a convolution in a separate kernel, and the sum and the ReLU in two more,
each of which reads and writes the whole output (aten/src/ATen/native/cudnn/ConvShared.cpp). cuDNN and MIOpen do all in
one, but not for every shape and precision, and for some slower by far: 17 times for 7x7 in channels_last
(github.com/pytorch/pytorch, issue 68506). So each layer is timed both ways when it is first called, in the warm-up, as
cudnn.benchmark tries algorithms.

On a CPU oneDNN has them too, for weights that it has laid out once. ResNet-50 is 1.24 times as fast so (fp32, batch 2,
one thread, processor time of interleaved calls, PyTorch 2.13), and no layer was seen to lose: nothing is timed.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Protocol

import torch
from torch import nn

from entrypoints.workloads.pytorch.resnet import Bottleneck, ResNet

WARM_UP, REPEATS = 2, 5  # calls: the first searches for an algorithm
POINTWISE, REORDER = "_convolution_pointwise", "mkldnn_reorder_conv2d_weight"  # of oneDNN, from PyTorch 2.0 on
Timing = Callable[[Callable[[], Any]], float]  # of a call, in s


class FusingLibrary(NamedTuple):
    """A library below PyTorch that has such operations."""

    name: str
    laid_out: Callable[[nn.Conv2d, torch.Tensor], torch.Tensor]  # the weight of a layer, for an input of this size
    compute: Callable[[nn.Conv2d, torch.Tensor, torch.Tensor, Any], torch.Tensor]  # layer, input, weight, shortcut
    timed: bool  # whether it is slower in some layers


def library(kind: str) -> FusingLibrary | None:
    """Return this PyTorch's library for a kind of device, or None without such operations."""
    if kind == "cuda":
        return of_gpus("miopen" if torch.version.hip else "cudnn")
    if kind == "cpu" and _has_onednn():
        return FusingLibrary("oneDNN", _packed, _by_onednn, timed=False)
    return None


def of_gpus(name: str) -> FusingLibrary | None:
    """Return cuDNN or MIOpen, which take the same arguments."""
    rectified, added = (getattr(torch, f"{name}_convolution_{what}", None) for what in ("relu", "add_relu"))
    if rectified is None or added is None:
        return None

    def compute(layer: nn.Conv2d, x: torch.Tensor, weight: torch.Tensor, shortcut: Any) -> torch.Tensor:
        how = (layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
        made: torch.Tensor = rectified(x, weight, *how) if shortcut is None else added(x, weight, shortcut, 1.0, *how)
        return made

    return FusingLibrary(name, lambda layer, _: layer.weight, compute, timed=True)


def _has_onednn() -> bool:
    built = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, POINTWISE)
    return built and hasattr(torch._C._nn, REORDER) and torch._C._get_mkldnn_enabled()


def _packed(layer: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
    how = (layer.padding, layer.stride, layer.dilation, layer.groups)
    packed: torch.Tensor = getattr(torch._C._nn, REORDER)(layer.weight.detach().to_mkldnn(), *how, x.shape)
    return packed


def _by_onednn(layer: nn.Conv2d, x: torch.Tensor, weight: torch.Tensor, shortcut: Any) -> torch.Tensor:
    operation = getattr(torch.ops.mkldnn, POINTWISE)
    how = (weight, layer.bias, layer.padding, layer.stride, layer.dilation, layer.groups)
    if shortcut is None:
        made: torch.Tensor = operation(x, *how, "relu", [], "")
        return made
    return operation.binary(x, shortcut, *how, "add", 1.0, "relu", [], None)  # type: ignore[no-any-return]


class FusedConvolution(nn.Module):
    """A convolution for inference that is followed by a ReLU, in one operation with it if that is possible and faster.

    `choices` keeps which it was, by the layer's name, for models with later weights.
    """

    def __init__(
        self, name: str, layer: nn.Conv2d, library: FusingLibrary, seconds: Timing, choices: dict[str, bool]
    ) -> None:
        super().__init__()
        self.name, self.layer, self.library, self.seconds, self.choices = name, layer, library, seconds, choices
        self.weight: Any = None  # as the library has it

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels_in, H, W) -> (N, channels_out, H / stride, W / stride), without a ReLU."""
        return self.layer(x)  # type: ignore[no-any-return]

    def rectified(self, x: torch.Tensor, shortcut: torch.Tensor | None = None) -> torch.Tensor:
        """Return the ReLU of the convolution, or of its sum with a tensor of its shape."""
        if self.name not in self.choices:
            self.choices[self.name] = self.is_faster_fused(x, shortcut)
        return self.in_one(x, shortcut) if self.choices[self.name] else self.one_by_one(x, shortcut)

    def in_one(self, x: torch.Tensor, shortcut: torch.Tensor | None) -> torch.Tensor:
        """Return `rectified` by one operation, which autocast does not know."""
        x = x.to(self.layer.weight.dtype)
        if self.weight is None:
            self.weight = self.library.laid_out(self.layer, x)
        return self.library.compute(self.layer, x, self.weight, None if shortcut is None else shortcut.to(x.dtype))

    def one_by_one(self, x: torch.Tensor, shortcut: torch.Tensor | None) -> torch.Tensor:
        """Return `rectified` by an operation each."""
        y = self.layer(x)
        return torch.relu_(y if shortcut is None else y + shortcut)

    def is_faster_fused(self, x: torch.Tensor, shortcut: torch.Tensor | None) -> bool:
        """Return whether one operation takes less time; not if the library has none for this shape and precision."""
        try:
            self.in_one(x, shortcut)
            if not self.library.timed:
                return True
            fused = self.seconds(lambda: self.in_one(x, shortcut))
        except (RuntimeError, TypeError):  # also without memory to try; arguments of oneDNN's are not promised
            return False
        return fused < self.seconds(lambda: self.one_by_one(x, shortcut))


def fuse(model: nn.Module, library: FusingLibrary, seconds: Timing, choices: dict[str, bool]) -> None:
    """Replace the convolutions of a residual network for inference whose normalisations are folded; no others."""
    for path, owner in [each for each in model.named_modules() if isinstance(each[1], (ResNet, Bottleneck))]:
        layers = list(owner.named_children())
        for (name, layer), (_, after) in zip(layers, layers[1:]):
            if isinstance(layer, nn.Conv2d) and isinstance(after, nn.Identity):
                setattr(owner, name, FusedConvolution(f"{path}.{name}", layer, library, seconds, choices))


def described(kind: str, choices: Mapping[str, bool]) -> str | None:
    """Return how convolutions were computed on a kind of device, for a result; None if none was to be fused."""
    own = library(kind)
    if own is None or not choices:
        return None
    return f"{sum(choices.values())} of {len(choices)} in one operation with their ReLU, by {own.name}"


class Clock(Protocol):
    """What a session times its device with."""

    def mark(self) -> Any:
        """Return a mark in the device's queue."""

    def wait(self, mark: Any) -> None:
        """Wait until the device has passed a mark."""

    def seconds_between(self, earlier: Any, later: Any) -> float | None:
        """Return the seconds between two marks."""


def fastest(clock: Clock, call: Callable[[], Any]) -> float:
    """Return the seconds that the fastest of several calls took."""
    for _ in range(WARM_UP):
        call()
    marks = [clock.mark()]
    for _ in range(REPEATS):
        call()
        marks.append(clock.mark())
    clock.wait(marks[-1])
    return min(clock.seconds_between(earlier, later) or 0.0 for earlier, later in zip(marks, marks[1:]))
