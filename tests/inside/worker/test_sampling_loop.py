"""Markov chains as the loop runs them: what is told of each transition, and what the metrics make of it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from entrypoints.contract import cards
from entrypoints.contract.messages import Diagnosed, Phase, RunCheck, Step, decode, encode
from entrypoints.contract.session import Batch, ChainSample
from entrypoints.contract.statuses import RunError
from entrypoints.results.measurement import fold
from entrypoints.results.metrics import chains, training
from entrypoints.results.metrics.by_workload import every_metric
from entrypoints.results.roofline import Flops
from entrypoints.worker.sampling_loop import MOST_DRAWS, MOST_NUMBERS, SamplingLoop, diagnose

CARD = cards.load()["mcmc"]


class Walk:
    """Two chains of one parameter, of which the second moves every other time; a clock that a transition moves on."""

    leaps = CARD.problem["sampler"]["leapfrog_steps"]

    def __init__(self, finite=True, leaps=leaps):
        self.clock, self.asked, self.finite, self.leaps = 0.0, [], finite, leaps

    def mark(self):
        return self.clock

    def seconds_between(self, earlier, later):
        return later - earlier

    def synchronise(self):
        pass

    def begin(self, batch, iterations, chains):
        self.asked.append((batch, iterations, chains))
        return self.next_state(0)

    def next_state(self, state):
        self.clock += 2.0
        return state + 1

    def chain_sample(self, state):
        density = -1.0 if self.finite else math.nan
        return ChainSample(
            [[float(state)], [float(state // 2)]],
            [density] * 2,
            [True, state % 2 == 0],
            [0.0] * 2,
            [0.1] * 2,
            1 + state * self.leaps,
        )


def ran(steps=5, warmup=2, parameters=1, **options):
    sent: list[Any] = []
    session: Any = Walk(**options)
    configuration: Any = SimpleNamespace(steps=steps, warmup_steps=warmup, duration_seconds=None)
    card = CARD._replace(problem={**CARD.problem, "parameters": parameters})
    SamplingLoop(session, Batch("data", None), 2, card, sent.append).run(configuration)
    return sent, session


def test_each_transition_is_a_step_with_a_sample_of_every_chain():
    pytest.importorskip("numpy")
    sent, session = ran()
    assert session.asked == [(Batch("data", None), 2, 2)], "step sizes adapt as long as the warm-up"
    steps = [message for message in sent if isinstance(message, Step)]
    assert [(step.seconds, step.units, step.updates, step.loss, step.accepted) for step in steps] == [
        (2.0, 2, 0, None, accepted) for accepted in (1, 2, 1, 2, 1)
    ]
    assert [message.name for message in sent if isinstance(message, Phase)] == ["compile", "warmup", "steady"]
    judged = sent[-1]
    assert (judged.draws, judged.seconds) == (3, 6.0) and judged.effective is None, "three draws tell nothing"
    assert all(decode(encode(message)) == message for message in sent)


def test_the_timed_draws_are_judged_and_the_last_of_very_many():
    pytest.importorskip("numpy")
    judged = ran(steps=12)[0][-1]
    assert (judged.draws, judged.seconds) == (10, 20.0) and 0 < judged.effective < 20 and judged.r_hat > 1
    assert ran(steps=MOST_DRAWS + 9)[0][-1].draws == MOST_DRAWS
    assert ran(steps=30, parameters=MOST_NUMBERS // 12)[0][-1].draws == 6, "as many as memory is meant to hold"


def test_where_nothing_was_accepted_nothing_is_judged():
    pytest.importorskip("numpy")
    still = ChainSample([[0.0]], [0.0], [False], [-9.0], [0.1], 9)
    assert diagnose([(1.0, still)] * 8) == Diagnosed(8, 8.0, None, None)


@pytest.mark.parametrize(
    ("leaps", "faults"), [(1000, []), (20, ["5 transitions evaluated the gradient 101 times, and not 5001 times"])]
)
def test_trajectories_are_as_long_as_the_card_says(leaps, faults):
    pytest.importorskip("numpy")
    (check,) = (message for message in ran(leaps=leaps)[0] if isinstance(message, RunCheck))
    assert (check.name, check.faults) == ("trajectory", faults)


def test_a_density_that_is_none_ends_the_run():
    with pytest.raises(RunError, match="not finite") as caught:
        ran(finite=False)
    assert caught.value.state == "non_finite"


STEPS = [Step(2.0, 0.0, 4, 0, None, accepted=accepted) for accepted in (4, 2, 3)]
RUN = fold([Phase("steady", 0.0), *STEPS, Diagnosed(3, 6.0, 1.5, 1.2)], "samples", "sampling", flops=Flops(10, 10))


@pytest.mark.parametrize(
    ("name", "value", "unit"),
    [
        ("throughput", 2.0, "samples/s"),
        ("acceptance_rate", 0.75, "1"),
        ("effective_sample_size", 1.5, "samples"),
        ("effective_sample_throughput", 0.25, "samples/s"),
        ("r_hat", 1.2, "1"),
        ("achieved_flops", 20.0, "FLOP/s"),
    ],
)
def test_metrics_of_chains(name, value, unit):
    metric = every_metric()[name](RUN)
    assert (metric.value, metric.unit) == (pytest.approx(value), unit)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([Step(1.0, 0.0, 4, 1, 1.0)], "no samples were drawn"),
        (STEPS, "cut short"),
        ([*STEPS, Diagnosed(3, 6.0, None, None)], "too little to judge: draw 4 timed samples"),
        ([*STEPS, Diagnosed(2, 4.0, None, None)], "memory was kept for 2 draws of so many chains"),
    ],
)
def test_without_a_judgement_there_is_a_reason(messages, said):
    run = fold([Phase("steady", 0.0), *messages], "samples", "sampling")
    for name in ("effective_sample_size", "effective_sample_throughput", "r_hat"):
        metric = every_metric()[name](run)
        assert metric.value is None and said in str(metric.reason)
    assert (chains.acceptance_rate(run).value is None) == (said == "no samples were drawn")
    assert "sampling has no loss" in str(training.final_loss(run).reason)


def test_operations_are_reckoned_from_the_sizes():
    """For each leapfrog step and observation forward, gradients of weights, and of inputs but the first layer's."""
    model, observations = CARD.problem["model"], CARD.problem["input"]["observations"]
    layers = [model["features"] * model["hidden"], model["hidden"], 1]
    products = 2 * sum(layers) + sum(layers[1:])
    steps = CARD.problem["sampler"]["leapfrog_steps"]
    assert CARD.flops_per_unit("sampling") == 2 * products * observations * steps
    assert CARD.problem["parameters"] == sum(layers) + model["hidden"] + 1 + 1
