"""Ranks: processes that compute one run together, each with a device or, on CPUs, a share of the cores."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Sequence

from entrypoints.contract.messages import Connected

LOOPBACK = "127.0.0.1"


class Place(NamedTuple):
    """Where a rank is among all ranks of a run and those of its host, and its share of the host's processors."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    address: str = LOOPBACK  # of the node of the first rank
    share: Sequence[int] = (0, 1)  # which of how many equal parts of the processors that its parent may use


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

    def close(self) -> None:
        """Leave the others."""


ALONE = Place(0, 1, 0, 1)
