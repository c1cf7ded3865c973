"""Ranks of the double meet over a socket of the first one, and compute nothing together."""

from __future__ import annotations

import json
import socket
import sys

from entrypoints.contract.messages import Rendezvous


class Group:
    """Any rank but the first."""

    def __init__(self, *peers):
        self.peers = peers

    def meet(self):
        self.tell()
        self.hear()

    def tell(self):
        for peer in self.peers:
            peer.sendall(b".")

    def hear(self):
        for peer in self.peers:
            if not peer.recv(1):
                raise ConnectionError("Connection closed by peer")

    def close(self):
        for peer in self.peers:
            peer.close()


class First(Group):
    """The first rank hears all others before it answers them."""

    def meet(self):
        self.hear()
        self.tell()


def join(place, device, strategy, send):
    if place.rank:
        host, port = json.loads(sys.stdin.readline())
        return Group(socket.create_connection((host, port)))
    with socket.create_server((place.address, 0)) as listener:
        send(Rendezvous(place.address, listener.getsockname()[1]))
        return First(*(listener.accept()[0] for _ in range(place.world - 1)))


def use_device(place, device):
    """Each rank has the host."""
