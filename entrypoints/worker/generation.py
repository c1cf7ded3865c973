"""Text that is continued token by token: the prompt at once, then one token after the other."""

from __future__ import annotations

import time
from typing import Callable, Iterator, Mapping, NamedTuple

from entrypoints.contract.messages import Generated, Message, Step
from entrypoints.contract.session import Batch, Session
from entrypoints.worker.phases import PhasedRun, data_wait


class PendingBatch(NamedTuple):
    """A batch of texts that was handed to the device: marks at the end of the one before it, when its prompts were
    there, and after each new token."""

    marks: tuple[object, ...]
    wait: float
    samples: int
    prompt_tokens: int
    decode_seconds: float | None


class Generation(PhasedRun):
    """Texts batch by batch, each from prompts to so many new tokens.

    A step is a batch, timed from the end of the one before it. Its tokens are the new ones; those of the prompts are
    told apart.
    """

    def __init__(
        self, session: Session, batches: Iterator[Batch], rule: Mapping[str, int], send: Callable[[Message], None]
    ) -> None:
        super().__init__(send)
        self.session, self.batches = session, batches
        self.prompt, self.new = rule["prompt"], rule["new"]
        self.last = session.mark()
        self.pending: list[PendingBatch] = []

    def phase(self, name: str, over: Callable[[], bool]) -> None:
        """Step until `over`. The device is idle at both edges."""
        super().phase(name, over)
        self.settle()

    def advance(self) -> None:
        """One batch of texts."""
        asked = time.perf_counter()
        batch = next(self.batches)
        wait = time.perf_counter() - asked
        batch = batch._replace(inputs=batch.inputs[:, : self.prompt])
        marks = [self.last, self.session.mark()]
        state = self.session.begin(batch, self.new)
        marks.append(self.session.mark())
        for _ in range(self.new - 1):
            state = self.session.iterate(state)
            marks.append(self.session.mark())
        self.last = marks[-1]
        self.steps += 1
        self.pending.append(
            PendingBatch(tuple(marks), wait, batch.samples, batch.samples * self.prompt, batch.decode_seconds)
        )
        self.report_finished()

    def settle(self) -> None:
        """Wait for the device and tell all that it has done."""
        self.session.synchronise()
        self.report_finished()

    def report_finished(self) -> None:
        """Send the steps that the device has finished."""
        while self.pending:
            marks, wait, samples, prompt_tokens, decode_seconds = self.pending[0]
            seconds = [self.session.seconds_between(one, other) for one, other in zip(marks, marks[1:])]
            if None in seconds:
                return
            self.pending.pop(0)
            before, first, *others = (second for second in seconds if second is not None)
            whole = before + first + sum(others)
            self.seconds += whole
            generated = Generated(prompt_tokens, first, others)
            wait = data_wait(wait, before)
            self.send(Step(whole, wait, samples, 0, None, None, decode_seconds, samples * self.new, 0, generated))
