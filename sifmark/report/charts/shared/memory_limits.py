"""Memory as charts show it: whose is counted, and what systems have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sifmark.report.charts.series import system_labels
from sifmark.report.charts.shared.bars import Limit
from sifmark.report.results import Point, ReportResults
from sifmark.results.numbers import format_number

ALLOCATED, PROCESS = "peak_allocated_memory", "peak_process_memory"
OF_METRIC = {ALLOCATED: "device memory", PROCESS: "memory of a process"}
_MIB = 1024.0  # of a GiB
# A limit that is farther above the largest value is only named: an axis up to it would show no differences.
_FARTHEST = 8.0


@dataclass(frozen=True)
class MemoryLimits:
    """What processes may use at most: limits to draw, and sentences about those far above all values."""

    drawn: tuple[Limit, ...]
    named: str


def limits_of(results: ReportResults, points: Iterable[Point]) -> MemoryLimits:
    """Return the memory of each system; systems with the same have one limit together."""
    points = list(points)
    every = _limits(results, points)
    largest = max((point.mean.value or 0.0 for point in points), default=0.0)
    drawn = tuple(limit for limit in every if limit.value <= _FARTHEST * largest)
    return MemoryLimits(drawn, " ".join(f"Beyond the axis: {limit.label}." for limit in every if limit not in drawn))


def _limits(results: ReportResults, points: Sequence[Point]) -> list[Limit]:
    labels = system_labels(results)
    systems: dict[int, dict[str, None]] = {}
    for point in points:
        accelerator = point.results[0].document["accelerator"]
        if memory := accelerator.get("memory_mib"):
            share = round(memory / accelerator.get("ranks", 1))  # a peak is that of the largest process
            systems.setdefault(share, {})[labels[point.system]] = None
    every = {labels[point.system] for point in points}
    return [
        Limit(share, f"memory of {_whose(list(names), every)}, {format_number(share / _MIB)} GiB")
        for share, names in sorted(systems.items())
    ]


def _whose(names: Sequence[str], every: set[str]) -> str:
    return "each system" if len(names) > 1 and set(names) == every else " and ".join(names)
