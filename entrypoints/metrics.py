"""Metrics: every public function here is one, under its own name.

Each is a pure function of a Measurement; a number that cannot be told is None, with the reason.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from entrypoints.measurement import Measurement
from entrypoints.quantiles import quantile

NO_STEP = "no step of the timed window was finished"


class Metric(NamedTuple):
    """A number and its unit; where there is none, why."""

    value: float | None
    unit: str
    reason: str | None = None


def throughput(measurement: Measurement) -> Metric:
    """Units over the timed window, waits for data included."""
    unit = f"{measurement.unit}/s"
    if not measurement.timed_steps:
        return Metric(None, unit, NO_STEP)
    return Metric(sum(step.units for step in measurement.timed_steps) / measurement.window, unit)


def step_time_mean(measurement: Measurement) -> Metric:
    """The timed window over its steps."""
    count = len(measurement.timed_steps)
    return Metric(measurement.window / count, "s") if count else Metric(None, "s", NO_STEP)


def step_time_p50(measurement: Measurement) -> Metric:
    """Median of the timed steps."""
    return _step_time(measurement, 0.50)


def step_time_p90(measurement: Measurement) -> Metric:
    """Time that nine of ten timed steps keep within."""
    return _step_time(measurement, 0.90)


def step_time_p95(measurement: Measurement) -> Metric:
    """Time that 95 % of the timed steps keep within."""
    return _step_time(measurement, 0.95)


def step_time_p99(measurement: Measurement) -> Metric:
    """Time that 99 % of the timed steps keep within."""
    return _step_time(measurement, 0.99)


def data_wait_fraction(measurement: Measurement) -> Metric:
    """Share of the timed window that was spent waiting for data."""
    if not measurement.timed_steps:
        return Metric(None, "1", NO_STEP)
    return Metric(sum(step.wait for step in measurement.timed_steps) / measurement.window, "1")


def time_to_first_step(measurement: Measurement) -> Metric:
    """From the start of the import to the end of the first step."""
    spans = [measurement.phases.get(name) for name in ("import", "data", "model", "compile")]
    if None in spans:
        return Metric(None, "s", "the first step was not finished")
    return Metric(sum(span for span in spans if span is not None), "s")


def final_loss(measurement: Measurement) -> Metric:
    """The last loss that was read and is finite."""
    if measurement.task != "training":
        return Metric(None, "1", f"{measurement.task} has no loss")
    losses = [step.loss for step in measurement.steps if step.loss is not None and math.isfinite(step.loss)]
    return Metric(losses[-1], "1") if losses else Metric(None, "1", "no finite loss was read")


def peak_process_memory(measurement: Measurement) -> Metric:
    """Largest resident set of any one process of the run, data workers among them."""
    if measurement.peak_process_mib is None:
        return Metric(None, "MiB", "the system did not count it")
    return Metric(measurement.peak_process_mib, "MiB")


def _step_time(measurement: Measurement, share: float) -> Metric:
    if not measurement.timed_steps:
        return Metric(None, "s", NO_STEP)
    return Metric(quantile([step.seconds for step in measurement.timed_steps], share), "s")
