"""The processors of the host, through TensorFlow."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import tensorflow as tf

from entrypoints.devices.processors import HostSession
from entrypoints.memory import free_mib
from entrypoints.session import Answer, Batch, Division, Draw, Judged, OptimizerRule, Rule, StepReport
from entrypoints.statuses import RunError
from entrypoints.workloads.tensorflow.build import Objective, Tensors, weights
from entrypoints.workloads.tensorflow.optimizers import optimizer
from entrypoints.workloads.tensorflow.samplers import drawn, sampler

__all__ = ["free_mib", "open_session", "prepare"]

PRECISIONS = ("fp32",)  # TensorFlow 2.6 has no bf16 kernel of batch normalisation for a CPU


def prepare(precision: str, threads: int, streams: int = 1) -> None:
    """Set the number of compute threads, which all streams of requests share: as many as they have together.

    It holds for the process: another number raises RuntimeError once there is a tensor. Raises RunError beyond
    `PRECISIONS`.
    """
    if precision not in PRECISIONS:
        raise RunError("unsupported", f"--precision {precision} on cpu: TensorFlow can do {', '.join(PRECISIONS)}")
    tf.config.set_visible_devices([], "GPU")
    # One operation of a stream at a time: two at once would take more threads than were asked for.
    tf.config.threading.set_inter_op_parallelism_threads(streams)
    # A single thread means that none but those above compute.
    tf.config.threading.set_intra_op_parallelism_threads(threads * streams if threads > 1 else 1)


def on_host(output: Tensors) -> Any:
    """Outputs as arrays."""
    return tuple(map(on_host, output)) if isinstance(output, tuple) else output.numpy()


def open_session(
    model: Objective, rule: Rule, _: str, compiled: bool = False, __: Division | None = None
) -> CpuSession:
    """A session over `model`, which it takes over."""
    return CpuSession(model, rule, compiled)


class CpuSession(HostSession):
    """Each kind of step is one graph, traced at its first call for the shape of its batch."""

    def __init__(self, model: Objective, rule: Rule, compiled: bool) -> None:
        super().__init__("TensorFlow", f"graph (tf.function){' compiled by XLA' if compiled else ''}, NHWC")
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
        """The batch as it is: its tensors lie in the host's memory."""
        return batch

    def train(self, batch: Batch) -> StepReport:
        """Forward, backward, update."""
        self.optimizer = self.optimizer or optimizer(self.model, self.rule)
        loss = self.step(batch.inputs, batch.targets)
        return StepReport(samples=batch.samples, updates=1, loss=lambda: float(loss))

    def infer(self, batch: Batch) -> StepReport:
        """Forward with the running means."""
        self.forward(batch.inputs)
        return StepReport(samples=batch.samples, updates=0, loss=None)

    def evaluate(self, batch: Batch) -> Judged:
        """Forward with the running means; what is likeliest counts where targets are labels."""
        loss, right = self.judge(batch.inputs, batch.targets)
        return Judged(batch.samples, float(loss), None if right is None else int(right))

    def respond(self, batch: Batch) -> Answer:
        """Forward with the running means. Nothing is sent anywhere."""
        asked = self.mark()
        placed = self.place(batch)
        begun = self.mark()
        output = self.forward(placed.inputs)
        done = self.mark()
        host_output = on_host(output)
        return Answer(host_output, begun - asked, done - begun, self.mark() - done)

    def begin(self, batch: Batch, iterations: int, chains: int = 1) -> Any:
        """By the sampler, or by the network.

        Raises RunError (`unsupported`) where a network that generates is to be compiled.
        """
        if self.sampler:
            return self.sampler.begin(batch.inputs, batch.targets, iterations, chains)
        if self.compiled:
            raise RunError("unsupported", "--compile: generation is not compiled, its shapes change with every token")
        self.starts = self.starts or tf.function(self.model.network.begin, autograph=False)
        state = self.starts(batch.inputs)
        if self.goes_on is None:  # one graph for states of any length
            any_size = tf.nest.map_structure(lambda part: tf.TensorSpec([None] * part.shape.rank, part.dtype), state)
            self.goes_on = tf.function(self.model.network.follow, [any_size], autograph=False)
        return state

    def iterate(self, state: Any) -> Any:
        """By the sampler, or by the network."""
        return self.sampler.follow(state) if self.sampler else self.goes_on(state)

    def draw(self, state: Any) -> Draw:
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
        return loss, tf.math.count_nonzero(tf.argmax(output, axis=1) == targets)

    def close(self) -> None:
        """Nothing to release but memory."""
        del self.model, self.optimizer, self.sampler
        del self.step, self.forward, self.judge, self.starts, self.goes_on
