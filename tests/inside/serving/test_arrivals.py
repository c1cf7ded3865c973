"""The load on an engine: arrivals, lengths and prompts follow from a seed, and are what they are called."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.serving.load import CLOSED, CONSTANT, GAMMA, OFFLINE, POISSON, plan, prompt

MANY = 20000


def load(arrivals, rate=None, burstiness=None, prompts=(128, 128), new=(8, 8)):
    return {
        "engine": "vllm",
        "arrivals": arrivals,
        "rate": rate,
        "burstiness": burstiness,
        "concurrency": None,
        "prompt_lengths": prompts,
        "answer_lengths": new,
        "first_token_limit": 1.0,
        "token_limit": 0.1,
        "find_goodput": False,
    }


def gaps(planned):
    return [later.at - earlier.at for earlier, later in zip(planned, planned[1:])]


# Of gamma-distributed gaps the variance over the mean's square is 1 over the shape.
@pytest.mark.parametrize(
    ("arrivals", "burstiness", "spread"),
    [(POISSON, None, 1.0), (GAMMA, 0.25, 4.0), (GAMMA, 4.0, 0.25), (CONSTANT, None, 0.0)],
)
def test_gaps_have_the_mean_and_the_spread_of_their_kind(arrivals, burstiness, spread):
    between = gaps(plan(load(arrivals, 50.0, burstiness), MANY, seed=1))
    mean = statistics.fmean(between)
    assert mean == pytest.approx(1 / 50, rel=0.05)
    assert statistics.pvariance(between) / mean**2 == pytest.approx(spread, rel=0.15, abs=1e-9)


def test_gaps_of_poisson_arrivals_do_not_depend_on_those_before():
    between = gaps(plan(load(POISSON, 1.0), MANY, seed=2))
    after_long = [later for earlier, later in zip(between, between[1:]) if earlier > 2.0]
    assert statistics.fmean(after_long) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("arrivals", [CLOSED, OFFLINE])
def test_without_an_open_loop_all_is_due_at_once(arrivals):
    assert {each.at for each in plan(load(arrivals), 5, seed=0)} == {0.0}


@given(st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_the_seed_and_the_part_decide(seed, part):
    how = load(POISSON, 3.0, prompts=(10, 90), new=(1, 7))
    planned = plan(how, 30, seed, part)
    assert planned == plan(how, 30, seed, part)
    assert planned != plan(how, 30, seed, part + 1)
    assert planned != plan(how, 30, seed + 1, part)
    assert all(10 <= each.prompt <= 90 and 1 <= each.new <= 7 for each in planned)
    assert [each.at for each in planned] == sorted(each.at for each in planned)


def test_another_rate_only_stretches_time():
    once, twice = (plan(load(POISSON, 7.0), 50, seed=3, rate=rate) for rate in (7.0, 14.0))
    assert [each.at for each in once] == pytest.approx([2 * each.at for each in twice])


def test_lengths_are_drawn_from_the_whole_range():
    lengths = [each.prompt for each in plan(load(POISSON, 1.0, prompts=(64, 66)), 3000, seed=0)]
    assert set(lengths) == {64, 65, 66}
    assert statistics.fmean(lengths) == pytest.approx(65, abs=0.05)


def test_prompts_share_no_beginning():
    first = [tuple(prompt(50000, 40, 0, 2, number)[:2]) for number in range(200)]
    assert len(set(first)) == 200
    assert all(0 <= token < 50 for token in prompt(50, 300, 0, 0, 0))
