"""Ranks: processes that a launcher started together on a node. One of them counts what a device used."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from typing import Iterable

from entrypoints.runs.launch import launcher_of

_taken: dict[bytes, socket.socket] = {}  # by address; a claim ends with its process


def counted_elsewhere(source: str, devices: Iterable[str]) -> str | None:
    """Return why another rank counts what these devices use; None if this one does, from now on until it ends.

    Ranks of a step read the same devices or different ones: a claim is for all devices of a meter.
    """
    launcher = launcher_of(os.environ)
    if launcher is None:
        return None
    rank, step = launcher.local_task, launcher.step
    claim = (str(os.getuid()), *(os.environ[name] for name in step), source, *devices)
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
