"""How long the threads of this process ran, and how long they waited for a processor. Linux with schedstat."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, NamedTuple

TASKS = Path("/proc/self/task")


class ThreadTime(NamedTuple):
    """Seconds that a thread, or several together, spent on a processor and waiting for one while runnable."""

    running: float
    waiting: float


ThreadTimes = Dict[str, ThreadTime]  # by thread identifier


def thread_times(tasks: Path = TASKS) -> ThreadTimes:
    """Return the times of all threads of this process; of none where the kernel does not count them.

    Source: /proc/<pid>/schedstat in Documentation/scheduler/sched-stats.rst of Linux, in ns.
    """
    times = {}
    for thread in tasks.glob("*"):
        try:
            running, waiting = map(int, (thread / "schedstat").read_text().split()[:2])
        except (OSError, ValueError):  # the thread has ended, or the kernel does not count
            continue
        times[thread.name] = ThreadTime(running / 1e9, waiting / 1e9)
    return times


def elapsed(before: ThreadTimes, after: ThreadTimes) -> ThreadTime:
    """Return what all threads together spent between two readings; threads that ended in between are left out."""
    none = ThreadTime(0.0, 0.0)
    gains = [(time, before.get(name, none)) for name, time in after.items()]
    return ThreadTime(
        sum(time.running - earlier.running for time, earlier in gains),
        sum(time.waiting - earlier.waiting for time, earlier in gains),
    )
