"""Metrics of the latency of requests."""

from __future__ import annotations

import math
from typing import Callable

from entrypoints.contract.messages import Request
from entrypoints.results.measurement import NO_STEP, Measurement
from entrypoints.results.metrics.metric import Metric, percentile, percentile_of_served

NO_REQUESTS = "no requests were made (--concurrency)"


def latency_mean(measurement: Measurement) -> Metric:
    """Mean time of a request, from its raw input on the host to its output there."""
    return _request_mean(measurement, lambda request: request.latency)


def latency_p50(measurement: Measurement) -> Metric:
    """Time within which half of the requests were answered."""
    return _latency(measurement, 0.50)


def latency_p90(measurement: Measurement) -> Metric:
    """Time within which nine of ten requests were answered."""
    return _latency(measurement, 0.90)


def latency_p95(measurement: Measurement) -> Metric:
    """Time within which 95 % of the requests were answered."""
    return _latency(measurement, 0.95)


def latency_p99(measurement: Measurement) -> Metric:
    """Time within which 99 % of the requests were answered."""
    return _latency(measurement, 0.99)


def latency_max(measurement: Measurement) -> Metric:
    """Latency of the slowest request."""
    return _latency(measurement, 1.0)


def latency_preprocessing_mean(measurement: Measurement) -> Metric:
    """Part of the mean latency in which the input was prepared."""
    return _request_mean(measurement, lambda request: request.preprocessing)


def latency_transfer_mean(measurement: Measurement) -> Metric:
    """Part of the mean latency in which the input went to the device."""
    return _request_mean(measurement, lambda request: request.transfer)


def latency_compute_mean(measurement: Measurement) -> Metric:
    """Part of the mean latency in which the device computed."""
    return _request_mean(measurement, lambda request: request.compute)


def latency_retrieval_mean(measurement: Measurement) -> Metric:
    """Part of the mean latency in which the output came back."""
    return _request_mean(measurement, lambda request: request.retrieval)


def latency_other_mean(measurement: Measurement) -> Metric:
    """The rest of the mean latency: waiting for other streams and for the interpreter."""
    return _request_mean(measurement, lambda request: request.other)


def _request_mean(measurement: Measurement, value_of: Callable[[Request], float]) -> Metric:
    requests = measurement.timed_requests
    if not requests:
        return Metric(None, "s", _no_requests(measurement))
    return Metric(math.fsum(map(value_of, requests)) / len(requests), "s")


def _latency(measurement: Measurement, share: float) -> Metric:
    times = [request.latency for request in measurement.timed_requests]
    if times and measurement.serving and share < 1:
        return percentile_of_served(measurement, times, share, "requests")
    return percentile(times, share, "requests") if times else Metric(None, "s", _no_requests(measurement))


def _no_requests(measurement: Measurement) -> str:
    return NO_REQUESTS if measurement.timed_steps else NO_STEP
