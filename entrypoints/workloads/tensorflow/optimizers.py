"""The optimizer rules of the cards, written out."""

from __future__ import annotations

from typing import Sequence

import tensorflow as tf

from entrypoints.session import OptimizerRule
from entrypoints.workloads.tensorflow.layers import Normalisation

LAYERS = {"normalisation": (Normalisation,)}


class Optimizer(tf.Module):
    """What a rule asks for, over the parameters of a model."""

    def __init__(self, model: tf.Module, rule: OptimizerRule) -> None:
        super().__init__()
        self.parameters: Sequence[tf.Variable] = model.trainable_variables
        self.decays = weight_decays(model, rule)
        self.rule = rule

    def update(self, gradients: Sequence[tf.Tensor]) -> None:
        """Move every parameter once, by the gradients of the loss in the same order."""
        for place, (parameter, gradient, decay) in enumerate(zip(self.parameters, gradients, self.decays)):
            self.move(place, parameter, gradient + decay * parameter if decay else gradient)

    def move(self, place: int, parameter: tf.Variable, gradient: tf.Tensor) -> None:
        """Move the parameter at a place by its gradient, penalty included."""
        raise NotImplementedError

    def zeros(self) -> list[tf.Variable]:
        """A zero for each number of each parameter."""
        return [tf.Variable(tf.zeros_like(parameter), trainable=False) for parameter in self.parameters]


class Sgd(Optimizer):
    """Stochastic gradient descent; momentum is added to the gradient before the learning rate applies."""

    def __init__(self, model: tf.Module, rule: OptimizerRule) -> None:
        super().__init__(model, rule)
        self.velocities = self.zeros()

    def move(self, place: int, parameter: tf.Variable, gradient: tf.Tensor) -> None:
        """Along the velocity, after Nesterov beyond it."""
        momentum = self.rule.settings["momentum"]
        velocity = self.velocities[place].assign(momentum * self.velocities[place] + gradient)
        step = gradient + momentum * velocity if self.rule.settings["nesterov"] else velocity
        parameter.assign_sub(self.rule.learning_rate * step)


class Adam(Optimizer):
    """Adam with bias correction (Kingma and Ba, arXiv:1412.6980, algorithm 1)."""

    def __init__(self, model: tf.Module, rule: OptimizerRule) -> None:
        super().__init__(model, rule)
        self.firsts, self.seconds = self.zeros(), self.zeros()
        self.updates = tf.Variable(0.0, trainable=False, dtype=tf.float64)

    def update(self, gradients: Sequence[tf.Tensor]) -> None:
        """Count, then move."""
        self.updates.assign_add(1.0)
        super().update(gradients)

    def share(self, beta: float) -> tf.Tensor:
        """What a mean that began at 0 has taken up by now. In double precision: single leaves four digits of 0.001."""
        return tf.cast(1 - tf.pow(tf.constant(beta, tf.float64), self.updates), tf.float32)

    def move(self, place: int, parameter: tf.Variable, gradient: tf.Tensor) -> None:
        """By the mean of the gradients over the root of that of their squares."""
        (beta1, beta2), epsilon = self.rule.settings["betas"], self.rule.settings["epsilon"]
        first = self.firsts[place].assign(beta1 * self.firsts[place] + (1 - beta1) * gradient)
        second = self.seconds[place].assign(beta2 * self.seconds[place] + (1 - beta2) * tf.square(gradient))
        root = tf.sqrt(second / self.share(beta2))
        parameter.assign_sub(self.rule.learning_rate * (first / self.share(beta1)) / (root + epsilon))


RULES: dict[str, type[Optimizer]] = {"sgd": Sgd, "adam": Adam}


def optimizer(model: tf.Module, rule: OptimizerRule) -> Optimizer:
    """The optimizer that a rule names, over all parameters of `model`."""
    return RULES[rule.name](model, rule)


def weight_decays(model: tf.Module, rule: OptimizerRule) -> list[float]:
    """The weight decay of each parameter: the rule's, or none in the layers that it exempts."""
    exempt_layers = tuple(kind for name in rule.no_weight_decay_on for kind in LAYERS[name])
    layers = (layer for layer in model.submodules if isinstance(layer, exempt_layers))
    exempt = {id(parameter) for layer in layers for parameter in layer.trainable_variables}
    return [0.0 if id(parameter) in exempt else rule.weight_decay for parameter in model.trainable_variables]
