"""What a micro-benchmark measured: for each point a distribution over sweeps, and bandwidths or operations."""

from __future__ import annotations

import math
from typing import Iterator, NamedTuple, Sequence

from entrypoints.contract.points import (
    ELEMENT_BYTES,
    GIGA,
    INCOMPARABLE,
    MATMUL,
    MEMORY_COPY,
    STAGE,
    Point,
    bus_factor,
    tolerance,
)
from entrypoints.results.json_values import Json, number
from entrypoints.results.measurement import Measurement
from entrypoints.results.quantiles import quantile
from entrypoints.system.facts import MIB

RATES = ("algorithm_bandwidth_gb_per_second", "bus_bandwidth_gb_per_second", "flop_per_second")


class TimedPoint(NamedTuple):
    """A point with the seconds of a call in each sweep of the timed window."""

    point: Point
    seconds: Sequence[float]
    ranks: int

    @property
    def typical(self) -> float | None:
        """Median over sweeps; None without a sweep that took time."""
        return (quantile(self.seconds, 0.5) or None) if self.seconds else None

    @property
    def bandwidth(self) -> float | None:
        """Algorithm bandwidth in GB/s, of what moves bytes: not of a save that is only begun."""
        typical, moves = self.typical, self.point.operation != MATMUL and self.point.mode != STAGE
        return self.point.size / typical / GIGA if typical is not None and moves else None

    @property
    def bus_bandwidth(self) -> float | None:
        """Bus bandwidth in GB/s."""
        rate = self.bandwidth
        return None if rate is None else rate * bus_factor(self.point.operation, self.ranks)

    @property
    def flops(self) -> float | None:
        """Operations per second, of matrix products."""
        typical = self.typical
        return None if typical is None or self.point.operation != MATMUL else self.point.work / typical


def timed_points(measurement: Measurement) -> list[TimedPoint]:
    """Return all points with their timed sweeps."""
    sweeps = [step.call_seconds for step in measurement.timed_steps if step.call_seconds is not None]
    ranks = measurement.device.ranks if measurement.device else 1
    return [
        TimedPoint(point, [sweep[number] for sweep in sweeps], ranks) for number, point in enumerate(measurement.points)
    ]


def points(measurement: Measurement, operation: str | None) -> Json | None:
    """Return the part of the document about a micro-benchmark's operation; None for other tasks."""
    if operation is None:
        return None
    precision = measurement.precision or "fp32"
    return {
        "operation": operation,
        "element_bytes": ELEMENT_BYTES[precision],
        "tolerance": tolerance(operation, precision),
        "last_level_cache": _cache(measurement, operation),
        "measured": [
            {**_row(timed), **_verdict(measurement, number, tolerance(operation, precision))}
            for number, timed in enumerate(timed_points(measurement))
        ],
        "omitted": [omitted._asdict() for omitted in measurement.omitted],
    }


def _cache(measurement: Measurement, operation: str) -> Json | None:
    if operation != MEMORY_COPY:
        return None
    if measurement.cache is None:
        return number(None, "MiB", "neither the table of peaks nor the driver or the kernel says it")
    return {**number(measurement.cache.bytes / MIB, "MiB"), "source": measurement.cache.source}


def _row(timed: TimedPoint) -> Json:
    point, seconds = timed.point, timed.seconds
    return {
        "size": point.size,
        "direction": point.direction,
        "memory": point.memory,
        **({"mode": point.mode} if point.mode else {}),
        "calls": point.calls,
        "seconds": {
            "mean": math.fsum(seconds) / len(seconds),
            "p50": quantile(seconds, 0.5),
            "min": min(seconds),
            "max": max(seconds),
        }
        if seconds
        else None,
        **dict(zip(RATES, (timed.bandwidth, timed.bus_bandwidth, timed.flops))),
    }


def _verdict(measurement: Measurement, number: int, most: float) -> Json:
    """Return whether the results of a point were right each time they were verified; None if they never were."""
    deviations = list(_deviations(measurement, number))
    if not deviations:
        return {"verified": None, "deviation": None}
    worst = max(deviations)
    return {"verified": worst <= most, "deviation": None if worst >= INCOMPARABLE else worst}


def _deviations(measurement: Measurement, number: int) -> Iterator[float]:
    for verified in measurement.verified:
        yield verified.deviations[number]
