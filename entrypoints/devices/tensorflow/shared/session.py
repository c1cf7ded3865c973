"""What sessions have in common on hardware that TensorFlow computes on: the host's processors and GPUs."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import tensorflow as tf

from entrypoints.contract.session import Answer, Batch, Draw, Judged, OptimizerRule, Rule, StepReport
from entrypoints.contract.statuses import RunError
from entrypoints.devices.host_session import SynchronousSession
from entrypoints.workloads.tensorflow.build import Objective, Tensors, weights
from entrypoints.workloads.tensorflow.optimizers import optimizer
from entrypoints.workloads.tensorflow.samplers import chain_sample, sampler


def execution(compiled: bool) -> str:
    """How a session runs a model, for the result."""
    return f"graph (tf.function){' compiled by XLA' if compiled else ''}, NHWC"


def to_host(output: Tensors) -> Any:
    """Outputs as arrays."""
    return tuple(map(to_host, output)) if isinstance(output, tuple) else output.numpy()


class TensorFlowSession(SynchronousSession):
    """Each kind of step is one graph, traced at its first call for the shape of its batch.

    A subclass says what it runs on, how a batch gets there, and how one waits for what was asked.
    """

    def __init__(self, model: Objective, rule: Rule, compiled: bool) -> None:
        self.model, self.compiled = model, compiled
        self.rule: Any = rule
        self.optimizer: Any = None  # it keeps as much as the weights are, or twice: for training alone
        self.sampler = None if isinstance(rule, OptimizerRule) else sampler(model.network, rule, compiled)
        self.step, self.forward, self.evaluation = (
            tf.function(part, autograph=False, jit_compile=compiled or None)
            for part in (self._step, self._forward, self._evaluate)
        )
        self.first_token: Any = None  # graphs of a text's first token and of its next, traced when there is one
        self.next_token: Any = None

    def to_device(self, batch: Batch) -> Batch:
        """The batch where the hardware reads it; as it is, where that is the host's memory."""
        return batch

    def wait_for(self, result: Any) -> Any:
        """What was asked for, computed; where calls return before, the subclass waits here."""
        return result

    def train(self, batch: Batch) -> StepReport:
        """Forward, backward, update."""
        self.optimizer = self.optimizer or optimizer(self.model, self.rule)
        batch = self.to_device(batch)
        loss = self.wait_for(self.step(batch.inputs, batch.targets))
        return StepReport(samples=batch.samples, updates=1, loss=lambda: float(loss))

    def infer(self, batch: Batch) -> StepReport:
        """Forward with the running means."""
        self.wait_for(self.forward(self.to_device(batch).inputs))
        return StepReport(samples=batch.samples, updates=0, loss=None)

    def evaluate(self, batch: Batch) -> Judged:
        """Forward with the running means; what is likeliest counts where targets are labels."""
        batch = self.to_device(batch)
        loss, right = self.evaluation(batch.inputs, batch.targets)
        return Judged(batch.samples, float(loss), None if right is None else int(right))

    def infer_request(self, batch: Batch) -> Answer:
        """Forward with the running means, the host waiting at the end of each part."""
        asked = self.mark()
        placed = self.to_device(batch._replace(targets=None))
        self.wait_for(placed.inputs)
        begun = self.mark()
        output = self.wait_for(self.forward(placed.inputs))
        done = self.mark()
        host_output = to_host(output)
        return Answer(host_output, begun - asked, done - begun, self.mark() - done)

    def begin(self, batch: Batch, iterations: int, chains: int = 1) -> Any:
        """By the sampler, or by the network.

        Raises RunError (`unsupported`) where a network that generates is to be compiled.
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
        """By the sampler, or by the network."""
        return self.wait_for(self.sampler.follow(state) if self.sampler else self.next_token(state))

    def chain_sample(self, state: Any) -> Draw:
        """The sampler's state as arrays."""
        return chain_sample(state)

    def weights(self) -> Mapping[str, np.ndarray]:
        """The parameters, named and laid out as in PyTorch."""
        return weights(self.model)

    def _step(self, inputs: Tensors, targets: Tensors) -> tf.Tensor:
        with tf.GradientTape() as tape:
            _, loss = self.model(inputs, targets, training=True)
        # An embedding's is a list of rows, some of them twice: as one array its norm is the gradient's.
        gradients = list(map(tf.convert_to_tensor, tape.gradient(loss, self.optimizer.parameters)))
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
        """Nothing to release but memory."""
        del self.model, self.optimizer, self.sampler
        del self.step, self.forward, self.evaluation, self.first_token, self.next_token
