"""Joining the ranks of a run by TensorFlow's collectives, one device a process.

MultiWorkerMirroredStrategy connects them and averages gradients. Variables stay those of each rank: they are made
before it and begin equal.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import statistics
import sys
import time
from typing import Any, Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from entrypoints.contract.choices import DDP
from entrypoints.contract.group import SUMMED, SUMS, Connected, Parallelism, Place, meeting_points
from entrypoints.contract.messages import Rendezvous
from entrypoints.contract.statuses import RunError
from entrypoints.devices import nccl_log

RING = "ring"  # TensorFlow's own, over gRPC
MEAN = tf.distribute.ReduceOp.MEAN
# Read by TensorFlow when its server begins to listen: it may bind a port that this process keeps free for it.
SHARED_PORT = "TF_GRPC_REUSE_PORT"


class Group:
    """The ranks of this run, joined."""

    engine = "MultiWorkerMirroredStrategy"

    def __init__(self, place: Place, strategy: str | None, backend: str, workers: Any) -> None:
        self.place, self.strategy, self.backend, self.workers = place, strategy, backend, workers
        self.spread = tf.function(self._spread, [tf.TensorSpec([None], tf.float32)], autograph=False)
        self.gather = tf.function(self._by_rank, [tf.TensorSpec([None], tf.float64)], autograph=False)

    def connected(self) -> Connected:
        """Return how they are connected, after all of them have tried it."""
        log = nccl_log.watch(self.backend)
        seconds = self.all_reduce_seconds()
        connections, reason = nccl_log.taken_from(log) if self.backend == nccl_log.NCCL else (["TCP"], None)
        return Connected(self.backend, None, connections, reason, SUMMED, seconds)

    def all_reduce_seconds(self) -> float:
        """Return the median time in s in which all ranks add up `SUMMED` bytes of float32."""
        numbers, times = tf.zeros(SUMMED // 4), []
        reduce = tf.function(lambda tensor: self.means([tensor])[0][:1], autograph=False)
        for _ in range(1 + SUMS):
            self.meet()
            began = time.perf_counter()
            reduce(numbers).numpy()
            times.append(time.perf_counter() - began)
        return statistics.median(times[1:])

    def means(self, tensors: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Return the means over all ranks of each tensor. Called in a graph."""
        return self._together(lambda own: tf.distribute.get_replica_context().all_reduce(MEAN, own), tensors)

    def _together(self, collective: Callable[[Any], Any], tensors: Sequence[tf.Tensor]) -> Any:
        # In a graph a tensor has no device, which collectives want; a copy in a replica has it.
        return self.workers.run(lambda: collective([tf.identity(tensor) for tensor in tensors]))

    def seed_dropout_by_rank(self) -> None:
        """Let each rank drop other values of other samples, by a seed that follows from the run's."""
        number = int(tf.random.uniform([], maxval=1 << 30, dtype=tf.int32))
        tf.random.set_seed(number + self.place.rank)

    def agree(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return the numbers of the first rank. All ranks give as many."""
        return self._gathered(numbers)[0]

    def total(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return the sums over all ranks, the same ones everywhere."""
        return [math.fsum(column) for column in zip(*self._gathered(numbers))]

    def smallest(self, number: float) -> float:
        """Return the smallest of the numbers that the ranks have."""
        return min(numbers[0] for numbers in self._gathered([number]))

    def meet(self) -> None:
        """Wait until all ranks are here."""
        self._gathered([0.0])

    def _gathered(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return the numbers of all ranks, in their order."""
        by_rank: list[list[float]] = self.gather(np.array(numbers, np.float64)).numpy().tolist()
        return by_rank

    def largest_difference(self, arrays: Iterable[np.ndarray]) -> float:
        """Return the L2 norm, over all numbers, of the difference between the ranks' largest and smallest."""
        return math.sqrt(math.fsum(map(self._squared_difference, arrays)))

    def _squared_difference(self, array: np.ndarray) -> float:
        spread = self.spread(array.ravel()).numpy()
        return float(np.square(spread, dtype=np.float64).sum())

    def _spread(self, own: tf.Tensor) -> tf.Tensor:
        """Return the difference between the ranks' largest and smallest of each number."""
        by_rank = self._by_rank(own)
        return tf.reduce_max(by_rank, 0) - tf.reduce_min(by_rank, 0)

    def _by_rank(self, own: tf.Tensor) -> tf.Tensor:
        """Return a row of numbers for each rank. Called in a graph."""
        everyones = self._together(lambda tensors: tf.distribute.get_replica_context().all_gather(tensors[0], 0), [own])
        return tf.reshape(everyones, [self.place.world, -1])

    def close(self) -> None:
        """Leave the others. The first rank leaves last: the others look for its server until they end."""
        if self.place.rank == 0:
            sys.stdin.read()


def join(place: Place, device: str, how: Parallelism, send: Callable[[Rendezvous], None]) -> Group:
    """Join the ranks of a run. Call it before TensorFlow computes anything: it connects processes only then.

    Raises RunError (`unsupported`) if TensorFlow does not have the strategy.
    """
    require(how.strategy)
    with reserved_port() as port:
        send(Rendezvous(place.address, port, everyone=True))
        workers = connect([f"{host}:{number}" for host, number in meeting_points()], place.rank, device)
    return Group(place, how.strategy, RING if device == "cpu" else nccl_log.NCCL, workers)


def connect(addresses: Sequence[str], rank: int, device: str) -> Any:
    """Return the strategy of all ranks, each at its address."""
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds.RING if device == "cpu" else kinds.NCCL
    )
    cluster = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(addresses)}),
        task_type="worker",
        task_id=rank,
        rpc_layer="grpc",
        num_accelerators={"GPU": int(device != "cpu")},
    )
    return tf.distribute.MultiWorkerMirroredStrategy(cluster, options)


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Keep a free port for the server of TensorFlow, which has to be named before it listens."""
    os.environ[SHARED_PORT] = "true"
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        keeper.bind(("", 0))
        yield keeper.getsockname()[1]


def require(strategy: str | None) -> None:
    """Raise RunError (`unsupported`) if a strategy cannot be had here, before ranks wait for each other."""
    if strategy not in (None, DDP):
        raise RunError(
            "unsupported",
            f"--strategy {strategy}: TensorFlow's MultiWorkerMirroredStrategy keeps a whole model on each device. Take "
            "--strategy ddp",
        )


def use_device(place: Place, device: str) -> None:
    """Choose the rank's own device of its node; where a launcher shows it no other, that one."""
    gpus = tf.config.list_physical_devices("GPU") if device != "cpu" else []
    if gpus:
        own = place.local_rank if len(gpus) > 1 else 0
        tf.config.set_visible_devices(gpus[own : own + 1], "GPU")
