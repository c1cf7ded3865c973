"""The client of an engine: it sends requests when they are due, and notes when their tokens arrive.

Times count from when a request was due, not from when it was sent. If an engine stalls, or the client itself, requests
that were due meanwhile have waited, and their latencies say so (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Iterator, NamedTuple, Sequence

from entrypoints.contract.statuses import RunError
from entrypoints.serving.engine import LONGEST_SILENCE, Engine
from entrypoints.serving.load import CLOSED, Planned


class Answered(NamedTuple):
    """An answered request, in seconds of the monotonic clock."""

    number: int  # from 0, in the order in which requests are due
    due: float
    sent: float
    prompt: int  # tokens
    tokens: Sequence[float]  # when each new one arrived

    @property
    def late(self) -> float:
        """Seconds by which the client sent it after it was due."""
        return max(0.0, self.sent - self.due)

    @property
    def first(self) -> float:
        """Seconds from when it was due to its first token."""
        return self.tokens[0] - self.due

    @property
    def latency(self) -> float:
        """Seconds from when it was due to its last token."""
        return self.tokens[-1] - self.due

    @property
    def gaps(self) -> Sequence[float]:
        """Seconds from each token to the next; 0 between those that arrived together."""
        return [later - earlier for earlier, later in zip(self.tokens, self.tokens[1:])]

    @property
    def per_token(self) -> float | None:
        """Mean seconds of each token after the first; None of an answer of one token."""
        further = len(self.tokens) - 1
        return (self.tokens[-1] - self.tokens[0]) / further if further else None


class Load(NamedTuple):
    """Requests with their prompts, and how they are sent."""

    planned: Sequence[Planned]
    prompts: Sequence[Sequence[int]]
    arrivals: str  # one of load.ARRIVALS
    concurrency: int | None  # clients of a closed loop


class Client:
    """Sends one load at a time to an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.loads = engine, 0
        self.waiting = 0  # requests that were sent and are not answered
        self.heard = 0.0  # when the last token of any request arrived, or the first of them was sent

    async def run(self, load: Load, start: float, report: Callable[[Answered], bool]) -> None:
        """Send a load that starts at `start` on the monotonic clock (s), and report each answer, in order of arrival.

        Ends when all are answered, or as soon as `report` returns False: the rest is cancelled. Raises what the engine
        raises, and RunError (`crashed`) if it gives no token for LONGEST_SILENCE.
        """
        self.loads += 1
        answers: asyncio.Queue[Answered] = asyncio.Queue()
        sender = self._closed(load, answers) if load.arrivals == CLOSED else self._open(load, start, answers)
        sending = asyncio.ensure_future(sender)
        try:
            for _ in load.planned:
                if not report(await self._next(answers, sending)):
                    break
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            self.waiting = 0

    async def _next(self, answers: asyncio.Queue[Answered], sending: asyncio.Future[None]) -> Answered:
        """Return the next answer. Raises what the sender raised, or if the engine is silent."""
        arriving = asyncio.ensure_future(answers.get())
        try:
            while not arriving.done():
                either: list[asyncio.Future[Any]] = [arriving, *([] if sending.done() else [sending])]
                await asyncio.wait(either, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                if sending.done() and sending.exception() and not arriving.done():
                    raise sending.exception()  # type: ignore[misc]
                if self.waiting and time.monotonic() - self.heard > LONGEST_SILENCE:
                    raise RunError(
                        "crashed", f"the engine hangs: {self.waiting} requests, no token for {LONGEST_SILENCE:g} s"
                    )
        finally:
            arriving.cancel()
        return arriving.result()

    async def _open(self, load: Load, start: float, answers: asyncio.Queue[Answered]) -> None:
        """Send each request when it is due, whatever has become of those before."""
        sent: list[asyncio.Future[None]] = []
        try:
            for number, planned in enumerate(load.planned):
                while (left := start + planned.at - time.monotonic()) > 0:
                    await asyncio.sleep(left)
                    sent = _without_done(sent)
                sent.append(asyncio.ensure_future(self._request(load, number, start + planned.at, answers)))
            await asyncio.gather(*sent)
        finally:
            await _cancelled(sent)

    async def _closed(self, load: Load, answers: asyncio.Queue[Answered]) -> None:
        """Keep `concurrency` requests with the engine: each client sends the next one when it has its answer."""
        numbers = iter(range(len(load.planned)))
        clients = [asyncio.ensure_future(self._client(load, numbers, answers)) for _ in range(load.concurrency or 1)]
        try:
            await asyncio.gather(*clients)
        finally:
            await _cancelled(clients)

    async def _client(self, load: Load, numbers: Iterator[int], answers: asyncio.Queue[Answered]) -> None:
        for number in numbers:
            await self._request(load, number, time.monotonic(), answers)

    async def _request(self, load: Load, number: int, due: float, answers: asyncio.Queue[Answered]) -> None:
        sent, tokens = time.monotonic(), []
        prompt, new = load.prompts[number], load.planned[number].new
        if not self.waiting:
            self.heard = sent
        self.waiting += 1
        async for count in self.engine.stream(f"{self.loads}-{number}", prompt, new):
            self.heard = time.monotonic()
            tokens += [self.heard] * count
        self.waiting -= 1
        if len(tokens) != new:
            raise RunError("crashed", f"the engine answered {len(tokens)} tokens where {new} were asked for")
        answers.put_nowait(Answered(number, due, sent, len(prompt), tokens))


def _without_done(sent: Sequence[asyncio.Future[None]]) -> list[asyncio.Future[None]]:
    """Return the requests that are not answered yet. Raises what one of the others raised."""
    for each in sent:
        if each.done():
            each.result()
    return [each for each in sent if not each.done()]


async def _cancelled(some: Sequence[asyncio.Future[None]]) -> None:
    for each in some:
        each.cancel()
    await asyncio.gather(*some, return_exceptions=True)
