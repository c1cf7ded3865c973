"""A small Bayesian network: the posterior density of its weights, given observations of its output."""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow as tf

from entrypoints.workloads.tensorflow.layers import Linear
from entrypoints.workloads.tensorflow.samplers import Density, Observed


class Posterior(Density):
    """The posterior of three linear layers with tanh after the first.

    Weights have a normal prior, targets a Student's t distribution around the output. Chains (C) differ in their
    weights and share the observations (N).
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.features, self.units = model["features"], model["hidden"]
        sizes = ((self.units, self.features), (1, self.units), (1, 1))
        self.hidden, self.output, self.scale = (Linear(tf.zeros(size), tf.zeros(size[:1])) for size in sizes)
        self.feature_scale = model["feature_scale"]
        self.prior_scale = model["prior"]["scale"]
        self.freedom, self.spread = model["likelihood"]["degrees_of_freedom"], model["likelihood"]["scale"]

    def start(self) -> tf.Tensor:
        """Return the start of every chain: weights and biases layer by layer (P,), laid out as in PyTorch."""
        layers = (self.hidden, self.output, self.scale)
        parts = [part for layer in layers for part in (layer.weight, layer.bias)]
        return tf.concat([tf.reshape(part, [-1]) for part in parts], 0)

    def observe(self, inputs: tf.Tensor, targets: tf.Tensor) -> Observed:
        """Return the scaled features (N, F + 1), with a column of ones for the bias, and the targets (N,)."""
        scaled = self.feature_scale * inputs
        return Observed(tf.concat([scaled, tf.ones_like(scaled[:, :1])], 1), targets)

    def __call__(self, position: tf.Tensor, observed: Observed) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the log density (C,), up to a constant, at flat weights (C, P), and its gradient (C, P)."""
        chains, units, count = position.shape[0], self.units, observed.targets.shape[0]
        sizes = [units * self.features, units, units, 1, 1, 1]
        weight, bias, output, output_bias, scale, shift = tf.split(position, sizes, axis=1)
        first = tf.concat([tf.reshape(weight, [chains, units, -1]), bias[..., None]], -1)
        first = tf.reshape(first, [chains * units, -1])
        active = tf.tanh(tf.reshape(tf.matmul(first, observed.features, transpose_b=True), [chains, units, count]))
        inner = tf.matmul(output[:, None], active)[:, 0] + output_bias  # (C, N)
        error = observed.targets - (scale * inner + shift)
        width = self.freedom * self.spread**2
        log_likelihood = tf.reduce_sum(tf.math.log1p(tf.square(error) / width), 1) * (-(self.freedom + 1) / 2)
        log_prior = tf.reduce_sum(tf.square(position), 1) / (-2 * self.prior_scale**2)
        pull = (self.freedom + 1) * error / (width + tf.square(error))  # derivative of the log likelihood by the output
        back = (scale * pull)[:, None]  # (C, 1, N)
        weighted = active * back
        slope = tf.reshape(back - active * weighted, [chains * units, count])  # back * (1 - active**2)
        to_first = tf.reshape(tf.matmul(slope, observed.features), [chains, units, -1]) * output[..., None]
        parts = [
            *(tf.reshape(to_first[..., :-1], [chains, -1]), to_first[..., -1]),
            *(tf.reduce_sum(weighted, -1), tf.reduce_sum(back, -1)),
            *(tf.reduce_sum(pull * inner, 1, keepdims=True), tf.reduce_sum(pull, 1, keepdims=True)),
        ]
        return log_likelihood + log_prior, tf.concat(parts, 1) - position / self.prior_scale**2


def network(model: Mapping[str, Any]) -> tf.Module:
    """Return the density of a card's `problem.model`."""
    return Posterior(model)
