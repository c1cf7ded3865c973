"""What tells the runs of a system apart: the settings in which they differ, and how these read in a label."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sifmark.report.results import Point, ReportResults
from sifmark.report.texts import distinct, short
from sifmark.results.catalogue import column_of
from sifmark.results.comparison.compatibility import format_value
from sifmark.results.comparison.observation import CONCURRENCY, NODES, PLATFORM, PRECISION
from sifmark.results.comparison.repeats import varying_fields
from sifmark.results.comparison.scaling import BATCH, DEVICES, EXECUTION, STEPS, STRATEGY, follows_devices

PART_OF_BATCH = "configuration.micro_batch_size"
PER_DEVICE = "batch_size_per_device"  # of runs that keep it along their devices
_CHOICES = (DEVICES, STRATEGY, BATCH)  # they are worth a line of their own, whatever follows from them
# How a value reads as part of a label.
_VALUES = {
    PRECISION: "{}",
    STRATEGY: "{}",
    DEVICES: "{} devices",
    NODES: "{} nodes",
    BATCH: "batch {}",
    CONCURRENCY: "{} clients",
    "configuration.threads": "{} threads",
    "workload.name": "{}",
    "data": "{}",
    PER_DEVICE: "batch {} per device",
    PART_OF_BATCH: "micro-batch {}",
}


def variant_fields(results: ReportResults, points: Sequence[Point], *places: str) -> list[str]:
    """Return the fields that tell the series of a system apart.

    What a machine sets counts where it differs within a system. What only follows from the others does not.
    """
    systems: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        systems[point.system].append(point)
    within = {name for members in systems.values() for name in varying_fields([point.row for point in members])}
    names = [name for name in varying_fields([point.row for point in points]) if name in within or name not in PLATFORM]
    names = [name for name in names if name not in (*places, results.by)]
    chosen = [name for name in names if not _follows(name)]
    return [name for name in names if name in chosen or not _determined(name, systems.values(), (*places, *chosen))]


def variant(fields: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return what distinguishes a series from others of its system, in words; nothing if it has no others."""
    return ", ".join(_value(name, fields[name]) for name in names if fields.get(name) is not None)


def system_labels(results: ReportResults) -> dict[str, str]:
    """Return the systems as labels: no longer than fits, and each different."""
    return dict(zip(results.systems, distinct(map(short, results.systems)), strict=True))


def _follows(name: str) -> bool:
    return name not in _CHOICES and (follows_devices(name) or name in (STEPS, EXECUTION))


def _determined(name: str, systems: Iterable[Sequence[Point]], others: Sequence[str]) -> bool:
    """Return whether a field has one value in each system where some others are the same."""
    for points in systems:
        values: dict[Any, set[Any]] = defaultdict(set)
        for point in points:
            values[tuple(point.fields.get(other) for other in others)].add(point.fields.get(name))
        if any(len(each) > 1 for each in values.values()):
            return False
    return True


def _value(name: str, value: Any) -> str:
    text = short(format_value(value))
    words = _VALUES.get(name, f"{column_of(name)} {{}}").format(text)
    return words.removesuffix("s") if text == "1" else words
