"""Latency of requests made by hand: percentiles by their definition, and no percentile of too few."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.contract.messages import Message, Phase, Request, Step
from entrypoints.results import result
from entrypoints.results.measurement import NO_STEP, fold
from entrypoints.results.metrics import latency, throughput
from entrypoints.results.metrics.by_workload import every_metric

PERCENTILES = {
    "latency_p50": (0.5, 11),
    "latency_p90": (0.9, 64),
    "latency_p95": (0.95, 130),
    "latency_p99": (0.99, 662),
}
WARMUP: list[Message] = [Phase("compile", 0.0), Step(9.0, 0.0, 1, 0, None, Request(9.0, 1.0, 1.0, 1.0, 1.0))]


def measured(requests):
    """A run with these timed requests, each answered a second after the one before, and a slow one before them."""
    steps = [Step(1.0, 0.0, 4, 0, None, request) for request in requests]
    return fold([*WARMUP, Phase("warmup", 9.0), Phase("steady", 9.0), *steps], "images", "inference")


def of_latencies(latencies):
    return measured([Request(latency, 0.0, 0.0, latency, 0.0) for latency in latencies])


RUN = measured([Request(1.0, 0.1, 0.2, 0.3, 0.25), Request(3.0, 0.3, 0.2, 0.9, 0.35)])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("latency_mean", 2.0),
        ("latency_max", 3.0),
        ("latency_preprocessing_mean", 0.2),
        ("latency_transfer_mean", 0.2),
        ("latency_compute_mean", 0.6),
        ("latency_retrieval_mean", 0.3),
        ("latency_other_mean", 0.7),
        ("step_time_mean", 1.0),
    ],
)
def test_values(name, value):
    metric = every_metric()[name](RUN)
    assert metric.value == pytest.approx(value, rel=1e-12)
    assert (metric.unit, metric.reason) == ("s", None)


def test_throughput_counts_the_answers_of_the_window():
    assert throughput.throughput(RUN).value == 8 / 2


@pytest.mark.parametrize("name", PERCENTILES)
def test_a_percentile_needs_as_many_requests_as_bound_it(name):
    """The least count of which the second largest lies above the percentile with 99 % probability: binomial."""
    share, least = PERCENTILES[name]

    def missed(count):
        return share**count + count * (1 - share) * share ** (count - 1)

    assert missed(least) <= 0.01 < missed(least - 1)
    percentile = every_metric()[name]
    assert percentile(of_latencies([1.0] * least)).value == 1.0
    few = percentile(of_latencies([1.0] * (least - 1)))
    assert few.value is None and f"{least - 1} timed requests, and this needs {least}" in str(few.reason)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40), st.sampled_from(sorted(PERCENTILES)))
def test_a_percentile_has_its_share_of_the_latencies_below_it(block, name):
    latencies = block * math.ceil(662 / len(block))
    value, most = (every_metric()[metric](of_latencies(latencies)).value for metric in (name, "latency_max"))
    assert value is not None and most is not None
    rank = PERCENTILES[name][0] * (len(latencies) - 1)  # from 0
    assert sum(latency < value for latency in latencies) <= math.ceil(rank)
    assert sum(latency <= value for latency in latencies) >= math.floor(rank) + 1
    assert min(latencies) <= value <= most


@given(st.lists(st.tuples(*[st.floats(0, 10)] * 5), min_size=1, max_size=20))
def test_the_means_of_the_parts_add_up_to_the_mean_latency(parts):
    run = measured([Request(sum(values), *values[1:]) for values in parts])
    every = every_metric()
    means = [every[f"latency_{part}_mean"](run).value for part in result.PARTS]
    assert math.fsum(mean for mean in means if mean is not None) == pytest.approx(latency.latency_mean(run).value)
    assert None not in means


def test_without_requests_every_latency_is_null_and_says_how_to_make_some():
    run = fold([Phase("steady", 0.0), Step(1.0, 0.0, 4, 0, None)], "images", "inference")
    named = {name: metric(run) for name, metric in every_metric().items() if name.startswith("latency")}
    assert len(named) == 11
    assert {(metric.value, metric.reason) for metric in named.values()} == {(None, latency.NO_REQUESTS)}
    assert result.requests(run) == {"reason": latency.NO_REQUESTS}


def test_a_run_that_ended_before_the_window_says_so():
    for name in ("latency_mean", "latency_p99"):
        assert every_metric()[name](measured([])).reason == NO_STEP


def test_what_streams_make_meaningless_is_null():
    for name in ("data_wait_fraction", "decode_rate", "step_time_p50", "step_time_p99"):
        metric = every_metric()[name](RUN)
        assert metric.value is None and "latency" in str(metric.reason)
    assert result.steps(RUN)["data_wait_seconds"] is None


def test_the_part_on_requests():
    requests = result.requests(RUN)
    assert requests["count"] == 2 and requests["latencies"] == [1.0, 3.0]
    assert requests["quantiles"]["p90"] == pytest.approx(2.8)
    other = requests["parts"]["other"]
    assert other["p0"] == pytest.approx(0.15) and other["p100"] == pytest.approx(1.25)
    assert list(requests["parts"]) == list(result.PARTS)


def test_latencies_are_kept_up_to_a_thousand():
    assert len(result.requests(of_latencies([1.0] * 1000))["latencies"]) == 1000
    assert result.requests(of_latencies([1.0] * 1001))["latencies"] is None
