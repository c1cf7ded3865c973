"""Metrics of requests to an engine. Times count from when a request was due.

A percentile of a load that the client could not send, or that the engine could not keep up with, is none.
"""

from __future__ import annotations

from typing import Callable

from entrypoints.contract.messages import Served
from entrypoints.results import serving
from entrypoints.results.measurement import NO_STEP, Measurement
from entrypoints.results.metrics.metric import (
    NOT_SERVED,
    Metric,
    from_energy,
    no_window,
    percentile,
    percentile_of_served,
)


def time_to_first_token_p90(measurement: Measurement) -> Metric:
    """Time within which nine of ten requests had their first token."""
    return _of_requests(measurement, "time_to_first_token", 0.90)


def time_per_output_token_p50(measurement: Measurement) -> Metric:
    """Median over requests of the mean time of each token after the first."""
    return _of_requests(measurement, "time_per_output_token", 0.50)


def time_per_output_token_p90(measurement: Measurement) -> Metric:
    """The same that nine of ten requests keep."""
    return _of_requests(measurement, "time_per_output_token", 0.90)


def time_per_output_token_p99(measurement: Measurement) -> Metric:
    """The same that 99 % of the requests keep."""
    return _of_requests(measurement, "time_per_output_token", 0.99)


def sent_late_p99(measurement: Measurement) -> Metric:
    """Time after it was due within which the client sent 99 % of the requests."""
    late = serving.times(measurement.timed_served, "sent_late")
    return percentile(late, 0.99, "requests") if late else Metric(None, "s", _not_served(measurement))


def input_token_throughput(measurement: Measurement) -> Metric:
    """Tokens of prompts over the timed window."""
    return _tokens(measurement, lambda served: served.prompt_tokens)


def output_token_throughput(measurement: Measurement) -> Metric:
    """New tokens over the timed window."""
    return _tokens(measurement, lambda served: served.new_tokens)


def output_token_throughput_per_device(measurement: Measurement) -> Metric:
    """New tokens over the timed window and the number of devices."""
    rate = output_token_throughput(measurement)
    if rate.value is None or measurement.device is None:
        return Metric(None, rate.unit, rate.reason or "the session did not say how many devices it has")
    return Metric(rate.value / measurement.device.devices, rate.unit)


def energy_per_output_token(measurement: Measurement) -> Metric:
    """Energy of the timed window, prompts included, over its new tokens."""
    new = sum(served.new_tokens for served in measurement.timed_served)
    if not new:
        return Metric(None, "J/token", _not_served(measurement))
    return from_energy(measurement, "J/token", lambda joules: joules / new)


def goodput(measurement: Measurement) -> Metric:
    """Largest rate of arrivals at which the 99th percentiles of the times to the first and per further token keep their
    limits, to 5 %: found by trials, and proved by the requests of the timed window."""
    load, requests = measurement.serving, measurement.timed_served
    if load is None or not requests:
        return Metric(None, "requests/s", _not_served(measurement))
    if not load["find_goodput"]:
        return Metric(None, "requests/s", "it was not looked for (--find-goodput)")
    rate = serving.found_rate(measurement.trials, load)
    reason = serving.failing(requests, load) if rate else "no rate keeps the limits, see serving.trials"
    return Metric(None if reason else rate, "requests/s", reason)


def _of_requests(measurement: Measurement, name: str, share: float) -> Metric:
    return percentile_of_served(measurement, serving.times(measurement.timed_served, name), share, "requests")


def _tokens(measurement: Measurement, count: Callable[[Served], int]) -> Metric:
    reason = no_window(measurement) or (None if measurement.timed_served else NOT_SERVED)
    if reason:
        return Metric(None, "tokens/s", reason)
    return Metric(sum(map(count, measurement.timed_served)) / measurement.window, "tokens/s")


def _not_served(measurement: Measurement) -> str:
    return NO_STEP if measurement.serving else NOT_SERVED
