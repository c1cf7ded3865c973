"""Residual networks (He et al., arXiv:1512.03385) built of bottleneck blocks, version 1.5, and ResNeXt.

Version 1.5 halves the resolution in a block's 3x3 convolution; the paper's own did so in the first 1x1, which
throws three quarters of its input away. ResNeXt (Xie et al., arXiv:1611.05431) does the 3x3 convolution in groups.
Parameters are named as in torchvision, so that weights can be exchanged.
"""

from __future__ import annotations

from typing import Any, Mapping

import torch
from torch import nn

from entrypoints.workloads.pytorch.layers import convolution, normalisation, rectified


class Bottleneck(nn.Module):
    """1x1 down to some channels, 3x3 at that width, in groups or not, 1x1 up, plus the shortcut.

    A block of nominal `width` ends in `expansion` times as many channels; each group of its 3x3 convolution has
    `width_per_group` channels for every 64 of it.
    """

    def __init__(self, channels_in: int, width: int, stride: int, model: Mapping[str, Any]) -> None:
        super().__init__()
        channels_out = width * model["expansion"]
        groups = model["groups"]
        width = width * model["width_per_group"] // 64 * groups
        self.conv1 = convolution(channels_in, width, 1)
        self.bn1 = normalisation(width, model)
        self.conv2 = convolution(width, width, 3, stride, groups)
        self.bn2 = normalisation(width, model)
        self.conv3 = convolution(width, channels_out, 1)
        self.bn3 = normalisation(channels_out, model)
        self.downsample = None
        if stride != 1 or channels_in != channels_out:
            shortcut = convolution(channels_in, channels_out, 1, stride)
            self.downsample = nn.Sequential(shortcut, normalisation(channels_out, model))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels_in, H, W) -> (N, width * expansion, H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = rectified(self.conv1, self.bn1, x)
        x = rectified(self.conv2, self.bn2, x)
        return rectified(self.conv3, self.bn3, x, shortcut)


class ResNet(nn.Module):
    """Stem, four stages that each halve the resolution (the first by pooling) and double the width, classifier."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        width = model["stem_width"]
        self.conv1 = convolution(3, width, 7, stride=2)
        self.bn1 = normalisation(width, model)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        for index, blocks in enumerate(model["layers"]):
            stage = nn.Sequential()
            for block in range(blocks):
                stride = 2 if index > 0 and block == 0 else 1
                stage.append(Bottleneck(channels, width << index, stride, model))
                channels = (width << index) * model["expansion"]
            self.add_module(f"layer{index + 1}", stage)
        self.stages = len(model["layers"])
        self.fc = nn.Linear(channels, model["classes"])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(N, 3, 224, 224) normalised pixels -> (N, classes) logits."""
        x = self.pool(rectified(self.conv1, self.bn1, images))  # (N, 64, 56, 56)
        for index in range(self.stages):
            x = self.get_submodule(f"layer{index + 1}")(x)  # at last (N, 2048, 7, 7)
        return self.fc(x.mean(dim=(2, 3)))


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the network of a card's `problem.model`."""
    return ResNet(model)
