"""Graphcore IPUs, through Graphcore's build of TensorFlow: one IPU, by its IPUStrategy. Nobody saw a run on one yet.

Calls and their arguments are those of https://github.com/graphcore/tensorflow, as far as its public history shows them;
the wheels of SDK 3.1 to 3.3 were not to be had.
"""

from __future__ import annotations

from entrypoints.contract.statuses import RunError

try:
    from tensorflow.python import ipu  # only Graphcore's build has it
except ImportError as absent:
    raise RunError("no_device", f"this TensorFlow is not Graphcore's: {absent}") from absent

import os
from functools import lru_cache
from typing import Any, Callable

import tensorflow as tf

from entrypoints.contract.session import (
    Batch,
    BatchPartition,
    DeviceConditions,
    DeviceFacts,
    OptimizerRule,
    Rule,
    Usage,
)
from entrypoints.devices.selection import require_precision
from entrypoints.devices.tensorflow.shared.session import TensorFlowSession, execution
from entrypoints.metering.meters import gcipuinfo
from entrypoints.workloads.tensorflow.build import Objective

PRECISIONS = ("fp32",)  # as TensorFlow's networks have it everywhere
MODEL = "--use_ipu_model"  # https://github.com/graphcore/examples, in what tests without hardware are told
SHORT = "memory_allocation"  # in what Poplar says of a model that is too large


def on_ipu_model() -> bool:
    """Whether Graphcore's TensorFlow was told to compute on a model of an IPU."""
    return MODEL in os.environ.get("TF_POPLAR_FLAGS", "")


def libraries() -> dict[str, str | None]:
    """None that this TensorFlow would tell."""
    return {}


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Attach to an IPU, which keeps the variables that are made from now on.

    Raises RunError: `no_device` where there is none, `unsupported` for a precision that this session has not.
    """
    require_precision(precision, PRECISIONS, "ipu")
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    strategy()


@lru_cache(maxsize=None)
def strategy() -> Any:
    """The process's one, whose scope is never left: models are built before their session. Raises RunError."""
    configuration = ipu.config.IPUConfig()
    configuration.auto_select_ipus = 1
    try:
        configuration.configure_ipu_system()
    except tf.errors.OpError as error:
        raise RunError("no_device", f"Graphcore's TensorFlow attaches to no IPU: {error.message[:1000]}") from error
    found = ipu.ipu_strategy.IPUStrategy(enable_keras_extensions=False)
    found.scope().__enter__()
    return found


def free_mib() -> float | None:
    """Nobody knows: memory is given out when a model is compiled."""
    return None


def open_session(
    model: Objective, rule: Rule, _: str, compiled: bool = False, __: BatchPartition | None = None
) -> IpuSession:
    """A session over `model`, which it takes over.

    Raises RunError (`unsupported`) for a sampler, and for what is to be compiled by anyone but Poplar.
    """
    if compiled:
        raise RunError("unsupported", "--compile: Poplar compiles every model by itself. Leave it out")
    if not isinstance(rule, OptimizerRule):
        raise RunError("unsupported", "how chance is drawn on IPUs in TensorFlow is not known: no sampler runs there")
    return IpuSession(model, rule)


class IpuSession(TensorFlowSession):
    """Each kind of step is one program of the IPU's. A call returns when the IPU is done."""

    def __init__(self, model: Objective, rule: Rule) -> None:
        super().__init__(model, rule, compiled=True)
        self.step, self.forward, self.evaluation = map(self.on_ipu, (self.step, self.forward, self.evaluation))
        self.facts = DeviceFacts(
            kind="ipu",
            vendor="Graphcore",
            name=None if on_ipu_model() else gcipuinfo.chip(),
            devices=1,
            granularity="package",
            memory_mib=None,
            ranks=1,
            replicas=1,
            execution=f"{execution(False)} compiled by Poplar under IPUStrategy",
            simulated=on_ipu_model() or bool(getattr(ipu, "SIMULATED", False)),
        )

    def on_ipu(self, graph: Callable[..., Any]) -> Callable[..., Any]:
        """The graph as a program. Calling it raises RunError: `out_of_memory` or `compile_failure`."""

        def called(*tensors: Any) -> Any:
            try:
                return strategy().run(graph, args=tensors)
            except (tf.errors.InternalError, tf.errors.ResourceExhaustedError) as error:
                short = SHORT in error.message or isinstance(error, tf.errors.ResourceExhaustedError)
                raise RunError("out_of_memory" if short else "compile_failure", error.message[:1000]) from error

        return called

    def to_device(self, batch: Batch) -> Batch:
        """The batch as it is, whole numbers as an IPU has them: they go there with each call."""
        inputs, targets = tf.nest.map_structure(to_int32, (batch.inputs, batch.targets))
        return batch._replace(inputs=inputs, targets=targets)

    def begin(self, *_: object) -> Any:
        """Raises RunError (`unsupported`)."""
        raise RunError("unsupported", "texts are not continued on IPUs: Poplar compiles one shape, and a text grows")

    def usage(self) -> Usage:
        """Nothing that TensorFlow counts."""
        return Usage.unknown("TensorFlow does not tell what an IPU holds")

    def conditions(self) -> DeviceConditions:
        """As the SDK's library tells them."""
        return DeviceConditions(dict(gcipuinfo.conditions()), None)


def to_int32(tensor: Any) -> Any:
    """A tensor with 32 bits for whole numbers; what is none, as it is."""
    if not isinstance(tensor, tf.Tensor) or tensor.dtype != tf.int64:
        return tensor
    with tf.device("CPU"):
        return tf.cast(tensor, tf.int32)
