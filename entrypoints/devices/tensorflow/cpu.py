"""The processors of the host, through TensorFlow."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import tensorflow as tf

from entrypoints.devices.processors import HostSession
from entrypoints.memory import free_mib
from entrypoints.session import Answer, Batch, Draw, Judged, OptimizerRule, Rule, StepReport
from entrypoints.statuses import RunError
from entrypoints.workloads.tensorflow.build import Objective, weights
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


def open_session(model: Objective, rule: Rule, _: str, compiled: bool = False) -> CpuSession:
    """A session over `model`, which it takes over."""
    return CpuSession(model, rule, compiled)


class CpuSession(HostSession):
    """Each kind of step is one graph, traced at its first call for the shape of its batch."""

    def __init__(self, model: Objective, rule: Rule, compiled: bool) -> None:
        super().__init__("TensorFlow", f"graph (tf.function){' compiled by XLA' if compiled else ''}, NHWC")
        self.model = model
        self.optimizer = self.sampler = None
        if isinstance(rule, OptimizerRule):
            self.optimizer = optimizer(model, rule)
        else:
            self.sampler = sampler(model.network, rule, compiled)
        self.step, self.forward, self.judge = (
            tf.function(part, autograph=False, jit_compile=compiled or None)
            for part in (self._step, self._forward, self._judge)
        )

    def place(self, batch: Batch) -> Batch:
        """The batch as it is: its tensors lie in the host's memory."""
        return batch

    def train(self, batch: Batch) -> StepReport:
        """Forward, backward, update."""
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
        host_output = output.numpy()
        return Answer(host_output, begun - asked, done - begun, self.mark() - done)

    def begin(self, batch: Batch, iterations: int, chains: int = 1) -> Any:
        """By the sampler."""
        return self.sampler.begin(batch.inputs, batch.targets, iterations, chains)

    def iterate(self, state: Any) -> Any:
        """By the sampler."""
        return self.sampler.follow(state)

    def draw(self, state: Any) -> Draw:
        """The sampler's state as arrays."""
        return drawn(state)

    def weights(self) -> Mapping[str, np.ndarray]:
        """The parameters, named and laid out as in PyTorch."""
        return weights(self.model)

    def _step(self, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            _, loss = self.model(inputs, targets, training=True)
        self.optimizer.update(tape.gradient(loss, self.optimizer.parameters))
        return loss

    def _forward(self, inputs: tf.Tensor) -> tf.Tensor:
        output, _ = self.model(inputs)
        return output

    def _judge(self, inputs: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        output, loss = self.model(inputs, targets)
        if targets.shape.rank != 1:
            return loss, None
        return loss, tf.math.count_nonzero(tf.argmax(output, axis=1) == targets)

    def close(self) -> None:
        """Nothing to release but memory."""
        del self.model, self.optimizer, self.sampler, self.step, self.forward, self.judge
