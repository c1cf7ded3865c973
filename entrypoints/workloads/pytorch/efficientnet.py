"""EfficientNet (Tan and Le, arXiv:1905.11946): stages of inverted residuals, width and depth scaled on the card."""

from __future__ import annotations

import math
from typing import Any, Mapping

from torch import nn

from entrypoints.workloads.pytorch.layers import (
    InvertedResidual,
    SpatialMean,
    SqueezeExcitation,
    chain,
    mark_lost_shifts,
    unit,
)


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the network of a card's `problem.model`: (N, 3, H, W) normalised pixels -> (N, classes) logits."""
    stages, channels = [], model["stem_channels"]
    total, begun = sum(stage["blocks"] for stage in model["stages"]), 0
    for number, stage in enumerate(model["stages"], start=1):
        blocks = nn.Sequential()
        for index in range(stage["blocks"]):
            drop = model["stochastic_depth"] * begun / total  # grows with depth
            blocks.append(block(channels, stage, stage["stride"] if index == 0 else 1, model, drop))
            channels, begun = stage["channels"], begun + 1
        stages.append((f"stage{number}", blocks))
    mark_lost_shifts([block for _, blocks in stages for block in blocks])
    return chain(
        ("stem", unit(3, model["stem_channels"], 3, model, model["activation"], stride=2)),
        *stages,
        ("head", unit(channels, model["head_channels"], 1, model, model["activation"])),
        ("mean", SpatialMean()),
        ("dropout", nn.Dropout(model["dropout"])),
        ("classifier", classifier(model["head_channels"], model["classes"])),
    )


def block(
    channels: int, stage: Mapping[str, Any], stride: int, model: Mapping[str, Any], drop: float
) -> InvertedResidual:
    """Return an inverted residual whose gate is squeezed to a fraction of the block's input channels."""
    expanded = channels * stage["expansion"]
    squeezed = max(1, int(channels * model["squeezed_share"]))
    gate = SqueezeExcitation(expanded, squeezed, model["activation"], model["gate"])
    kernel, activation = stage["kernel"], model["activation"]
    return InvertedResidual(channels, expanded, stage["channels"], kernel, stride, gate, activation, model, drop)


def classifier(features: int, classes: int) -> nn.Linear:
    """Return a linear layer with uniform weights within 1 / sqrt(outputs), biases zero."""
    layer = nn.Linear(features, classes)
    bound = 1 / math.sqrt(classes)
    nn.init.uniform_(layer.weight, -bound, bound)
    nn.init.zeros_(layer.bias)
    return layer
