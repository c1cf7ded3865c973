"""What NCCL writes about its connections: lines of its log, as issues 952, 1412 and 1817 of NVIDIA/nccl quote them."""

from __future__ import annotations

import os

import pytest

from entrypoints.devices import nccl_log
from entrypoints.results.ranks import network

BEFORE = "node1:919:1150 [0] NCCL INFO Channel 01/0 : "
LINES = {
    "8[0] -> 15[7] via P2P/IPC/read": ("P2P/IPC", "within the host"),
    "7[7] -> 6[6] via P2P/direct pointer/read": ("P2P/direct pointer", "within the host"),
    "3[3] -> 4[4] via SHM/direct/direct": ("SHM/direct", "within the host"),
    "15[7] -> 6[6] [send] via NET/Socket/3": ("NET/Socket", "sockets"),
    "5[5] -> 12[4] [send] via NET/IB/3": ("NET/IB", "rdma"),
    "5[5] -> 12[4] [send] via NET/IB/3/GDRDMA": ("NET/IB", "rdma"),
    "5[5] -> 12[4] [receive] via NET/AWS Libfabric/0/GDRDMA": ("NET/AWS Libfabric", "rdma"),
}


@pytest.mark.parametrize("line", LINES)
def test_a_connection_is_named_with_its_network(line):
    kind, of_kind = LINES[line]
    connections = nccl_log.connections_of(f"{BEFORE}{line}\n")
    assert connections == [kind] and network(connections) == of_kind


def test_the_slowest_connection_is_the_network():
    connections = nccl_log.connections_of("\n".join(BEFORE + line for line in LINES))
    assert network(connections) == "sockets"
    assert (
        network(nccl_log.connections_of("\n".join(BEFORE + line for line in LINES if "Socket" not in line))) == "rdma"
    )
    assert nccl_log.connections_of("NCCL INFO Using network IB") == [] and network([]) is None


def test_libfabric_over_tcp_is_no_rdma():
    log = f"NET/OFI Selected Provider is tcp (found 1 nics)\n{BEFORE}5[5] -> 12[4] [send] via NET/AWS Libfabric/0\n"
    assert nccl_log.connections_of(log) == ["NET/Socket"]


def test_what_a_user_has_set_is_left_alone(monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    assert nccl_log.watch("nccl") is None and os.environ["NCCL_DEBUG"] == "WARN"
    assert nccl_log.watch("gloo") is None


def test_the_log_goes_to_a_file_of_its_own(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    log = nccl_log.watch("nccl")
    assert log is not None and os.environ["NCCL_DEBUG_FILE"] == str(log)
    log.unlink()
