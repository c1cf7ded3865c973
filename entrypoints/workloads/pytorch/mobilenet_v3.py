"""MobileNetV3 (Howard et al., arXiv:1905.02244): inverted residuals, each as a row of the paper's tables 1 and 2."""

from __future__ import annotations

from typing import Any, Mapping

from torch import nn

from entrypoints.workloads.pytorch.layers import (
    ACTIVATIONS,
    InvertedResidual,
    SpatialMean,
    SqueezeExcitation,
    chain,
    mark_lost_shifts,
    unit,
)


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the network of a card's `problem.model`: (N, 3, 224, 224) normalised pixels -> (N, classes) logits."""
    blocks, channels = [], model["stem_channels"]
    for number, row in enumerate(model["blocks"], start=1):
        blocks.append((f"block{number}", block(channels, row, model)))
        channels = row["channels"]
    mark_lost_shifts([block for _, block in blocks])
    return chain(
        ("stem", unit(3, model["stem_channels"], 3, model, model["activation"], stride=2)),
        *blocks,
        ("head", unit(channels, model["head_channels"], 1, model, model["activation"])),
        ("mean", SpatialMean()),
        ("hidden", linear(model["head_channels"], model["hidden_features"])),
        ("activation", ACTIVATIONS[model["activation"]](inplace=True)),
        ("dropout", nn.Dropout(model["dropout"])),
        ("classifier", linear(model["hidden_features"], model["classes"])),
    )


def block(channels: int, row: Mapping[str, Any], model: Mapping[str, Any]) -> InvertedResidual:
    """Return an inverted residual, without a gate if nothing is squeezed."""
    expanded, squeezed = row["expanded"], row["squeezed"]
    gate = SqueezeExcitation(expanded, squeezed, "relu", model["gate"]) if squeezed else None
    return InvertedResidual(
        channels, expanded, row["channels"], row["kernel"], row["stride"], gate, row["activation"], model
    )


def linear(features_in: int, features_out: int) -> nn.Linear:
    """Return a linear layer with normal weights of deviation 0.01, biases zero."""
    layer = nn.Linear(features_in, features_out)
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.zeros_(layer.bias)
    return layer
