"""Layers of the convolutional networks."""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from typing import Any, Mapping

import torch
from torch import nn

ACTIVATIONS = {
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "hard_swish": nn.Hardswish,
    "gelu": nn.GELU,
    "gelu_tanh": functools.partial(nn.GELU, approximate="tanh"),
}
GATES = {"sigmoid": nn.Sigmoid, "hard_sigmoid": nn.Hardsigmoid}


def convolution(
    channels_in: int, channels_out: int, size: int, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Conv2d:
    """Return a padded `size` x `size` convolution, He initialised by its outputs."""
    layer = nn.Conv2d(channels_in, channels_out, size, stride, padding=size // 2, groups=groups, bias=bias)
    nn.init.normal_(layer.weight, std=math.sqrt(2 / (size * size * channels_out)))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def normalisation(channels: int, model: Mapping[str, Any]) -> nn.BatchNorm2d:
    """Return a batch normalisation with the card's epsilon and momentum; scale 1 and shift 0 at the start."""
    rule = model["normalisation"]
    return nn.BatchNorm2d(channels, eps=rule["epsilon"], momentum=rule["momentum"])


def unit(
    channels_in: int,
    channels_out: int,
    size: int,
    model: Mapping[str, Any],
    activation: str | None,
    stride: int = 1,
    groups: int = 1,
) -> nn.Sequential:
    """Return convolution, normalisation and, if there is one, activation."""
    layers = [convolution(channels_in, channels_out, size, stride, groups), normalisation(channels_out, model)]
    return nn.Sequential(*layers, *([ACTIVATIONS[activation](inplace=True)] if activation else []))


class SqueezeExcitation(nn.Module):
    """A factor for each channel, computed from the means of all channels (Hu et al., arXiv:1709.01507)."""

    def __init__(self, channels: int, squeezed: int, activation: str, gate: str) -> None:
        super().__init__()
        self.squeeze = convolution(channels, squeezed, 1, bias=True)
        self.activation = ACTIVATIONS[activation](inplace=True)
        self.excite = convolution(squeezed, channels, 1, bias=True)
        self.gate = GATES[gate]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels, H, W) -> the same shape."""
        means = x.mean(dim=(2, 3), keepdim=True)  # (N, channels, 1, 1)
        return x * self.gate(self.excite(self.activation(self.squeeze(means))))


class StochasticDepth(nn.Module):
    """Drops all of a sample with probability `p` while training (Huang et al., arXiv:1603.09382)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) -> the same shape; what is kept is scaled so that the mean stays."""
        if not self.training or self.p == 0:
            return x
        kept = torch.empty(len(x), 1, 1, 1, dtype=x.dtype, device=x.device).bernoulli_(1 - self.p)
        return x * kept.div_(1 - self.p)


class InvertedResidual(nn.Module):
    """1x1 up to `expanded` channels, a depthwise convolution, a gate for each channel, 1x1 down, plus the shortcut.

    Sandler et al., arXiv:1801.04381; with a gate Tan et al., arXiv:1807.11626.
    """

    def __init__(
        self,
        channels_in: int,
        expanded: int,
        channels_out: int,
        kernel: int,
        stride: int,
        gate: nn.Module | None,
        activation: str,
        model: Mapping[str, Any],
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.expand = unit(channels_in, expanded, 1, model, activation) if expanded != channels_in else nn.Identity()
        self.depthwise = unit(expanded, expanded, kernel, model, activation, stride, groups=expanded)
        self.gate = gate or nn.Identity()
        self.project = unit(expanded, channels_out, 1, model, None)
        self.drop = StochasticDepth(drop)
        self.shortcut = stride == 1 and channels_in == channels_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels_in, H, W) -> (N, channels_out, H / stride, W / stride)."""
        y = self.project(self.gate(self.depthwise(self.expand(x))))
        return x + self.drop(y) if self.shortcut else y


class SpatialMean(nn.Module):
    """The mean over all positions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) -> (N, C)."""
        return x.mean(dim=(2, 3))


def chain(*layers: tuple[str, nn.Module]) -> nn.Sequential:
    """Return named layers in sequence."""
    return nn.Sequential(OrderedDict(layers))
