"""Metrics of Markov chains."""

from __future__ import annotations

from typing import Callable

from entrypoints.contract.messages import LEAST_DRAWS, Diagnosed
from entrypoints.results.measurement import Measurement
from entrypoints.results.metrics.metric import NO_TIME, Metric

NOT_SAMPLED = "no samples were drawn"


def acceptance_rate(measurement: Measurement) -> Metric:
    """Fraction of the timed transitions of Markov chains whose proposal was accepted."""
    steps = [step for step in measurement.timed_steps if step.accepted is not None]
    if not steps:
        return Metric(None, "1", NOT_SAMPLED)
    return Metric(sum(step.accepted or 0 for step in steps) / sum(step.units for step in steps), "1")


def effective_sample_size(measurement: Measurement) -> Metric:
    """Bulk effective sample size of the timed draws of all chains together: the smallest of any parameter."""
    return _diagnosed(
        measurement,
        "samples",
        lambda diagnosed: diagnosed.effective,
        f"draw {LEAST_DRAWS} timed samples of a chain that moves",
    )


def effective_sample_throughput(measurement: Measurement) -> Metric:
    """The smallest bulk effective sample size over the seconds in which its draws were made."""
    size = effective_sample_size(measurement)
    if size.value is None or measurement.diagnosed is None:
        return Metric(None, "samples/s", size.reason)
    if not measurement.diagnosed.seconds:
        return Metric(None, "samples/s", NO_TIME)
    return Metric(size.value / measurement.diagnosed.seconds, "samples/s")


def r_hat(measurement: Measurement) -> Metric:
    """Rank-normalised split R-hat of the timed draws: the largest of any parameter. Close to 1 if chains agree."""
    return _diagnosed(
        measurement, "1", lambda diagnosed: diagnosed.r_hat, f"draw {LEAST_DRAWS} timed samples of 2 chains that move"
    )


def _diagnosed(
    measurement: Measurement, unit: str, value_of: Callable[[Diagnosed], float | None], remedy: str
) -> Metric:
    diagnosed = measurement.diagnosed
    if diagnosed is None:
        sampled = any(step.accepted is not None for step in measurement.steps)
        return Metric(None, unit, "the chains were not judged, since the run was cut short" if sampled else NOT_SAMPLED)
    value = value_of(diagnosed)
    if value is None and diagnosed.draws < min(LEAST_DRAWS, len(measurement.timed_steps)):
        remedy = f"memory was kept for {diagnosed.draws} draws of so many chains; take fewer (--batch-size)"
    return Metric(value, unit, None if value is not None else f"too little to judge: {remedy}")
