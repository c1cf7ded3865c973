"""Joining the ranks of a run by torch.distributed."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from typing import Callable

import torch
import torch.distributed as dist

from entrypoints.contract.group import LOOPBACK, Place
from entrypoints.contract.messages import Rendezvous
from entrypoints.contract.statuses import RunError

TO_MEET = timedelta(seconds=120)  # ranks of a node start together
TO_REDUCE = timedelta(minutes=10)  # for a step, in which a rank may compile
BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}


class Group:
    """The ranks of this run, joined."""

    def __init__(self, place: Place, device: str = "cpu") -> None:
        self.place, self.device = place, device

    def meet(self) -> None:
        """Wait until all ranks are here."""
        dist.barrier()

    def smallest(self, number: float) -> float:
        """Return the smallest of the numbers that the ranks have, in single precision."""
        shared = torch.tensor([number], dtype=torch.float32, device=self.device)
        dist.all_reduce(shared, dist.ReduceOp.MIN)
        return float(shared)

    def close(self) -> None:
        """Leave the others."""
        dist.destroy_process_group()


def join(place: Place, device: str, send: Callable[[Rendezvous], None]) -> Group:
    """Join the ranks of a run: the first one waits at a free port, which its parent tells the others.

    Raises RunError (`unsupported`) if this PyTorch has no backend for the device.
    """
    backend = BACKENDS[device]
    if not dist.is_available() or not getattr(dist, f"is_{backend}_available", lambda: True)():
        raise RunError("unsupported", f"--replicas: PyTorch {torch.__version__} has no backend {backend}")
    if place.address == LOOPBACK:  # all ranks are of this host, whose name may not resolve
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = _first_store(place, send) if place.rank == 0 else _store_of_the_first(place)
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.world, timeout=TO_REDUCE)
    return Group(place, device)


def _first_store(place: Place, send: Callable[[Rendezvous], None]) -> dist.TCPStore:
    store = dist.TCPStore(place.address, 0, place.world, True, TO_MEET, wait_for_workers=False)
    send(Rendezvous(place.address, store.port))
    return store


def _store_of_the_first(place: Place) -> dist.TCPStore:
    line = sys.stdin.readline()
    if not line:
        raise RunError("crashed", "the first rank is gone")
    host, port = json.loads(line)
    return dist.TCPStore(host, port, place.world, False, TO_MEET, wait_for_workers=False)
