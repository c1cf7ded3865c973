"""Training until a target: what is evaluated, how often, and for how long."""

from __future__ import annotations

import time
from itertools import islice
from typing import Callable, Iterable, Iterator, NamedTuple, Sequence

from entrypoints.contract.group import ALONE, JoinedRanks, Place
from entrypoints.contract.messages import Evaluated, Message
from entrypoints.contract.session import Batch, Session
from entrypoints.contract.statuses import RunError
from entrypoints.contract.target import AnswerGrader, Quality, Target, reached


class Evaluation(NamedTuple):
    """What is evaluated: its batches, and the grader of answers if they have to be read.

    Ranks of several replicas have different batches each (`own`), or the same ones and share the work by their `place`
    among the replicas.
    """

    batches: Callable[[], Iterable[Batch]]
    grader: Callable[[], AnswerGrader | None] = lambda: None
    own: bool = False
    place: Place = ALONE


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

    def evaluate(self, steps: int, group: JoinedRanks | None = None) -> None:
        """Evaluate the model after `steps` training steps and report it. The device is idle before and after.

        Ranks share the samples and add up what they found, unless answers have to be read, of which a question may
        have several.
        """
        began, grader = time.monotonic(), self.evaluation.grader()
        sums, labelled = [0.0, 0.0, 0.0], True  # samples, their loss, right answers
        together = group if grader is None and self.evaluation.place.world > 1 else None
        for batch, counts in self.batches(together is not None):
            result = self.session.evaluate(batch)
            labelled = labelled and result.right is not None
            if counts:
                more = (result.samples, result.loss * result.samples, result.right or 0)
                sums = [before + gained for before, gained in zip(sums, more)]
                if grader and result.output is not None:
                    grader.add(batch.numbers, result.output)
        if together:
            ranks_of_a_copy = together.place.world // self.evaluation.place.world  # each of them has counted the same
            sums = [added / ranks_of_a_copy for added in together.total(sums)]
        samples, loss, right = sums
        if not samples:
            raise RunError("data_error", "no sample to evaluate can be read")
        accuracy = right / samples if labelled else None
        quality = grader.quality() if grader else Quality()
        evaluated = Evaluated(steps, began, time.monotonic(), int(samples), loss / samples, accuracy, *quality)
        self.send(evaluated)
        done = reached(self.target, evaluated)
        self.evaluated_at, self.reached = steps, bool(group.agree([done])[0]) if group else done

    def batches(self, shared: bool) -> Iterator[tuple[Batch, bool]]:
        """Yield the readable batches to evaluate, all or a share of them, and whether each counts."""
        batches = iter(self.evaluation.batches())
        share = self.evaluation.place if shared and not self.evaluation.own else ALONE
        while True:
            turn = list(islice(batches, share.world))
            if not turn:
                return
            self.skipped.update(name for batch in turn for name in batch.skipped)
            if any(batch.inputs is not None for batch in turn):
                yield of_turn(turn, share)


def of_turn(turn: Sequence[Batch], place: Place) -> tuple[Batch, bool]:
    """Return a rank's batch of a turn through all ranks, and whether it counts.

    Weights may be spread over the ranks, so that all of them have to evaluate equally often: a rank without a readable
    batch evaluates another one's in vain.
    """
    own = turn[place.rank] if place.rank < len(turn) else None
    if own is not None and own.inputs is not None:
        return own, True
    return next(batch for batch in turn if batch.inputs is not None), False
