"""How the ranks of a run are connected, as the library of their collectives reports it, and how fast they add up."""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from entrypoints.contract.group import Connected

BYTES, CALLS = 16 << 20, 5  # of a sum over all ranks; the first one, which makes the connections, is not counted
UNREPORTED = "{} does not report it here"
# NCCL and RCCL write `Channel 00/0 : 8[0] -> 15[7] [send] via NET/Socket/3` for each connection (transport/*.cc).
VIA = re.compile(r" via ((?:NET|P2P|SHM|COLLNET|NVLS)(?:/[A-Za-z][A-Za-z ]*)?)")
OVER_TCP = re.compile(r"selected provider is (tcp|sockets)", re.IGNORECASE)  # of aws-ofi-nccl, which is not always RDMA


def watch(backend: str) -> Path | None:
    """Let NCCL write how it connects to a file, and return that; None if a user has decided what it writes."""
    if backend != "nccl" or "NCCL_DEBUG" in os.environ:
        return None
    descriptor, name = tempfile.mkstemp(prefix="sifmark-nccl-")
    os.close(descriptor)
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=name)
    return Path(name)


def connected(backend: str, hardware: torch.device) -> Connected:
    """Return how this rank is connected, after a few sums of all ranks, and the median time of a sum.

    Called before any other collective, since NCCL connects at the first one.
    """
    log = watch(backend)
    seconds = all_reduce_seconds(hardware)
    connections, reason = ["TCP"], None  # gloo's
    if backend != "gloo":
        connections = connections_of(log.read_text("utf-8", "replace")) if log else []
        set_by_user = "NCCL_DEBUG is set, so that its log says it" if backend == "nccl" else None
        reason = None if connections else set_by_user or UNREPORTED.format(backend)
    if log:
        with contextlib.suppress(OSError):
            log.unlink()
    return Connected(backend, version(backend), connections, reason, BYTES, seconds)


def all_reduce_seconds(hardware: torch.device) -> float:
    """Return the median time in s in which all ranks add up `BYTES` of float32."""
    numbers, times = torch.zeros(BYTES // 4, device=hardware), []
    for _ in range(1 + CALLS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(numbers)
        if hardware.type != "cpu":
            getattr(torch, hardware.type).synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def connections_of(log: str) -> list[str]:
    """Return the kinds of connections in a log of NCCL, such as NET/IB and P2P/IPC."""
    kinds = {match.strip() for match in VIA.findall(log)}
    if OVER_TCP.search(log):
        kinds = {"NET/Socket" if kind.startswith("NET/") else kind for kind in kinds}
    return sorted(kinds)


def version(backend: str) -> str | None:
    """Return the version of NCCL or RCCL; other libraries are part of PyTorch."""
    if backend != "nccl":
        return None
    numbers = torch.cuda.nccl.version()
    return ".".join(map(str, numbers)) if isinstance(numbers, tuple) else str(numbers)  # a number before torch 1.12
