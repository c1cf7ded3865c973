"""The processors of the host, through TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from entrypoints.contract.session import BatchPartition, Rule
from entrypoints.contract.statuses import RunError
from entrypoints.devices.host_session import HostSession
from entrypoints.devices.tensorflow.shared.session import TensorFlowSession, execution
from entrypoints.system.memory import free_mib
from entrypoints.workloads.tensorflow.build import Objective

__all__ = ["free_mib", "libraries", "open_session", "prepare"]

PRECISIONS = ("fp32",)  # TensorFlow 2.6 has no bf16 kernel of batch normalisation for a CPU


def libraries() -> dict[str, str | None]:
    """None: what computes here is part of TensorFlow."""
    return {}


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


def open_session(
    model: Objective, rule: Rule, _: str, compiled: bool = False, __: BatchPartition | None = None
) -> CpuSession:
    """A session over `model`, which it takes over."""
    return CpuSession(model, rule, compiled)


class CpuSession(HostSession, TensorFlowSession):
    """Calls return when the host has computed."""

    def __init__(self, model: Objective, rule: Rule, compiled: bool) -> None:
        HostSession.__init__(self, "TensorFlow", execution(compiled))
        TensorFlowSession.__init__(self, model, rule, compiled)
