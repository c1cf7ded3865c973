"""Text generation: the whole prompt at once, then token by token."""

from __future__ import annotations

import time
from typing import Any, Callable, Iterator, Mapping, NamedTuple

from entrypoints.contract.messages import Generated, Message, Step
from entrypoints.contract.session import Batch, Session
from entrypoints.worker import run_checks
from entrypoints.worker.phases import PhasedRun, data_wait


class PendingBatch(NamedTuple):
    """A batch of texts that was handed to the device.

    Its marks are at the end of the batch before, when its prompts were ready, and after each new token. Times are in
    seconds.
    """

    marks: tuple[object, ...]
    wait: float
    samples: int
    prompt_tokens: int
    decode_seconds: float | None


class Generation(PhasedRun):
    """Generation batch by batch, each from its prompts to a fixed number of new tokens.

    A step is a batch, timed from the end of the one before it. Its tokens are the new ones; prompt tokens are counted
    separately.
    """

    def __init__(
        self,
        session: Session,
        batches: Iterator[Batch],
        rule: Mapping[str, int],
        precision: str,
        send: Callable[[Message], None],
    ) -> None:
        super().__init__(send)
        self.session, self.batches, self.precision = session, batches, precision
        self.prompt, self.new = rule["prompt"], rule["new"]
        self.last = session.mark()
        self.pending: list[PendingBatch] = []
        self.first: tuple[Batch, list[Any]] | None = None  # prompts and new tokens, until they are checked

    def phase(self, name: str, over: Callable[[], bool]) -> None:
        """Step until `over`. The device is idle at the start and at the end."""
        super().phase(name, over)
        self.settle()

    def advance(self) -> None:
        """Generate one batch of texts."""
        fetch_start = time.perf_counter()
        batch = next(self.batches)
        wait = time.perf_counter() - fetch_start
        batch = batch._replace(inputs=batch.inputs[:, : self.prompt])
        marks = [self.last, self.session.mark()]
        state = self.session.begin(batch, self.new)
        marks.append(self.session.mark())
        tokens = [state.token]
        for _ in range(self.new - 1):
            state = self.session.next_state(state)
            marks.append(self.session.mark())
            tokens.append(state.token)
        self.last = marks[-1]
        if not self.steps:
            self.first = batch, tokens
        self.steps += 1
        self.pending.append(
            PendingBatch(tuple(marks), wait, batch.samples, batch.samples * self.prompt, batch.decode_seconds)
        )
        self.report_finished()

    def check_steps(self) -> None:
        """Check that the first batch was continued as the network without a cache continues it."""
        if self.first is None:
            return
        prompts, tokens = self.first
        self.check("generation", lambda: run_checks.generation(self.session, prompts, tokens, self.precision))
        self.first = None
        self.resume()

    def resume(self) -> None:
        """Let the next batch begin now."""
        self.last = self.session.mark()

    def settle(self) -> None:
        """Wait for the device and report all finished steps."""
        self.session.synchronise()
        self.report_finished()

    def report_finished(self) -> None:
        """Send the steps that the device has finished."""
        while self.pending:
            marks, wait, samples, prompt_tokens, decode_seconds = self.pending[0]
            seconds = [self.session.seconds_between(earlier, later) for earlier, later in zip(marks, marks[1:])]
            if None in seconds:
                return
            self.pending.pop(0)
            before, first, *others = (second for second in seconds if second is not None)
            total = before + first + sum(others)
            self.seconds += total
            generated = Generated(prompt_tokens, first, others)
            wait = data_wait(wait, before)
            self.send(Step(total, wait, samples, 0, None, None, decode_seconds, samples * self.new, 0, generated))
