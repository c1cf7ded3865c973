"""The ranks of a run on this node: read in one loop, ended by the first that fails, and never left behind."""

from __future__ import annotations

import json
import select
import time
from typing import Callable, Iterator, NamedTuple, Sequence

from entrypoints.contract.group import Place
from entrypoints.contract.messages import Failed, Message, Rendezvous
from entrypoints.planning.configuration import Configuration
from entrypoints.results.outcome import Ending, Outcome, determine_outcome, first_cause
from entrypoints.runs.supervise import TICK, Child, Orders
from entrypoints.system.parent_death import adopt_orphans, children, kill_orphans


class Rank(NamedTuple):
    """What a rank reported, and how it ended."""

    messages: list[Message]
    ending: Ending


def converse(
    configuration: Configuration, orders: Orders, job: str = "run", follow: Callable[[Message], None] = lambda _: None
) -> list[Rank]:
    """Return what each rank reported and how it ended; `follow` gets each message of the first one as it arrives."""
    world, others = configuration.ranks, children()
    ranks: list[Child] = []
    heard: list[list[Message]] = [[] for _ in range(world)]
    adopt_orphans()
    try:
        ranks += (Child(configuration, orders, job, Place(rank, world, rank, world)) for rank in range(world))
        for rank, message in _arrivals(ranks):
            if isinstance(message, Rendezvous):
                for other in ranks[1:]:
                    other.tell(json.dumps(message), last=True)
                continue
            heard[rank].append(message)
            if rank == 0:
                follow(message)
        return [Rank(messages, child.ending()) for messages, child in zip(heard, ranks)]
    except OSError as error:  # no process, or no file descriptor for it
        heard[0].append(Failed("crashed", f"the workload's process could not be started or read: {error.strerror}"))
        nothing = Ending(returncode=None, stopped_by=None, signal=None, oom_killed=False)
        return [Rank(messages, nothing) for messages in heard]
    finally:
        for child in ranks:
            child.reap()
        # Children in sessions of their own are in no process group of a rank's.
        kill_orphans({*others, *(child.process.pid for child in ranks)})


def ended(ranks: Sequence[Rank]) -> Outcome:
    """Return how the run of some ranks ended: as the first cause of what its ranks report."""
    outcomes = [(determine_outcome(*rank), rank.ending.abandoned) for rank in ranks]
    return outcomes[0][0] if len(outcomes) == 1 else first_cause(outcomes)


def _arrivals(ranks: Sequence[Child]) -> Iterator[tuple[int, Message]]:
    """Yield messages with the number of their rank until all ranks are gone. The failure of a rank ends the others."""
    running = dict(enumerate(ranks))
    while running:
        for child in running.values():
            child.keep_order()
        ready = set(select.select([child.stream for child in running.values()], [], [], TICK)[0])
        for rank, child in list(running.items()):
            if child.stream in ready:
                yield from ((rank, message) for message in child.receive())
            elif child.silent():
                child.open = False
            if not child.open:
                del running[rank]
                child.reap()
        if any(child.failed for child in ranks):
            for child in running.values():
                child.abandon()
        if ready and not any(child.full or child.reported_end for child in running.values()):
            time.sleep(max((child.rest for child in running.values()), default=0.0))
