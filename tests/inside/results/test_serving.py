"""What requests to an engine prove: limits, a queue that grows, a client that is late."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from entrypoints.contract.messages import Phase, Request, Served, Step, Trial
from entrypoints.results import serving
from entrypoints.results.measurement import fold
from entrypoints.results.metrics import serving as metrics
from entrypoints.results.metrics.generation import time_between_tokens_p99, time_to_first_token_p99
from entrypoints.results.metrics.latency import latency_p99

LOAD: Any = {
    "engine": "vllm",
    "arrivals": "poisson",
    "rate": 10.0,
    "burstiness": None,
    "concurrency": None,
    "prompt_lengths": [128, 128],
    "answer_lengths": [5, 5],
    "first_token_limit": 1.0,
    "token_limit": 0.1,
    "find_goodput": False,
}


def changed(**others: Any) -> Any:
    return {**LOAD, **others}


def served(due=0.0, first=0.1, gap=0.02, late=0.0):
    return Served(due, late, 128, first, [gap] * 4)


def measured(requests, trials=(), **load):
    steps = [
        Step(0.1, 0.0, 1, 0, None, Request(each.first + sum(each.gaps), 0, 0, 0, 0), served=each) for each in requests
    ]
    messages = [Phase("steady", 100.0), *trials, *steps]
    return fold(messages, "sequences", "serving", serving=changed(**load))


def queue(rate, seconds_of_one, count=700, seed=1):
    """Requests to an engine that serves one after the other (M/D/1)."""
    draws, due, free, requests = random.Random(seed), 0.0, 0.0, []
    for _ in range(count):
        due += draws.expovariate(rate)
        free = max(due, free) + seconds_of_one
        requests.append(served(due, free - due, 0.0))
    return requests


def test_one_of_662_may_be_over_a_limit_and_two_may_not():
    good, slow = [served(due=number) for number in range(661)], served(first=2.0)
    assert serving.failing([*good, slow], LOAD) is None
    assert "time_to_first_token: 2 of 662" in str(serving.failing([*good[1:], slow, slow], LOAD))
    assert "time_per_output_token: 2 of 662" in str(serving.failing([*good[1:], *[served(gap=0.2)] * 2], LOAD))
    assert "prove no" in str(serving.failing(good[:458], LOAD))


def test_a_trial_is_lost_once_too_many_of_all_are_over_a_limit():
    assert serving.over([served(first=2.0)], LOAD, 700) is None
    assert "of 700 1 may be" in str(serving.over([served(first=2.0)] * 2, LOAD, 700))


@pytest.mark.parametrize("seed", range(5))
def test_a_queue_that_grows_is_found_and_one_that_does_not_is_not(seed):
    assert serving.queue_grew(queue(10.0, 0.115, seed=seed), LOAD)  # 15 % more than it can serve
    assert serving.queue_grew(queue(10.0, 0.05, seed=seed), LOAD) is None
    assert serving.queue_grew(queue(10.0, 0.07, seed=seed), LOAD) is None


def test_a_rise_that_is_small_beside_the_limit_is_no_queue():
    requests = queue(10.0, 0.115)  # by 10 s
    assert serving.queue_grew(requests, changed(first_token_limit=20.0))
    assert serving.queue_grew(requests, changed(first_token_limit=200.0)) is None


def test_a_closed_loop_has_no_queue_that_grows():
    assert serving.growth(queue(10.0, 0.115), changed(arrivals="closed")) is None


def test_percentiles_are_those_of_the_requests():
    requests = [served(number, 0.001 * number, 0.0001 * number) for number in range(1, 701)]
    random.Random(0).shuffle(requests)
    requests = [each._replace(due=float(number)) for number, each in enumerate(requests)]
    measurement = measured(requests)
    assert time_to_first_token_p99(measurement).value == pytest.approx(0.693, abs=1e-3)
    assert metrics.time_per_output_token_p50(measurement).value == pytest.approx(0.03505)
    assert time_between_tokens_p99(measurement).value == pytest.approx(0.0693, abs=1e-4)
    assert latency_p99(measurement).value == pytest.approx(0.693 + 4 * 0.0693, abs=1e-3)
    assert metrics.output_token_throughput(measurement).value == pytest.approx(50.0)
    assert metrics.input_token_throughput(measurement).value == pytest.approx(1280.0)


@pytest.mark.parametrize("why", ["queue grew", "late itself"])
def test_no_percentile_where_the_load_was_not_what_it_is_called(why):
    late = [served(number, 0.1, late=0.02) for number in range(700)]
    measurement = measured(queue(10.0, 0.12) if why == "queue grew" else late)
    for metric in (time_to_first_token_p99, time_between_tokens_p99, latency_p99, metrics.time_per_output_token_p90):
        value, _, reason = metric(measurement)
        assert value is None
        assert why in str(reason)
    assert metrics.output_token_throughput(measurement).value is not None
    assert metrics.sent_late_p99(measurement).value is not None


def test_goodput_is_what_trials_found_and_the_window_proves():
    rates = [10.0, 20.0, 200**0.5]
    rates += [(10 * 200**0.5) ** 0.5]
    trials = [Trial(0, 1, 10.0, 700, ""), Trial(1, 2, 20.0, 9, "over"), Trial(2, 3, rates[2], 9, "over")]
    good = [served(due=number / 10) for number in range(700)]
    assert metrics.goodput(measured(good, trials, find_goodput=True)).value is None  # the search had not ended
    low, high = 10.0, rates[2]
    while high / low > 1.05:
        rate = (low * high) ** 0.5
        trials.append(Trial(4, 5, rate, 9, "over"))
        high = rate
    trials.append(Trial(6, 7, 10.0, 700, ""))
    found = measured(good, trials, find_goodput=True)
    assert metrics.goodput(found).value == 10.0
    assert "not looked for" in str(metrics.goodput(measured(good)).reason)
    slow = dataclasses.replace(found, timed_steps=measured([served(first=3.0)] * 700).timed_steps)
    assert "over the limit" in str(metrics.goodput(slow).reason)
    assert serving.first_unasked(trials, changed(find_goodput=True)) is None
    assert serving.first_unasked([trials[0], trials[2]], LOAD) == 1
    assert serving.first_unasked([trials[0]._replace(rate=10.4)], LOAD) is None
    assert [serving.first_unasked([trials[0]._replace(rate=rate)], LOAD) for rate in (9.9, 10.6)] == [0, 0]
    late = Trial(7, 8, 20.0, 700, f"{serving.CLIENT_LATE}: by a second")  # which is repeated
    assert serving.first_unasked([trials[0], late, *trials[1:]], changed(find_goodput=True)) is None
    assert serving.found_rate([trials[0], late, *trials[1:]], changed(find_goodput=True)) == 10.0


def test_energy_is_that_of_the_window_over_new_tokens():
    assert metrics.energy_per_output_token(measured([served()])).unit == "J/token"
    assert metrics.energy_per_output_token(measured([served()])).value is None
