"""Metrics of micro-benchmarks."""

from __future__ import annotations

from typing import Sequence

from entrypoints.contract.points import CHECKPOINT, MATMUL, MEMORY_COPY, SAVE, STAGE
from entrypoints.results.copies import (
    NO_COPIES,
    NO_SWEEP,
    OTHERS_IN_PLACE,
    Bandwidths,
    CopyRate,
    Fastest,
    absent,
    bandwidths,
)
from entrypoints.results.measurement import NO_STEP, Measurement
from entrypoints.results.metrics.metric import Metric
from entrypoints.results.points import timed_points
from entrypoints.system.facts import MIB

IN_PLACE = {MATMUL: f"{MATMUL} has peak_flops in its place", MEMORY_COPY: OTHERS_IN_PLACE}  # of peak_bandwidth


def memory_bandwidth(measurement: Measurement) -> Metric:
    """The largest bandwidth of copies of at least four times the last-level caches, read and written bytes together."""
    return _rate(_bandwidths(measurement).memory)


def memory_bandwidth_size(measurement: Measurement) -> Metric:
    """The size of the buffer at the bandwidth of memory."""
    return _size(_bandwidths(measurement).memory)


def cached_bandwidth(measurement: Measurement) -> Metric:
    """The largest bandwidth of copies whose buffers the last-level caches hold, counted likewise."""
    return _rate(_bandwidths(measurement).cached)


def cached_bandwidth_size(measurement: Measurement) -> Metric:
    """The size of the buffer at the bandwidth of caches."""
    return _size(_bandwidths(measurement).cached)


def peak_bandwidth(measurement: Measurement) -> Metric:
    """The largest bus bandwidth at any size, between ranks, between host and device, or to storage."""
    timed = timed_points(measurement)
    operation = timed[0].point.operation if timed else None
    if operation is not None and operation in IN_PLACE:
        return Metric(None, "GB/s", IN_PLACE[operation])
    return _largest([each.bus_bandwidth for each in timed], "GB/s", NO_SWEEP)


def peak_flops(measurement: Measurement) -> Metric:
    """The most operations per second at any size of matrices."""
    timed = timed_points(measurement)
    counted = not timed or timed[0].point.operation == MATMUL
    return _largest([each.flops for each in timed], "FLOP/s", NO_SWEEP if counted else "only matmul counts operations")


def checkpoint_blocked_fraction(measurement: Measurement) -> Metric:
    """At the largest size, the seconds for which an asynchronous save holds its caller over those of a synchronous."""
    timed = timed_points(measurement)
    if timed and timed[0].point.operation != CHECKPOINT:
        return Metric(None, "1", "only checkpoint saves")
    largest = max((each.point.size for each in timed), default=None)
    seconds = {each.point.mode: each.typical for each in timed if each.point.size == largest}
    whole, blocked = seconds.get(SAVE), seconds.get(STAGE)
    return Metric(None, "1", NO_SWEEP) if not whole or not blocked else Metric(blocked / whole, "1")


def small_message_latency(measurement: Measurement) -> Metric:
    """Median over timed sweeps of the time of a call at the smallest size of a micro-benchmark."""
    smallest = min(timed_points(measurement), key=lambda timed: timed.point.work, default=None)
    value = smallest and smallest.typical
    return Metric(value, "s", None if value else NO_STEP)


def _bandwidths(measurement: Measurement) -> Bandwidths:
    timed = timed_points(measurement)
    if timed and timed[0].point.operation != MEMORY_COPY:
        return absent(NO_COPIES)
    rates = [CopyRate(each.point.size, each.bus_bandwidth) for each in timed if each.bus_bandwidth is not None]
    return bandwidths(rates, measurement.omitted, measurement.cache)


def _rate(fastest: Fastest) -> Metric:
    return Metric(fastest.copy and fastest.copy.bandwidth, "GB/s", fastest.reason)


def _size(fastest: Fastest) -> Metric:
    return Metric(fastest.copy and fastest.copy.size / MIB, "MiB", fastest.reason)


def _largest(rates: Sequence[float | None], unit: str, absent: str) -> Metric:
    values = [rate for rate in rates if rate is not None]
    return Metric(max(values), unit) if values else Metric(None, unit, absent)
