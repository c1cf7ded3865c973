"""Metrics of throughput, and of the data that it waits for."""

from __future__ import annotations

import math

from entrypoints.results.measurement import NO_STEP, Measurement
from entrypoints.results.metrics.metric import Metric, no_window, units

IN_REQUESTS = "making its input is part of a request: see latency_preprocessing_mean"


def throughput(measurement: Measurement) -> Metric:
    """Units over the timed window, waits for data included."""
    unit, why = f"{measurement.unit}/s", no_window(measurement)
    return Metric(None, unit, why) if why else Metric(units(measurement) / measurement.window, unit)


def throughput_per_device(measurement: Measurement) -> Metric:
    """Throughput over the number of devices in use, each of the accelerator's granularity."""
    rate = throughput(measurement)
    if rate.value is None or measurement.device is None:
        return Metric(None, rate.unit, rate.reason or "the session did not say how many devices it has")
    return Metric(rate.value / measurement.device.devices, rate.unit)


def data_wait_fraction(measurement: Measurement) -> Metric:
    """Fraction of the timed window that was spent waiting for data."""
    if why := no_window(measurement):
        return Metric(None, "1", why)
    if measurement.timed_requests:
        return Metric(None, "1", IN_REQUESTS)
    return Metric(sum(step.wait for step in measurement.timed_steps) / measurement.window, "1")


def decode_rate(measurement: Measurement) -> Metric:
    """Units over the seconds in which they were decoded and augmented, or read as prepared text, summed over all
    workers: the rate of one worker."""
    return _decoded(measurement, workers=1)


def decode_rate_of_all_workers(measurement: Measurement) -> Metric:
    """The rate of one worker times their number: their joint rate as long as none has to wait."""
    return _decoded(measurement, workers=(measurement.data and measurement.data.workers) or 1)


def _decoded(measurement: Measurement, workers: int) -> Metric:
    unit, steps = f"{measurement.unit}/s", measurement.timed_steps
    if not steps:
        return Metric(None, unit, NO_STEP)
    if measurement.timed_requests:
        return Metric(None, unit, IN_REQUESTS)
    seconds = math.fsum(step.decode_seconds or 0.0 for step in steps)
    if not seconds:
        return Metric(None, unit, "nothing was decoded")
    return Metric(workers * units(measurement) / seconds, unit)
