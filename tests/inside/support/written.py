"""What the numerics probe is held against: networks, losses and update rules without any code of ours.

The networks are torchvision's, or written out here from the card's words.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
import written_diffusion
import written_sequences
import written_speech
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


@of_torchvision
def vision_transformer(model):
    sizes = (model["image"], model["patch"], model["layers"], model["heads"], model["width"], model["feed_forward"])
    made = torchvision.models.VisionTransformer(*sizes, num_classes=model["classes"])
    for name, parameter in made.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=model["initialisation"]["deviation"])
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return made


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


WRITTEN = {**written_sequences.NETWORKS, **written_diffusion.NETWORKS, "deep_voice_3": written_speech.Speech}


def network_of(card):
    """The reference of a card's problem, and what it is."""
    if card.name in NETWORKS:
        return NETWORKS[card.name](), NETWORKS[card.name].__doc__
    model = card.problem["model"]
    if model["architecture"] == "vit":
        return vision_transformer(model), vision_transformer.__doc__
    return WRITTEN[model["architecture"]](model), "the network written out from its card"


def plain(model):
    """The model with nothing left to chance."""
    for layer in model.modules():
        if isinstance(layer, (nn.Dropout, StochasticDepth)):
            layer.p = 0.0
    return model


def cross_entropy(output, labels, rule):
    logits = torch.log_softmax(output, -1)
    right, all_classes = logits.gather(-1, labels[..., None]).mean(), logits.mean()
    return -(1 - rule["label_smoothing"]) * right - rule["label_smoothing"] * all_classes


def mean_squared_error(output, targets, rule):
    if "channels" in rule:
        output = output[:, : rule["channels"]]
    return ((output - targets) ** 2).sum() / output.numel()


def span_cross_entropy(output, ends, _):
    first, last = (torch.log_softmax(output[..., which], 1).gather(1, ends[:, which : which + 1]) for which in (0, 1))
    return -(first.mean() + last.mean()) / 2


def sum_of_cross_entropies(outputs, targets, _):
    return sum(cross_entropy(output, labels, {"label_smoothing": 0.0}) for output, labels in zip(outputs, targets))


LOSSES = {
    "cross_entropy": cross_entropy,
    "mean_squared_error": mean_squared_error,
    "span_cross_entropy": span_cross_entropy,
    "speech": written_speech.loss,
    "sum_of_cross_entropies": sum_of_cross_entropies,
}


def kinds_of(model):
    """What each parameter is, in order: normalisation, bias, embedding or something else."""
    if hasattr(model, "kinds"):
        return model.kinds
    norms = {id(p) for layer in model.modules() if isinstance(layer, nn.BatchNorm2d) for p in layer.parameters()}
    return ["normalisation" if id(parameter) in norms else "matrix" for parameter in model.parameters()]


def updating(change):
    """An update of all parameters by a rule that gives the change of one from itself, its gradient and its memory.

    Where decay is an L2 penalty, it is in the gradient already.
    """

    def updater(model, rule):
        trained = [
            (parameter, kind) for parameter, kind in zip(model.parameters(), kinds_of(model)) if parameter.requires_grad
        ]
        memories: list[dict[str, Any]] = [{} for _ in trained]

        @torch.no_grad()
        def update():
            gradients = [parameter.grad for parameter, _ in trained]
            if "gradient_norm" in rule:
                norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
                gradients = [gradient * min(1.0, rule["gradient_norm"] / norm) for gradient in gradients]
            for (parameter, kind), gradient, memory in zip(trained, gradients, memories):
                memory["decay"] = 0.0 if kind in rule["no_weight_decay_on"] else rule["weight_decay"]
                memory["step"] = memory.get("step", 0) + 1
                if rule["name"] not in ("adamw", "lamb"):
                    gradient = gradient + memory["decay"] * parameter
                parameter -= rule["learning_rate"] * change(parameter, gradient, memory, rule)

        return update

    return updater


@updating
def sgd(_, gradient, memory, rule):
    memory["momentum"] = rule["momentum"] * memory.get("momentum", 0) + gradient
    return memory["momentum"]


@updating
def rmsprop(_, gradient, memory, rule):
    smoothing = rule["smoothing"]
    memory["square"] = smoothing * memory.get("square", 0) + (1 - smoothing) * gradient**2
    scaled = gradient / (memory["square"].sqrt() + rule["epsilon"])
    memory["momentum"] = rule["momentum"] * memory.get("momentum", 0) + scaled
    return memory["momentum"]


@updating
def adam(_, gradient, memory, rule):
    return adam_step(gradient, memory, rule, corrected=True)


def adam_step(gradient, memory, rule, corrected):
    (first, second), step = rule["betas"], memory["step"]
    memory["mean"] = first * memory.get("mean", 0) + (1 - first) * gradient
    memory["square"] = second * memory.get("square", 0) + (1 - second) * gradient**2
    due_first, due_second = (1 - first**step, 1 - second**step) if corrected else (1, 1)
    return memory["mean"] / due_first / ((memory["square"] / due_second).sqrt() + rule["epsilon"])


@updating
def adamw(parameter, gradient, memory, rule):
    return adam_step(gradient, memory, rule, corrected=True) + memory["decay"] * parameter


@updating
def lamb(parameter, gradient, memory, rule):
    step = adam_step(gradient, memory, rule, rule["bias_correction"]) + memory["decay"] * parameter
    size, length = (float((x**2).sum()) ** 0.5 for x in (parameter, step))
    return step * (size / length if size > 0 and length > 0 else 1.0)


UPDATES = {"sgd": sgd, "rmsprop": rmsprop, "adam": adam, "adamw": adamw, "lamb": lamb}
