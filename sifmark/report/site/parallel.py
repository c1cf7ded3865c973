"""Work in several processes: reading results and drawing charts take most of the time of a site."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from sifmark.core.errors import SifmarkError

MOST_PROCESSES = 4  # each takes 60 to 130 MB

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def in_processes(
    function: Callable[[Sequence[Item]], list[Answer]], items: Sequence[Item], at_once: int, processes: int = 0
) -> Iterator[Answer]:
    """Yield what a function returns for items, in their order, `at_once` of them in a call.

    One call needs no process. The default is a process for each usable processor, but no more than MOST_PROCESSES.
    """
    parts = [items[place : place + at_once] for place in range(0, len(items), at_once)]
    processes = min(processes or usable_processors(), MOST_PROCESSES, len(parts))
    if processes <= 1:
        for part in parts:
            yield from function(part)
        return
    # Forked, so that what has been loaded is shared: schemas and rules.
    with ProcessPoolExecutor(processes, get_context("fork"), _leave_interrupts_to_parent) as pool:
        try:
            for answers in pool.map(function, parts):
                yield from answers
        except BrokenProcessPool as error:
            cause = "a process that made a part of the site was ended from outside"
            raise SifmarkError(cause, "is there enough memory? free some, then try again", code="run-failed") from error


def usable_processors() -> int:
    """Return on how many processors this process may run."""
    return len(os.sched_getaffinity(0))


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
