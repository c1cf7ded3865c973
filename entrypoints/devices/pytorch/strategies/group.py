"""Joining the ranks of a run by torch.distributed."""

from __future__ import annotations

import json
import math
import os
import socket
from datetime import timedelta
from typing import Any, Callable, Iterable, Sequence

import numpy as np
import torch
import torch.distributed as dist

from entrypoints.contract.group import LOOPBACK, Connected, Mesh, Parallelism, Place, meeting_points
from entrypoints.contract.messages import Rendezvous
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.strategies import transport, versions
from entrypoints.metering.meter import MeterError
from entrypoints.metering.meters import hlml

RENDEZVOUS_TIMEOUT = timedelta(seconds=120)  # ranks of a node start together
FIRST_TIMEOUT = timedelta(hours=1)  # until all ranks have done a step: they make a large model, and compile it
COLLECTIVE_TIMEOUT = timedelta(minutes=10)  # for what follows
# What selects the devices that a process sees; before torch 2.4 a GPU has no identifier there.
SELECTING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", hlml.MODULE)
BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl", "hpu": "hccl", "ipu": "gloo"}  # IPUs have links of their own


class Group:
    """The ranks of this run, joined."""

    mesh: Mesh

    def __init__(self, place: Place, how: Parallelism, hardware: torch.device, store: dist.TCPStore) -> None:
        self.place, self.how, self.hardware, self.store = place, how, hardware, store
        self.exchanges = 0  # of values that are no tensors, over the store
        self.meetings = 0
        self.timeout = FIRST_TIMEOUT

    def connected(self) -> Connected:
        """Return how they are connected, after all of them have tried it."""
        return transport.connected(BACKENDS[self.hardware.type], self.hardware)

    def agree(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return the numbers of the first rank. All ranks give as many."""
        return self._gathered(numbers, range(1))[0]

    def total(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return the sums over all ranks, the same ones everywhere."""
        return [math.fsum(column) for column in zip(*self._gathered(numbers, range(self.place.world)))]

    def smallest(self, number: float) -> float:
        """Return the smallest of the numbers that the ranks have."""
        return min(numbers[0] for numbers in self._gathered([number], range(self.place.world)))

    def _gathered(self, values: Sequence[Any], ranks: Sequence[int]) -> list[list[Any]]:
        """Return the values, numbers or texts, of some ranks."""
        self.exchanges += 1
        names = [f"exchange {self.exchanges} of {rank}" for rank in ranks]
        if self.place.rank in ranks:
            self.store.set(names[self.place.rank], json.dumps(list(values)))
        self.store.wait(names, self.timeout)
        return [json.loads(self.store.get(name)) for name in names]

    def meet(self) -> None:
        """Wait until all ranks are here: before the first step, after it, and later."""
        dist.barrier()
        self.meetings += 1
        if self.meetings == 2:
            self.timeout = COLLECTIVE_TIMEOUT
            set_timeout(COLLECTIVE_TIMEOUT)

    def require_own_devices(self) -> None:
        """Raise RunError (`no_device`) if two ranks share a device. NCCL would only report an invalid usage."""
        if self.hardware.type == "cpu":
            return
        own: dict[str, int] = {}
        for rank, device in enumerate(self._gathered([_named(self.hardware)], range(self.place.world))):
            if device[0] in own:
                raise RunError(
                    "no_device",
                    f"--replicas {self.place.world}: ranks {own[device[0]]} and {rank} share a device, {device[0]}. "
                    "Give no more replicas than there are devices, or make other devices visible to each task",
                )
            own[device[0]] = rank

    def largest_difference(self, arrays: Iterable[np.ndarray]) -> float:
        """Return the L2 norm, over all numbers, of the difference between the ranks' largest and smallest."""
        square = 0.0
        for array in arrays:
            largest = torch.tensor(array, device=self.hardware)
            smallest = largest.clone()
            dist.all_reduce(largest, dist.ReduceOp.MAX)
            dist.all_reduce(smallest, dist.ReduceOp.MIN)
            square += float((largest - smallest).cpu().double().square().sum())  # not every device has doubles
        return math.sqrt(square)

    def close(self) -> None:
        """Leave the others."""
        dist.destroy_process_group()


def set_timeout(timeout: timedelta) -> None:
    """Let collectives of all groups of ranks that there are wait so long, where PyTorch can change it."""
    change = getattr(dist.distributed_c10d, "_set_pg_timeout", None)  # torchtitan calls it, too
    if change:
        for group in list(dist.distributed_c10d._world.pg_map):
            change(timeout, group)


def join(place: Place, device: str, how: Parallelism, send: Callable[[Rendezvous], None]) -> Group:
    """Join the ranks of a run: the first one listens at a free port, which its parent passes on to the others.

    Raises RunError (`unsupported`) if this PyTorch has no backend for the device, or not the strategy.
    """
    backend = BACKENDS[device]
    if not dist.is_available() or not getattr(dist, f"is_{backend}_available", lambda: True)():
        raise RunError("unsupported", f"--replicas: PyTorch {torch.__version__} has no backend {backend}")
    versions.require(how, device)
    if place.address == LOOPBACK:  # all ranks are of this host, whose name may not resolve
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = _first_store(place, send) if place.rank == 0 else _store_of_the_first(place)
    group = Group(place, how, hardware_of(device), store)
    group.require_own_devices()
    group.mesh = how.mesh(place.world, int(group.smallest(place.local_world)))
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.world, timeout=FIRST_TIMEOUT)
    return group


def use_device(place: Place, device: str) -> None:
    """Choose the rank's own device of its node; where a launcher shows it no other, that one.

    Raises RunError (`no_device`) if there are fewer devices than ranks.
    """
    if device == "cpu":
        return
    if device == "ipu":
        from entrypoints.devices.pytorch.strategies import instances

        instances.begin(place)
        return
    visible, take = _devices_of(device)
    if 1 < visible <= place.local_rank:
        raise RunError(
            "no_device",
            f"--replicas {place.world}: {place.local_world} ranks of this host, and {visible} devices. Give as many "
            "replicas as there are devices",
        )
    take(place.local_rank if visible > 1 else 0)


def _devices_of(device: str) -> tuple[int, Callable[[int], None]]:
    """Return the number of visible devices, and what chooses one. Raises RunError (`no_device`) if nobody knows it."""
    if device != "hpu":
        runtime = getattr(torch, device)
        return runtime.device_count(), runtime.set_device
    try:
        modules = hlml.modules()
    except MeterError as error:
        raise RunError("no_device", f"--replicas: a rank cannot choose its Gaudi: {error}") from error
    # Its number in a process is always 0. https://docs.habana.ai, Gaudi-to-process assignment.
    return len(modules), lambda number: os.environ.__setitem__(hlml.MODULE, str(modules[number]))


def hardware_of(device: str) -> torch.device:
    """Return the device that this rank uses."""
    if BACKENDS[device] == "gloo":  # which adds up numbers of the host
        return torch.device("cpu")
    return torch.device(device, getattr(torch, device).current_device())


def _named(hardware: torch.device) -> str:
    """Return a name that a device shares with no other on any host: its identifier, or its number among the visible."""
    properties = getattr(torch, hardware.type).get_device_properties(hardware)
    chosen = {name: value for name, value in os.environ.items() if name in SELECTING}
    own = getattr(properties, "uuid", None) or f"number {hardware.index} of {chosen or 'all'}"
    return f"{own} of {socket.gethostname()}"


def _first_store(place: Place, send: Callable[[Rendezvous], None]) -> dist.TCPStore:
    store = dist.TCPStore(place.address, 0, place.world, True, RENDEZVOUS_TIMEOUT, wait_for_workers=False)
    send(Rendezvous(place.address, store.port))
    return store


def _store_of_the_first(place: Place) -> dist.TCPStore:
    ((host, port),) = meeting_points()
    return dist.TCPStore(host, port, place.world, False, RENDEZVOUS_TIMEOUT, wait_for_workers=False)
