"""A goal of training: what is evaluated, how often, and when it is reached."""

from __future__ import annotations

import time
from typing import Callable, Iterable, TypedDict

from entrypoints.messages import Evaluated, Message
from entrypoints.session import Batch, Session
from entrypoints.statuses import RunError


class Goal(TypedDict):
    """What `metric` is to reach: an accuracy at least, a loss at most."""

    metric: str  # accuracy or loss
    value: float
    evaluation_steps: int  # training steps from one evaluation to the next


def reached(goal: Goal, found: Evaluated) -> bool:
    """Whether an evaluation reached the goal; a number that is none reaches nothing."""
    if goal["metric"] == "accuracy":
        return found.accuracy is not None and found.accuracy >= goal["value"]
    return found.loss <= goal["value"]


class Pursuit:
    """Evaluates a session every so many steps of training, until the goal is reached."""

    def __init__(
        self, goal: Goal, session: Session, batches: Callable[[], Iterable[Batch]], send: Callable[[Message], None]
    ) -> None:
        self.goal, self.session, self.batches, self.send = goal, session, batches, send
        self.evaluated_at = 0  # steps of training before the last evaluation
        self.reached = False
        self.skipped: set[str] = set()  # samples that could not be read

    def due(self, steps: int) -> bool:
        """Whether it is time for an evaluation, after so many steps."""
        return steps % self.goal["evaluation_steps"] == 0

    def evaluate(self, steps: int) -> None:
        """Evaluate what `steps` of training made of the model. The device is idle before and after."""
        began, samples, loss, right = time.monotonic(), 0, 0.0, 0
        labelled = True
        for batch in self.batches():
            self.skipped.update(batch.skipped)
            if batch.inputs is None:
                continue  # nothing of it can be read
            found = self.session.evaluate(batch)
            samples += found.samples
            loss += found.loss * found.samples
            labelled = labelled and found.right is not None
            right += found.right or 0
        if not samples:
            raise RunError("data_error", "no sample to evaluate can be read")
        accuracy = right / samples if labelled else None
        told = Evaluated(steps, began, time.monotonic(), samples, loss / samples, accuracy)
        self.send(told)
        self.evaluated_at, self.reached = steps, reached(self.goal, told)
