"""Metrics of the time of steps."""

from __future__ import annotations

from entrypoints.results.measurement import NO_STEP, Measurement
from entrypoints.results.metrics.metric import Metric, too_few_steps
from entrypoints.results.quantiles import quantile


def step_time_mean(measurement: Measurement) -> Metric:
    """The timed window over its steps."""
    count = len(measurement.timed_steps)
    return Metric(measurement.window / count, "s") if count else Metric(None, "s", NO_STEP)


def step_time_p50(measurement: Measurement) -> Metric:
    """Median of the timed steps."""
    return _step_time(measurement, 0.50)


def step_time_p90(measurement: Measurement) -> Metric:
    """Time within which nine of ten timed steps finished."""
    return _step_time(measurement, 0.90)


def step_time_p95(measurement: Measurement) -> Metric:
    """Time within which 95 % of the timed steps finished."""
    return _step_time(measurement, 0.95)


def step_time_p99(measurement: Measurement) -> Metric:
    """Time within which 99 % of the timed steps finished, of a hundred of them at least."""
    found = _step_time(measurement, 0.99)
    why = too_few_steps(len(measurement.timed_steps))
    return found if found.value is None or not why else Metric(None, "s", why)


def time_to_first_step(measurement: Measurement) -> Metric:
    """From the start of the import to the end of the first step."""
    spans = [measurement.phases.get(name) for name in ("import", "data", "model", "compile")]
    if None in spans:
        return Metric(None, "s", "the first step was not finished")
    return Metric(sum(span for span in spans if span is not None), "s")


def time_to_result(measurement: Measurement) -> Metric:
    """The correctness check and the whole run: idle power, start-up, warm-up and timed window."""
    if not measurement.timed_steps:
        return Metric(None, "s", NO_STEP)
    return Metric(measurement.whole_seconds, "s", None if measurement.whole_seconds else "the run is not over")


def _step_time(measurement: Measurement, share: float) -> Metric:
    if not measurement.timed_steps:
        return Metric(None, "s", NO_STEP)
    if measurement.timed_requests:
        return Metric(None, "s", "requests of several streams overlap: see the percentiles of latency")
    return Metric(quantile([step.seconds for step in measurement.timed_steps], share), "s")
