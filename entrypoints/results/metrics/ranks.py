"""Metrics of several ranks."""

from __future__ import annotations

import math

from entrypoints.results.measurement import NO_STEP, Measurement
from entrypoints.results.metrics.metric import Metric
from entrypoints.results.metrics.training import epoch_time


def rank_spread(measurement: Measurement) -> Metric:
    """Longest timed window of a rank less the shortest, over their mean: how unevenly the ranks waited."""
    windows = [rank.window for rank in measurement.ranks]
    if not windows or not min(windows):
        return Metric(None, "1", NO_STEP)
    return Metric((max(windows) - min(windows)) * len(windows) / math.fsum(windows), "1")


def rank_epoch_time_mean(measurement: Measurement) -> Metric:
    """Mean over ranks of their epoch times, as Lazauskas and Llewellyn-Jones report it (Turing, 2024)."""
    times = [epoch_time(rank) for rank in measurement.ranks]
    without = next((time for time in times if time.value is None), None)
    if without or not times:
        return without or Metric(None, "s", NO_STEP)
    return Metric(math.fsum(time.value or 0.0 for time in times) / len(times), "s")
