"""One Graphcore IPU, through the IPUStrategy of Graphcore's build of TensorFlow. This has not yet been run on an IPU.

Calls and their arguments are those of https://github.com/graphcore/tensorflow, as far as its public history shows them;
the wheels of SDK 3.1 to 3.3 could not be obtained.
"""

from __future__ import annotations

from entrypoints.contract.statuses import RunError

try:
    from tensorflow.python import ipu  # only Graphcore's build has it
except ImportError as absent:
    raise RunError("no_device", f"this TensorFlow is not Graphcore's: {absent}") from absent

import os
from functools import lru_cache
from typing import Any, Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from entrypoints.contract.session import (
    PREFETCHED,
    Batch,
    BatchPartition,
    DeviceConditions,
    DeviceFacts,
    InferenceRule,
    IpuMemory,
    OptimizerRule,
    Rule,
    Usage,
)
from entrypoints.devices import executables
from entrypoints.devices.selection import require_precision
from entrypoints.devices.tensorflow.shared.session import TensorFlowSession, execution
from entrypoints.metering.meters import gcipuinfo
from entrypoints.workloads.tensorflow.build import Objective

PRECISIONS = ("fp32",)  # as for TensorFlow's networks on every device
MODEL = "--use_ipu_model"  # as in the tests without hardware of https://github.com/graphcore/examples
CACHE = "--executable_cache_path"
SHORT = "memory_allocation"  # in Poplar's error for a model that is too large


def on_ipu_model() -> bool:
    """Return whether Graphcore's TensorFlow computes on a model of an IPU."""
    return MODEL in os.environ.get("TF_POPLAR_FLAGS", "")


def libraries() -> dict[str, str | None]:
    """Return no versions: this TensorFlow reports none."""
    return {}


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Attach to an IPU, which holds the variables created from now on.

    Raises RunError: `no_device` if there is no IPU, `unsupported` if this session does not support the precision.
    """
    require_precision(precision, PRECISIONS, "ipu")
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    strategy()


class Attachment:
    """How the process uses its IPU, which is configured before a model is built."""

    memory = IpuMemory()


ATTACHMENT = Attachment()


def use_memory(memory: IpuMemory) -> None:
    """Set how models use the memory of the IPU. Called before `prepare`."""
    ATTACHMENT.memory = memory


@lru_cache(maxsize=None)
def strategy() -> Any:
    """Return the process's strategy. Its scope is never left, since models are built before their session.

    Raises RunError (`no_device`) if it attaches to no IPU.
    """
    try:
        configured(ATTACHMENT.memory).configure_ipu_system()
    except tf.errors.OpError as error:
        raise RunError("no_device", f"Graphcore's TensorFlow attaches to no IPU: {error.message[:1000]}") from error
    # Otherwise datasets are the IPU's within the scope, and the host could not read its own.
    entered = ipu.ipu_strategy.IPUStrategy(enable_dataset_iterators=False, enable_keras_extensions=False)
    entered.scope().__enter__()
    return entered


def configured(memory: IpuMemory) -> Any:
    """Return the configuration of one IPU, in the way of Graphcore's own networks for images in TensorFlow 2."""
    configuration = ipu.config.IPUConfig()
    configuration.auto_select_ipus = 1
    if memory.proportions:
        (share,) = memory.proportions
        for operations in (configuration.convolutions, configuration.matmuls):
            operations.poplar_options = {"availableMemoryProportion": str(share)}
    if memory.io_tiles:
        configuration.io_tiles.num_io_tiles = memory.io_tiles
        configuration.io_tiles.place_ops_on_io_tiles = True
    return configuration


def free_mib() -> float | None:
    """Return None: memory is allocated when a model is compiled."""
    return None


def open_session(
    model: Objective, rule: Rule, _: str, compiled: str | None = None, partition: BatchPartition | None = None
) -> IpuSession:
    """Return a session that takes over `model`.

    Raises RunError (`unsupported`) for a sampler, and if the model is to be compiled by other means than Poplar.
    """
    if compiled:
        raise RunError("unsupported", "--compile: Poplar compiles every model by itself. Leave it out")
    if not isinstance(rule, (OptimizerRule, InferenceRule)):
        raise RunError("unsupported", "how chance is drawn on IPUs in TensorFlow is not known: no sampler runs there")
    return IpuSession(model, rule, partition)


class IpuSession(TensorFlowSession):
    """A session on an IPU: each kind of step is one program, and a call returns when the IPU is done."""

    shows_steps = False  # a program would have to contain both ways of a condition

    def __init__(self, model: Objective, rule: Rule, partition: BatchPartition | None = None) -> None:
        super().__init__(model, rule, True, partition)
        self.queue: Any = None  # of the batches of a call, if it has several
        self.arrays: Sequence[np.ndarray] = ()  # of the current call, by iteration
        self.structure: Any = None  # of a batch's inputs and targets, whose tensors are in a row in the queue
        self.program = self.on_ipu(self._graph(self._repeated))
        self.step, self.forward, self.evaluation = map(self.on_ipu, (self.step, self.forward, self.evaluation))
        if self.iterations > 1:
            self.step = self.fed_step
        self.facts = DeviceFacts(
            kind="ipu",
            vendor="Graphcore",
            name=None if on_ipu_model() else gcipuinfo.chip(),
            devices=1,
            granularity="package",
            memory_mib=None,
            ranks=1,
            replicas=1,
            execution=f"{execution(False)} compiled by Poplar under IPUStrategy{self.how()}{kept_executables()}",
            simulated=on_ipu_model() or bool(getattr(ipu, "SIMULATED", False)),
        )

    def how(self) -> str:
        """Return in words what a call does, and how memory is used."""
        memory = ATTACHMENT.memory
        calls = f", {self.iterations} updates a call from a queue" if self.iterations > 1 else ""
        share = f", available memory proportion {memory.proportions[0]}" if memory.proportions else ""
        return calls + share + (f", {memory.io_tiles} tiles for input and output" if memory.io_tiles else "")

    def fed_step(self, inputs: Any, targets: Any) -> tuple[tf.Tensor, ...]:
        """Do several updates by one program, which takes the batch of each from a queue.

        The batches of a call come to the IPU one after the other: while it computes if tiles exchange data.
        """
        tensors = [tensor.numpy() for tensor in tf.nest.flatten((inputs, targets))]
        self.arrays = [tensor.reshape(self.iterations, -1, *tensor.shape[1:]) for tensor in tensors]
        if self.queue is None:
            self.structure = tf.nest.map_structure(lambda _: None, (inputs, targets))
            self.queue = self.opened_queue()
        else:
            self.queue.deleter  # noqa: B018 - Graphcore's way to let a queue begin again
        self.queue.initializer  # noqa: B018 - which reads the dataset from its start
        result: tuple[tf.Tensor, ...] = self.program()
        return result

    def opened_queue(self) -> Any:
        """Return a queue of the batches of the current call, whatever they are when it begins again.

        It ends with them: the thread that fills it would otherwise wait for the next call, and the call for it.
        """

        def batches() -> Iterator[tuple[np.ndarray, ...]]:
            return zip(*self.arrays)

        kinds = tuple(tf.TensorSpec(array.shape[1:], array.dtype) for array in self.arrays)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=kinds)
        return ipu.ipu_infeed_queue.IPUInfeedQueue(dataset, prefetch_depth=min(PREFETCHED, self.iterations))

    def _repeated(self) -> tuple[tf.Tensor, ...]:
        """Return the mean loss of all iterations of a call, and that none was skipped."""

        def update(sum_: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
            loss, *_ = self._step(*tf.nest.pack_sequence_as(self.structure, tensors))
            return sum_ + loss

        losses = ipu.loops.repeat(self.iterations, update, [tf.constant(0.0)], self.queue)
        return losses / self.iterations, tf.constant(0)

    def close(self) -> None:
        """Release the queue and memory."""
        if self.queue is not None:
            self.queue.deleter  # noqa: B018
        super().close()

    def on_ipu(self, graph: Callable[..., Any]) -> Callable[..., Any]:
        """Return the graph as a program, whose calls raise RunError: `out_of_memory` or `compile_failure`."""

        def called(*tensors: Any) -> Any:
            try:
                return strategy().run(graph, args=tensors)
            except (tf.errors.InternalError, tf.errors.ResourceExhaustedError) as error:
                out_of_memory = SHORT in error.message or isinstance(error, tf.errors.ResourceExhaustedError)
                raise RunError("out_of_memory" if out_of_memory else "compile_failure", error.message[:1000]) from error

        return called

    def to_device(self, batch: Batch) -> Batch:
        """Return the batch with 32-bit integers, as IPUs have them. It stays on the host and is sent with each call."""
        inputs, targets = tf.nest.map_structure(to_int32, (batch.inputs, batch.targets))
        return batch._replace(inputs=inputs, targets=targets)

    def begin(self, *_: object) -> Any:
        """Raise RunError (`unsupported`)."""
        raise RunError("unsupported", "texts are not continued on IPUs: Poplar compiles one shape, and a text grows")

    def usage(self) -> Usage:
        """Return that TensorFlow counts nothing."""
        return Usage.unknown("TensorFlow does not report the memory of an IPU")

    def conditions(self) -> DeviceConditions:
        """Return the conditions that the SDK's library reports."""
        return DeviceConditions(dict(gcipuinfo.conditions()), None)


def kept_executables() -> str:
    """Return in words whether executables are kept, and were there before; empty if they are not kept."""
    words = os.environ.get("TF_POPLAR_FLAGS", "").split()
    folders = [value for name, _, value in (word.partition("=") for word in words) if name == CACHE]
    return f", {executables.described(CACHE, folders[-1])}" if folders else ""


def to_int32(tensor: Any) -> Any:
    """Return an int64 tensor as int32; return anything else unchanged."""
    if not isinstance(tensor, tf.Tensor) or tensor.dtype != tf.int64:
        return tensor
    with tf.device("CPU"):
        return tf.cast(tensor, tf.int32)
