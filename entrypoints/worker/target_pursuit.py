"""The pursuit of a goal of training: what is evaluated, how often, and until when."""

from __future__ import annotations

import time
from typing import Callable, Iterable, NamedTuple

from entrypoints.contract.messages import Evaluated, Message
from entrypoints.contract.session import Batch, Session
from entrypoints.contract.statuses import RunError
from entrypoints.contract.target import Goal, Grader, Quality, reached


class Evaluation(NamedTuple):
    """What is evaluated: its batches, and what grades the answers where they have to be read."""

    batches: Callable[[], Iterable[Batch]]
    grader: Callable[[], Grader | None] = lambda: None


class TargetPursuit:
    """Evaluates a session every so many steps of training, until the goal is reached."""

    def __init__(self, goal: Goal, session: Session, judging: Evaluation, send: Callable[[Message], None]) -> None:
        self.goal, self.session, self.evaluation, self.send = goal, session, judging, send
        self.evaluated_at = 0  # steps of training before the last evaluation
        self.reached = False
        self.skipped: set[str] = set()  # samples that could not be read

    def due(self, steps: int) -> bool:
        """Whether it is time for an evaluation, after so many steps."""
        return steps % self.goal["evaluation_steps"] == 0

    def evaluate(self, steps: int) -> None:
        """Evaluate what `steps` of training made of the model. The device is idle before and after."""
        began, samples, loss, right = time.monotonic(), 0, 0.0, 0
        labelled, grader = True, self.evaluation.grader()
        for batch in self.evaluation.batches():
            self.skipped.update(batch.skipped)
            if batch.inputs is None:
                continue  # nothing of it can be read
            found = self.session.evaluate(batch)
            samples += found.samples
            loss += found.loss * found.samples
            labelled = labelled and found.right is not None
            right += found.right or 0
            if grader and found.output is not None:
                grader.add(batch.numbers, found.output)
        if not samples:
            raise RunError("data_error", "no sample to evaluate can be read")
        accuracy = right / samples if labelled else None
        quality = grader.quality() if grader else Quality()
        told = Evaluated(steps, began, time.monotonic(), samples, loss / samples, accuracy, *quality)
        self.send(told)
        self.evaluated_at, self.reached = steps, reached(self.goal, told)
