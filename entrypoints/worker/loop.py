"""The measuring loop: steps a session, times each step, and never makes an asynchronous device wait for it."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Callable, Iterator, NamedTuple

from entrypoints.contract.messages import Message, Step
from entrypoints.contract.session import Batch, Session, StepReport
from entrypoints.contract.statuses import RunError
from entrypoints.planning.configuration import Configuration
from entrypoints.worker.phases import PhasedRun, data_wait
from entrypoints.worker.target_pursuit import TargetPursuit

# Reading a loss makes an asynchronous device catch up, so there it is read only every so many steps.
LOSS_INTERVAL = 50


class PendingStep(NamedTuple):
    """A step that was handed to the device, between two marks; a third says when its batch was there."""

    number: int  # from 1
    began: object
    ready: object
    done: object
    wait: float
    report: StepReport
    batch: Batch


class Loop(PhasedRun):
    """Steps over one session.

    A step is timed from the end of the one before it to its own end: the times add up to the wall time, waits
    for data included.
    """

    def __init__(
        self,
        session: Session,
        task: str,
        batches: Iterator[Batch],
        send: Callable[[Message], None],
        pursuit: TargetPursuit | None = None,
    ) -> None:
        super().__init__(send)
        self.session, self.batches, self.pursuit = session, batches, pursuit
        self.call = session.train if task == "training" else session.infer
        self.last: object = None  # the end of the step before; None where the next one follows on none
        self.pending: deque[PendingStep] = deque()

    def run(self, configuration: Configuration) -> None:
        """All phases, and where a goal is pursued a last evaluation."""
        super().run(configuration)
        if self.pursuit and self.pursuit.evaluated_at != self.steps:
            self.evaluate(self.pursuit)

    def phase(self, name: str, over: Callable[[], bool]) -> None:
        """Step until `over`. The device is idle at both edges."""
        super().phase(name, over)
        self.settle()

    def advance(self) -> None:
        """One step, and an evaluation where it is due. Raises RunError (`non_finite`) when a loss is no number."""
        self.step()
        self.report_finished()
        if self.pursuit and self.pursuit.due(self.steps):
            self.evaluate(self.pursuit)

    def evaluate(self, pursuit: TargetPursuit) -> None:
        """Evaluate between two steps."""
        self.settle()
        pursuit.evaluate(self.steps)
        self.reached = pursuit.reached
        self.report_skipped(pursuit.skipped)
        self.last = None  # what was evaluated is no part of the next step

    def settle(self) -> None:
        """Wait for the device and tell all that it has done."""
        self.session.synchronise()
        self.report_finished()

    def step(self) -> None:
        """Fetch a batch and hand it to the device."""
        if self.last is None:
            self.last = self.session.mark()
        asked = time.perf_counter()
        batch = next(self.batches)
        wait, ready = time.perf_counter() - asked, self.session.mark()
        report = self.call(batch)
        done = self.session.mark()
        self.steps += 1
        # The batch without its tensors: the device may be far behind, and memory is not to hold what it has read.
        counts = batch._replace(inputs=(), targets=())
        self.pending.append(PendingStep(self.steps, self.last, ready, done, wait, report, counts))
        self.last = done
        self.report_skipped(batch.skipped)

    def report_finished(self) -> None:
        """Send the steps that the device has finished."""
        while self.pending:
            taken = self.pending[0]
            seconds = self.session.seconds_between(taken.began, taken.done)
            if seconds is None:
                return
            self.pending.popleft()
            self.seconds += seconds
            loss, report, batch = self.loss(taken), taken.report, taken.batch
            told = (batch.decode_seconds, batch.tokens, batch.padding)
            wait = data_wait(taken.wait, self.session.seconds_between(taken.began, taken.ready) or 0.0)
            self.send(Step(seconds, wait, report.samples, report.updates, loss, None, *told))
            if loss is not None and not math.isfinite(loss):
                raise RunError("non_finite", f"the loss became {loss}; see metrics.final_loss for the last finite one")

    def loss(self, taken: PendingStep) -> float | None:
        """Loss of a finished step, where reading it is free or due."""
        due = not self.session.asynchronous or not self.pending or taken.number % LOSS_INTERVAL == 0
        return taken.report.loss() if taken.report.loss and due else None
