"""Streams of requests: each makes one, waits for the answer and makes the next (a closed loop)."""

from __future__ import annotations

import contextlib
import threading
import time
from queue import Empty, SimpleQueue
from typing import Callable, Iterator, NamedTuple

from entrypoints.contract.messages import Message, Request, Step
from entrypoints.contract.session import Batch, Session
from entrypoints.worker.phases import PhasedRun

TICK = 0.2  # seconds between looks at signals while no answer comes
MakeRequest = Callable[[], Batch]  # pre-processing: makes a request's input from what is raw


class CompletedRequest(NamedTuple):
    """A request that was answered, at a point of the monotonic clock (s)."""

    at: float
    batch: Batch  # without its tensors
    samples: int
    request: Request


class RequestStreams(PhasedRun):
    """`count` streams over one session, each in a thread of its own; this thread tells what they do.

    The first request is alone; from its answer on all streams are busy until the end, at the edges of the timed
    window too. What is answered within the window counts, whenever it began; what is under way at the end does not.
    """

    def __init__(
        self, session: Session, count: int, requests: Iterator[MakeRequest], send: Callable[[Message], None]
    ) -> None:
        super().__init__(send)
        self.session, self.count, self.requests = session, count, requests
        self.lock = threading.Lock()  # of the requests
        self.over = threading.Event()
        self.threads: list[threading.Thread] = []
        self.answers: SimpleQueue[CompletedRequest | BaseException] = SimpleQueue()
        self.last = 0.0  # when the answer before was there, on the monotonic clock (s)

    def edge(self) -> float:
        """The answer before ends a phase and begins the next; the first one begins with the first stream."""
        if not self.threads:
            self.last = time.monotonic()
            self.start(1)
        return self.last

    def advance(self) -> None:
        """Wait for an answer and tell it. Raises what a stream raised."""
        self.report(self.next_answer())
        self.start(self.count - len(self.threads))

    def settle(self) -> None:
        """Let no stream make another request, and tell what was answered by now."""
        self.over.set()
        while not self.answers.empty():
            self.report(self.answers.get())

    def close(self) -> None:
        """Let no stream make another request, and wait for the answers that are still to come."""
        self.over.set()
        for thread in self.threads:
            while thread.is_alive():
                thread.join(TICK)

    def start(self, count: int) -> None:
        """Start so many streams more. They end with the process, since a device may never answer."""
        for _ in range(count):
            thread = threading.Thread(target=self.run_stream, daemon=True)
            self.threads.append(thread)
            thread.start()

    def run_stream(self) -> None:
        """Make requests, one after the other, until it is over or one fails."""
        try:
            while not self.over.is_set():
                with self.lock:
                    making = next(self.requests)
                self.answers.put(self.run_request(making))
        except BaseException as error:  # whatever it is, the thread that tells has to know
            self.answers.put(error)

    def run_request(self, making: MakeRequest) -> CompletedRequest:
        """One request, from its raw input to its answer."""
        begun = time.monotonic()
        batch = making()
        made = time.monotonic()
        answer = self.session.infer_request(batch)
        at = time.monotonic()
        request = Request(at - begun, made - begun, answer.transfer, answer.compute, answer.retrieval)
        return CompletedRequest(at, batch._replace(inputs=(), targets=()), batch.samples, request)

    def next_answer(self) -> CompletedRequest | BaseException:
        """Wait in short spells: Python's handlers of signals run in this thread, between them."""
        while True:
            with contextlib.suppress(Empty):
                return self.answers.get(timeout=TICK)

    def report(self, answer: CompletedRequest | BaseException) -> None:
        """Send an answered request as a step."""
        if isinstance(answer, BaseException):
            self.over.set()
            raise answer
        at = max(answer.at, self.last)  # two may overtake each other between clock and queue
        seconds, self.last = at - self.last, at
        self.steps += 1
        self.seconds += seconds
        batch = answer.batch
        self.report_skipped(batch.skipped)
        self.send(Step(seconds, 0.0, answer.samples, 0, None, answer.request, None, batch.tokens, batch.padding))
