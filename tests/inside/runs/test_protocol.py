"""The messages of a child: what is well formed and in order is believed, and nothing else."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from properties import examples

from entrypoints.contract.messages import (
    PHASES,
    TYPES,
    Data,
    Ended,
    Failed,
    MessageError,
    Phase,
    Probed,
    RunCheck,
    Scheduled,
    Software,
    Step,
    Waited,
    decode,
    encode,
)
from entrypoints.contract.session import DeviceFacts
from entrypoints.results.outcome import Ending, determine_outcome
from entrypoints.runs.protocol import Protocol
from entrypoints.runs.supervise import complete_lines

STEP = ["Step", [0.1, 0.0, 4, 1, 2.5, None, None, None, None, None, None]]
MALFORMED = [
    b"\xff\xfe",
    b'["Step", [1]]',
    b"null",
    b"[]",
    b'["Step"]',
    b'["Nonsense", []]',
    b'{"Step": []}',
    b"[" * 200_000,
    json.dumps(["Step", {"seconds": 1}]).encode(),
    *(json.dumps(["Step", [value, *STEP[1][1:]]]).encode() for value in (None, "1", True, -1.0, 1e308, float("nan"))),
    *(json.dumps(["Step", [0.1, 0.0, value, 1, 2.5]]).encode() for value in (4.5, "4", None, -4, float("inf"))),
    json.dumps(["Step", [0.1, 0.0, 4, 1, "low"]]).encode(),
    json.dumps(["Step", [*STEP[1], 1, 2]]).encode(),
    json.dumps(["Step", [*STEP[1][:5], [1.0]]]).encode(),
    json.dumps(["Step", [*STEP[1][:5], {"latency": 1.0}]]).encode(),
    json.dumps(["Phase", ["nap", 1.0]]).encode(),
    json.dumps(["Phase", [["import"], 1.0]]).encode(),
    json.dumps(["Phase", ["import", None]]).encode(),
    json.dumps(["Ended", ["now"]]).encode(),
    json.dumps(["Usage", [{}, 1.0, 1.0]]).encode(),
    json.dumps(["DeviceConditions", [{"clock": 5}, None]]).encode(),
    json.dumps(["DeviceConditions", [{"mood": {"value": 5}}, None]]).encode(),
    json.dumps(["Software", ["1.0", {"numpy": 2}]]).encode(),
    json.dumps(["Software", ["1.0", {f"library{number}": "1" for number in range(1001)}]]).encode(),
    json.dumps(["Step", [0.1, 0.0, 0, 1, 2.5]]).encode(),
    json.dumps(["Step", [*STEP[1][:4], 10**400]]).encode(),
    json.dumps(["Evaluated", [0, 1.0, 2.0, 0, 1.0, None]]).encode(),
    json.dumps(["DeviceConditions", [{"clock": {"value": 10**400}}, None]]).encode(),
    json.dumps(["DeviceConditions", [{"clock": {"value": float("nan")}}, None]]).encode(),
    json.dumps(["DeviceFacts", ["cpu", None, None, 0, "node", None, 1, 1, "eager", False]]).encode(),
    json.dumps(["Probed", ["fp99", "output", [1.0]]]).encode(),
    *(json.dumps(["Failed", [state, "so"]]).encode() for state in ("completed", "fantastic", "time_limit")),
]


def lines(*messages):
    return [encode(message).rstrip(b"\n") for message in messages]


def phases(until):
    now = time.monotonic()
    return [Phase(name, now - 1 + number / 10) for number, name in enumerate(PHASES[: until + 1])]


def step(loss=2.5):
    return decode(json.dumps(["Step", [*STEP[1][:4], loss]]).encode())


def whole(*steps):
    """The messages of a run up to its end, with these steps in its timed window."""
    begun = phases(5)
    facts = DeviceFacts("cpu", None, None, 1, "node", None, 1, 1, "eager", False)
    software, data = Software("1.0", {}), Data(4, None)
    before = [begun[0], software, begun[1], data, begun[2], facts, *begun[3:]]
    return [*before, *steps, Scheduled(time.monotonic(), 1.0, 0.0)]


def last(*messages):
    """What the protocol makes of the last of several messages."""
    protocol = Protocol()
    return [protocol.accept(line) for line in lines(*messages)][-1]


@pytest.mark.parametrize("line", MALFORMED, ids=lambda line: line[:30].decode("ascii", "replace"))
def test_what_is_no_message_is_refused(line):
    with pytest.raises(MessageError):
        decode(line)


@pytest.mark.parametrize("loss", [None, 2.5, float("nan"), float("inf"), -3.0])
def test_a_loss_may_be_any_number(loss):
    assert isinstance(decode(json.dumps(["Step", [*STEP[1][:4], loss]]).encode()), Step)


@given(some.recursive(some.none() | some.booleans() | some.floats() | some.text(), some.lists, max_leaves=12))
@settings(max_examples=examples(300))
def test_nothing_that_json_can_say_raises_anything_else(fields):
    for name in TYPES:
        with contextlib.suppress(MessageError):
            decode(json.dumps([name, fields]).encode())


def test_a_run_in_order_is_believed():
    messages = [*whole(step(), step()), Ended(time.monotonic())]
    protocol = Protocol()
    accepted = [protocol.accept(line) for line in lines(*messages)]
    assert accepted[-1] == messages[-1] and not any(isinstance(message, Failed) for message in accepted)


@pytest.mark.parametrize("kind", [Software, Data, DeviceFacts, Scheduled])
def test_a_run_that_ends_without_what_every_run_says_is_not_believed(kind):
    messages = [message for message in whole(step()) if not isinstance(message, kind)]
    answer = last(*messages, Ended(time.monotonic()))
    assert isinstance(answer, Failed) and f"without {kind.__name__}" in answer.message


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_run_whose_loss_is_no_number_does_not_complete(loss):
    answer = last(*whole(step(), step(loss), step()), Ended(time.monotonic()))
    assert isinstance(answer, Failed) and "whose loss became" in answer.message
    assert last(*whole(step(loss))[:-1], Failed("non_finite", "so")) == Failed("non_finite", "so")


def test_what_follows_the_end_takes_it_back():
    """Whatever ended the run first, a message after it shows that it had not."""
    messages = [*whole(step()), Ended(time.monotonic()), step()]
    protocol = Protocol()
    accepted = [message for message in map(protocol.accept, lines(*messages)) if message]
    outcome = determine_outcome(accepted, Ending(0, None, None, oom_killed=False))
    assert outcome.state == "inconsistent" and "Step after the end" in outcome.message


@pytest.mark.parametrize(
    "messages",
    [
        [step()],
        [*phases(2), step()],
        [phases(5)[1]],
        [*phases(3), phases(5)[5]],
        [*phases(1), phases(0)[0]],
        [*phases(4), Ended(time.monotonic())],
        [*whole(), Ended(time.monotonic()), step()],
        [*whole(), Ended(time.monotonic()), Ended(time.monotonic())],
        [*whole(), step()],
        [*whole(), *whole()[-1:]],
        [*whole(), Software("1.0", {})],
        [Probed("fp32", "output", [1.0]), Probed("fp32", "output", [2.0])],
        [*phases(3), *[RunCheck("gradients", 1.0, 2.0, [])] * 2],
        [Failed("crashed", "no"), Ended(time.monotonic())],
        [Phase("import", time.monotonic() + 1e4)],
        [Phase("import", 5.0), Phase("data", 4.0)],
        [*phases(5), Ended(0.0)],
    ],
    ids=lambda messages: " ".join(type(message).__name__ for message in messages[-2:]),
)
def test_a_message_out_of_order_ends_the_run(messages):
    answer = last(*messages)
    assert isinstance(answer, Failed) and answer.state == "inconsistent"


@pytest.mark.parametrize(
    ("waits", "after", "wait", "believed"),
    [
        (True, 1, (0.0, 0.1), True),
        (False, 1, (0.0, 0.1), False),
        (True, 0, (0.0, 0.1), False),
        (True, 2, (0.0, 0.1), False),
        (True, 1, (0.1, 0.0), False),
        (True, 1, (-1e3, 0.0), False),
    ],
)
def test_only_who_is_to_wait_has_waited(waits, after, wait, believed):
    begun = [Phase(name, time.monotonic()) for name in PHASES[:after]]
    protocol, now = Protocol(waits), time.monotonic()
    answers = [protocol.accept(line) for line in lines(*begun, Waited(*(now + moment for moment in wait)))]
    assert isinstance(answers[-1], Waited) == believed


def test_nothing_is_believed_after_a_violation():
    protocol = Protocol()
    assert isinstance(protocol.accept(b"nonsense"), Failed)
    assert protocol.accept(lines(phases(0)[0])[0]) is None
    assert protocol.violation("more") is None


@given(some.lists(some.binary(max_size=9)), some.integers(1, 7))
def test_lines_are_those_of_the_stream(chunks, size):
    stream = b"\n".join(chunks)
    rest, whole = bytearray(), []
    for at in range(0, len(stream), size):
        whole += complete_lines(rest, stream[at : at + size])
    assert [*whole, bytes(rest)] == stream.split(b"\n")


class Watched(bytearray):
    """A buffer that counts the bytes that are copied to and from it."""

    copied = 0

    def __iadd__(self, more):  # type: ignore[misc]
        self.copied += len(more)
        return super().__iadd__(more)

    def __setitem__(self, place, value):
        self.copied += len(value)
        super().__setitem__(place, value)

    def __bytes__(self):
        self.copied += len(self)
        return bytes(memoryview(self))


def test_a_long_line_is_copied_once_not_with_each_of_its_parts():
    rest, parts, size = Watched(), 500, 1000
    for number in range(parts):
        assert complete_lines(rest, b"." * size) == [] and len(rest) == (number + 1) * size
    assert complete_lines(rest, b"\n") == [b"." * parts * size]
    assert rest == b"" and rest.copied <= 2 * parts * size
