"""What sessions have in common on hardware that TensorFlow computes on: the host's processors and GPUs."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import tensorflow as tf

from entrypoints.contract.session import Answer, Batch, ChainSample, EvaluationResult, OptimizerRule, Rule, StepReport
from entrypoints.contract.statuses import RunError
from entrypoints.devices.host_session import Waiting
from entrypoints.workloads.tensorflow.build import Objective, Tensors, weights
from entrypoints.workloads.tensorflow.optimizers import optimizer
from entrypoints.workloads.tensorflow.samplers import drawn, sampler


def execution(compiled: bool) -> str:
    """How a session runs a model, for the result."""
    return f"graph (tf.function){' compiled by XLA' if compiled else ''}, NHWC"


def on_host(output: Tensors) -> Any:
    """Outputs as arrays."""
    return tuple(map(on_host, output)) if isinstance(output, tuple) else output.numpy()


class GraphSession(Waiting):
    """Each kind of step is one graph, traced at its first call for the shape of its batch.

    A subclass says what it runs on, how a batch gets there, and how one waits for what was asked.
    """

    def __init__(self, model: Objective, rule: Rule, compiled: bool) -> None:
        self.model, self.compiled = model, compiled
        self.rule: Any = rule
        self.optimizer: Any = None  # it keeps as much as the weights are, or twice: for training alone
        self.sampler = None if isinstance(rule, OptimizerRule) else sampler(model.network, rule, compiled)
        self.step, self.forward, self.judge = (
            tf.function(part, autograph=False, jit_compile=compiled or None)
            for part in (self._step, self._forward, self._judge)
        )
        self.starts: Any = None  # graphs of a text's first token and of its next, traced when there is one
        self.goes_on: Any = None

    def place(self, batch: Batch) -> Batch:
        """The batch where the hardware reads it; as it is, where that is the host's memory."""
        return batch

    def waited(self, result: Any) -> Any:
        """What was asked for, computed; where calls return before, the subclass waits here."""
        return result

    def train(self, batch: Batch) -> StepReport:
        """Forward, backward, update."""
        self.optimizer = self.optimizer or optimizer(self.model, self.rule)
        batch = self.place(batch)
        loss = self.waited(self.step(batch.inputs, batch.targets))
        return StepReport(samples=batch.samples, updates=1, loss=lambda: float(loss))

    def infer(self, batch: Batch) -> StepReport:
        """Forward with the running means."""
        self.waited(self.forward(self.place(batch).inputs))
        return StepReport(samples=batch.samples, updates=0, loss=None)

    def evaluate(self, batch: Batch) -> EvaluationResult:
        """Forward with the running means; what is likeliest counts where targets are labels."""
        batch = self.place(batch)
        loss, right = self.judge(batch.inputs, batch.targets)
        return EvaluationResult(batch.samples, float(loss), None if right is None else int(right))

    def respond(self, batch: Batch) -> Answer:
        """Forward with the running means, the host waiting at the end of each part."""
        asked = self.mark()
        placed = self.place(batch._replace(targets=None))
        self.waited(placed.inputs)
        begun = self.mark()
        output = self.waited(self.forward(placed.inputs))
        done = self.mark()
        host_output = on_host(output)
        return Answer(host_output, begun - asked, done - begun, self.mark() - done)

    def begin(self, batch: Batch, iterations: int, chains: int = 1) -> Any:
        """By the sampler, or by the network.

        Raises RunError (`unsupported`) where a network that generates is to be compiled.
        """
        batch = self.place(batch)
        if self.sampler:
            return self.waited(self.sampler.begin(batch.inputs, batch.targets, iterations, chains))
        if self.compiled:
            raise RunError("unsupported", "--compile: generation is not compiled, its shapes change with every token")
        self.starts = self.starts or tf.function(self.model.network.begin, autograph=False)
        state = self.waited(self.starts(batch.inputs))
        if self.goes_on is None:  # one graph for states of any length
            any_size = tf.nest.map_structure(lambda part: tf.TensorSpec([None] * part.shape.rank, part.dtype), state)
            self.goes_on = tf.function(self.model.network.follow, [any_size], autograph=False)
        return state

    def iterate(self, state: Any) -> Any:
        """By the sampler, or by the network."""
        return self.waited(self.sampler.follow(state) if self.sampler else self.goes_on(state))

    def draw(self, state: Any) -> ChainSample:
        """The sampler's state as arrays."""
        return drawn(state)

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

    def _judge(self, inputs: Tensors, targets: Tensors) -> tuple[tf.Tensor, tf.Tensor | None]:
        output, loss = self.model(inputs, targets)
        if isinstance(targets, tuple) or targets.shape.rank != 1:
            return loss, None
        return loss, tf.math.count_nonzero(tf.argmax(output, axis=1, output_type=targets.dtype) == targets)

    def close(self) -> None:
        """Nothing to release but memory."""
        del self.model, self.optimizer, self.sampler
        del self.step, self.forward, self.judge, self.starts, self.goes_on
