"""The session on hardware that TensorFlow computes on."""

from __future__ import annotations

import functools
from typing import Any, Mapping, Sequence

import numpy as np
import tensorflow as tf

from entrypoints.contract.session import Answer, Batch, ChainSample, EvaluationResult, OptimizerRule, Rule, StepReport
from entrypoints.contract.statuses import RunError
from entrypoints.devices.host_session import SynchronousSession
from entrypoints.workloads.tensorflow.build import Objective, Tensors, variables, weights
from entrypoints.workloads.tensorflow.optimizers import optimizer
from entrypoints.workloads.tensorflow.samplers import chain_sample, sampler


def execution(compiled: bool) -> str:
    """Return how a session runs a model, for the result."""
    return f"graph (tf.function){' compiled by XLA' if compiled else ''}, NHWC"


def to_host(output: Tensors) -> Any:
    """Return outputs as arrays."""
    return tuple(map(to_host, output)) if isinstance(output, tuple) else output.numpy()


def are_gradients(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return which of some gradients are finite and not all zero."""
    largest = tf.stack([tf.reduce_max(tf.abs(gradient)) for gradient in gradients])  # not a number if any is
    return (largest > 0) & tf.math.is_finite(largest)


class TensorFlowSession(SynchronousSession):
    """A session in TensorFlow. Each kind of step is one graph, traced at its first call for the shape of its batch.

    Subclasses have the device's facts, the transfer of a batch, and the wait for a result.
    """

    shows_gradients = True

    def __init__(self, model: Objective, rule: Rule, compiled: bool) -> None:
        self.model, self.compiled = model, compiled
        self.reached: Any = None  # by weight whether the last step had a gradient for it, while that is asked for
        self.asking: Any = None
        self.rule: Any = rule
        self.optimizer: Any = None  # created for training only: its state is as large as the weights, or twice
        self.sampler = None if isinstance(rule, OptimizerRule) else sampler(model.network, rule, compiled)
        self.step, self.forward, self.evaluation = (
            tf.function(part, autograph=False, jit_compile=compiled or None)
            for part in (self._step, self._forward, self._evaluate)
        )
        self.first_token: Any = None  # graphs of the first and of the next token, traced at their first call
        self.next_token: Any = None

    def to_device(self, batch: Batch) -> Batch:
        """Return the batch in the hardware's memory, unchanged if that is the host's."""
        return batch

    def wait_for(self, result: Any) -> Any:
        """Return `result` when it is computed. Subclasses wait here if calls return earlier."""
        return result

    def train(self, batch: Batch) -> StepReport:
        """Do forward, backward and update."""
        if self.optimizer is None:
            self.optimizer = optimizer(self.model, self.rule)
            self.asking = tf.Variable(self.shows_gradients, trainable=False)
            self.reached = tf.Variable(tf.zeros(len(self.optimizer.parameters), tf.bool), trainable=False)
        batch = self.to_device(batch)
        loss = self.wait_for(self.step(batch.inputs, batch.targets))
        return StepReport(samples=batch.samples, updates=1, loss=lambda: float(loss))

    def infer(self, batch: Batch) -> StepReport:
        """Do a forward pass with the running means."""
        output = self.wait_for(self.forward(self.to_device(batch).inputs))
        return StepReport(batch.samples, updates=0, loss=None, output=functools.partial(to_host, output))

    def evaluate(self, batch: Batch) -> EvaluationResult:
        """Do a forward pass with the running means, and count right predictions if targets are labels."""
        batch = self.to_device(batch)
        loss, right = self.evaluation(batch.inputs, batch.targets)
        return EvaluationResult(batch.samples, float(loss), None if right is None else int(right))

    def infer_request(self, batch: Batch) -> Answer:
        """Answer a request with the running means; the host waits at the end of each part."""
        start = self.mark()
        batch_on_device = self.to_device(batch._replace(targets=None))
        self.wait_for(batch_on_device.inputs)
        transferred = self.mark()
        output = self.wait_for(self.forward(batch_on_device.inputs))
        done = self.mark()
        host_output = to_host(output)
        return Answer(host_output, transferred - start, done - transferred, self.mark() - done)

    def begin(self, batch: Batch, iterations: int, chains: int = 1) -> Any:
        """Return the first state, from the sampler or from the network.

        Raises RunError (`unsupported`) if a network that generates is to be compiled.
        """
        batch = self.to_device(batch)
        if self.sampler:
            return self.wait_for(self.sampler.begin(batch.inputs, batch.targets, iterations, chains))
        if self.compiled:
            raise RunError("unsupported", "--compile: generation is not compiled, its shapes change with every token")
        self.first_token = self.first_token or tf.function(self.model.network.begin, autograph=False)
        state = self.wait_for(self.first_token(batch.inputs))
        if self.next_token is None:  # one graph for states of any length
            any_size = tf.nest.map_structure(lambda part: tf.TensorSpec([None] * part.shape.rank, part.dtype), state)
            self.next_token = tf.function(self.model.network.follow, [any_size], autograph=False)
        return state

    def iterate(self, state: Any) -> Any:
        """Return the next state, from the sampler or from the network."""
        return self.wait_for(self.sampler.follow(state) if self.sampler else self.next_token(state))

    def chain_sample(self, state: Any) -> ChainSample:
        """Return the sampler's state as arrays."""
        return chain_sample(state)

    def gradients(self) -> Mapping[str, bool] | None:
        """Return by weight whether the last step had a gradient for it; later steps are not asked any more."""
        if not self.shows_gradients:
            return None
        self.asking.assign(False)
        names = {id(variable): name for name, variable in variables(self.model.network)}
        reached = zip(self.optimizer.parameters, self.reached.numpy().tolist())
        return {names[id(variable)]: has_one for variable, has_one in reached}

    def weights(self) -> Mapping[str, np.ndarray]:
        """Return the parameters, named and laid out as in PyTorch."""
        return weights(self.model)

    def _step(self, inputs: Tensors, targets: Tensors) -> tf.Tensor:
        with tf.GradientTape() as tape:
            _, loss = self.model(inputs, targets, training=True)
        # An embedding's gradient is a list of rows, some of them twice; only a dense one has the right norm.
        gradients = list(map(tf.convert_to_tensor, tape.gradient(loss, self.optimizer.parameters)))
        if self.shows_gradients:
            self.reached.assign(tf.cond(self.asking, lambda: are_gradients(gradients), self.reached.read_value))
        if self.rule.gradient_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.rule.gradient_norm)
        self.optimizer.update(gradients)
        return loss

    def _forward(self, inputs: Tensors) -> Tensors:
        output, _ = self.model(inputs)
        return output

    def _evaluate(self, inputs: Tensors, targets: Tensors) -> tuple[tf.Tensor, tf.Tensor | None]:
        output, loss = self.model(inputs, targets)
        if isinstance(targets, tuple) or targets.shape.rank != 1:
            return loss, None
        return loss, tf.math.count_nonzero(tf.argmax(output, axis=1, output_type=targets.dtype) == targets)

    def close(self) -> None:
        """Release memory."""
        del self.model, self.optimizer, self.sampler
        del self.step, self.forward, self.evaluation, self.first_token, self.next_token
