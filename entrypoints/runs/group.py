"""The ranks of a run: read in one loop, ended by the first that fails, and never left behind."""

from __future__ import annotations

import contextlib
import select
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterator, NamedTuple, Protocol, Sequence

from entrypoints.contract.group import LOOPBACK, Place
from entrypoints.contract.messages import Ended, Failed, Message, Rendezvous
from entrypoints.planning.configuration import Configuration
from entrypoints.results.outcome import Ending, Outcome, determine_outcome, first_cause
from entrypoints.results.power import Consumed
from entrypoints.runs.supervise import TICK, Child, Orders
from entrypoints.system.parent_death import adopt_orphans, children, kill_orphans

Beat = Callable[[Sequence[int]], None]  # gets the processes of this task's ranks
NOT_STARTED = Ending(returncode=None, stopped_by=None, signal=None, oom_killed=False)


class Rank(NamedTuple):
    """What a rank reported, and how it ended."""

    messages: list[Message]
    ending: Ending


class RankSource(Protocol):
    """Where messages of ranks come from: a child, or another task of the launch."""

    stream: Any  # for select
    open: bool  # whether more may arrive
    failed: bool  # whether a rank has failed, or is gone without a word
    reported_end: bool
    rest: float  # s that it may be left alone, so that reading costs less

    @property
    def full(self) -> bool:
        """Whether more has arrived than was read."""

    def keep_order(self) -> None:
        """Act on signals and the time limit."""

    def receive(self) -> Iterator[tuple[int, Message]]:
        """Yield messages with the number of their rank, once there is something to read."""

    def silent(self) -> bool:
        """Return whether nothing can arrive any more."""

    def meet(self, where: Sequence[Rendezvous]) -> None:
        """Pass on where ranks wait."""

    def abandon(self) -> None:
        """Let the ranks end, since another one has failed."""

    def reap(self) -> None:
        """Leave nothing behind."""


class OtherTask(RankSource, Protocol):
    """Another task of the launch, which starts ranks too."""

    endings: dict[int, Ending]  # of the ranks that are done
    consumed: Consumed  # by their devices, once they are done

    def assign(self, job: str, configuration: Configuration, places: Sequence[Place]) -> None:
        """Give it its ranks of a job."""


class Site(NamedTuple):
    """Where a task runs: its host, and the processors that it may use, such as 0-3,8."""

    host: str
    processors: str


@dataclass(frozen=True)
class Team:
    """The tasks of a launch, of which this is the first one: where each runs, and how they reach this node."""

    sites: Sequence[Site] = (Site("", ""),)
    others: Sequence[OtherTask] = ()
    address: str = LOOPBACK

    def assign(self, job: str, configuration: Configuration) -> Sequence[Place]:
        """Give the other tasks their ranks of a job; return the places of this one's."""
        own, *shares = places(self.sites, configuration.ranks, self.address)
        for other, share in zip(self.others, shares):
            other.assign(job, configuration, share)
        return own

    def parts(self, configuration: Configuration) -> int:
        """Return into how many parts ranks divide what this task may use of its host."""
        return int(places(self.sites, configuration.ranks, self.address)[0][0].share[1])


NOBODY_ELSE = Team()


def places(sites: Sequence[Site], world: int, address: str) -> list[list[Place]]:
    """Return the places of the ranks of each task.

    Tasks of a host divide its processors, unless the launcher has given them different ones.
    """
    local = world // len(sites)
    shared = []
    for task, site in enumerate(sites):
        beside = [other for other in sites if other.host == site.host]
        before = local * sum(other.host == site.host for other in sites[:task])
        bound, on_host = len({other.processors for other in beside}) > 1, local * len(beside)
        shared.append(
            [
                Place(
                    rank=task * local + number,
                    world=world,
                    local_rank=before + number,
                    local_world=on_host,
                    address=address,
                    share=(number, local) if bound else (before + number, on_host),
                )
                for number in range(local)
            ]
        )
    return shared


def quiet(_processes: Sequence[int]) -> None:
    """Show no sign of life."""


def converse(
    configuration: Configuration,
    orders: Orders,
    places: Sequence[Place],
    job: str = "run",
    follow: Callable[[Message], None] = lambda _: None,
    team: Team = NOBODY_ELSE,
    beat: Beat = quiet,
    rest: Callable[[], None] | None = None,
) -> list[Rank]:
    """Return what each rank reported and how it ended.

    `follow` gets each message of the first one as it arrives, `beat` the processes of this task's ranks again and
    again. If there is a `rest`, it is called while ranks import their framework, and they begin after it.
    """
    others = team.others
    heard: list[list[Message]] = [[] for _ in range(configuration.ranks)]
    endings: dict[int, Ending] = {}
    waiting: dict[int, Rendezvous] = {}
    done: set[int] = set()
    try:
        with started(configuration, orders, job, places, rest) as own:
            sources: list[RankSource] = [*own, *others]
            processes = [child.process.pid for child in own]
            for rank, message in arrivals(sources, beat=lambda: beat(processes)):
                if isinstance(message, Rendezvous):
                    waiting[rank] = message
                    if len(waiting) == (configuration.ranks if message.everyone else 1):
                        for source in sources:
                            source.meet([waiting[rank] for rank in sorted(waiting)])
                    continue
                heard[rank].append(message)
                if rank == 0:
                    follow(message)
                if isinstance(message, (Ended, Failed)):
                    done.add(rank)
                    if isinstance(message, Failed) or done >= set(range(1, configuration.ranks)):
                        own[0].dismiss()
            endings.update({child.rank: child.ending() for child in own})
            for other in others:
                endings.update(other.endings)
    except OSError as error:  # no process, or no file descriptor for it
        heard[0].append(Failed("crashed", f"the workload's process could not be started or read: {error.strerror}"))
    return [Rank(messages, endings.get(rank, NOT_STARTED)) for rank, messages in enumerate(heard)]


@contextlib.contextmanager
def started(
    configuration: Configuration,
    orders: Orders,
    job: str,
    places: Sequence[Place],
    rest: Callable[[], None] | None = None,
) -> Iterator[Sequence[Child]]:
    """Start a child at each place; at the end leave none of them behind, nor what they have started.

    If there is a `rest`, it is called while they import their framework, and they begin after it.
    """
    others = children()
    ranks: list[Child] = []
    adopt_orphans()
    try:
        ranks.extend(Child(configuration, orders, job, place, waits=rest is not None) for place in places)
        if rest:
            rest()
            for child in ranks:
                child.begin()
        yield ranks
    finally:
        for child in ranks:
            child.reap()
        # Children in sessions of their own are in no process group of a rank's.
        kill_orphans({*others, *(child.process.pid for child in ranks)})


def arrivals(
    sources: Sequence[RankSource], head: RankSource | None = None, beat: Callable[[], None] = lambda: None
) -> Iterator[tuple[int, Message]]:
    """Yield messages with the number of their rank until all sources are done. A failure ends the others.

    The `head` of a launch, if this is another task of it, is listened to as well. `beat` is called at least every
    TICK or two, also without any message.
    """
    running = list(sources)
    while running:
        beat()
        for source in running:
            source.keep_order()
        listened = [*running, *([head] if head and head.open else [])]
        ready = set(select.select([source.stream for source in listened], [], [], TICK)[0])
        for source in listened:
            if source.stream in ready:
                yield from source.receive()
            elif source.silent():
                source.open = False
            if not source.open and source in running:
                running.remove(source)
                source.reap()
        if any(source.failed for source in (*sources, *([head] if head else []))):
            for source in running:
                source.abandon()
        if ready and not any(source.full or source.reported_end for source in running):
            time.sleep(max((source.rest for source in running), default=0.0))


def ended(ranks: Sequence[Rank]) -> Outcome:
    """Return how the run of some ranks ended: as the first cause of what its ranks report."""
    outcomes = [(determine_outcome(*rank), rank.ending.abandoned) for rank in ranks]
    return outcomes[0][0] if len(outcomes) == 1 else first_cause(outcomes)
