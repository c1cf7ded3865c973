"""The measuring loop: it steps a session and times each step, and never makes an asynchronous device wait."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Callable, Iterator, NamedTuple

from entrypoints.contract.cards import Card
from entrypoints.contract.messages import Message, Step
from entrypoints.contract.session import Batch, Session, StepReport
from entrypoints.contract.statuses import RunError
from entrypoints.planning.configuration import Configuration
from entrypoints.worker import run_checks
from entrypoints.worker.phases import PhasedRun, data_wait
from entrypoints.worker.target_pursuit import TargetPursuit

# Reading a loss makes an asynchronous device catch up, so its loss is read only at this interval of steps.
LOSS_INTERVAL = 50
# Steps that the device may be behind the host. Each one holds its batch in memory, and all are waited for at the end.
AHEAD = 2


class PendingStep(NamedTuple):
    """A step that was handed to the device, between two marks.

    Two others are where its batch was fetched on the host, and where it had arrived on the device.
    """

    number: int  # from 1
    began: object
    fetched: object
    ready: object
    done: object
    wait: float
    report: StepReport
    batch: Batch


class Loop(PhasedRun):
    """A loop of steps over one session.

    A step is timed from the end of the step before to its own end, so that the times add up to the wall time, including
    waits for data.
    """

    def __init__(
        self,
        session: Session,
        task: str,
        batches: Iterator[Batch],
        send: Callable[[Message], None],
        card: Card,
        precision: str,
        pursuit: TargetPursuit | None = None,
    ) -> None:
        super().__init__(send)
        self.session, self.batches, self.card, self.precision, self.pursuit = session, batches, card, precision, pursuit
        self.call = session.train if task == "training" else session.infer
        self.last: object = None  # the end of the step before; None if the next step follows no other
        self.pending: deque[PendingStep] = deque()
        self.first: tuple[Batch, StepReport] | None = None  # the first step, while it is checked

    def run(self, configuration: Configuration) -> None:
        """Run all phases; if there is a target, evaluate once more at the end."""
        super().run(configuration)
        if self.pursuit and self.pursuit.evaluated_at != self.steps:
            self.evaluate(self.pursuit)

    def phase(self, name: str, over: Callable[[], bool]) -> None:
        """Step until `over`. The device is idle at the start and at the end."""
        super().phase(name, over)
        self.settle()

    def advance(self) -> None:
        """Do one step, and an evaluation if it is due. Raises RunError (`non_finite`) if a loss is not finite."""
        self.step()
        self.report_finished()
        if self.pursuit and self.pursuit.due(self.steps):
            self.evaluate(self.pursuit)

    def evaluate(self, pursuit: TargetPursuit) -> None:
        """Evaluate between two steps."""
        self.settle()
        if self.steps == 1:  # the session shows its first step only until it computes something else
            self.check_steps()
        pursuit.evaluate(self.steps, self.group)
        self.reached = pursuit.reached
        self.report_skipped(pursuit.skipped)
        self.resume()

    def check_steps(self) -> None:
        """Check that the first step trained the whole network, or that its output is that of a request."""
        if self.first is None:
            return
        batch, report = self.first
        if report.loss:
            self.check("gradients", lambda: run_checks.gradients(self.session, self.card, report.samples))
            self.check("samples", lambda: run_checks.samples(self.session.observed(), report))
            self.check("dropout", lambda: run_checks.dropout(self.session.observed(), self.card))
        else:
            self.check("answers", lambda: run_checks.answers(self.session, batch, report, self.precision))
        # Gradients that overflowed are looked at again after the warm-up.
        self.first = self.first if report.loss and "gradients" not in self.checked and self.steps == 1 else None
        self.resume()

    def resume(self) -> None:
        """Let the next step begin when it is handed to the device."""
        self.last = None

    def settle(self) -> None:
        """Wait for the device and report all finished steps."""
        self.session.synchronise()
        self.report_finished()

    def step(self) -> None:
        """Fetch a batch and hand it to the device, once that has done the step before the last one."""
        if len(self.pending) >= AHEAD:
            self.session.wait(self.pending[-AHEAD].done)
        if self.last is None:
            self.last = self.session.mark()
        fetch_start = time.perf_counter()
        fed = next(self.batches)
        wait, fetched = time.perf_counter() - fetch_start, self.session.mark()
        batch = self.session.receive(fed)
        ready = self.session.mark()
        report = self.call(batch)
        done = self.session.mark()
        # Without the batch's tensors: the device may be far behind, and queued steps must not hold memory.
        counts = batch._replace(inputs=(), targets=())
        if not self.steps:
            self.first = counts if report.loss else batch, report
        self.steps += 1
        self.pending.append(PendingStep(self.steps, self.last, fetched, ready, done, wait, report, counts))
        self.last = done
        self.report_skipped(batch.skipped)

    def report_finished(self) -> None:
        """Send the steps that the device has finished."""
        while self.pending:
            step = self.pending[0]
            seconds = self.session.seconds_between(step.began, step.done)
            if seconds is None:
                return
            self.pending.popleft()
            self.seconds += seconds
            loss, report, batch = self.loss(step), step.report, step.batch
            counts = (batch.decode_seconds, batch.tokens, batch.padding)
            idle, arriving = (
                self.session.seconds_between(*marks) or 0.0
                for marks in ((step.began, step.fetched), (step.fetched, step.ready))
            )
            wait = min(data_wait(step.wait, idle) + arriving, seconds)
            self.send(Step(seconds, wait, report.samples, report.done_updates, loss, None, *counts))
            if loss is not None and not math.isfinite(loss):
                raise RunError("non_finite", f"the loss became {loss}; see metrics.final_loss for the last finite one")

    def loss(self, step: PendingStep) -> float | None:
        """Return the loss of a finished step, or None if reading it is neither free nor due."""
        due = not self.session.asynchronous or not self.pending or step.number % LOSS_INTERVAL == 0
        return step.report.loss() if step.report.loss and due else None
