"""Whether the tasks of a launch reach each other: the first listens, the others connect, then each calls the others.

All send lines of JSON. A task says where it listens itself, which is where gloo would: at the address of its host's
name. The first task sends this table to all, and each connects to its successors in it.
"""

import json
import os
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from sifmark.core.checks import Check, Status
from sifmark.doctor.network import GLOO, NCCL, interfaces, own_addresses

TO_ARRIVE = 60.0  # s
TO_ANSWER = 5.0  # s
MOST_CALLED = 64  # other tasks that each one connects to
LONGEST_LINE = 1 << 20  # bytes
LOOPBACK = "127.0.0.1"
_FIRST = "tasks"
_FIREWALL = "open the ports between nodes, or start all tasks on nodes of one network"
_INTERFACES = f"name an interface that reaches the other nodes: export {GLOO}=NAME {NCCL}=NAME"


class Meeting(NamedTuple):
    """Where the tasks of a launch meet. `head` is the first task's host, if the launcher names one."""

    task: int
    tasks: int
    head: str | None
    port: int


class Caller(NamedTuple):
    """A task: its number, its host, and where it listens."""

    task: int
    host: str
    address: str
    port: int


def check_reach(meeting: Meeting, to_arrive: float = TO_ARRIVE) -> Iterator[Check]:
    """Check whether all tasks arrive at the first, within `to_arrive` seconds, and whether each reaches the others."""
    if meeting.head is None:
        remedy = "name the first task's host: export MASTER_ADDR=HOST, and give runs --rendezvous HOST:PORT"
        yield Check(_FIRST, Status.FAILED, "the launcher names no host of its first task", remedy)
        return
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((_listening_address(), 0), backlog=MOST_CALLED))
        threading.Thread(target=_answer, args=(listener, meeting.task), daemon=True).start()
        caller = Caller(meeting.task, socket.gethostname(), *listener.getsockname()[:2])
        yield from (_as_first if meeting.task == 0 else _as_other)(meeting, caller, to_arrive, stack)


def _as_first(meeting: Meeting, caller: Caller, to_arrive: float, stack: ExitStack) -> Iterator[Check]:
    try:
        listener = socket.create_server(("", meeting.port), backlog=meeting.tasks)
    except OSError as error:
        detail = f"port {meeting.port}, where the tasks of this launch meet: {error.strerror}"
        yield Check(_FIRST, Status.FAILED, detail, "start it again in another step or job, which has another port")
        return
    others = _arrivals(stack.enter_context(listener), meeting, to_arrive, stack)
    table = [caller, *(other for other, _ in others)]
    yield _check_arrivals(meeting, table)
    for _, line in others:
        line.send(table)
    yield _check_calls(caller, table)
    until = time.monotonic() + _longest_calls(table)
    for _, line in others:  # they answer calls until all are through
        line.read(until)
    for _, line in others:
        line.send("goodbye")


def _as_other(meeting: Meeting, caller: Caller, to_arrive: float, stack: ExitStack) -> Iterator[Check]:
    where, until = f"{meeting.head}:{meeting.port}", time.monotonic() + to_arrive
    line, cause = None, "not tried"
    while line is None and time.monotonic() < until:
        try:
            line = Line(stack.enter_context(socket.create_connection((meeting.head, meeting.port), TO_ANSWER)))
        except OSError as error:
            cause = str(error.strerror or error)
            time.sleep(0.2)
    if line is None:
        detail = f"the first task, {where}, does not answer within {to_arrive:g} s: {cause}"
        yield Check(_FIRST, Status.FAILED, detail, _FIREWALL)
        return
    line.send(caller)
    # The first task may have started later, and waits as long.
    table = [Caller(*entry) for entry in line.read(time.monotonic() + to_arrive + TO_ANSWER) or ()]
    if not table:
        yield Check(_FIRST, Status.FAILED, f"the first task, {where}, has ended", "see what it says")
        return
    yield Check(_FIRST, Status.PASSED, f"the first task answers at {where}")
    yield _check_calls(caller, table)
    line.send("done")
    line.read(time.monotonic() + _longest_calls(table))


class Line:
    """A connection of lines of JSON."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream, self.rest = stream, b""

    def send(self, message: Any) -> None:
        """Send a message; nothing to a peer that is gone, which reading will show."""
        with suppress(OSError):
            self.stream.sendall(json.dumps(message).encode() + b"\n")

    def read(self, until: float) -> Any:
        """Return the next message; None for anything else, or if there is none until then."""
        with suppress(OSError, ValueError):
            while b"\n" not in self.rest and len(self.rest) < LONGEST_LINE:
                self.stream.settimeout(max(0.01, until - time.monotonic()))
                if not (chunk := self.stream.recv(1 << 16)):
                    return None
                self.rest += chunk
            line, _, self.rest = self.rest.partition(b"\n")
            return json.loads(line)
        return None


def _arrivals(
    listener: socket.socket, meeting: Meeting, to_arrive: float, stack: ExitStack
) -> Sequence[tuple[Caller, Line]]:
    """Return the other tasks that arrive in time, by number; anybody else is dropped."""
    arrived: dict[int, tuple[Caller, Line]] = {}
    until = time.monotonic() + to_arrive
    while len(arrived) < meeting.tasks - 1 and (left := until - time.monotonic()) > 0:
        if not select.select([listener], [], [], left)[0]:
            break
        line = Line(stack.enter_context(listener.accept()[0]))
        with suppress(TypeError):
            caller = Caller(*line.read(time.monotonic() + TO_ANSWER) or ())
            if caller.task in range(1, meeting.tasks):
                arrived[caller.task] = caller, line
    return [arrived[task] for task in sorted(arrived)]


def _check_arrivals(meeting: Meeting, table: Sequence[Caller]) -> Check:
    hosts = Counter(caller.host for caller in table)
    places = ", ".join(f"{count} on {host}" for host, count in hosts.items())
    detail = f"{len(table)} of {meeting.tasks} arrived: {places}"
    if len(table) == meeting.tasks:
        return Check(_FIRST, Status.PASSED, detail)
    missing = sorted(set(range(meeting.tasks)) - {caller.task for caller in table})
    numbers = ", ".join(map(str, missing[:20]))
    remedy = f"see what they say themselves, if they have started at all; else {_FIREWALL}"
    return Check(_FIRST, Status.FAILED, f"{detail}; not tasks {numbers}", remedy)


def _check_calls(caller: Caller, table: Sequence[Caller]) -> Check:
    """Connect to the tasks that follow in the table, and check that each is who it should be."""
    at = table.index(caller)
    called = [*table[at + 1 :], *table[:at]][:MOST_CALLED]
    faults = {other.task: fault for other in called if (fault := _call(other))}
    name = f"task {caller.task} to others"
    if not faults:
        return Check(name, Status.PASSED, f"{len(called)} of {len(called)} answer; it listens at {caller.address}")
    task, fault = next(iter(faults.items()))
    detail = f"{len(called) - len(faults)} of {len(called)} answer; not task {task}: {fault}"
    return Check(name, Status.FAILED, detail, _INTERFACES)


def _longest_calls(table: Sequence[Caller]) -> float:
    """Return how many seconds the calls of a task may take, if nobody answers."""
    return TO_ANSWER * (1 + min(len(table), MOST_CALLED))


def _call(other: Caller) -> str | None:
    """Return why a task cannot be reached; None if it answers."""
    where = f"{other.address}:{other.port} of {other.host}"
    try:
        with socket.create_connection((other.address, other.port), TO_ANSWER) as stream:
            answer = Line(stream).read(time.monotonic() + TO_ANSWER)
    except OSError as error:
        return f"{where}: {error.strerror or error}"
    return None if answer == other.task else f"{where} is something else"


def _answer(listener: socket.socket, task: int) -> None:
    """Send the number of this task over every connection, until the socket is closed."""
    with suppress(OSError):
        while True:
            stream, _ = listener.accept()
            with stream:
                Line(stream).send(task)


def _listening_address(environment: Mapping[str, str] = os.environ) -> str:
    """Return where gloo would listen: at the interface that a variable names, else at the host's name."""
    existing = interfaces()
    present = {address for addresses in existing.values() for address in addresses}
    chosen = existing.get(environment.get(GLOO, "").partition(",")[0], own_addresses())
    return next((address for address in chosen if address in present and ":" not in address), LOOPBACK)
