"""Joining the ranks of a run by torch.distributed."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from datetime import timedelta
from typing import Callable, Sequence

import torch
import torch.distributed as dist

from entrypoints.contract.group import LOOPBACK, Place
from entrypoints.contract.messages import Connected, Rendezvous
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.strategies import transport

TO_MEET = timedelta(seconds=120)  # ranks of a node start together
TO_REDUCE = timedelta(minutes=10)  # for a step, in which a rank may compile
BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}


class Group:
    """The ranks of this run, joined."""

    def __init__(self, place: Place, store: dist.TCPStore, connected: Callable[[], Connected]) -> None:
        self.place, self.store, self.connected = place, store, connected
        self.talks = 0  # over the store, for what is no tensor

    def agree(self, number: float) -> float:
        """Return the first rank's number."""
        return self._gathered([number], range(1))[0][0]

    def total(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return the sums over all ranks, the same ones everywhere."""
        return [math.fsum(column) for column in zip(*self._gathered(numbers, range(self.place.world)))]

    def _gathered(self, numbers: Sequence[float], ranks: Sequence[int]) -> list[list[float]]:
        """Return the numbers of some ranks."""
        self.talks += 1
        names = [f"talk {self.talks} of {rank}" for rank in ranks]
        if self.place.rank in ranks:
            self.store.set(names[self.place.rank], json.dumps(list(numbers)))
        self.store.wait(names, TO_REDUCE)
        return [json.loads(self.store.get(name)) for name in names]

    def meet(self) -> None:
        """Wait until all ranks are here."""
        dist.barrier()

    def close(self) -> None:
        """Leave the others."""
        dist.destroy_process_group()


def join(place: Place, device: str, send: Callable[[Rendezvous], None]) -> Group:
    """Join the ranks of a run: the first one waits at a free port, which its parent tells the others.

    Raises RunError (`unsupported`) if this PyTorch has no backend for the device.
    """
    backend = BACKENDS[device]
    log = transport.watch(backend)
    if not dist.is_available() or not getattr(dist, f"is_{backend}_available", lambda: True)():
        raise RunError("unsupported", f"--replicas: PyTorch {torch.__version__} has no backend {backend}")
    if place.address == LOOPBACK:  # all ranks are of this host, whose name may not resolve
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = _first_store(place, send) if place.rank == 0 else _store_of_the_first(place)
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.world, timeout=TO_REDUCE)
    return Group(place, store, functools.partial(transport.connected, backend, hardware(device), log))


def hardware(device: str) -> torch.device:
    """Return this rank's device, which it has chosen."""
    return torch.device(device, 0 if device == "cpu" else getattr(torch, device).current_device())


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
