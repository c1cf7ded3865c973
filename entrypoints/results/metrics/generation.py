"""Metrics of the generation of text."""

from __future__ import annotations

import math

from entrypoints.contract.messages import Generated
from entrypoints.results.measurement import Measurement
from entrypoints.results.metrics.metric import Metric, percentile, percentile_of_served

NOT_GENERATED = "no text was generated"


def prefill_throughput(measurement: Measurement) -> Metric:
    """Tokens of prompts over the seconds in which they were processed, up to the first new token."""
    generated = _generated(measurement)
    seconds = math.fsum(texts.first for texts in generated)
    if not seconds:
        return Metric(None, "tokens/s", NOT_GENERATED)
    return Metric(sum(texts.prompt_tokens for texts in generated) / seconds, "tokens/s")


def decode_throughput(measurement: Measurement) -> Metric:
    """New tokens except the first of each text, over the seconds in which they were generated."""
    others = [(step.units, step.generated.others) for step in measurement.timed_steps if step.generated]
    seconds = math.fsum(second for _, times in others for second in times)
    if not seconds:
        return Metric(None, "tokens/s", NOT_GENERATED)
    return Metric(sum(texts * len(times) for texts, times in others) / seconds, "tokens/s")


def time_to_first_token_p50(measurement: Measurement) -> Metric:
    """Median over batches of texts, from the prompts on the host; over requests to an engine, from when due."""
    return _first_token(measurement, 0.50)


def time_to_first_token_p99(measurement: Measurement) -> Metric:
    """Time within which 99 % of the batches of texts, or of the requests, had their first token."""
    return _first_token(measurement, 0.99)


def time_between_tokens_p50(measurement: Measurement) -> Metric:
    """Median from one new token to the next."""
    return _between_tokens(measurement, 0.50)


def time_between_tokens_p90(measurement: Measurement) -> Metric:
    """Time within which nine of ten new tokens came."""
    return _between_tokens(measurement, 0.90)


def time_between_tokens_p99(measurement: Measurement) -> Metric:
    """Time within which 99 % of the new tokens came."""
    return _between_tokens(measurement, 0.99)


def decode_tokens_per_watt_hour(measurement: Measurement) -> Metric:
    """New tokens except the first of each text, over the energy while they were generated: without that of prompts."""
    others = sum(step.units * len(step.generated.others) for step in measurement.timed_steps if step.generated)
    if not others:
        return Metric(None, "tokens/Wh", NOT_GENERATED)
    joules, reason = measurement.decode_energy
    return Metric(None, "tokens/Wh", reason) if joules is None else Metric(others / (joules / 3600), "tokens/Wh")


def _generated(measurement: Measurement) -> list[Generated]:
    return [step.generated for step in measurement.timed_steps if step.generated]


def _first_token(measurement: Measurement, share: float) -> Metric:
    if measurement.serving:
        firsts = [served.first for served in measurement.timed_served]
        return percentile_of_served(measurement, firsts, share, "requests")
    times = [generated.first for generated in _generated(measurement)]
    return percentile(times, share, "batches of texts") if times else Metric(None, "s", NOT_GENERATED)


def _between_tokens(measurement: Measurement, share: float) -> Metric:
    if measurement.serving:
        gaps = [gap for served in measurement.timed_served for gap in served.gaps]
        return percentile_of_served(measurement, gaps, share, "new tokens")
    times = [second for generated in _generated(measurement) for second in generated.others]
    return percentile(times, share, "new tokens") if times else Metric(None, "s", NOT_GENERATED)
