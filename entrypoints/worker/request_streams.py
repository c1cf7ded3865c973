"""Request streams: each makes a request, waits for the answer and makes the next (a closed loop)."""

from __future__ import annotations

import contextlib
import threading
import time
from queue import Empty, SimpleQueue
from typing import Callable, Iterator, NamedTuple

from entrypoints.contract.messages import Message, Request, Step
from entrypoints.contract.session import Batch, Session
from entrypoints.worker.phases import PhasedRun

TICK = 0.2  # seconds between checks for signals while no answer arrives
MakeRequest = Callable[[], Batch]  # pre-processing: makes a request's input from raw data


class CompletedRequest(NamedTuple):
    """An answered request, with the time of the answer on the monotonic clock (s)."""

    at: float
    batch: Batch  # without its tensors
    samples: int
    request: Request


class RequestStreams(PhasedRun):
    """`count` request streams over one session, each in its own thread; the main thread reports their answers.

    The first request runs alone. From its answer on all streams stay busy until the end, also at the edges of the timed
    window. Requests answered within the window count, whenever they began; those in progress at its end do not.
    """

    def __init__(
        self, session: Session, count: int, requests: Iterator[MakeRequest], send: Callable[[Message], None]
    ) -> None:
        super().__init__(send)
        self.session, self.count, self.requests = session, count, requests
        self.lock = threading.Lock()  # guards `requests`
        self.over = threading.Event()
        self.threads: list[threading.Thread] = []
        self.answers: SimpleQueue[CompletedRequest | BaseException] = SimpleQueue()
        self.last = 0.0  # when the previous answer arrived, on the monotonic clock (s)

    def edge(self) -> float:
        """Return the time of the previous answer, which ends a phase and begins the next. Starts the first stream."""
        if not self.threads:
            self.last = time.monotonic()
            self.start(1)
        return self.last

    def advance(self) -> None:
        """Wait for an answer and report it. Raises what a stream raised."""
        self.report(self.next_answer())
        self.start(self.count - len(self.threads))

    def report_execution(self) -> None:
        """Report how the model was run, only after the timed window: before it the device has requests to answer."""
        if self.untimed:
            super().report_execution()

    def settle(self) -> None:
        """Stop making requests, and report those answered by now."""
        self.over.set()
        while not self.answers.empty():
            self.report(self.answers.get())

    def close(self) -> None:
        """Stop making requests, and wait for the answers to those in progress."""
        self.over.set()
        for thread in self.threads:
            while thread.is_alive():
                thread.join(TICK)

    def start(self, count: int) -> None:
        """Start `count` more streams. Their threads are daemons, since a device may never answer."""
        for _ in range(count):
            thread = threading.Thread(target=self.run_stream, daemon=True)
            self.threads.append(thread)
            thread.start()

    def run_stream(self) -> None:
        """Make requests one after the other, until the run is over or one fails."""
        try:
            while not self.over.is_set():
                with self.lock:
                    make = next(self.requests)
                self.answers.put(self.run_request(make))
        except BaseException as error:  # the main thread has to raise any of them
            self.answers.put(error)

    def run_request(self, make: MakeRequest) -> CompletedRequest:
        """Do one request, from its raw input to its answer."""
        start = time.monotonic()
        batch = make()
        input_ready = time.monotonic()
        answer = self.session.infer_request(batch)
        at = time.monotonic()
        request = Request(at - start, input_ready - start, answer.transfer, answer.compute, answer.retrieval)
        return CompletedRequest(at, batch._replace(inputs=(), targets=()), batch.samples, request)

    def next_answer(self) -> CompletedRequest | BaseException:
        """Return the next answer. Waits in short intervals, since signal handlers run in this thread between them."""
        while True:
            with contextlib.suppress(Empty):
                return self.answers.get(timeout=TICK)

    def report(self, answer: CompletedRequest | BaseException) -> None:
        """Send an answered request as a step."""
        if isinstance(answer, BaseException):
            self.over.set()
            raise answer
        at = max(answer.at, self.last)  # answers may overtake each other between clock and queue
        seconds, self.last = at - self.last, at
        self.steps += 1
        self.seconds += seconds
        batch = answer.batch
        self.report_skipped(batch.skipped)
        self.send(Step(seconds, 0.0, answer.samples, 0, None, answer.request, None, batch.tokens, batch.padding))
