"""Streams of requests on a made-up device that serves one request at a time, as real accelerators do."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.contract import cards
from entrypoints.contract.messages import Message, Phase, Request, Skipped, Step, decode, encode
from entrypoints.contract.session import Answer, Batch
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.worker.request_streams import CompletedRequest, RequestStreams

PREPROCESSING, TRANSFER, COMPUTE, RETRIEVAL = 0.001, 0.003, 0.006, 0.002  # s


class Serial:
    """A device that works on one request at a time; `fault` is called with the number of each request."""

    def __init__(self, fault=lambda number: None):
        self.device, self.counts, self.fault = threading.Lock(), threading.Lock(), fault
        self.asked = self.answered = self.inside = 0
        self.most_inside = []  # by request, in order of answers

    def infer_request(self, batch):
        with self.counts:
            self.inside += 1
            self.asked += 1
            number = self.asked
        self.fault(number)
        with self.device:
            marks = [time.perf_counter()]
            for seconds in (TRANSFER, COMPUTE, RETRIEVAL):
                time.sleep(seconds)
                marks.append(time.perf_counter())
        with self.counts:
            self.most_inside.append(self.inside)
            self.answered += 1
            self.inside -= 1
        return Answer(None, *(later - earlier for earlier, later in zip(marks, marks[1:])))


class Turns:
    """A device with a clock of its own. It serves in order of arrival, and, from the second request on, only once all
    streams have asked: one of them is then on its way at a time, and what each of them waits for is exact.
    """

    def __init__(self, streams):
        self.streams, self.now, self.served, self.over = streams, 0.0, 0, False
        self.waiting: deque[object] = deque()
        self.changed = threading.Condition()

    def monotonic(self):
        return self.now

    def making(self):
        self.now += PREPROCESSING
        return Batch(range(2), None)

    def infer_request(self, batch):
        own = object()
        with self.changed:
            self.waiting.append(own)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.over or (self.waiting[0] is own and self.all_have_asked()))
            self.now += TRANSFER + COMPUTE + RETRIEVAL
            self.waiting.remove(own)
            self.served += 1
            self.changed.notify_all()
        return Answer(None, TRANSFER, COMPUTE, RETRIEVAL)

    def all_have_asked(self):
        return len(self.waiting) == (self.streams if self.served else 1)

    def let_go(self):
        """Wait for nobody any more."""
        with self.changed:
            self.over = True
            self.changed.notify_all()


def making(skipped=()):
    time.sleep(PREPROCESSING)
    return Batch(range(2), None, skipped)


def configured(concurrency, *argv):
    words = ("--task", "inference", "--concurrency", str(concurrency), *argv)
    return resolve(parse(words), cards.load()["resnet50"], None)


def streams(session, concurrency, make=making):
    sent: list[Message] = []
    return RequestStreams(session, concurrency, itertools.repeat(make), sent.append), sent


def run(session, concurrency, *argv, make=making):
    asking, sent = streams(session, concurrency, make)
    try:
        asking.run(configured(concurrency, *argv))
    finally:
        asking.close()
    assert not any(thread.is_alive() for thread in asking.threads)
    return sent


def by_phase(sent):
    """Phases in order, each with when it began and its steps."""
    messages: list[tuple[str, float, list[Step]]] = []
    for message in sent:
        if isinstance(message, Phase):
            messages.append((message.name, message.at, []))
        elif isinstance(message, Step):
            messages[-1][2].append(message)
    return messages


@pytest.mark.parametrize("concurrency", [1, 4])
def test_phases_have_the_steps_that_were_asked_for(concurrency):
    sent = run(Serial(), concurrency, "--steps", "20", "--warmup-steps", "6")
    assert [(name, len(steps)) for name, _, steps in by_phase(sent)] == [("compile", 1), ("warmup", 5), ("steady", 14)]
    assert all(
        (step.units, step.updates, step.loss) == (2, 0, None) for _, _, steps in by_phase(sent) for step in steps
    )


@pytest.mark.parametrize("concurrency", [1, 3])
def test_steps_add_up_to_exactly_the_time_between_the_edges(concurrency):
    compiled, warm, steady = by_phase(run(Serial(), concurrency, "--steps", "12", "--warmup-steps", "4"))
    for (_, began, steps), (_, ended, _) in ((compiled, warm), (warm, steady)):
        assert sum(step.seconds for step in steps) == pytest.approx(ended - began, abs=1e-9)


def test_the_first_request_is_alone_and_then_all_streams_are_busy():
    session = Serial()
    run(session, 4, "--steps", "30", "--warmup-steps", "8")
    assert session.most_inside[0] == 1
    assert max(session.most_inside) == 4


@pytest.mark.parametrize("concurrency", [1, 2, 4])
def test_streams_wait_for_a_device_that_serves_one_at_a_time(monkeypatch, concurrency):
    """Little's law: as many requests are under way as there are streams, and each waits for all the others."""
    device = Turns(concurrency)
    monkeypatch.setattr("entrypoints.worker.request_streams.time", device)
    asking, sent = streams(device, concurrency, device.making)
    try:
        asking.run(configured(concurrency, "--steps", "80", "--warmup-steps", "10"))
    finally:
        asking.over.set()
        device.let_go()
        asking.close()
    *_, (_, _, steps) = by_phase(sent)
    latency = PREPROCESSING + TRANSFER + COMPUTE + RETRIEVAL
    assert sum(step.seconds for step in steps) == pytest.approx(70 * latency)
    for request in (step.request for step in steps):
        assert request.latency == pytest.approx(concurrency * latency)
        assert request.other == pytest.approx((concurrency - 1) * latency, abs=1e-9)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_parts_are_told_apart_and_explain_the_latency(concurrency):
    for step in by_phase(run(Serial(), concurrency, "--steps", "20", "--warmup-steps", "4"))[-1][2]:
        request = step.request
        least = (PREPROCESSING, TRANSFER, COMPUTE, RETRIEVAL)
        assert all(part >= seconds for part, seconds in zip(request[1:], least))
        assert sum(request[1:]) + request.other == pytest.approx(request.latency, abs=1e-9)


def test_a_duration_ends_with_the_answer_that_completes_it():
    *_, (_, _, steps) = by_phase(run(Serial(), 2, "--duration", "0.2", "--warmup-steps", "2"))
    seconds = [step.seconds for step in steps]
    assert sum(seconds[:-1]) < 0.2 <= sum(seconds)


def test_what_is_under_way_at_the_end_is_waited_for_and_left_out():
    session = Serial()
    sent = run(session, 4, "--steps", "10", "--warmup-steps", "2")
    assert sum(isinstance(message, Step) for message in sent) == 10
    assert session.inside == 0 and session.answered == session.asked > 10


@pytest.mark.parametrize("where", ["first", "later"])
def test_an_error_in_a_stream_ends_the_run_and_the_other_streams(where):
    def fault(number):
        if number == {"first": 1, "later": 9}[where]:
            raise ValueError("the device fell over")

    session = Serial(fault)
    with pytest.raises(ValueError, match="the device fell over"):
        run(session, 3, "--steps", "100000", "--warmup-steps", "2")
    assert session.answered == session.asked - 1 >= {"first": 0, "later": 8}[where]  # the others' end well


def test_an_error_while_a_request_is_made_counts_too():
    def broken():
        raise MemoryError("no room for a photograph")

    with pytest.raises(MemoryError):
        run(Serial(), 3, "--steps", "100", make=broken)


def test_a_file_that_is_skipped_again_and_again_is_told_once():
    sent = run(Serial(), 2, "--steps", "8", make=lambda: making(("cat/a.jpg", "cat/b.jpg")))
    assert sorted(message.path for message in sent if isinstance(message, Skipped)) == ["cat/a.jpg", "cat/b.jpg"]


def test_an_interruption_tells_what_was_answered_by_then():
    asking, sent = streams(Serial(), 2)
    for at in (1.0, 2.0):
        asking.answers.put(CompletedRequest(at, Batch((), ()), 2, Request(1.0, 0.1, 0.1, 0.1, 0.1)))
    asking.settle()
    assert [message.seconds for message in sent] == [1.0, 1.0]
    assert asking.over.is_set()  # and no stream makes another


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_answers_that_overtake_each_other_never_make_time_run_backwards(moments):
    asking, sent = streams(Serial(), 2)
    for at in moments:
        asking.report(CompletedRequest(at, Batch((), ()), 1, Request(1.0, 0.1, 0.1, 0.1, 0.1)))
    assert all(step.seconds >= 0 for step in sent)
    assert sum(step.seconds for step in sent) == pytest.approx(max(moments))


@given(st.tuples(*[st.floats(0, 1e6)] * 5))
def test_requests_survive_the_wire(parts):
    step = Step(1.0, 0.0, 4, 0, None, Request(*parts))
    decoded = decode(encode(step))
    assert decoded == step and isinstance(decoded, Step) and isinstance(decoded.request, Request)
