"""A residual autoencoder with one bottleneck: images through a code of few numbers and back.

It represents a study that has not published its network; widths and depth are our choice.
"""

from __future__ import annotations

import math
from typing import Any, Mapping

import torch
from torch import nn

from entrypoints.workloads.pytorch.layers import ACTIVATIONS, chain, normalisation, unit


class Residual(nn.Module):
    """Two 3x3 convolutions plus the shortcut (He et al., arXiv:1512.03385)."""

    def __init__(self, channels: int, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.first = unit(channels, channels, 3, model, model["activation"])
        self.second = unit(channels, channels, 3, model, None)
        self.activation = ACTIVATIONS[model["activation"]](inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels, H, W) -> the same shape."""
        return self.activation(self.second(self.first(x)) + x)


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the network of a card's `problem.model`: (N, 1, 28, 28) pixels of 0..1 -> the same shape."""
    widths, activation, code = model["channels"], model["activation"], model["code"]
    down: list[tuple[str, nn.Module]] = []
    up: list[tuple[str, nn.Module]] = []
    for number, (wide, deep) in enumerate(zip(widths, widths[1:]), start=2):
        halve = unit(wide, deep, 3, model, activation, stride=2)
        down += [(f"down{number}", halve), (f"encoder{number}", Residual(deep, model))]
        double = enlarge(deep, wide, 2, 2, model)
        up = [(f"up{number}", double), (f"decoder{number - 1}", Residual(wide, model)), *up]
    deepest, size = widths[-1], model["deepest_size"]
    return chain(
        ("stem", unit(1, widths[0], 3, model, activation)),
        ("encoder1", Residual(widths[0], model)),
        *down,
        ("code", nn.Conv2d(deepest, code, size)),  # (N, code, 1, 1)
        ("decode", enlarge(code, deepest, size, 1, model)),
        (f"decoder{len(widths)}", Residual(deepest, model)),
        *up,
        ("image", nn.Conv2d(widths[0], 1, 3, padding=1)),
        ("pixels", nn.Sigmoid()),
    )


def enlarge(channels_in: int, channels_out: int, size: int, stride: int, model: Mapping[str, Any]) -> nn.Sequential:
    """Return a transposed convolution whose inputs do not overlap in the output, with normalisation and activation."""
    layer = nn.ConvTranspose2d(channels_in, channels_out, size, stride, bias=False)
    nn.init.normal_(layer.weight, std=math.sqrt(2 / channels_in))
    return nn.Sequential(layer, normalisation(channels_out, model), ACTIVATIONS[model["activation"]](inplace=True))
