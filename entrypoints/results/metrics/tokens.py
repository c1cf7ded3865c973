"""Metrics of workloads whose samples are tokens."""

from __future__ import annotations

from entrypoints.results.measurement import NO_STEP, Measurement
from entrypoints.results.metrics.metric import Metric, from_energy, no_window


def token_throughput(measurement: Measurement) -> Metric:
    """Tokens over the timed window, padding not counted."""
    if why := no_window(measurement) or _no_tokens(measurement):
        return Metric(None, "tokens/s", why)
    return Metric(_tokens(measurement) / measurement.window, "tokens/s")


def padding_fraction(measurement: Measurement) -> Metric:
    """Fraction of the positions of all samples that held padding: computed for nothing."""
    if why := _no_tokens(measurement):
        return Metric(None, "1", why)
    padding = sum(step.padding or 0 for step in measurement.timed_steps)
    return Metric(padding / (padding + _tokens(measurement)), "1")


def tokens_per_watt_hour(measurement: Measurement) -> Metric:
    """Tokens over the energy of the timed window, padding not counted."""
    if why := _no_tokens(measurement):
        return Metric(None, "tokens/Wh", why)
    return from_energy(measurement, "tokens/Wh", lambda joules: _tokens(measurement) / (joules / 3600))


def _tokens(measurement: Measurement) -> int:
    return sum(step.tokens or 0 for step in measurement.timed_steps)


def _no_tokens(measurement: Measurement) -> str | None:
    """Return why tokens cannot be counted; None if they can."""
    steps = measurement.timed_steps
    if not steps:
        return NO_STEP
    return None if all(step.tokens is not None for step in steps) else f"{measurement.unit} have no tokens"
