"""The session on hardware that TensorFlow computes on."""

from __future__ import annotations

import functools
import math
import threading
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from entrypoints.contract.session import (
    FIRST_SCALE,
    Answer,
    Batch,
    BatchPartition,
    ChainSample,
    DeviceFacts,
    EvaluationResult,
    FirstStep,
    OptimizerRule,
    Rule,
    SamplerRule,
    StepReport,
)
from entrypoints.contract.statuses import RunError
from entrypoints.devices.host_session import SynchronousSession
from entrypoints.devices.tensorflow.strategies.group import Group
from entrypoints.workloads.tensorflow.build import HalfWeights, Objective, Tensors, dropped_fractions, units, weights
from entrypoints.workloads.tensorflow.optimizers import LossScale, optimizer
from entrypoints.workloads.tensorflow.samplers import chain_sample, sampler


def execution(compiled: bool) -> str:
    """Return how a session runs a model, for the result."""
    return f"graph (tf.function){' compiled by XLA' if compiled else ''}, NHWC"


def to_host(output: Tensors) -> Any:
    """Return outputs as arrays."""
    return tuple(map(to_host, output)) if isinstance(output, tuple) else output.numpy()


def used_fraction(gradient: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Return the smallest fraction of units, over `axes`, with a gradient that is not 0; NaN if one is not finite.

    Without axes the whole gradient is one unit.
    """
    sizes = tf.abs(gradient)
    others: list[Any] = [[other for other in range(gradient.shape.rank) if other != axis] for axis in axes]
    largest = [tf.reduce_max(sizes, each) for each in others or [None]]
    fractions = [tf.reduce_mean(tf.cast(each > 0, tf.float32)) for each in largest]
    return tf.where(tf.reduce_all(tf.math.is_finite(gradient)), tf.reduce_min(tf.stack(fractions)), math.nan)


class TensorFlowSession(SynchronousSession):
    """A session in TensorFlow. Each kind of step is one graph, traced at its first call for the shape of its batch.

    Subclasses have the device's facts, the transfer of a batch, and the wait for a result. `dtype` is the half
    precision that layers compute in, if they do.
    """

    facts: DeviceFacts
    shows_steps = True  # whether a step is a graph that can also return what was observed of it

    def __init__(
        self,
        model: Objective,
        rule: Rule,
        compiled: bool,
        partition: BatchPartition | None = None,
        group: Group | None = None,
        dtype: tf.DType | None = None,
    ) -> None:
        self.model, self.compiled, self.dtype = model, compiled, dtype
        self.accumulation = partition.accumulation if partition else 1  # micro-batches per update
        self.iterations = partition.device_iterations if partition else 1  # updates in a call
        self.group = group if isinstance(rule, OptimizerRule) and group and group.strategy else None
        self.asking = (tf.constant(True),) if self.shows_steps else ()  # whether a step has to show its gradients
        self.samples: int | None = None  # that passed through the network in the first step
        self.used: Sequence[float] = ()  # in the first step, of each weight the fraction of units with a gradient
        self.rule: Any = rule
        self.optimizer: Any = None  # created for training only: its state is as large as the weights, or twice
        trains_in_fp16 = dtype == tf.float16 and isinstance(rule, OptimizerRule)
        self.scale = LossScale(FIRST_SCALE) if trains_in_fp16 else None
        self.halved: HalfWeights | None = None  # the model for inference in half precision
        self.halved_is_old = False  # whether training has changed the weights since
        self.lock = threading.Lock()
        self.sampler = sampler(model.network, rule, compiled) if isinstance(rule, SamplerRule) else None
        parts: Sequence[Callable[..., Any]] = (self._steps, self._forward, self._evaluate)
        self.step, self.forward, self.evaluation = map(self._graph, parts)
        if self.group:
            self._join(self.group)
        self.first_token: Any = None  # graphs of the first and of the next token, traced at their first call
        self.next_token: Any = None

    def _graph(self, part: Callable[..., Any]) -> Callable[..., Any]:
        graph: Callable[..., Any] = tf.function(part, autograph=False, jit_compile=self.compiled or None)
        return graph

    def _join(self, group: Group) -> None:
        """Let a step average its gradients over all ranks. XLA compiles what comes before, and what comes after."""
        self.step = tf.function(self._step, autograph=False)
        if self.compiled:
            self._loss_and_gradients = self._graph(self._loss_and_gradients)  # type: ignore[method-assign]
            self._update = self._graph(self._update)  # type: ignore[method-assign]
        group.seed_dropout_by_rank()
        self.facts = self.facts._replace(execution=f"{self.facts.execution}; {group.strategy} by {group.engine}")

    def to_device(self, batch: Batch) -> Batch:
        """Return the batch in the hardware's memory, unchanged if that is the host's."""
        return batch

    def wait_for(self, result: Any) -> Any:
        """Return `result` when it is computed. Subclasses wait here if calls return earlier."""
        return result

    def train(self, batch: Batch) -> StepReport:
        """Do forward, backward and update, for each iteration of a call; the loss is the mean of all of them."""
        if self.optimizer is None:
            self.optimizer = optimizer(self.model, self.rule)
        batch = self.to_device(batch)
        loss, skipped, *shown = self.wait_for(self.step(batch.inputs, batch.targets, *self.asking))
        self.halved_is_old = True
        if shown and self.samples is None:
            self.samples, self.used = int(shown[0]), shown[1].numpy().tolist()
            self.asking = (tf.constant(False),)
        return StepReport(
            samples=batch.samples,
            updates=self.iterations,
            loss=lambda: float(loss),
            skipped=(lambda: int(skipped)) if self.scale else None,
        )

    def infer(self, batch: Batch) -> StepReport:
        """Do a forward pass with the running means."""
        self.prepare_inference()
        output = self.wait_for(self.forward(self.to_device(batch).inputs))
        return StepReport(batch.samples, updates=0, loss=None, output=functools.partial(to_host, output))

    def evaluate(self, batch: Batch) -> EvaluationResult:
        """Do a forward pass with the running means, and count right predictions if targets are labels."""
        self.prepare_inference()
        batch = self.to_device(batch)
        loss, right = self.evaluation(batch.inputs, batch.targets)
        return EvaluationResult(batch.samples, float(loss), None if right is None else int(right))

    def infer_request(self, batch: Batch) -> Answer:
        """Answer a request with the running means; the host waits at the end of each part."""
        self.prepare_inference()
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
            return self.wait_for(self.sampler.first_state(batch.inputs, batch.targets, iterations, chains))
        if self.compiled:
            raise RunError("unsupported", "--compile: generation is not compiled, its shapes change with every token")
        self.prepare_inference()
        network = self.inference_model.network
        self.first_token = self.first_token or tf.function(network.prefill, autograph=False)
        state = self.wait_for(self.first_token(batch.inputs))
        if self.next_token is None:  # one graph for states of any length
            any_size = tf.nest.map_structure(lambda part: tf.TensorSpec([None] * part.shape.rank, part.dtype), state)
            self.next_token = tf.function(network.decode_step, [any_size], autograph=False)
        return state

    def next_state(self, state: Any) -> Any:
        """Return the next state, from the sampler or from the network."""
        return self.wait_for(self.sampler.next_state(state) if self.sampler else self.next_token(state))

    def append_tokens(self, batch: Batch, tokens: Sequence[tf.Tensor]) -> tuple[Batch, np.ndarray]:
        """Return texts with new tokens, each (N, 1), at their end, and these tokens as an array (N, K)."""
        new = tf.concat(list(tokens), 1)
        texts = tf.concat([self.to_device(batch).inputs, tf.cast(new, batch.inputs.dtype)], 1)
        return batch._replace(inputs=texts, targets=None), new.numpy()

    def chain_sample(self, state: Any) -> ChainSample:
        """Return the sampler's state as arrays."""
        return chain_sample(state)

    def gradients(self) -> Mapping[str, float] | None:
        """Return by weight the fraction of its units with a gradient in the first step; later ones do not show it.

        None if that step was skipped, since gradients in fp16 overflowed.
        """
        if not self.shows_steps or (self.scale and any(map(math.isnan, self.used))):
            return None
        return dict(zip((name for name, _, _ in units(self.model.network)), self.used))

    def observed(self) -> FirstStep:
        """Return what was seen of the first training step."""
        return FirstStep(self.samples, dropped_fractions(self.model.network)) if self.shows_steps else FirstStep()

    def weights(self) -> Mapping[str, np.ndarray]:
        """Return the parameters, named and laid out as in PyTorch."""
        return weights(self.model)

    @property
    def inference_model(self) -> Objective:
        """The model for inference, once it is prepared."""
        return self.halved.model if self.halved else self.model

    def prepare_inference(self) -> None:
        """Cast weights to half precision once, and not at every call. Several threads may call it at once."""
        if self.dtype is None:
            return
        with self.lock:
            if self.halved is None:
                self.halved = HalfWeights.of(self.model, self.dtype)
            elif self.halved_is_old:
                self.halved.renew()
            self.halved_is_old = False

    def _steps(self, inputs: Tensors, targets: Tensors, *asking: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return what a step returns; of several, the mean loss, sums of other numbers, and what the first one shows.

        The device does them one after the other, by one graph, while the host waits.
        """
        if self.iterations == 1:
            return self._step(inputs, targets, *asking)
        batches = tf.nest.map_structure(self._by_iteration, (inputs, targets))

        def step(number: tf.Tensor, *sums: tf.Tensor) -> tuple[tf.Tensor, ...]:
            batch = tf.nest.map_structure(lambda tensor: tensor[number], batches)
            asked = [wanted & tf.equal(number, 0) for wanted in asking]
            return (number + 1, *(sum_ + part for sum_, part in zip(sums, self._step(*batch, *asked))))

        shown = (tf.constant(0), tf.zeros(len(list(units(self.model.network))))) if asking else ()
        first = (tf.constant(0), tf.constant(0.0), tf.constant(0), *shown)
        _, loss, *sums = tf.while_loop(lambda number, *_: number < self.iterations, step, first, parallel_iterations=1)
        return (loss / self.iterations, *sums)

    def _by_iteration(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return a tensor (iterations * N, ...) as (iterations, N, ...)."""
        samples, *others = tensor.shape
        return tf.reshape(tensor, [self.iterations, samples // self.iterations, *others])

    def _step(self, inputs: Tensors, targets: Tensors, *asking: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the loss, whether the update was skipped (1 or 0), and what is shown of a step, if it is `asking`.

        That is whether gradients are wanted this time.
        """
        samples, loss, *gradients = self._loss_and_gradients(inputs, targets)
        if self.group:
            gradients = list(self.group.means(gradients))
        shown = (samples, self._used(gradients, *asking)) if asking else ()
        return (loss, self._update(gradients), *shown)

    def _loss_and_gradients(self, inputs: Tensors, targets: Tensors) -> tuple[tf.Tensor, ...]:
        """Return the samples of the output, the mean loss, and the gradient of each parameter: of all micro-batches."""
        parts = [self._of_micro_batch(*part) for part in self._micro_batches(inputs, targets)]
        samples, *means = map(tf.add_n, zip(*parts))
        return (samples, *(mean / self.accumulation for mean in means)) if len(parts) > 1 else parts[0]

    def _micro_batches(self, inputs: Tensors, targets: Tensors) -> Sequence[tuple[Tensors, Tensors]]:
        """Return the equal parts of a batch in order."""
        if self.accumulation == 1:
            return [(inputs, targets)]
        flat = [tf.split(tensor, self.accumulation) for tensor in tf.nest.flatten((inputs, targets))]
        return [tf.nest.pack_sequence_as((inputs, targets), part) for part in zip(*flat)]

    def _of_micro_batch(self, inputs: Tensors, targets: Tensors) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape() as tape:
            output, loss = self.model(inputs, targets, training=True)
            scaled = loss * self.scale.factor if self.scale else loss
        # An embedding's gradient is a list of rows, some of them twice; only a dense one has the right norm.
        gradients = map(tf.convert_to_tensor, tape.gradient(scaled, self.optimizer.parameters))
        return (tf.shape(tf.nest.flatten(output)[0])[0], loss, *gradients)

    def _update(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
        """Update the weights; return 1 if that was skipped since gradients in fp16 overflowed, otherwise 0."""
        if self.scale is None:
            self._move(gradients)
            return tf.constant(0)
        own = self.scale.unscaled(gradients)
        return self.scale.update(lambda: self._move(own), own)

    def _move(self, gradients: Sequence[tf.Tensor]) -> None:
        """Do the optimizer's step, with gradients clipped to the rule's norm."""
        if self.rule.gradient_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.rule.gradient_norm)
        self.optimizer.update(gradients)

    def _used(self, gradients: Sequence[tf.Tensor], asking: tf.Tensor) -> tf.Tensor:
        """Return the fraction of the units of each weight, in the order of `units`, with a gradient; 0 unless asked."""
        by_variable = {id(variable): gradient for variable, gradient in zip(self.optimizer.parameters, gradients)}
        pairs = [(by_variable[id(variable)], axes) for _, variable, axes in units(self.model.network)]
        return tf.cond(asking, lambda: tf.stack([used_fraction(*pair) for pair in pairs]), lambda: tf.zeros(len(pairs)))

    def _forward(self, inputs: Tensors) -> Tensors:
        output, _ = self.inference_model(inputs)
        return output

    def _evaluate(self, inputs: Tensors, targets: Tensors) -> tuple[tf.Tensor, tf.Tensor | None]:
        output, loss = self.inference_model(inputs, targets)
        if isinstance(targets, tuple) or targets.shape.rank != 1:
            return loss, None
        return loss, tf.math.count_nonzero(tf.argmax(output, axis=1, output_type=targets.dtype) == targets)

    def close(self) -> None:
        """Release memory."""
        del self.model, self.optimizer, self.sampler, self.halved
        del self.step, self.forward, self.evaluation, self.first_token, self.next_token
