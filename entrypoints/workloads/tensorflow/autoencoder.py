"""A residual autoencoder with one bottleneck: images through a code of few numbers and back.

It represents a study that has not published its network; widths and depth are our choice.
"""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow as tf

from entrypoints.workloads.tensorflow.layers import (
    ACTIVATIONS,
    Activation,
    Chain,
    normalisation,
    plain_convolution,
    transposed_convolution,
    unit,
)


class Residual(tf.Module):
    """Two 3x3 convolutions plus the shortcut (He et al., arXiv:1512.03385)."""

    def __init__(self, channels: int, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.first = unit(channels, channels, 3, model, model["activation"])
        self.second = unit(channels, channels, 3, model, None)
        self.activation = ACTIVATIONS[model["activation"]]

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """(N, H, W, channels) -> the same shape."""
        return self.activation(self.second(self.first(x, training), training) + x)


def network(model: Mapping[str, Any]) -> tf.Module:
    """Return the network of a card's `problem.model`: (N, 28, 28, 1) pixels of 0..1 -> the same shape."""
    widths, activation, code = model["channels"], model["activation"], model["code"]
    down: dict[str, tf.Module] = {}
    up: dict[str, tf.Module] = {}
    for number, (wide, deep) in enumerate(zip(widths, widths[1:]), start=2):
        down[f"down{number}"] = unit(wide, deep, 3, model, activation, stride=2)
        down[f"encoder{number}"] = Residual(deep, model)
        up = {f"up{number}": enlarge(deep, wide, 2, 2, model), f"decoder{number - 1}": Residual(wide, model), **up}
    deepest, size = widths[-1], model["deepest_size"]
    return Chain(
        {
            "stem": unit(1, widths[0], 3, model, activation),
            "encoder1": Residual(widths[0], model),
            **down,
            "code": plain_convolution(deepest, code, size),  # (N, 1, 1, code)
            "decode": enlarge(code, deepest, size, 1, model),
            f"decoder{len(widths)}": Residual(deepest, model),
            **up,
            "image": plain_convolution(widths[0], 1, 3, padding=1),
            "pixels": Activation(tf.math.sigmoid),
        }
    )


def enlarge(channels_in: int, channels_out: int, size: int, stride: int, model: Mapping[str, Any]) -> Chain:
    """Return a transposed convolution whose inputs do not overlap in the output, with normalisation and activation."""
    layer = transposed_convolution(channels_in, channels_out, size, stride)
    return Chain.of([layer, normalisation(channels_out, model), Activation(ACTIVATIONS[model["activation"]])])
