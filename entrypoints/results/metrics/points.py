"""Metrics of micro-benchmarks."""

from __future__ import annotations

from typing import Sequence

from entrypoints.results.measurement import NO_STEP, Measurement
from entrypoints.results.metrics.metric import Metric
from entrypoints.results.points import timed_points


def peak_bandwidth(measurement: Measurement) -> Metric:
    """The largest bus bandwidth of any point of a micro-benchmark."""
    rates = [timed.bus_bandwidth for timed in timed_points(measurement)]
    return _largest_rate(rates, "GB/s", "matmul has operations in its place: see peak_flops")


def peak_flops(measurement: Measurement) -> Metric:
    """The most operations per second at any size of matrices."""
    return _largest_rate(
        [timed.flops for timed in timed_points(measurement)], "FLOP/s", "only matmul counts operations"
    )


def small_message_latency(measurement: Measurement) -> Metric:
    """Median over timed sweeps of the time of a call at the smallest size of a micro-benchmark."""
    smallest = min(timed_points(measurement), key=lambda timed: timed.point.work, default=None)
    value = smallest and smallest.typical
    return Metric(value, "s", None if value else NO_STEP)


def _largest_rate(rates: Sequence[float | None], unit: str, absent: str) -> Metric:
    values = [rate for rate in rates if rate is not None]
    return Metric(max(values), unit) if values else Metric(None, unit, f"no sweep was finished, or {absent}")
