"""The hub: the first task of a launch gives the others their work, and hears what their ranks report.

Both ends send lines of JSON arrays that begin with a word. From the others: `hello`, then for each job each `message`
of their ranks and how they `ended`. To them: the `job`, where its ranks `meet`, `stop` or `abandon`, and `goodbye` with
the exit code of the run.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from entrypoints.contract import cards
from entrypoints.contract.group import LOOPBACK, Place
from entrypoints.contract.messages import Message, MessageError, Rendezvous, decode
from entrypoints.contract.statuses import STATUSES, USAGE_EXIT, RunError, UsageError
from entrypoints.metering.energy import Consumed, TotalEnergy
from entrypoints.planning.configuration import Configuration
from entrypoints.results.outcome import Ending
from entrypoints.results.power import consumed
from entrypoints.runs.execute import measured
from entrypoints.runs.group import Rank, Site, arrivals, started
from entrypoints.runs.launch import Launch
from entrypoints.runs.metered import metering
from entrypoints.runs.protocol import LONGEST_LINE
from entrypoints.runs.supervise import CHUNK, GRACE, TICK, Child, Orders, complete_lines
from entrypoints.system.console import status

RENDEZVOUS_TIMEOUT = 120.0  # s for all tasks of a launch to arrive


class Hello(NamedTuple):
    """What a task says of itself: its number, where it runs, its image, and what it was asked to run."""

    task: int
    node: str  # by the launcher's name for it
    host: str
    processors: str  # that it may use, such as 0-3,8
    image: str
    runs: str

    @property
    def site(self) -> Site:
        """Where it runs."""
        return Site(self.host, self.processors)


class Line:
    """A connection of lines."""

    def __init__(self, connection: socket.socket) -> None:
        self.stream, self.rest_of_line = connection, bytearray()
        self.open, self.full = True, False

    def send(self, *words: Any) -> None:
        """Send one line; nothing to a peer that is gone, which reading will show."""
        with contextlib.suppress(OSError):
            self.stream.sendall(json.dumps(words).encode() + b"\n")

    def read(self) -> list[list[Any]]:
        """Return the lines that have arrived; none, and `open` is False, if the peer is gone or sends anything else."""
        try:
            chunk = self.stream.recv(CHUNK)
            lines = [json.loads(line) for line in complete_lines(self.rest_of_line, chunk)]
        except (OSError, ValueError):
            chunk, lines = b"", []
        self.full = len(chunk) == CHUNK
        self.open = bool(chunk) and len(self.rest_of_line) <= LONGEST_LINE
        return lines


class Follower:
    """Another task of the launch, as the first one sees it: a source of messages of its ranks."""

    rest, reported_end = 0.0, False

    def __init__(self, line: Line, hello: Hello, orders: Orders) -> None:
        self.line, self.hello, self.orders, self.stream = line, hello, orders, line.stream
        self.ranks: range = range(0)  # of the present job
        self.endings: dict[int, Ending] = {}
        self.consumed = _unreported(hello.host)
        self.open = self.failed = self.stopped = self.abandoned = False
        self.kill_at: float | None = None

    @property
    def full(self) -> bool:
        """Whether more has arrived than was read."""
        return self.line.full

    def assign(self, job: str, configuration: Configuration, places: Sequence[Place]) -> None:
        """Give it its ranks of a job."""
        self.ranks, self.endings = range(places[0].rank, places[-1].rank + 1), {}
        self.consumed = _unreported(self.hello.host)
        self.open, self.failed, self.stopped, self.abandoned, self.kill_at = self.line.open, False, False, False, None
        self.line.send("job", job, configuration.as_json(), places)
        if not self.line.open:
            self._lose()

    def keep_order(self) -> None:
        """Pass an order to stop on, once."""
        state = self.orders.stop()
        if state and not self.stopped:
            self.stopped = True
            self.kill_at = time.monotonic() + 3 * GRACE
            self.line.send("stop", state)

    def receive(self) -> Iterator[tuple[int, Message]]:
        """Yield what its ranks report."""
        for word, rank, *rest in self.line.read():
            if word == "consumed":
                with contextlib.suppress(TypeError):
                    self.consumed = _consumed(rank)
            elif rank not in self.ranks:
                continue
            elif word == "message":
                with contextlib.suppress(MessageError):
                    yield rank, decode(json.dumps(rest[0]).encode())
            elif word == "ended":
                self.endings[rank] = Ending(*rest[0])
                self.failed = self.failed or bool(rest[1])
        if not self.line.open:
            self._lose()
        elif len(self.endings) == len(self.ranks):
            self.open = False

    def silent(self) -> bool:
        """Return whether it was asked to end for so long that it is taken for lost."""
        if self.kill_at is not None and time.monotonic() > self.kill_at:
            self._lose()
            return True
        return False

    def _lose(self) -> None:
        self.open, self.failed = False, True
        for rank in set(self.ranks) - set(self.endings):
            self.endings[rank] = Ending(None, None, None, oom_killed=False, lost=self.hello.host)

    def meet(self, where: Rendezvous) -> None:
        """Pass on where the first rank waits."""
        self.line.send("meet", *where)

    def abandon(self) -> None:
        """Let its ranks end."""
        if not self.abandoned:
            self.abandoned = True
            self.kill_at = time.monotonic() + 3 * GRACE
            self.line.send("abandon")

    def reap(self) -> None:
        """Do nothing: the other task leaves nothing behind."""


class Head:
    """The first task of the launch, as another one sees it while its ranks compute: a source of orders."""

    full, reported_end, rest = False, False, 0.0

    def __init__(self, line: Line) -> None:
        self.line, self.stream = line, line.stream
        self.ranks: Sequence[Child] = ()
        self.open, self.failed = True, False

    def receive(self) -> Iterator[tuple[int, Message]]:
        """Act on its orders."""
        for word, *rest in self.line.read():
            for child in self.ranks:
                if word == "meet":
                    child.meet(Rendezvous(*rest))
                elif word == "stop":
                    child.stop(rest[0])
                elif word == "abandon":
                    child.abandon()
        self.open = self.line.open
        self.failed = not self.open  # without it nobody writes a document
        return iter(())

    def keep_order(self) -> None:
        """Do nothing: it gives the orders."""

    def silent(self) -> bool:
        """Return False: it may be silent as long as it likes."""
        return False

    def meet(self, where: Rendezvous) -> None:
        """Do nothing: it says where."""

    def abandon(self) -> None:
        """Do nothing: it hears of failures."""

    def reap(self) -> None:
        """Do nothing: it leaves nothing here."""


class Hub:
    """The first task's connections to all others of a launch."""

    def __init__(self, launch: Launch, hello: Hello, orders: Orders) -> None:
        """Wait until all have arrived.

        Raises UsageError for one that has another image or other runs, and RunError if some do not arrive in time.
        """
        self.followers: list[Follower] = []
        self.exit_code = STATUSES["crashed"].exit_code  # unless the run says otherwise
        with _listening(launch) as listener:
            until = time.monotonic() + RENDEZVOUS_TIMEOUT
            while len(self.followers) < launch.tasks - 1:
                state = orders.stop() or ("crashed" if time.monotonic() > until else None)
                if state:
                    raise RunError(state, _missing(launch, hello, self.followers))
                if select.select([listener], [], [], TICK)[0]:
                    self._admit(Line(listener.accept()[0]), hello, launch, orders)
        self.followers.sort(key=lambda follower: follower.hello.task)

    def _admit(self, line: Line, own: Hello, launch: Launch, orders: Orders) -> None:
        """Take a task that says what it is; drop anybody else. Raises UsageError for one that is to do other things."""
        line.stream.settimeout(GRACE)
        words = line.read()
        if not words or words[0][:1] != ["hello"] or len(words[0]) != 1 + len(Hello._fields):
            line.stream.close()
            return
        hello = Hello(*words[0][1:])
        taken = {0, *(follower.hello.task for follower in self.followers)}
        if hello.task in taken or not 0 < hello.task < launch.tasks:
            line.stream.close()
            return
        for name, what in (("image", "another image"), ("runs", "other options or defaults")):
            if getattr(hello, name) != getattr(own, name):
                line.send("goodbye", USAGE_EXIT)
                raise UsageError(f"task {hello.task} on {hello.host} has {what}", "start the same command everywhere")
        line.stream.settimeout(None)
        self.followers.append(Follower(line, hello, orders))

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        """Let the others end, with the exit code of the run."""
        for follower in self.followers:
            follower.line.send("goodbye", self.exit_code)
            follower.line.stream.close()


def follow(launch: Launch, hello: Hello, orders: Orders) -> int:
    """Do what the first task says until it says goodbye; return the exit code that it names."""
    line = Line(_connected(launch, orders))
    line.send("hello", *hello)
    head = Head(line)
    while line.open:
        if orders.signals and not select.select([line.stream], [], [], 2 * GRACE)[0]:
            break
        if not select.select([line.stream], [], [], TICK)[0]:
            continue
        for word, *rest in line.read():
            if word == "goodbye":
                return int(rest[0])
            if word == "job":
                _work(head, hello.host, orders, *rest)
    status("the first task of this launch is gone: no result")
    return STATUSES["crashed"].exit_code


def _work(
    head: Head, host: str, orders: Orders, job: str, configuration: Mapping[str, Any], places: Sequence[Sequence[Any]]
) -> None:
    """Run the ranks of a job that are this task's, and report what they report and, of a run, what it used."""
    resolved, own = Configuration(**configuration), [Place(*place) for place in places]
    metered = metering(resolved, orders, own, lambda _: None) if job == "run" else contextlib.nullcontext()
    # Read before the run: a signal to the whole job also ends the FUSE mount that the image's files are read through.
    card = cards.load()[resolved.workload]
    heard: dict[int, list[Message]] = {place.rank: [] for place in own}
    with metered as meter, started(resolved, orders, job, own) as head.ranks:
        for rank, message in arrivals(head.ranks, head):
            heard[rank].append(message)
            head.line.send("message", rank, [type(message).__name__, message])
        for child in head.ranks:
            child.reap()
    endings = {child.rank: child.ending() for child in head.ranks}
    if meter:
        ranks = [Rank(messages, endings[rank]) for rank, messages in heard.items()]
        measurement = measured(ranks, meter.recording(), card, resolved)
        head.line.send("consumed", consumed(measurement, host))
    for child in head.ranks:
        head.line.send("ended", child.rank, endings[child.rank], child.failed)
    head.ranks = ()


def _unreported(host: str) -> Consumed:
    """Return what a task used that did not say so."""
    reason = f"{host}: it did not report what its devices used"
    return Consumed(host, 0, {"reason": reason}, TotalEnergy(None, reason), (), simulated=False, elsewhere=False)


def _consumed(words: Sequence[Any]) -> Consumed:
    """Return what another task reports of its devices."""
    used = Consumed(*words)
    return used._replace(
        window=TotalEnergy(*used.window),
        epochs=[TotalEnergy(*energy) for energy in used.epochs],
        decode=TotalEnergy(*used.decode),
    )


def _listening(launch: Launch) -> socket.socket:
    address = LOOPBACK if launch.head == LOOPBACK else ""
    try:
        return socket.create_server((address, launch.port), backlog=launch.tasks)
    except OSError as error:
        raise UsageError(
            f"port {launch.port}, at which the tasks of this launch meet: {error.strerror}",
            "give --rendezvous HOST:PORT",
            code="system-error",
        ) from None


def _connected(launch: Launch, orders: Orders) -> socket.socket:
    """Return a connection to the first task. Raises UsageError if it does not answer in time."""
    if launch.head is None:
        raise UsageError(f"{launch.launcher} names no host of its first task", "give --rendezvous HOST:PORT")
    until, cause = time.monotonic() + RENDEZVOUS_TIMEOUT, ""
    while time.monotonic() < until and not orders.stop():
        try:
            return socket.create_connection((launch.head, launch.port), timeout=TICK)
        except OSError as error:
            cause = str(error.strerror or error)
        time.sleep(TICK / 5)
    raise UsageError(
        f"the first task, {launch.head}:{launch.port}, does not answer: {cause}", "did it start, and is its host right?"
    )


def _missing(launch: Launch, own: Hello, followers: Sequence[Follower]) -> str:
    arrived = [own, *(follower.hello for follower in followers)]
    absent = sorted(set(range(launch.tasks)) - {hello.task for hello in arrived})
    silent = [node for node in launch.nodes if node not in {hello.node for hello in arrived}]
    where = f", and nobody on {', '.join(silent[:20])}" if silent else ""
    numbers = ", ".join(map(str, absent[:20]))
    return f"tasks {numbers} of {launch.tasks} did not arrive{where}: look at what they wrote to standard error"
