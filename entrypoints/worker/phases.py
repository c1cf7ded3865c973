"""The phases of a run from its first step on, and where each of them ends."""

from __future__ import annotations

import time
from typing import Callable, Iterable

from entrypoints.contract.messages import Message, Phase, Skipped
from entrypoints.planning.configuration import Configuration


class PhasedRun:
    """What makes steps or has them made, phase by phase: a first one alone, those of the warm-up, the timed ones."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self.send = send
        self.steps = 0
        self.seconds = 0.0  # of the steps told in this phase
        self.skipped: set[str] = set()
        self.reached = False  # a goal, before the end that was asked for

    def run(self, configuration: Configuration) -> None:
        """All phases from the first step on."""
        self.phase("compile", lambda: self.steps >= 1)
        self.phase("warmup", lambda: self.reached or self.steps >= configuration.warmup_steps)
        self.phase("steady", lambda: self.enough(configuration))

    def enough(self, configuration: Configuration) -> bool:
        """Whether the timed window is as long as was asked for, or needs to be."""
        if self.reached:
            return True
        if configuration.steps is not None:
            return self.steps >= configuration.steps
        return self.seconds >= (configuration.duration_seconds or 0.0)

    def phase(self, name: str, over: Callable[[], bool]) -> None:
        """Advance until `over`."""
        self.send(Phase(name, self.edge()))
        self.seconds = 0.0
        while not over():
            self.advance()

    def edge(self) -> float:
        """When the phase that comes now begins, on the monotonic clock (s)."""
        return time.monotonic()

    def advance(self) -> None:
        """Get on by a step, and tell what is known by then."""
        raise NotImplementedError

    def settle(self) -> None:
        """Tell all that was done."""
        raise NotImplementedError

    def report_skipped(self, paths: Iterable[str]) -> None:
        """Send the names of files that could not be read, each once."""
        for path in set(paths) - self.skipped:
            self.skipped.add(path)
            self.send(Skipped(path))


def data_wait(fetching: float, idle: float) -> float:
    """Seconds that a batch held the device up: of those that fetching took, no more than the device was idle."""
    return min(fetching, idle)
