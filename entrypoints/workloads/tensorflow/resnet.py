"""Residual networks (He et al., arXiv:1512.03385) built of bottleneck blocks, version 1.5, and ResNeXt.

Version 1.5 halves the resolution in a block's 3x3 convolution; the paper's own did so in the first 1x1, which
throws three quarters of its input away. ResNeXt (Xie et al., arXiv:1611.05431) does the 3x3 convolution in groups.
Parameters are named as in torchvision, so that weights can be exchanged.
"""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow as tf

from entrypoints.workloads.tensorflow.layers import Chain, convolution, linear, normalisation


class Bottleneck(tf.Module):
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
            self.downsample = Chain.of([shortcut, normalisation(channels_out, model)])

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """(N, H, W, channels_in) -> (N, H / stride, W / stride, width * expansion)."""
        shortcut = x if self.downsample is None else self.downsample(x, training)
        x = tf.nn.relu(self.bn1(self.conv1(x, training), training))
        x = tf.nn.relu(self.bn2(self.conv2(x, training), training))
        return tf.nn.relu(self.bn3(self.conv3(x, training), training) + shortcut)


class ResNet(tf.Module):
    """Stem, four stages that each halve the resolution (the first by pooling) and double the width, classifier."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        width = model["stem_width"]
        self.conv1 = convolution(3, width, 7, stride=2)
        self.bn1 = normalisation(width, model)
        channels = width
        for index, blocks in enumerate(model["layers"]):
            stage = []
            for block in range(blocks):
                stride = 2 if index > 0 and block == 0 else 1
                stage.append(Bottleneck(channels, width << index, stride, model))
                channels = (width << index) * model["expansion"]
            setattr(self, f"layer{index + 1}", Chain.of(stage))
        self.stages = len(model["layers"])
        self.fc = linear(channels, model["classes"])

    def __call__(self, images: tf.Tensor, training: bool) -> tf.Tensor:
        """(N, 224, 224, 3) normalised pixels -> (N, classes) logits."""
        x = tf.nn.relu(self.bn1(self.conv1(images, training), training))
        x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])  # XLA does not pad pooling; after ReLU, 0 is the minimum
        x = tf.nn.max_pool2d(x, 3, 2, "VALID")  # (N, 56, 56, 64)
        for index in range(self.stages):
            x = getattr(self, f"layer{index + 1}")(x, training)  # at last (N, 7, 7, 2048)
        return self.fc(tf.reduce_mean(tf.cast(x, tf.float32), axis=(1, 2)), training)


def network(model: Mapping[str, Any]) -> tf.Module:
    """Return the network of a card's `problem.model`."""
    return ResNet(model)
