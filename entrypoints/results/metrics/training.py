"""Metrics of training: its time, its evaluations and its loss."""

from __future__ import annotations

import math

from entrypoints.results.measurement import Measurement
from entrypoints.results.metrics.metric import Metric, no_later_epoch


def training_time(measurement: Measurement) -> Metric:
    """From the start of the first step to the end of the last one, with compilation and warm-up."""
    if measurement.task != "training":
        return Metric(None, "s", f"{measurement.task} trains nothing")
    if not measurement.steps:
        return Metric(None, "s", "no step was finished")
    return Metric(math.fsum(step.seconds for step in measurement.steps), "s")


def epoch_time(measurement: Measurement) -> Metric:
    """Mean over the finished epochs except the first, which contains compilation and warm-up."""
    reason = no_later_epoch(measurement)
    if reason:
        return Metric(None, "s", reason)
    later = measurement.epochs[1:]
    return Metric(math.fsum(step.seconds for epoch in later for step in epoch.steps) / len(later), "s")


def time_to_target(measurement: Measurement) -> Metric:
    """Training time until the evaluation that reached the target, without evaluations."""
    if measurement.target is None:
        return Metric(None, "s", "no target was set (--target-accuracy, --target-loss)")
    evaluation = measurement.reaching
    if evaluation is None:
        return Metric(None, "s", f"the target was not reached in {len(measurement.steps)} steps")
    return Metric(math.fsum(step.seconds for step in measurement.steps[: evaluation.steps]), "s")


def evaluation_time(measurement: Measurement) -> Metric:
    """Time of all evaluations together, which is in no other time."""
    if not measurement.evaluations:
        return Metric(None, "s", "nothing was evaluated")
    return Metric(math.fsum(evaluation.ended - evaluation.began for evaluation in measurement.evaluations), "s")


def final_loss(measurement: Measurement) -> Metric:
    """The last finite loss that was read."""
    if measurement.task != "training":
        return Metric(None, "1", f"{measurement.task} has no loss")
    losses = [step.loss for step in measurement.steps if step.loss is not None and math.isfinite(step.loss)]
    return Metric(losses[-1], "1") if losses else Metric(None, "1", "no finite loss was read")
