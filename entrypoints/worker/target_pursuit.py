"""Training until a target: what is evaluated, how often, and for how long."""

from __future__ import annotations

import time
from typing import Callable, Iterable, NamedTuple

from entrypoints.contract.messages import Evaluated, Message
from entrypoints.contract.session import Batch, Session
from entrypoints.contract.statuses import RunError
from entrypoints.contract.target import AnswerGrader, Quality, Target, reached


class Evaluation(NamedTuple):
    """What is evaluated: its batches, and the grader of answers if they have to be read."""

    batches: Callable[[], Iterable[Batch]]
    grader: Callable[[], AnswerGrader | None] = lambda: None


class TargetPursuit:
    """Evaluates a session at intervals of training steps, until the target is reached."""

    def __init__(
        self, target: Target, session: Session, evaluation: Evaluation, send: Callable[[Message], None]
    ) -> None:
        self.target, self.session, self.evaluation, self.send = target, session, evaluation, send
        self.evaluated_at = 0  # training steps before the last evaluation
        self.reached = False
        self.skipped: set[str] = set()  # samples that could not be read

    def due(self, steps: int) -> bool:
        """Return whether an evaluation is due after `steps` steps."""
        return steps % self.target["evaluation_steps"] == 0

    def evaluate(self, steps: int) -> None:
        """Evaluate the model after `steps` training steps and report it. The device is idle before and after."""
        began, samples, loss, correct = time.monotonic(), 0, 0.0, 0
        labelled, grader = True, self.evaluation.grader()
        for batch in self.evaluation.batches():
            self.skipped.update(batch.skipped)
            if batch.inputs is None:
                continue  # none of its samples can be read
            result = self.session.evaluate(batch)
            samples += result.samples
            loss += result.loss * result.samples
            labelled = labelled and result.right is not None
            correct += result.right or 0
            if grader and result.output is not None:
                grader.add(batch.numbers, result.output)
        if not samples:
            raise RunError("data_error", "no sample to evaluate can be read")
        accuracy = correct / samples if labelled else None
        quality = grader.quality() if grader else Quality()
        evaluated = Evaluated(steps, began, time.monotonic(), samples, loss / samples, accuracy, *quality)
        self.send(evaluated)
        self.evaluated_at, self.reached = steps, reached(self.target, evaluated)
