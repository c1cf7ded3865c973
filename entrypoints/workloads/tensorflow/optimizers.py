"""The optimizer rules of the cards, with TensorFlow's kernels if it has them, otherwise written out."""

from __future__ import annotations

from typing import Callable, Sequence

import numpy as np
import tensorflow as tf

from entrypoints.contract.session import OptimizerRule
from entrypoints.workloads.tensorflow.layers import BatchNormalisation, Embedding, LayerNormalisation, variables

LAYERS = {"normalisation": (BatchNormalisation, LayerNormalisation), "embedding": (Embedding,)}
BIAS = "bias"  # prefix of the names of biases
# A scale of losses doubles after so many updates in a row that did not overflow, and halves where one did: the numbers
# of PyTorch's GradScaler, which its sessions use here.
PATIENCE = 2000


class Optimizer(tf.Module):
    """The optimizer of a rule over the parameters of a model."""

    def __init__(self, model: tf.Module, rule: OptimizerRule) -> None:
        super().__init__()
        self.parameters: Sequence[tf.Variable] = model.trainable_variables
        self.decays = weight_decays(model, rule)
        self.rule = rule

    def update(self, gradients: Sequence[tf.Tensor]) -> None:
        """Update every parameter once, by the gradients of the loss in the same order."""
        for index, (parameter, gradient, decay) in enumerate(zip(self.parameters, gradients, self.decays)):
            self.move(index, parameter, gradient, decay)

    def move(self, index: int, parameter: tf.Variable, gradient: tf.Tensor, decay: float) -> None:
        """Update the parameter at an index by its gradient and its weight decay."""
        raise NotImplementedError

    def zeros(self) -> list[tf.Variable]:
        """Return zeros in the shape of each parameter."""
        return [tf.Variable(tf.zeros_like(parameter), trainable=False) for parameter in self.parameters]


def penalised(parameter: tf.Variable, gradient: tf.Tensor, decay: float) -> tf.Tensor:
    """Return the gradient plus that of an L2 penalty."""
    return gradient + decay * parameter if decay else gradient


class Sgd(Optimizer):
    """Stochastic gradient descent; momentum is added to the gradient before the learning rate applies."""

    def __init__(self, model: tf.Module, rule: OptimizerRule) -> None:
        super().__init__(model, rule)
        self.velocities = self.zeros()

    def move(self, index: int, parameter: tf.Variable, gradient: tf.Tensor, decay: float) -> None:
        """Update by the velocity, with Nesterov momentum or without."""
        momentum, gradient = self.rule.settings["momentum"], penalised(parameter, gradient, decay)
        velocity = self.velocities[index].assign(momentum * self.velocities[index] + gradient)
        step = gradient + momentum * velocity if self.rule.settings["nesterov"] else velocity
        parameter.assign_sub(self.rule.learning_rate * step)


class Moments(Optimizer):
    """Running means of the gradients and of their squares."""

    def __init__(self, model: tf.Module, rule: OptimizerRule) -> None:
        super().__init__(model, rule)
        self.firsts, self.seconds = self.zeros(), self.zeros()
        self.updates = tf.Variable(0.0, trainable=False)

    def update(self, gradients: Sequence[tf.Tensor]) -> None:
        """Count the update, then do it."""
        self.updates.assign_add(1.0)
        super().update(gradients)

    def share(self, beta: float) -> tf.Tensor:
        """Return the bias correction 1 - beta ** updates of a mean that began at 0.

        `beta` is rounded to single precision, since kernels have it so. `expm1` keeps all digits, while a difference
        from 1 would keep four digits of 0.001 in single precision.
        """
        return -tf.math.expm1(self.updates * float(np.log(np.float64(np.float32(beta)))))


class Adam(Moments):
    """Adam with bias correction (Kingma and Ba, arXiv:1412.6980, algorithm 1)."""

    def move(self, index: int, parameter: tf.Variable, gradient: tf.Tensor, decay: float) -> None:
        """Update by the mean gradient over the root of the mean square, in one pass over memory."""
        (beta1, beta2), epsilon = self.rule.settings["betas"], self.rule.settings["epsilon"]
        root = tf.sqrt(self.share(beta2))
        # The kernel's correction is in single precision, so it is disabled: rate and epsilon contain the correction.
        tf.raw_ops.ResourceApplyAdam(
            var=parameter.handle,
            m=self.firsts[index].handle,
            v=self.seconds[index].handle,
            beta1_power=0.0,
            beta2_power=0.0,
            lr=self.rule.learning_rate * root / self.share(beta1),
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon * root,
            grad=penalised(parameter, gradient, decay),
        )


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101)."""

    def move(self, index: int, parameter: tf.Variable, gradient: tf.Tensor, decay: float) -> None:
        """Decay the parameter, then update it as Adam without a penalty."""
        if decay:
            parameter.assign_sub(self.rule.learning_rate * decay * parameter)
        super().move(index, parameter, gradient, 0.0)


class Lamb(Moments):
    """LAMB: Adam with steps scaled to each tensor's norm (You et al., arXiv:1904.00962, algorithm 2)."""

    def move(self, index: int, parameter: tf.Variable, gradient: tf.Tensor, decay: float) -> None:
        """Update by Adam's step and the decay, scaled to the parameter's norm."""
        (beta1, beta2), epsilon = self.rule.settings["betas"], self.rule.settings["epsilon"]
        first = self.firsts[index].assign(beta1 * self.firsts[index] + (1 - beta1) * gradient)
        second = self.seconds[index].assign(beta2 * self.seconds[index] + (1 - beta2) * tf.square(gradient))
        if self.rule.settings["bias_correction"]:
            first = first / self.share(beta1)
            second = second / self.share(beta2)
        step = first / (tf.sqrt(second) + epsilon) + decay * parameter
        size, length = tf.norm(parameter), tf.norm(step)
        trust = tf.where((size > 0) & (length > 0), size / length, 1.0)
        parameter.assign_sub(self.rule.learning_rate * trust * step)


class LossScale(tf.Module):
    """A factor of losses in fp16, whose small gradients would vanish; an update whose gradients overflow is skipped.

    It is a power of 2, so that it changes no digit of a gradient.
    """

    def __init__(self, first: float) -> None:
        super().__init__()
        self.factor = tf.Variable(first, trainable=False)
        # Updates since the factor changed, in 64 bits: GPUs have no variables of int32, and a program that XLA compiled
        # for one cannot reach the host's (tensorflow/core/kernels/resource_variable_ops.cc).
        self.done = tf.Variable(0, dtype=tf.int64, trainable=False)

    def unscaled(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return gradients of the loss itself."""
        return [gradient / self.factor for gradient in gradients]

    def update(self, optimizer: Callable[[], None], gradients: Sequence[tf.Tensor]) -> tf.Tensor:
        """Let the optimizer do an update if all gradients are finite, and adapt the factor; return 1 if it skipped."""
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])

        def done() -> tf.Tensor:
            optimizer()
            last = tf.equal(self.done, PATIENCE - 1)
            self.factor.assign(tf.where(last, 2 * self.factor, self.factor))
            self.done.assign(tf.where(last, tf.zeros_like(self.done), self.done + 1))
            return tf.constant(0)

        def skipped() -> tf.Tensor:
            self.factor.assign(self.factor / 2)
            self.done.assign(0)
            return tf.constant(1)

        return tf.cond(finite, done, skipped)


RULES: dict[str, type[Optimizer]] = {"sgd": Sgd, "adam": Adam, "adamw": AdamW, "lamb": Lamb}


def optimizer(model: tf.Module, rule: OptimizerRule) -> Optimizer:
    """Return the optimizer of a rule over all parameters of `model`."""
    return RULES[rule.name](model, rule)


def weight_decays(model: tf.Module, rule: OptimizerRule) -> list[float]:
    """Return the weight decay of each parameter: the rule's, or 0 for biases and layers that the rule exempts."""
    exempt_layers = tuple(kind for name in rule.no_weight_decay_on for kind in LAYERS.get(name, ()))
    layers = (layer for layer in model.submodules if isinstance(layer, exempt_layers))
    exempt = {id(parameter) for layer in layers for parameter in layer.trainable_variables}
    if "bias" in rule.no_weight_decay_on:
        exempt |= {id(weight) for name, weight in variables(model) if name.rpartition(".")[2].startswith(BIAS)}
    return [0.0 if id(parameter) in exempt else rule.weight_decay for parameter in model.trainable_variables]
