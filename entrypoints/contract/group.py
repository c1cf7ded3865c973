"""Ranks: processes that compute one run together, each with a device or, on CPUs, a share of the cores."""

from __future__ import annotations

import json
import math
import sys
from typing import NamedTuple, Protocol, Sequence

from entrypoints.contract.choices import SHARDED
from entrypoints.contract.statuses import RunError

LOOPBACK = "127.0.0.1"
SUMMED, SUMS = 16 << 20, 5  # bytes of a timed sum over all ranks; the first one, which connects, is not counted


class Place(NamedTuple):
    """Where a rank is among all ranks of a run and those of its host, and its share of the host's processors."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    address: str = LOOPBACK  # of the node of the first rank
    share: Sequence[int] = (0, 1)  # which of how many equal parts of the processors that its parent may use


class Mesh(NamedTuple):
    """How many ranks lie along each dimension of the grid that they form, the outermost first.

    Neighbours along `tensor` exchange most and are on one node; stages of a pipeline exchange least.
    """

    pipeline: int  # stages of a model, each a row of blocks
    replicate: int  # groups of `shard` ranks, whose gradients are averaged
    shard: int  # ranks that divide each weight
    tensor: int  # ranks that divide each block's matrices

    @property
    def ranks(self) -> int:
        """All of them."""
        return math.prod(self)


class Parallelism(NamedTuple):
    """How ranks compute one model together: what divides it, and how those with different samples train."""

    strategy: str | None
    stages: int = 1
    tensor: int = 1
    shards: int | None = None  # ranks that share one copy of what a strategy divides; None: those of a node
    virtual_stages: int = 1  # of each rank of a pipeline
    offload: bool = False

    def mesh(self, world: int, of_a_node: int) -> Mesh:
        """Return the mesh of all ranks, of which so many are on each node."""
        replicas = world // (self.stages * self.tensor)
        if self.strategy not in SHARDED:
            return Mesh(self.stages, replicas, 1, self.tensor)
        near = min(replicas, of_a_node // self.tensor)
        shards = self.shards or (near if near > 1 and replicas % near == 0 else replicas)
        return Mesh(self.stages, replicas // shards, shards, self.tensor)


class Connected(NamedTuple):
    """How a rank is connected to others: by which library, over which kinds of connections, or why it does not say.

    All ranks together added up so many bytes in `seconds`.
    """

    backend: str
    version: str | None
    connections: list[str]
    reason: str | None
    bytes: int
    seconds: float


class JoinedRanks(Protocol):
    """The ranks of a run, as each of them sees the others. Every rank makes the same calls in the same order."""

    place: Place

    def connected(self) -> Connected:
        """Return how they are connected, after all of them have tried it."""

    def meet(self) -> None:
        """Wait until all ranks are here."""

    def agree(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return the numbers of the first rank. All ranks give as many."""

    def total(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return the sums over all ranks, the same ones everywhere."""

    def smallest(self, number: float) -> float:
        """Return the smallest of the numbers that the ranks have."""

    def close(self) -> None:
        """Leave the others."""


ALONE = Place(0, 1, 0, 1)


def meeting_points() -> list[tuple[str, int]]:
    """Return host and port of the first rank, or of all of them, as the parent of this one has heard.

    Raises RunError (`crashed`) if another rank is gone before.
    """
    line = sys.stdin.readline()
    if not line:
        raise RunError("crashed", "connection closed by peer: another rank is gone")
    return [(host, port) for host, port, *_ in json.loads(line)]
