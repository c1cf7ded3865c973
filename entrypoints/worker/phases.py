"""The phases of a run from its first step on, and when each of them ends."""

from __future__ import annotations

import math
import time
from typing import Callable, Iterable

from entrypoints.contract.group import JoinedRanks
from entrypoints.contract.messages import Message, Phase, RunCheck, Scheduled, Skipped
from entrypoints.contract.session import Executed
from entrypoints.planning.configuration import Configuration
from entrypoints.system.openmp import runtimes
from entrypoints.system.scheduling import elapsed, thread_times
from entrypoints.worker.run_checks import Faults

SHORTEST = 1e-6  # s, taken for the time of a step of which there is none


class PhasedRun:
    """A run in phases: the first step, the warm-up and the timed window. Subclasses make the steps."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self.send = send
        self.group: JoinedRanks | None = None  # the ranks of the run, if there are several
        self.untimed, self.warmup_pace = 0, math.inf  # steps before the timed window, and s of each after the first
        self.until = 0  # steps that the ranks agreed on, for a window of a given length
        self.steps = 0
        self.seconds = 0.0  # of the steps reported in this phase
        self.skipped: set[str] = set()
        self.checked: set[str] = set()  # names of the checks that were reported
        self.at_edge: Callable[[], None] = lambda: None  # called when the timed window begins, and when it has ended
        self.reached = False  # whether a target was reached before the requested end
        self.executed: Callable[[], Executed | None] = lambda: None  # how the model was run in fact, if that is known

    def run(self, configuration: Configuration) -> None:
        """Run all phases from the first step on."""
        self.phase("compile", lambda: self.steps >= 1)
        self.check_steps()
        self.phase("warmup", lambda: self.reached or self.steps >= configuration.warmup_steps)
        self.check_steps()
        self.report_execution()
        self.untimed = self.until = self.steps
        warmed_up = self.steps - 1  # the first step is another phase's
        self.warmup_pace = max(self.seconds / warmed_up, SHORTEST) if warmed_up else math.inf
        self.at_edge()
        before = thread_times()
        self.phase("steady", lambda: self.enough(configuration))
        ended = self.edge()  # asking for the times of many threads takes longer than 1 % of a short window
        self.send(Scheduled(ended, *elapsed(before, thread_times()), runtimes()))
        self.at_edge()
        self.report_execution()

    def enough(self, configuration: Configuration) -> bool:
        """Return whether the timed window is as long as requested, or the target is reached."""
        if self.reached:
            return True
        if configuration.steps is not None:
            return self.steps >= configuration.steps
        duration = configuration.duration_seconds or 0.0
        return self.seconds >= duration if self.group is None else self.enough_for_all(self.group, duration)

    def enough_for_all(self, group: JoinedRanks, duration: float) -> bool:
        """Return whether the timed window is long enough for the first rank. Otherwise all agree on more steps.

        So few times that it costs nothing: each time as many steps as the window seems to lack.
        """
        if self.steps < self.until:
            return False
        self.settle()
        timed = self.steps - self.untimed
        pace = self.seconds / timed if timed else self.warmup_pace
        lacking = duration - self.seconds
        self.until = self.steps + int(group.agree([max(1, round(lacking / pace)) if lacking > 0 else 0])[0])
        return self.steps >= self.until

    def phase(self, name: str, over: Callable[[], bool]) -> None:
        """Advance until `over`. Ranks begin together."""
        if self.group:
            self.group.meet()
            self.resume()
        self.send(Phase(name, self.edge()))
        self.seconds = 0.0
        while not over():
            self.advance()

    def resume(self) -> None:
        """Let the next step begin now: what came before is no part of it."""

    def check_steps(self) -> None:
        """Check what the untimed steps did: after the first one, and for what it does not show after the last one."""

    def report_execution(self) -> None:
        """Report how the model was run, before the timed window and again after it. It is no part of a phase."""
        executed = self.executed()
        if executed is not None:
            self.send(executed)
            self.resume()

    def check(self, name: str, examine: Callable[[], Faults]) -> None:
        """Report a check, unless it was reported before or there is nothing to check. It is no part of a phase."""
        began = time.monotonic()
        faults = None if name in self.checked else examine()
        if faults is not None:
            self.checked.add(name)
            self.send(RunCheck(name, began, time.monotonic(), faults))

    def edge(self) -> float:
        """Return when the next phase begins, on the monotonic clock (s)."""
        return time.monotonic()

    def advance(self) -> None:
        """Advance by one step, and report what has finished."""
        raise NotImplementedError

    def settle(self) -> None:
        """Report everything that was done."""
        raise NotImplementedError

    def report_skipped(self, paths: Iterable[str]) -> None:
        """Send the names of files that could not be read, each once."""
        for path in set(paths) - self.skipped:
            self.skipped.add(path)
            self.send(Skipped(path))


def data_wait(fetching: float, idle: float) -> float:
    """Return the seconds that the device waited for a batch: those of fetching it, but at most those it was idle."""
    return min(fetching, idle)
