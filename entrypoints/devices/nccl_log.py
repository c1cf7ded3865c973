"""What NCCL and RCCL write about their connections, whatever framework calls them."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path

NCCL = "nccl"  # also AMD's RCCL, which has its name
# They write `Channel 00/0 : 8[0] -> 15[7] [send] via NET/Socket/3` for each connection (transport/*.cc).
VIA = re.compile(r" via ((?:NET|P2P|SHM|COLLNET|NVLS)(?:/[A-Za-z][A-Za-z ]*)?)")
OVER_TCP = re.compile(r"selected provider is (tcp|sockets)", re.IGNORECASE)  # of aws-ofi-nccl, which is not always RDMA


def watch(backend: str) -> Path | None:
    """Let NCCL write how it connects to a file, and return that; None if a user has decided what it writes."""
    if backend != NCCL or "NCCL_DEBUG" in os.environ:
        return None
    descriptor, name = tempfile.mkstemp(prefix="sifmark-nccl-")
    os.close(descriptor)
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=name)
    return Path(name)


def connections_of(log: str) -> list[str]:
    """Return the kinds of connections in a log of NCCL, such as NET/IB and P2P/IPC."""
    kinds = {match.strip() for match in VIA.findall(log)}
    if OVER_TCP.search(log):
        kinds = {"NET/Socket" if kind.startswith("NET/") else kind for kind in kinds}
    return sorted(kinds)


def taken_from(log: Path | None) -> tuple[list[str], str | None]:
    """Return the kinds of connections in a log that was watched, or why there are none; remove the log."""
    if log is None:
        return [], "NCCL_DEBUG is set, so that its log says it"
    kinds = connections_of(log.read_text("utf-8", "replace"))
    with contextlib.suppress(OSError):
        log.unlink()
    return kinds, None if kinds else "its log names no connection"
