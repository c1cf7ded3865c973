"""The measuring loop on a made-up device that lags behind, as real accelerators do."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from entrypoints.contract import cards
from entrypoints.contract.messages import Message, Phase, RunCheck, Skipped, Step, decode, encode
from entrypoints.contract.session import Batch, FirstStep, StepReport
from entrypoints.contract.statuses import RunError
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.worker.loop import AHEAD, LOSS_INTERVAL, Loop

CARD = cards.load()["resnet50"]
LAG = 3  # calls that the device is behind


class Lagging:
    """Each call takes the device one second of its own clock; it is LAG calls behind until synchronised."""

    asynchronous = True

    def __init__(self, losses=lambda step: 1.0):
        self.handed = self.done = self.read = self.waited = 0
        self.losses = losses

    def train(self, batch):
        self.handed += 1
        self.done = max(self.done, self.handed - LAG)
        step = self.handed
        return StepReport(samples=batch.samples, updates=1, loss=lambda: self._loss(step))

    def _loss(self, step):
        self.read += 1
        return self.losses(step)

    infer = train

    def receive(self, fed):
        return fed

    def gradients(self):
        return None

    def observed(self):
        return FirstStep()

    def mark(self):
        return self.handed

    def seconds_between(self, earlier, later):
        return float(later - earlier) if later <= self.done else None

    def wait(self, mark):
        self.done = max(self.done, mark)

    def synchronise(self):
        self.waited += 1
        self.done = self.handed


def run(session, *argv, batch=None):
    sent: list[Message] = []
    batches = itertools.repeat(batch or Batch(inputs=range(4), targets=None))
    Loop(session, "training", batches, sent.append, CARD, "fp32").run(resolve(parse(argv), CARD, None))
    return sent


def test_phases_and_steps_come_in_order_and_whole():
    sent = run(Lagging(), "--steps", "10", "--warmup-steps", "4")
    names = [message.name if isinstance(message, Phase) else type(message).__name__ for message in sent]
    assert names == ["compile", "Step", "warmup", *["Step"] * 3, "steady", *["Step"] * 6, "Scheduled"]
    assert all(message.seconds == 1.0 for message in sent if isinstance(message, Step))
    assert all((message.units, message.updates) == (4, 1) for message in sent if isinstance(message, Step))


def test_the_device_is_waited_for_at_the_edges_of_phases_only():
    session = Lagging()
    run(session, "--steps", "400", "--warmup-steps", "4")
    assert session.waited == 3
    assert session.read <= 400 / LOSS_INTERVAL + 3


def test_the_host_is_never_more_than_a_few_steps_ahead():
    """Of a device of 50 steps of lag, which would have 50 batches in memory, and run 50 steps beyond a duration."""

    class Slow(Lagging):
        ahead = 0

        def train(self, batch):
            self.handed += 1
            self.ahead = max(self.ahead, self.handed - self.done)
            return StepReport(samples=batch.samples, updates=1, loss=lambda: 1.0)

        infer = train

    session = Slow()
    run(session, "--steps", "60", "--warmup-steps", "4")
    assert session.ahead == AHEAD, "the step that is handed over, and the one before it"
    assert session.waited == 3, "at the edges of phases only"


def test_updates_that_a_scaler_skipped_are_not_counted_once_the_device_has_done_them():
    class Skipping(Lagging):
        def train(self, batch):
            report = super().train(batch)
            step = self.handed
            return report._replace(skipped=lambda: self.overflowed(step))

        def overflowed(self, step):
            assert step <= self.done, "read before the device has done it, which waits for it"
            return step <= 2

    sent = run(Skipping(), "--steps", "8", "--warmup-steps", "4")
    assert [message.updates for message in sent if isinstance(message, Step)] == [0, 0, *[1] * 6]


def test_a_duration_counts_the_device_s_own_seconds():
    sent = run(Lagging(), "--duration", "7", "--warmup-steps", "2")
    timed = sent[sent.index(next(message for message in sent if message[0] == "steady")) :]
    seconds = sum(message.seconds for message in timed if isinstance(message, Step))
    assert 7 <= seconds <= 7 + LAG


def test_a_loss_that_is_no_number_stops_the_run():
    with pytest.raises(RunError, match="the loss became inf") as raised:
        run(Lagging(lambda step: float("inf")), "--steps", "400", "--warmup-steps", "4")
    assert raised.value.state == "non_finite"


def test_a_file_that_is_skipped_again_and_again_is_told_once():
    sent = run(Lagging(), "--steps", "9", batch=Batch(range(4), None, ("cat/a.jpg", "cat/b.jpg")))
    assert sorted(message.path for message in sent if isinstance(message, Skipped)) == ["cat/a.jpg", "cat/b.jpg"]


def test_the_seconds_of_decoding_go_with_their_step():
    sent = run(Lagging(), "--steps", "9", batch=Batch(range(4), None, (), 0.25))
    assert {message.decode_seconds for message in sent if isinstance(message, Step)} == {0.25}


def test_gradients_that_overflow_are_looked_at_again_after_the_warmup():
    class Overflowing(Lagging):
        def gradients(self):
            return None if self.handed == 1 else {"weight": 0.5}

    sent = run(Overflowing(), "--steps", "6", "--warmup-steps", "3")
    names = [message.name if isinstance(message, (Phase, RunCheck)) else type(message).__name__ for message in sent]
    assert names == ["compile", "Step", "warmup", "Step", "Step", "gradients", "steady", *["Step"] * 3, "Scheduled"]
    (check,) = (message for message in sent if isinstance(message, RunCheck))
    assert check.faults == ["the first step had a gradient for only 50 % of the units of weight"]


def test_messages_survive_the_wire():
    for message in run(Lagging(), "--steps", "3"):
        assert decode(encode(message)) == message


class Mark(int):
    """A mark of `Lagging`, and whether it is the first one after a batch was received."""

    received = False


@pytest.mark.parametrize(
    ("idle", "arriving", "waited"),
    [(0.0, 0.0, 0.0), (0.002, 0.0, 0.002), (0.0, 0.25, 0.25), (0.002, 0.25, 0.252), (3600.0, 0.0, None)],
)
def test_only_what_held_the_device_up_is_a_wait(idle, arriving, waited):
    """A batch is fetched in 10 ms or more, while the device is busy, or in part, or idle for longer than that.

    Then the device may wait for the copy, while the host goes on.
    """

    class Busy(Lagging):
        received = False

        def receive(self, fed):
            self.received = True
            return fed

        def mark(self):
            mark = Mark(self.handed)
            mark.received, self.received = self.received, False
            return mark

        def seconds_between(self, earlier, later):
            seconds = super().seconds_between(earlier, later)
            if later != earlier:
                return seconds
            return arriving if later.received else idle

    def slowly():
        while True:
            time.sleep(0.01)
            yield Batch(inputs=range(4), targets=None)

    sent: list[Message] = []
    session: Any = Busy()
    Loop(session, "training", slowly(), sent.append, CARD, "fp32").run(
        resolve(parse(["--steps", "3", "--warmup-steps", "1"]), CARD, None)
    )
    waits = [message.wait for message in sent if isinstance(message, Step)]
    assert len(waits) == 3
    assert waits == [waited] * 3 if waited is not None else all(0.01 <= wait <= 1 for wait in waits)
