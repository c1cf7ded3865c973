"""Texts token by token: what is told of them, and what the metrics make of it."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest

from entrypoints.contract.messages import Generated, Phase, Step, decode, encode
from entrypoints.contract.session import Batch
from entrypoints.results.measurement import fold
from entrypoints.results.metrics import generation
from entrypoints.results.metrics.by_workload import every_metric
from entrypoints.worker.generation import Generation

RULE = {"prompt": 3, "new": 4}


class Texts:
    """Two texts of five places, of which the prompt is cut."""

    def __getitem__(self, cut):
        _, places = cut
        return [list(range(5))[places]] * 2


class Slow:
    """A device of which the next mark is known only when two more were taken."""

    def __init__(self, lag):
        self.lag, self.marks, self.asked, self.clock = lag, 0, [], 0.0

    def mark(self):
        self.marks += 1
        return self.marks

    def seconds_between(self, earlier, later):
        return None if later + self.lag > self.marks else float(later - earlier)

    def begin(self, batch, iterations):
        self.asked.append((batch.inputs, iterations))
        return SimpleNamespace(token=1)

    def next_state(self, state):
        return SimpleNamespace(token=state.token + 1)

    def synchronise(self):
        self.lag = 0


@pytest.mark.parametrize("lag", [0, 2, 100])
def test_every_new_token_is_timed_and_no_device_is_waited_for(lag):
    sent: list[Any] = []
    session: Any = Slow(lag)
    generation = Generation(session, itertools.repeat(Batch(Texts(), None)), RULE, "fp32", sent.append)
    for _ in range(2):
        generation.advance()
    generation.settle()
    assert session.asked == [([[0, 1, 2]] * 2, 4)] * 2
    for step in sent:
        assert decode(encode(step)) == step
        assert (step.seconds, step.units, step.tokens) == (5.0, 2, 8)
        generated = step.generated
        assert (generated.prompt_tokens, generated.first, list(generated.others)) == (6, 1.0, [1.0] * 3)
        assert 0 <= step.wait <= 1
    assert len(sent) == 2


def test_only_what_held_the_device_up_is_a_wait():
    class Busy(Slow):
        def seconds_between(self, earlier, later):
            return 0.002 if (earlier, later) == (1, 2) else super().seconds_between(earlier, later)

    def slowly():
        while True:
            time.sleep(0.01)
            yield Batch(Texts(), None)

    sent: list[Any] = []
    session: Any = Busy(0)
    generation = Generation(session, slowly(), RULE, "fp32", sent.append)
    generation.advance()
    generation.settle()
    assert [step.wait for step in sent] == [0.002]


STEP = Step(4.0, 0.0, 2, 0, None, None, None, 8, 0, Generated(6, 1.5, [0.5, 1.0, 1.0]))
RUN = fold([Phase("steady", 0.0), *[STEP] * 300], "sequences", "inference")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("throughput", 0.5),
        ("token_throughput", 2.0),
        ("prefill_throughput", 4.0),
        ("decode_throughput", 2.4),
        ("time_to_first_token_p50", 1.5),
        ("time_between_tokens_p50", 1.0),
        ("time_between_tokens_p99", 1.0),
        ("padding_fraction", 0.0),
    ],
)
def test_metrics_of_texts(name, value):
    assert every_metric()[name](RUN).value == pytest.approx(value)


def test_percentiles_of_a_few_texts_are_not_told():
    run = fold([Phase("steady", 0.0), *[STEP] * 10], "sequences", "inference")
    assert generation.time_between_tokens_p50(run).value == 1.0
    for name, count in (("time_to_first_token_p50", "10 timed batches of texts"), ("time_between_tokens_p90", "30 ")):
        assert every_metric()[name](run).value is None
        assert str(every_metric()[name](run).reason).startswith(count)


def test_without_texts_there_is_a_reason():
    run = fold([Phase("steady", 0.0), Step(1.0, 0.0, 2, 0, None)], "images", "inference")
    for name in ("prefill_throughput", "decode_throughput", "time_to_first_token_p50", "time_between_tokens_p99"):
        assert every_metric()[name](run).reason == "no text was generated"
    for name in ("token_throughput", "padding_fraction", "tokens_per_watt_hour"):
        assert every_metric()[name](run).reason == "images have no tokens"
