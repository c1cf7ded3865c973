"""How the ranks of a run are connected, as the library of their collectives reports it, and how fast they add up."""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist

from entrypoints.contract.group import SUMMED, SUMS, Connected
from entrypoints.devices import nccl_log
from entrypoints.devices.nccl_log import NCCL

UNREPORTED = "{} does not report it here"


def connected(backend: str, hardware: torch.device) -> Connected:
    """Return how this rank is connected, after a few sums of all ranks, and the median time of a sum.

    Called before any other collective, since NCCL connects at the first one.
    """
    log = nccl_log.watch(backend)
    seconds = all_reduce_seconds(hardware)
    connections, reason = (["TCP"], None) if backend == "gloo" else ([], UNREPORTED.format(backend))
    if backend == NCCL:
        connections, reason = nccl_log.taken_from(log)
    return Connected(backend, version(backend), connections, reason, SUMMED, seconds)


def all_reduce_seconds(hardware: torch.device) -> float:
    """Return the median time in s in which all ranks add up `SUMMED` bytes of float32."""
    numbers, times = torch.zeros(SUMMED // 4, device=hardware), []
    for _ in range(1 + SUMS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(numbers)
        if hardware.type != "cpu":
            getattr(torch, hardware.type).synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def version(backend: str) -> str | None:
    """Return the version of NCCL or RCCL; other libraries are part of PyTorch."""
    if backend != NCCL:
        return None
    numbers = torch.cuda.nccl.version()
    return ".".join(map(str, numbers)) if isinstance(numbers, tuple) else str(numbers)  # a number before torch 1.12
