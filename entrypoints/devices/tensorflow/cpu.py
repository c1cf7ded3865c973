"""The processors of the host, through TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from entrypoints.contract.session import BatchPartition, Rule
from entrypoints.contract.statuses import RunError
from entrypoints.devices.host_session import HostSession
from entrypoints.devices.tensorflow.shared.session import TensorFlowSession, execution
from entrypoints.devices.tensorflow.strategies.group import Group
from entrypoints.system.memory import free_mib
from entrypoints.workloads.tensorflow.build import Objective

__all__ = ["free_mib", "libraries", "open_session", "prepare"]

PRECISIONS = ("fp32",)  # TensorFlow 2.6 has no bf16 kernel of batch normalisation for a CPU


def libraries() -> dict[str, str | None]:
    """Return no versions: what computes on the CPU is part of TensorFlow."""
    return {}


def prepare(precision: str, threads: int, streams: int = 1) -> None:
    """Set the number of compute threads, `threads` per stream, which all request streams share.

    The number holds for the process: another one raises RuntimeError once there is a tensor. Raises RunError
    (`unsupported`) for a precision that is not in `PRECISIONS`.
    """
    if precision not in PRECISIONS:
        raise RunError("unsupported", f"--precision {precision} on cpu: TensorFlow can do {', '.join(PRECISIONS)}")
    tf.config.set_visible_devices([], "GPU")
    # One operation per stream at a time: two at once would take more threads than requested.
    tf.config.threading.set_inter_op_parallelism_threads(streams)
    # A single thread means that only those above compute.
    tf.config.threading.set_intra_op_parallelism_threads(threads * streams if threads > 1 else 1)


def open_session(
    model: Objective,
    rule: Rule,
    _: str,
    compiled: str | None = None,
    partition: BatchPartition | None = None,
    group: Group | None = None,
) -> CpuSession:
    """Return a session that takes over `model`."""
    return CpuSession(model, rule, bool(compiled), partition, group)


class CpuSession(HostSession, TensorFlowSession):
    """A session on the CPU, whose calls return when they are done."""

    def __init__(
        self,
        model: Objective,
        rule: Rule,
        compiled: bool,
        partition: BatchPartition | None,
        group: Group | None,
    ) -> None:
        HostSession.__init__(self, "TensorFlow", execution(compiled))
        TensorFlowSession.__init__(self, model, rule, compiled, partition, group)
