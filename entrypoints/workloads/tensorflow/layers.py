"""Layers of the networks.

Images are (N, H, W, C). A layer is called with its input and with whether the network trains.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf


def gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    """Return GELU by its approximation; of fp16 in single precision, since the cube of 41 overflows."""
    wide = tf.cast(x, tf.float32) if x.dtype == tf.float16 else x
    return tf.cast(tf.nn.gelu(wide, approximate=True), x.dtype)


ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "relu": tf.nn.relu,
    "gelu": functools.partial(tf.nn.gelu, approximate=False),
    "gelu_tanh": gelu_tanh,
}
# Axis orders by rank. PyTorch has outputs before inputs and a kernel's positions last. Vectors and matrices are the
# same here, so that an embedding can share its table with a linear layer; kernels are reversed.
TO_PYTORCH = {1: (0,), 2: (0, 1), 4: (3, 2, 0, 1)}
FROM_PYTORCH = {1: (0,), 2: (0, 1), 4: (2, 3, 1, 0)}


class Layer(tf.Module):
    """A layer that computes in `dtype`, and whose weights are in single precision."""

    dtype = tf.float32
    casts_weights = True  # whether it computes with its weights in that precision

    def cast(self, tensor: Any) -> tf.Tensor:
        """Return an input or a weight in the precision of the layer."""
        return tf.cast(tensor, self.dtype)


class Convolution(Layer):
    """A convolution with PyTorch's padding, grouped or not."""

    groups_together = False  # whether the device convolves all groups in one operation

    def __init__(self, weight: tf.Tensor, bias: tf.Tensor | None, stride: int, padding: int, groups: int = 1) -> None:
        super().__init__()
        self.weight = tf.Variable(weight)  # (size, size, channels in / groups, channels out)
        self.bias = None if bias is None else tf.Variable(bias)
        self.stride, self.groups = stride, groups
        self.padding = [[0, 0], [padding, padding], [padding, padding], [0, 0]]

    def __call__(self, x: tf.Tensor, _: bool) -> tf.Tensor:
        """(N, H, W, channels in) -> (N, H / stride, W / stride, channels out)."""
        # Else group by group: TensorFlow has no gradient of grouped convolutions on the CPU.
        operations = 1 if self.groups_together else self.groups
        parts = zip(*(tf.split(self.cast(each), operations, axis=-1) for each in (x, self.weight)))
        done = [tf.nn.conv2d(part, weight, self.stride, self.padding) for part, weight in parts]
        y = tf.concat(done, axis=-1) if len(done) > 1 else done[0]
        return y if self.bias is None else tf.nn.bias_add(y, self.cast(self.bias))


class TransposedConvolution(Layer):
    """A transposed convolution without padding or bias, whose inputs do not overlap in the output."""

    def __init__(self, weight: tf.Tensor, stride: int) -> None:
        super().__init__()
        self.weight = tf.Variable(weight)  # (size, size, channels out, channels in)
        self.stride = stride

    def __call__(self, x: tf.Tensor, _: bool) -> tf.Tensor:
        """(N, H, W, channels in) -> (N, (H - 1) * stride + size, (W - 1) * stride + size, channels out)."""
        size, _, channels_out, _ = self.weight.shape
        samples, *extent, _ = x.shape
        shape = [samples, *((length - 1) * self.stride + size for length in extent), channels_out]
        return tf.nn.conv2d_transpose(self.cast(x), self.cast(self.weight), shape, self.stride, padding="VALID")


class BatchNormalisation(Layer):
    """Batch normalisation: by the batch in training, otherwise by running means.

    `momentum` is the weight of the newest batch, whose variance is counted with N - 1, as in PyTorch.
    """

    casts_weights = False

    def __init__(self, channels: int, epsilon: float, momentum: float) -> None:
        super().__init__()
        self.weight, self.bias = tf.Variable(tf.ones(channels)), tf.Variable(tf.zeros(channels))
        self.running_mean = tf.Variable(tf.zeros(channels), trainable=False)
        self.running_var = tf.Variable(tf.ones(channels), trainable=False)
        self.epsilon, self.momentum = epsilon, momentum

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """(N, H, W, C) -> the same shape."""
        done = tf.raw_ops.FusedBatchNormV3(
            x=self.cast(x),
            scale=self.weight,
            offset=self.bias,
            mean=[] if training else self.running_mean,
            variance=[] if training else self.running_var,
            epsilon=self.epsilon,
            is_training=training,
        )
        if training:
            for running, batch in ((self.running_mean, done.batch_mean), (self.running_var, done.batch_variance)):
                running.assign_add(self.momentum * (batch - running))
        return done.y


class LayerNormalisation(Layer):
    """Layer normalisation (Ba et al., arXiv:1607.06450); scale 1 and shift 0 at the start."""

    casts_weights = False

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight, self.bias = tf.Variable(tf.ones(width)), tf.Variable(tf.zeros(width))
        self.epsilon = epsilon

    def __call__(self, x: tf.Tensor, _: bool) -> tf.Tensor:
        """(..., width) -> the same shape."""
        x = tf.cast(x, tf.float32)  # sums of many squares
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        return self.cast(centred * tf.math.rsqrt(variance + self.epsilon) * self.weight + self.bias)


class Linear(Layer):
    """A linear layer, with a bias or without."""

    def __init__(self, weight: tf.Tensor, bias: tf.Tensor | None) -> None:
        super().__init__()
        self.weight = tf.Variable(weight)  # (outputs, inputs)
        self.bias = None if bias is None else tf.Variable(bias)

    def __call__(self, x: tf.Tensor, _: bool) -> tf.Tensor:
        """(..., inputs) -> (..., outputs)."""
        outputs, inputs = self.weight.shape
        rows = tf.reshape(self.cast(x), [-1, inputs])  # a batched product is slower
        y = tf.matmul(rows, self.cast(self.weight), transpose_b=True)
        y = y if self.bias is None else tf.nn.bias_add(y, self.cast(self.bias))
        return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [outputs]], 0))


class Embedding(Layer):
    """A vector for each number from 0 on; zeros at the start."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros([count, width]))

    def __call__(self, numbers: tf.Tensor, _: bool) -> tf.Tensor:
        """Any shape -> that shape and the width."""
        return self.cast(tf.gather(self.weight, numbers))


class Dropout(tf.Module):
    """Drops each number with probability `p` while training, and scales what is kept so that the mean stays."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.applied = False  # in training

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """Any shape -> the same."""
        self.applied = self.applied or training
        return tf.nn.dropout(x, self.p) if training and self.p else x


class Activation(tf.Module):
    """A function without weights, as a layer."""

    def __init__(self, function: Callable[[tf.Tensor], tf.Tensor]) -> None:
        super().__init__()
        self.function = function

    def __call__(self, x: tf.Tensor, _: bool) -> tf.Tensor:
        """Any shape -> the same."""
        return self.function(x)


class Chain(tf.Module):
    """Layers in sequence, by name or by index."""

    def __init__(self, layers: Mapping[str, tf.Module]) -> None:
        super().__init__()
        self.order = tuple(layers)
        for name, layer in layers.items():
            setattr(self, name, layer)

    @classmethod
    def of(cls, layers: Sequence[tf.Module]) -> Chain:
        """Return a chain of layers named by their indices, from 0."""
        return cls({str(index): layer for index, layer in enumerate(layers)})

    def __iter__(self) -> Iterator[tf.Module]:
        """Iterate over the layers in order."""
        return (getattr(self, name) for name in self.order)

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """Return the output of the last layer."""
        for layer in self:
            x = layer(x, training)
        return x


def compute_in(module: tf.Module, dtype: tf.DType) -> None:
    """Let all layers of a module compute in a precision."""
    for layer in module.submodules:
        if isinstance(layer, Layer):
            layer.dtype = dtype


def variables(module: tf.Module) -> Iterator[tuple[str, tf.Variable]]:
    """Yield every variable of a module with its name in PyTorch: attributes joined by dots.

    A variable that layers share has the first of its names.
    """
    yielded: set[int] = set()
    for name, variable in _named(module, ""):
        if id(variable) not in yielded:
            yielded.add(id(variable))
            yield name, variable


def dropouts(module: tf.Module, prefix: str = "") -> Iterator[tuple[str, Dropout]]:
    """Yield every dropout of a module with its name: attributes joined by dots."""
    for name, value in vars(module).items():
        if isinstance(value, Dropout):
            yield f"{prefix}{name}", value
        elif isinstance(value, tf.Module):
            yield from dropouts(value, f"{prefix}{name}.")


def _named(module: tf.Module, prefix: str) -> Iterator[tuple[str, tf.Variable]]:
    for name, value in vars(module).items():
        if isinstance(value, tf.Variable):
            yield f"{prefix}{name}", value
        elif isinstance(value, tf.Module):
            yield from _named(value, f"{prefix}{name}.")


def he_normal(shape: Sequence[int], fan: int) -> tf.Tensor:
    """Return normal numbers of variance 2 / `fan`."""
    return tf.random.normal(shape, stddev=math.sqrt(2 / fan))


def uniform_by_fan(shape: Sequence[int], fan: int) -> tf.Tensor:
    """Return uniform numbers within 1 / sqrt(`fan`), which is PyTorch's default."""
    bound = 1 / math.sqrt(fan)
    return tf.random.uniform(shape, -bound, bound)


def convolution(
    channels_in: int, channels_out: int, size: int, stride: int = 1, groups: int = 1, bias: bool = False
) -> Convolution:
    """Return a padded `size` x `size` convolution, He initialised by its outputs."""
    weight = he_normal((size, size, channels_in // groups, channels_out), size * size * channels_out)
    return Convolution(weight, tf.zeros(channels_out) if bias else None, stride, size // 2, groups)


def plain_convolution(channels_in: int, channels_out: int, size: int, padding: int = 0) -> Convolution:
    """Return a `size` x `size` convolution with a bias, initialised by its inputs."""
    fan = size * size * channels_in
    weight = uniform_by_fan((size, size, channels_in, channels_out), fan)
    return Convolution(weight, uniform_by_fan((channels_out,), fan), 1, padding)


def transposed_convolution(channels_in: int, channels_out: int, size: int, stride: int) -> TransposedConvolution:
    """Return a `size` x `size` transposed convolution, He initialised by its input channels."""
    return TransposedConvolution(he_normal((size, size, channels_out, channels_in), channels_in), stride)


def linear(inputs: int, outputs: int) -> Linear:
    """Return a linear layer with a bias, initialised by its inputs."""
    return Linear(uniform_by_fan((outputs, inputs), inputs), uniform_by_fan((outputs,), inputs))


def normalisation(channels: int, model: Mapping[str, Any]) -> BatchNormalisation:
    """Return a batch normalisation with the card's epsilon and momentum; scale 1 and shift 0 at the start."""
    rule = model["normalisation"]
    return BatchNormalisation(channels, rule["epsilon"], rule["momentum"])


def unit(
    channels_in: int, channels_out: int, size: int, model: Mapping[str, Any], activation: str | None, stride: int = 1
) -> Chain:
    """Return convolution, normalisation and, if there is one, activation."""
    layers = [convolution(channels_in, channels_out, size, stride), normalisation(channels_out, model)]
    return Chain.of([*layers, *([Activation(ACTIVATIONS[activation])] if activation else [])])


def to_pytorch(array: np.ndarray) -> np.ndarray:
    """Return a weight in PyTorch's layout, as a view."""
    return array.transpose(TO_PYTORCH[array.ndim])


def from_pytorch(array: np.ndarray) -> np.ndarray:
    """Return a weight of PyTorch's layout in TensorFlow's, as a view."""
    return array.transpose(FROM_PYTORCH[array.ndim])
