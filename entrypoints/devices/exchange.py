"""What ranks tell each other over TCP, through the first of them, where their framework has nothing for it."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from typing import Any, Callable

from entrypoints.contract.group import LOOPBACK, Place
from entrypoints.contract.messages import Rendezvous
from entrypoints.contract.statuses import RunError

RENDEZVOUS_TIMEOUT = 120.0  # s: ranks of a node start together
EXCHANGE_TIMEOUT = 600.0  # s: in a step one may compile
CLOSING_TIMEOUT = 10.0  # s
LONGEST_HELLO = 64  # characters


class Link:
    """A connection to another rank, which carries a JSON value a line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.lines = connection, connection.makefile("rb")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def write(self, value: Any) -> None:
        """Send a value."""
        self.connection.sendall(json.dumps(value).encode() + b"\n")

    def read(self, longest: int = -1) -> Any:
        """Return the next value. Raises ConnectionError if the other end is gone, ValueError if it sends none."""
        line = self.lines.readline(longest)
        if not line:
            raise ConnectionError("connection closed by peer: another rank is gone")
        return json.loads(line)

    def end(self) -> None:
        """Say that nothing more will come."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection when the other end has nothing more to say either, or takes too long."""
        self.connection.settimeout(CLOSING_TIMEOUT)
        with contextlib.suppress(OSError):
            self.lines.read()
        self.lines.close()
        self.connection.close()


class Exchange:
    """The links between the ranks of a run: of the first one to all others, of others to the first."""

    def __init__(self, rank: int, links: list[Link]) -> None:
        self.rank, self.links = rank, links

    @property
    def address(self) -> str:
        """The address of this host that the first rank reaches; on the first rank, that others reach."""
        return str(self.links[0].connection.getsockname()[0])

    def gathered(self, own: Any) -> list[Any]:
        """Return the values of all ranks, in their order. Every rank gives one."""
        if self.rank:
            self.links[0].write(own)
            values: list[Any] = self.links[0].read()
            return values
        values = [own, *(link.read() for link in self.links)]
        for link in self.links:
            link.write(values)
        return values

    def close(self) -> None:
        """Close all links. The first rank leaves last: the libraries of some frameworks look for it until they end."""
        for link in self.links:
            link.end()
        for link in self.links:
            link.close()


def opened(place: Place, send: Callable[[Rendezvous], None]) -> Exchange:
    """Return the links of a rank. The first one listens at a free port, which its parent passes on to the others.

    Raises RunError (`crashed`) if the others do not arrive.
    """
    if place.rank:
        links = [_link_to_the_first(place.rank)]
    else:
        try:
            links = _links_of_the_first(place, send)
        except socket.timeout:
            message = f"the first rank has waited {RENDEZVOUS_TIMEOUT:g} s for others, and timed out"
            raise RunError("crashed", message) from None
    for link in links:
        link.connection.settimeout(EXCHANGE_TIMEOUT)
    return Exchange(place.rank, links)


def _links_of_the_first(place: Place, send: Callable[[Rendezvous], None]) -> list[Link]:
    by_rank: dict[int, Link] = {}
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT
    with socket.create_server((LOOPBACK if place.address == LOOPBACK else "", 0), backlog=place.world) as server:
        send(Rendezvous(place.address, server.getsockname()[1]))
        while len(by_rank) < place.world - 1:
            server.settimeout(max(deadline - time.monotonic(), 0.001))
            connection, _ = server.accept()
            connection.settimeout(RENDEZVOUS_TIMEOUT)
            link = Link(connection)
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # others may try any port
                by_rank[range(1, place.world)[int(link.read(LONGEST_HELLO)["rank"]) - 1]] = link
    return [by_rank[rank] for rank in range(1, place.world)]


def _link_to_the_first(rank: int) -> Link:
    line = sys.stdin.readline()
    if not line:
        raise RunError("crashed", "the first rank is gone")
    host, port = json.loads(line)
    link = Link(socket.create_connection((host, port), RENDEZVOUS_TIMEOUT))
    link.write({"rank": rank})
    return link
