"""Metrics of operations in which causal attention counts all pairs of places, as PaLM and Megatron-LM count them."""

from __future__ import annotations

from entrypoints.results.measurement import Measurement
from entrypoints.results.metrics.metric import Metric
from entrypoints.results.metrics.operations import operations_rate, share_of_measured_peak, share_of_peak


def achieved_flops_full_attention(measurement: Measurement) -> Metric:
    """Operations of the model, pairs that it does not see among them, over the timed window."""
    return operations_rate(measurement, measurement.flops and measurement.flops.per_unit)


def utilisation_full_attention(measurement: Measurement) -> Metric:
    """Share of the cited peak of these operations."""
    return share_of_peak(measurement, achieved_flops_full_attention(measurement))


def utilisation_of_measured_peak_full_attention(measurement: Measurement) -> Metric:
    """Share of the measured peak of these operations."""
    return share_of_measured_peak(measurement, achieved_flops_full_attention(measurement))
