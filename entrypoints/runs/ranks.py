"""Ranks: processes that a launcher started together on a node. One of them counts what a device used."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from typing import Iterable

# The number of a rank on its node, and the ID of its step: srun(1); Open MPI and its PMIx; Hydra of MPICH and Intel
# MPI, which has no step ID, so that all of a user's steps are one; HPE's PALS; Flux; torchrun.
LAUNCHERS = {
    "SLURM_LOCALID": ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    "OMPI_COMM_WORLD_LOCAL_RANK": ("PMIX_NAMESPACE",),
    "PALS_LOCAL_RANKID": ("PALS_APID",),
    "FLUX_TASK_LOCAL_ID": ("FLUX_JOB_ID",),
    "MPI_LOCALRANKID": (),
    "LOCAL_RANK": ("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
}
_taken: dict[bytes, socket.socket] = {}  # by address; a claim ends with its process


def counted_elsewhere(source: str, devices: Iterable[str]) -> str | None:
    """Return why another rank counts what these devices use; None if this one does, from now on until it ends.

    Ranks of a step read the same devices or different ones: a claim is for all devices of a meter.
    """
    rank = next((name for name, step in LAUNCHERS.items() if {name, *step} <= os.environ.keys()), None)
    if rank is None:
        return None
    claim = (str(os.getuid()), *(os.environ[name] for name in LAUNCHERS[rank]), source, *devices)
    address = b"\0sifmark-" + hashlib.sha256(repr(claim).encode()).hexdigest().encode()
    try:
        _take(address)
    except OSError as error:
        why = "another rank of this node counts" if error.errno == errno.EADDRINUSE else f"{error.strerror}: who counts"
        return f"{why} what {', '.join(devices)} used; this one is {rank}={os.environ[rank]}"
    return None


def _take(address: bytes) -> None:
    """Bind a socket without a file: the kernel gives an address to one process, and releases it when that ends."""
    if address in _taken:
        return
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        taken.bind(address)
    except OSError:
        taken.close()
        raise
    _taken[address] = taken
