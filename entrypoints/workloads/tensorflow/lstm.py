"""Long short-term memory (Hochreiter and Schmidhuber, 1997) over a series, with one output vector at its end."""

from __future__ import annotations

import math
from typing import Any, Mapping

import tensorflow as tf

from entrypoints.workloads.tensorflow.layers import Layer, Linear

WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
CUDNN, MIOPEN = (0, 1, 2, 3), (0, 1, 3, 2)  # order of the gates in the libraries of GPUs: keras.layers.LSTM has both


class Lstm(Layer):
    """LSTM layers. Gates are in PyTorch's order: input, forget, cell, output; each has two biases."""

    library: tuple[int, ...] | None = None  # order of the gates, if a library of the GPU computes all steps at once

    def __init__(self, features: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.hidden, self.layers = hidden, layers
        for layer in range(layers):
            inputs = hidden if layer else features
            for name, shape in zip(WEIGHTS, ([inputs], [hidden], [], [])):
                bound = 1 / math.sqrt(hidden)
                value = tf.random.uniform([4 * hidden, *shape], -bound, bound)
                setattr(self, f"{name}_l{layer}", tf.Variable(value))

    def __call__(self, series: tf.Tensor) -> tf.Tensor:
        """(T, N, features) -> the last layer's state after every step, (T, N, hidden)."""
        series = self.cast(series)
        for layer in range(self.layers):
            weights = [self.cast(getattr(self, f"{name}_l{layer}")) for name in WEIGHTS]
            series = self.at_once(series, *weights) if self.library else self.layer(series, *weights)
        return series

    def at_once(self, series: tf.Tensor, *weights: tf.Tensor) -> tf.Tensor:
        """(T, N, inputs) -> (T, N, hidden), by cuDNN or MIOpen.

        The library wants the matrices of all gates, then their biases, each in one row of numbers.
        """
        gates = ([tf.split(weight, 4)[gate] for gate in self.library or ()] for weight in weights)
        zeros = tf.zeros([1, tf.shape(series)[1], self.hidden], self.dtype)
        done = tf.raw_ops.CudnnRNN(
            input=series,
            input_h=zeros,
            input_c=zeros,
            params=tf.concat([tf.reshape(gate, [-1]) for weight in gates for gate in weight], 0),
            rnn_mode="lstm",
            is_training=True,
        )
        return done.output

    def layer(
        self, series: tf.Tensor, weight_ih: tf.Tensor, weight_hh: tf.Tensor, bias_ih: tf.Tensor, bias_hh: tf.Tensor
    ) -> tf.Tensor:
        """(T, N, inputs) -> (T, N, hidden), step by step."""
        recurrent, entrance = tf.transpose(weight_hh), tf.transpose(weight_ih)  # (inputs, 4 * hidden) each
        entered = tf.tensordot(series, entrance, 1) + bias_ih + bias_hh  # (T, N, 4 * hidden), all steps at once
        zeros = tf.zeros([tf.shape(series)[1], self.hidden], self.dtype)

        def step(states: tuple[tf.Tensor, tf.Tensor], gates: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            state, cell = states
            input_gate, forget_gate, new, output_gate = tf.split(gates + tf.matmul(state, recurrent), 4, axis=-1)
            cell = tf.sigmoid(forget_gate) * cell + tf.sigmoid(input_gate) * tf.tanh(new)
            return tf.sigmoid(output_gate) * tf.tanh(cell), cell

        states, _ = tf.scan(step, entered, (zeros, zeros))
        return states


class LastState(tf.Module):
    """LSTM layers, and a linear layer over the last layer's state after the last step."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, outputs = model["hidden"], model["outputs"]
        self.memory = Lstm(model["features"], hidden, model["layers"])
        bound = 1 / math.sqrt(hidden)
        self.output = Linear(
            tf.random.uniform([outputs, hidden], -bound, bound), tf.random.uniform([outputs], -bound, bound)
        )

    def __call__(self, series: tf.Tensor, training: bool) -> tf.Tensor:
        """(N, T, features) -> (N, outputs)."""
        states = self.memory(tf.transpose(series, [1, 0, 2]))
        return self.output(states[-1], training)


def network(model: Mapping[str, Any]) -> tf.Module:
    """Return the network of a card's `problem.model`."""
    return LastState(model)
