"""A metric, and what several of them follow from.

Each is found by a pure function of a Measurement; a number that cannot be determined is None, with a reason.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Sequence

from entrypoints.results import serving
from entrypoints.results.measurement import NO_STEP, Measurement
from entrypoints.results.quantiles import quantile

NO_TIME = "the timed window is shorter than the resolution of the clock"
LEAST = {0.5: 11, 0.9: 64, 0.95: 130, 0.99: 662, 1.0: 1}  # times that a percentile needs
NOT_SERVED = "no engine served requests (--task serving)"
STEPS_FOR_P99 = 100  # timed steps, so that at least one is slower


class Metric(NamedTuple):
    """A number and its unit, or the reason why there is none."""

    value: float | None
    unit: str
    reason: str | None = None


def units(measurement: Measurement) -> int:
    """Return the units of the timed window."""
    return sum(step.units for step in measurement.timed_steps)


def no_window(measurement: Measurement) -> str | None:
    """Return why there is no time to divide by, if so: requests that finish together may leave a window of length 0."""
    return (None if measurement.window else NO_TIME) if measurement.timed_steps else NO_STEP


def no_later_epoch(measurement: Measurement) -> str | None:
    """Return why there is no epoch after the first; None if there is one."""
    if not measurement.steps_per_epoch:
        return "an epoch is not defined: synthetic data have no end (--samples-per-epoch)"
    if not measurement.epochs[1:]:
        return "no epoch after the first, which contains compilation, was finished"
    return None


def from_energy(measurement: Measurement, unit: str, value_of: Callable[[float], float]) -> Metric:
    """Return what follows from the joules of the timed window."""
    if not measurement.timed_steps:
        return Metric(None, unit, NO_STEP)
    joules, reason = measurement.timed_energy
    return Metric(None, unit, reason) if joules is None else Metric(value_of(joules), unit)


def too_few_steps(timed: int) -> str:
    """Return why so many timed steps have no 99th percentile; empty if they have one."""
    if timed >= STEPS_FOR_P99:
        return ""
    return f"{timed} timed steps, and this needs {STEPS_FOR_P99}: ask for more --steps or a longer --duration"


def percentile(times: Sequence[float], share: float, what: str) -> Metric:
    """Return a percentile, if there are as many times as MLPerf Inference requires to stop early.

    From `LEAST` on, the second slowest is slower than the true percentile in 99 of 100 runs (inference_rules, "early
    stopping"). With fewer, a percentile is little more than the slowest of a few.
    """
    if len(times) < LEAST[share]:
        reason = f"{len(times)} timed {what}, and this needs {LEAST[share]}"
        return Metric(None, "s", f"{reason}: ask for more --steps or a longer --duration")
    return Metric(quantile(times, share), "s")


def percentile_of_served(measurement: Measurement, times: Sequence[float], share: float, what: str) -> Metric:
    """Return a percentile of requests to an engine, or why it says nothing: the client was late, or the queue grew."""
    load, requests = measurement.serving, measurement.timed_served
    if load is None or not times:
        return Metric(None, "s", NO_STEP if load else NOT_SERVED)
    reason = serving.late(requests, load) or serving.queue_grew(requests, load)
    return Metric(None, "s", reason) if reason else percentile(times, share, what)
