"""The measuring loop: steps a session, times each step, and never makes an asynchronous device wait for it."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Callable, Iterator, NamedTuple

from entrypoints.configuration import Configuration
from entrypoints.messages import Message, Phase, Skipped, Step
from entrypoints.session import Batch, Session, StepReport
from entrypoints.statuses import RunError

# Reading a loss makes an asynchronous device catch up, so there it is read only every so many steps.
LOSS_INTERVAL = 50


class Taken(NamedTuple):
    """A step that was handed to the device, between two marks."""

    number: int  # from 1
    began: object
    done: object
    wait: float
    report: StepReport


class Loop:
    """Steps over one session.

    A step is timed from the end of the one before it to its own end: the times add up to the wall time, waits
    for data included.
    """

    def __init__(self, session: Session, task: str, batches: Iterator[Batch], send: Callable[[Message], None]) -> None:
        self.session, self.batches, self.send = session, batches, send
        self.call = session.train if task == "training" else session.infer
        self.last = session.mark()
        self.untold: deque[Taken] = deque()
        self.skipped: set[str] = set()
        self.steps = 0
        self.seconds = 0.0  # of the steps told in this phase

    def run(self, configuration: Configuration) -> None:
        """All phases from the first step on. Raises RunError (`non_finite`) when a loss is no number."""
        self.phase("compile", lambda: self.steps >= 1)
        self.phase("warmup", lambda: self.steps >= configuration.warmup_steps)
        self.phase("steady", lambda: self.enough(configuration))

    def enough(self, configuration: Configuration) -> bool:
        """Whether the timed window is as long as was asked for."""
        if configuration.steps is not None:
            return self.steps >= configuration.steps
        return self.seconds >= (configuration.duration_seconds or 0.0)

    def phase(self, name: str, over: Callable[[], bool]) -> None:
        """Step until `over`. The device is idle at both edges."""
        self.send(Phase(name, time.monotonic()))
        self.seconds = 0.0
        while not over():
            self.step()
            self.tell()
        self.settle()

    def settle(self) -> None:
        """Wait for the device and tell all that it has done."""
        self.session.synchronise()
        self.tell()

    def step(self) -> None:
        """Fetch a batch and hand it to the device."""
        asked = time.perf_counter()
        batch = next(self.batches)
        wait = time.perf_counter() - asked
        report = self.call(batch)
        done = self.session.mark()
        self.steps += 1
        self.untold.append(Taken(self.steps, self.last, done, wait, report))
        self.last = done
        for path in set(batch.skipped) - self.skipped:
            self.skipped.add(path)
            self.send(Skipped(path))

    def tell(self) -> None:
        """Send the steps that the device has finished."""
        while self.untold:
            taken = self.untold[0]
            seconds = self.session.seconds_between(taken.began, taken.done)
            if seconds is None:
                return
            self.untold.popleft()
            self.seconds += seconds
            loss = self.loss(taken)
            self.send(Step(seconds, taken.wait, taken.report.units, taken.report.updates, loss))
            if loss is not None and not math.isfinite(loss):
                raise RunError("non_finite", f"the loss became {loss}; see metrics.final_loss for the last finite one")

    def loss(self, taken: Taken) -> float | None:
        """Loss of a finished step, where reading it is free or due."""
        due = not self.session.asynchronous or not self.untold or taken.number % LOSS_INTERVAL == 0
        return taken.report.loss() if taken.report.loss and due else None
