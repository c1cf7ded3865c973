"""How many requests prove a limit, and the search for the largest rate that keeps it."""

from __future__ import annotations

import asyncio
import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.contract import cards
from entrypoints.contract.messages import Phase, Scheduled, Step, Trial
from entrypoints.results.metrics.metric import LEAST
from entrypoints.results.serving import first_unasked, found_rate
from entrypoints.serving.client import Answered, Load
from entrypoints.serving.early_stopping import FEWEST, REQUESTS, most_over
from entrypoints.serving.load import plan
from entrypoints.serving.rate_search import WIDTH, RateSearch, enough, first_rate
from entrypoints.worker.serving_check import deviation
from entrypoints.worker.serving_run import TIMED, ServingRun

LOAD: Any = {
    "engine": "transformers",
    "arrivals": "poisson",
    "rate": 3.0,
    "burstiness": None,
    "concurrency": None,
    "prompt_lengths": [4, 4],
    "answer_lengths": [1, 1],
    "first_token_limit": 2.0,
    "token_limit": 0.1,
    "find_goodput": True,
}


@pytest.mark.parametrize("share", [share for share in LEAST if share < 1])
def test_percentiles_need_as_many_requests_as_prove_one_over_the_limit(share):
    assert most_over(LEAST[share], share) == 1
    assert most_over(LEAST[share] - 1, share) == 0


def test_the_requests_of_a_run_prove_a_99th_percentile():
    assert most_over(REQUESTS, 0.99) == 1
    assert (most_over(FEWEST - 1, 0.99), most_over(FEWEST, 0.99)) == (None, 0)


# Of MLPerf's table for the 99th percentile: inference_rules, "early stopping".
@pytest.mark.parametrize(("count", "over"), [(458, None), (459, 0), (661, 0), (662, 1), (837, 1), (838, 2)])
def test_as_many_may_be_over_the_limit_as_mlperf_allows(count, over):
    assert most_over(count, 0.99) == over


@given(st.integers(10, 3000), st.sampled_from([0.9, 0.99]))
def test_a_system_that_just_misses_passes_once_in_a_hundred_runs(count, share):
    allowed = most_over(count, share)
    chance = sum(
        math.exp(
            math.lgamma(count + 1)
            - math.lgamma(over + 1)
            - math.lgamma(count - over + 1)
            + over * math.log(1 - share)
            + (count - over) * math.log(share)
        )
        for over in range((-1 if allowed is None else allowed) + 1)
    )
    assert chance <= 0.01 + 1e-9


def searched(first, passes):
    search, tried = RateSearch(first), []
    while (rate := search.next()) is not None:
        tried.append(rate)
        search.tell(rate, passes(rate))
    return search.found, tried


@given(st.floats(0.01, 1000), st.floats(0.01, 1000))
def test_the_search_ends_below_the_largest_rate_and_within_its_width(first, capacity):
    found, tried = searched(first, lambda rate: rate <= capacity)
    if found is not None:  # from 100,000 times as much, trials run out
        assert found <= capacity <= found * (1 + WIDTH)
        assert tried.count(found) == 2
    assert found is not None or not 1e-4 < first / capacity < 1e4


def test_a_rate_that_passes_only_once_is_not_taken():
    seen = []

    def passes(rate):
        seen.append(rate)
        return rate <= 10 and not (rate > 8 and seen.count(rate) == 2)

    found, _ = searched(1.0, passes)
    assert found is not None
    assert found <= 8 < found * (1 + WIDTH)


def test_requests_of_a_rate_last_as_long_as_a_queue_needs_to_exceed_the_limit():
    assert enough(4.0, 2.0, REQUESTS) == REQUESTS  # 175 s
    assert enough(100.0, 2.0, REQUESTS) == 4000  # 40 s, 20 times the limit
    assert enough(100.0, 2.0, 5000) == 5000


def test_searches_begin_up_to_a_step_above_what_is_asked_for():
    begun = {first_rate(100.0) for _ in range(20)}
    assert len(begun) > 1 and all(100.0 <= rate <= 100.0 * (1 + WIDTH) for rate in begun)


def test_where_no_rate_keeps_the_limits_none_is_found():
    found, tried = searched(1.0, lambda rate: False)
    assert found is None
    assert len(tried) < 30


def test_two_searches_of_a_scattering_engine_agree():
    """Near the largest rate, trials pass by chance: by less the further they are above it."""
    draws = random.Random(4)
    ends = [searched(3.0, lambda rate: rate * draws.gauss(1, 0.02) <= 25)[0] for _ in range(20)]
    assert all(end is not None and 25 / 1.15 <= end <= 25 * 1.05 for end in ends)


class Scripted(ServingRun):
    """A run whose trials are not sent: those to be timed end as is given, in order; others pass up to a rate."""

    def __init__(self, verdicts, capacity):
        self.verdicts, self.capacity = list(verdicts), capacity
        self.sent: list[Any] = []
        configuration: Any = SimpleNamespace(warmup_steps=2, steps=702, seed=0)
        engine: Any = None
        super().__init__(engine, cards.load()["llama_1b"], configuration, LOAD, self.sent.append)

    def load(self, part, count, rate=None):
        kind: Any = (part, rate)
        assert rate is None or count == enough(rate, 2.0, 3 if part == TIMED else REQUESTS)
        return Load(plan(self.serving, min(count, 3), 0, part, rate), [], "poisson", kind)

    async def trial(self, load):
        part, rate = load.concurrency
        self.begun = 100.0
        answers = [
            Answered(number, 100.0 + at, 100.0 + at, 4, [101.0 + at]) for number, (at, *_) in enumerate(load.planned)
        ]
        reason = self.verdicts.pop(0) if part == TIMED else None if rate <= self.capacity else "over"
        return answers, reason


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_the_last_trial_is_the_timed_window_and_if_it_fails_the_search_goes_on(failures):
    run = Scripted(["over"] * failures + [None], 10.0)
    assert asyncio.run(run.search())
    trials = [message for message in run.sent if isinstance(message, Trial)]
    phases = [message for message in run.sent if isinstance(message, Phase)]
    steps: list[Any] = [message for message in run.sent if isinstance(message, Step)]
    assert [(phase.name, phase.at) for phase in phases] == [("steady", 100.0)]
    assert isinstance(run.sent[-1], Scheduled) and len(steps) == 3
    found: Any = found_rate(trials, LOAD)
    lost = [trial.rate for trial in trials if trial.reason and trial.rate <= 10.0]
    assert len(lost) == failures and all(rate > found for rate in lost)
    assert failures or found <= 10.0 <= found * (1 + WIDTH)
    timed = run.load(TIMED, enough(found, 2.0, 3), found).planned
    assert [step.served.due for step in steps] == pytest.approx([each.at for each in timed])
    assert first_unasked(trials, LOAD) is None


def test_a_search_whose_last_trials_all_fail_ends_without_a_window():
    run = Scripted(["over"] * 100, 10.0)
    assert not asyncio.run(run.search())
    assert not [message for message in run.sent if isinstance(message, Phase)]
    assert len([message for message in run.sent if isinstance(message, Trial)]) <= 30


def test_one_prompt_that_rounding_sends_to_another_expert_is_not_the_median():
    ours = [np.log(np.array([0.5, 0.3, 0.2]))] * 3
    close, flipped = {0: math.log(0.5) + 0.01}, {2: -3.0}
    assert deviation([close, flipped, close], ours) > 1
    assert deviation([close, flipped, close], ours, median=True) == pytest.approx(0.01)
    assert deviation([flipped, close, flipped], ours, median=True) > 1
    for median in (False, True):
        assert math.isnan(deviation([close, {}, close], ours, median=median))
        assert math.isnan(deviation([close, close, {0: math.log(0.5), 1: math.nan}], ours, median=median))
        assert math.isnan(deviation([close], ours, median=median))
