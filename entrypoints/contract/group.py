"""Ranks: processes that compute one run together, each with a device or, on CPUs, a share of the cores."""

from __future__ import annotations

from typing import NamedTuple

LOOPBACK = "127.0.0.1"


class Place(NamedTuple):
    """Where a rank is among all ranks of a run, and among those of its node."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    address: str = LOOPBACK  # of the node of the first rank


ALONE = Place(0, 1, 0, 1)
