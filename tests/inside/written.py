"""What the numerics probe is held against: networks, losses and update rules without any code of ours.

The networks are torchvision's, or written out here from the card's words.
"""

from __future__ import annotations

import math
import sys

import torch
from torch import nn
from torch.nn import functional

try:
    import torchvision
except RuntimeError:
    # A wheel made for CUDA cannot load its operators beside a torch for CPU and then refuses to be imported; the models
    # use none of them, so that declaring those it asks for is enough.
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    for module in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[module]
    import torchvision
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.ops import StochasticDepth


def of_torchvision(build):
    build.__doc__ = f"torchvision {torchvision.__version__}"
    return build


class Compression(nn.Module):
    """image_compression in plain layers, one after the other."""

    def __init__(self):
        super().__init__()
        self.all = nn.ModuleList()
        self.conv(1, 16)
        for wide, deep in ((16, 32), (32, 64)):
            self.residual(wide)
            self.conv(wide, deep, 2)
        self.residual(64)
        self.all.append(nn.Conv2d(64, 32, 7))
        self.transposed(32, 64, 7, 1)
        for deep, wide in ((64, 32), (32, 16)):
            self.residual(deep)
            self.transposed(deep, wide, 2, 2)
        self.residual(16)
        self.all.append(nn.Conv2d(16, 1, 3, padding=1))

    def residual(self, channels):
        self.conv(channels, channels)
        self.conv(channels, channels)

    def conv(self, channels_in, channels_out, stride=1):
        layer = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        nn.init.normal_(layer.weight, 0, math.sqrt(2 / (9 * channels_out)))
        self.all.extend([layer, nn.BatchNorm2d(channels_out)])

    def transposed(self, channels_in, channels_out, size, stride):
        layer = nn.ConvTranspose2d(channels_in, channels_out, size, stride, bias=False)
        nn.init.normal_(layer.weight, 0, math.sqrt(2 / channels_in))
        self.all.extend([layer, nn.BatchNorm2d(channels_out)])

    def forward(self, x):
        layers = iter(self.all)

        def normalised(x):
            convolved = next(layers)(x)
            return next(layers)(convolved)

        def residual(x):
            y = normalised(functional.relu(normalised(x)))
            return functional.relu(x + y)

        for _ in range(3):
            x = residual(functional.relu(normalised(x)))
        x = next(layers)(x)
        for _ in range(3):
            x = residual(functional.relu(normalised(x)))
        return torch.sigmoid(next(layers)(x))


@of_torchvision
def resnext101_32x4d():
    return ResNet(Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=4)


def image_compression():
    """the network written out from its card"""
    return Compression()


def network_of_torchvision(name):
    return of_torchvision(lambda: getattr(torchvision.models, name)())


NETWORKS = {
    "resnext101_32x4d": resnext101_32x4d,
    "image_compression": image_compression,
    **{
        name: network_of_torchvision(name)
        for name in (
            *("resnet50", "efficientnet_b0", "efficientnet_b4"),
            *("mobilenet_v3_small", "mobilenet_v3_large"),
        )
    },
}


def plain(model):
    """The model with nothing left to chance."""
    for layer in model.modules():
        if isinstance(layer, (nn.Dropout, StochasticDepth)):
            layer.p = 0.0
    return model


def cross_entropy(output, labels, rule):
    logits = torch.log_softmax(output, 1)
    right, all_classes = logits.gather(1, labels[:, None]).mean(), logits.mean()
    return -(1 - rule["label_smoothing"]) * right - rule["label_smoothing"] * all_classes


def mean_squared_error(output, targets, _):
    return ((output - targets) ** 2).sum() / output.numel()


LOSSES = {"cross_entropy": cross_entropy, "mean_squared_error": mean_squared_error}


def updating(change):
    """An update of all parameters by a rule that gives the change of one from its gradient and its memory."""

    def updater(model, rule):
        exempt = {
            id(parameter)
            for layer in model.modules()
            if isinstance(layer, nn.BatchNorm2d) and "normalisation" in rule["no_weight_decay_on"]
            for parameter in layer.parameters()
        }
        memories = [{} for _ in model.parameters()]

        @torch.no_grad()
        def update():
            for parameter, memory in zip(model.parameters(), memories):
                decay = 0.0 if id(parameter) in exempt else rule["weight_decay"]
                memory["step"] = memory.get("step", 0) + 1
                parameter -= rule["learning_rate"] * change(parameter.grad + decay * parameter, memory, rule)

        return update

    return updater


@updating
def sgd(gradient, memory, rule):
    memory["momentum"] = rule["momentum"] * memory.get("momentum", 0) + gradient
    return memory["momentum"]


@updating
def rmsprop(gradient, memory, rule):
    smoothing = rule["smoothing"]
    memory["square"] = smoothing * memory.get("square", 0) + (1 - smoothing) * gradient**2
    scaled = gradient / (memory["square"].sqrt() + rule["epsilon"])
    memory["momentum"] = rule["momentum"] * memory.get("momentum", 0) + scaled
    return memory["momentum"]


@updating
def adam(gradient, memory, rule):
    (first, second), step = rule["betas"], memory["step"]
    memory["mean"] = first * memory.get("mean", 0) + (1 - first) * gradient
    memory["square"] = second * memory.get("square", 0) + (1 - second) * gradient**2
    root = (memory["square"] / (1 - second**step)).sqrt() + rule["epsilon"]
    return memory["mean"] / (1 - first**step) / root


UPDATES = {"sgd": sgd, "rmsprop": rmsprop, "adam": adam}
