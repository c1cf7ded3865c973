"""The hub: the first task of a launch gives the others their work, and hears what their ranks report.

Once they have met (`meeting`), both ends send lines of JSON arrays that begin with a word. From the others: for each
job each `message` of their ranks and how they `ended`. To them: the `job`, where its ranks `meet`, `stop` or `abandon`,
and `goodbye` with the exit code of the run.
"""

from __future__ import annotations

import contextlib
import json
import select
import time
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from entrypoints.contract import cards
from entrypoints.contract.group import LOOPBACK, Place
from entrypoints.contract.messages import Message, MessageError, Rendezvous, decode
from entrypoints.contract.statuses import STATUSES, USAGE_EXIT, RunError, UsageError
from entrypoints.metering.energy import Consumed, TotalEnergy
from entrypoints.planning.configuration import Configuration
from entrypoints.results.outcome import STOPS, Ending
from entrypoints.results.power import consumed
from entrypoints.runs import meeting
from entrypoints.runs.evaluation import IMPOSSIBLE
from entrypoints.runs.execute import measured
from entrypoints.runs.group import Rank, Site, arrivals, started
from entrypoints.runs.launch import Launch
from entrypoints.runs.meeting import RENDEZVOUS_TIMEOUT, Line
from entrypoints.runs.metered import metering
from entrypoints.runs.supervise import GRACE, TICK, Child, Orders
from entrypoints.system.console import status


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


class Follower:
    """Another task of the launch, as the first one sees it: a source of messages of its ranks."""

    rest, reported_end = 0.0, False

    def __init__(self, line: Line, hello: Hello, orders: Orders) -> None:
        self.line, self.hello, self.orders, self.stream = line, hello, orders, line.stream
        self.ranks: range = range(0)  # of the present job
        self.endings: dict[int, Ending] = {}
        self.consumed, self.address = _unreported(hello.host), LOOPBACK
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
        # A task that reaches the first one by the loopback is on its host.
        self.address = places[0].address if self.line.address.startswith("127.") else self.line.address
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
        try:
            for word, *rest in self.line.read():
                yield from self._heard(word, *rest)
        except IMPOSSIBLE:
            self._lose()
        if not self.line.open:
            self._lose()
        elif len(self.endings) == len(self.ranks):
            self.open = False

    def _heard(self, word: str, rank: Any, *rest: Any) -> Iterator[tuple[int, Message]]:
        """Take one line. Raises one of IMPOSSIBLE for what no task says."""
        if word == "consumed":
            self.consumed = _consumed(rank)
        elif not isinstance(rank, int) or rank not in self.ranks:
            return
        elif word == "message":
            with contextlib.suppress(MessageError):
                message = decode(json.dumps(rest[0]).encode())
                yield rank, message._replace(host=self.address) if isinstance(message, Rendezvous) else message
        elif word == "ended":
            self.endings[rank] = _ending(rest[0])
            self.failed = self.failed or bool(rest[1])

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

    def meet(self, where: Sequence[Rendezvous]) -> None:
        """Pass on where ranks wait."""
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
                    child.meet([Rendezvous(*each) for each in rest])
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

    def meet(self, where: Sequence[Rendezvous]) -> None:
        """Do nothing: it says where."""

    def abandon(self) -> None:
        """Do nothing: it hears of failures."""

    def reap(self) -> None:
        """Do nothing: it leaves nothing here."""


class Hub:
    """The first task's connections to all others of a launch."""

    def __init__(self, launch: Launch, hello: Hello, orders: Orders) -> None:
        self.launch, self.hello, self.orders = launch, hello, orders
        self.followers: list[Follower] = []
        self.exit_code = STATUSES["crashed"].exit_code  # unless the run says otherwise

    def gather(self) -> None:
        """Wait until all have arrived.

        Raises UsageError for one that has another image or other runs, and RunError if some do not arrive in time.
        """
        until = time.monotonic() + RENDEZVOUS_TIMEOUT
        with meeting.opened(self.launch) as door:
            while len(self.followers) < self.launch.tasks - 1:
                state = self.orders.stop() or ("crashed" if time.monotonic() > until else None)
                if state:
                    raise RunError(state, _missing(self.launch, self.hello, self.followers))
                for line, words in door.arrivals():
                    reason = self._admit(line, words)
                    if reason:
                        door.refuse(line, reason)
        self.followers.sort(key=lambda follower: follower.hello.task)

    def _admit(self, line: Line, words: Sequence[Any]) -> str | None:
        """Take a task, or return why it is of no use. Raises UsageError for one that is to do other things."""
        if [type(word) for word in words] != [int, str, str, str, str, str]:
            return "it says something else of itself than a task does"
        hello = Hello(*words)
        taken = {0, *(follower.hello.task for follower in self.followers)}
        if hello.task in taken or not 0 < hello.task < self.launch.tasks:
            return f"it says that it is task {hello.task} of {self.launch.tasks}"
        line.trust()
        self.followers.append(Follower(line, hello, self.orders))
        for name, what in (("image", "another image"), ("runs", "other options or defaults")):
            if getattr(hello, name) != getattr(self.hello, name):
                raise UsageError(f"task {hello.task} on {hello.host} has {what}", "start the same command everywhere")
        return None

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, _: object, error: object, __: object) -> None:
        """Let the others end, with the exit code of the run."""
        code = USAGE_EXIT if isinstance(error, UsageError) else self.exit_code
        for follower in self.followers:
            follower.line.send("goodbye", code)
            follower.line.stream.close()


def follow(launch: Launch, hello: Hello, orders: Orders) -> int:
    """Do what the first task says until it says goodbye; return the exit code that it names."""
    line = meeting.joined(launch, hello, orders)
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
    card = resolved.computed(cards.load()[resolved.workload])
    heard: dict[int, list[Message]] = {place.rank: [] for place in own}
    with metered as meter, started(resolved, orders, job, own, meter and meter.rest) as head.ranks:
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


def _ending(words: Sequence[Any]) -> Ending:
    """Return how another task's rank ended. Raises TypeError or ValueError for what is no ending."""
    whole, text, number = (int, type(None)), (str, type(None)), (int, float, type(None))
    ending, kinds = Ending(*words), (whole, text, whole, (bool,), number, whole, (bool,), text)
    right = all(isinstance(value, kind) for value, kind in zip(ending, kinds))
    if not right or ending.stopped_by not in (None, *STOPS):
        raise ValueError(f"no ending: {words}")
    return ending


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


def _missing(launch: Launch, own: Hello, followers: Sequence[Follower]) -> str:
    arrived = [own, *(follower.hello for follower in followers)]
    absent = sorted(set(range(launch.tasks)) - {hello.task for hello in arrived})
    silent = [node for node in launch.nodes if node not in {hello.node for hello in arrived}]
    where = f", and nobody on {', '.join(silent[:20])}" if silent else ""
    numbers = ", ".join(map(str, absent[:20]))
    return f"tasks {numbers} of {launch.tasks} did not arrive{where}: look at what they wrote to standard error"
