"""Long short-term memory (Hochreiter and Schmidhuber, 1997) over a series, with one output vector at its end."""

from __future__ import annotations

import math
from typing import Any, Mapping

import tensorflow as tf

from entrypoints.workloads.tensorflow.layers import Linear


class Lstm(tf.Module):
    """LSTM layers. Gates are in PyTorch's order: input, forget, cell, output; each has two biases."""

    def __init__(self, features: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.hidden, self.layers = hidden, layers
        for layer in range(layers):
            inputs = hidden if layer else features
            for name, shape in (("weight_ih", [inputs]), ("weight_hh", [hidden]), ("bias_ih", []), ("bias_hh", [])):
                bound = 1 / math.sqrt(hidden)
                value = tf.random.uniform([4 * hidden, *shape], -bound, bound)
                setattr(self, f"{name}_l{layer}", tf.Variable(value))

    def __call__(self, series: tf.Tensor) -> tf.Tensor:
        """(T, N, features) -> the last layer's state after every step, (T, N, hidden)."""
        for layer in range(self.layers):
            series = self.layer(layer, series)
        return series

    def layer(self, layer: int, series: tf.Tensor) -> tf.Tensor:
        """(T, N, inputs) -> (T, N, hidden)."""
        weight_ih, weight_hh, bias_ih, bias_hh = (
            getattr(self, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        recurrent, entrance = tf.transpose(weight_hh), tf.transpose(weight_ih)  # (inputs, 4 * hidden) each
        entered = tf.tensordot(series, entrance, 1) + bias_ih + bias_hh  # (T, N, 4 * hidden), all steps at once
        zeros = tf.zeros([tf.shape(series)[1], self.hidden])

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
