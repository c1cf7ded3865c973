"""Scaling curves over devices and over nodes, relative to the smallest count, and where efficiency drops."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sifmark.results.comparison.compare import Comparison, ComparisonTable, compare_results
from sifmark.results.comparison.intervals import Mean, Ratio
from sifmark.results.comparison.observation import NODES
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup, Scaling
from sifmark.results.comparison.scaling import BATCH, DEVICES, STRATEGY, THROUGHPUT, set_scaling
from sifmark.studies.analysis.step_time import StepTime, explain, measure

OVER_DEVICES, OVER_NODES = "devices", "nodes"
LIMIT = 0.9  # efficiency below which a curve is said to bend


@dataclass(frozen=True)
class ScalingPoint:
    """A count of devices and nodes; the first one of a curve is the reference of the others."""

    row: RepeatGroup
    throughput: Mean
    ideal: float | None  # throughput if each device added as much as those of the reference
    speedup: Ratio
    efficiency: Ratio
    time: StepTime
    is_reference: bool

    @property
    def devices(self) -> int:
        """The devices of all nodes together."""
        return int(self.row.fields[DEVICES])

    @property
    def nodes(self) -> int:
        """The nodes; ranks that are not recorded were on one."""
        return int(self.row.fields.get(NODES) or 1)


@dataclass(frozen=True)
class Bend:
    """Where a curve bends: the first point whose efficiency is below the limit."""

    point: ScalingPoint
    certain: bool  # whether the whole interval is
    cause: str  # the largest known part of the lost time


@dataclass(frozen=True)
class ScalingCurve:
    """Results that differ in the number of devices, and in what follows from it."""

    title: str
    unit: str
    kind: str  # strong: the batch stays the same; weak: the batch per replica does
    over: str  # devices, or nodes that use equally many
    strategy: str | None
    points: tuple[ScalingPoint, ...]

    @property
    def reference(self) -> ScalingPoint:
        """The point with the fewest devices."""
        return self.points[0]

    def bend(self, limit: float = LIMIT) -> Bend | None:
        """Return where the curve bends, or None if it stays above the limit."""
        for point in self.points[1:]:
            value, high = point.efficiency.value, point.efficiency.high
            if value is not None and value < limit:
                return Bend(point, high is not None and high < limit, point.time.cause)
        return None


def scaling_of(paths: Iterable[str]) -> tuple[list[ScalingCurve], Comparison]:
    """Return the curves of the results at some paths, and the comparison that they were made of."""
    comparison = compare_results(paths, Query(metrics=(THROUGHPUT,)), measure=measure)
    return scaling_curves(comparison), comparison


def scaling_curves(comparison: Comparison) -> list[ScalingCurve]:
    """Return the curves in a comparison: over devices, and over nodes where nodes with equally many are compared."""
    curves = []
    for table in comparison.tables:
        over_devices = list(_curves(table, table.rows, OVER_DEVICES))
        starts = {id(curve.reference.row.observations) for curve in over_devices}
        over_nodes = (curve for rows in _equal_nodes(table.rows) for curve in _curves(table, rows, OVER_NODES))
        curves += [*over_devices, *(each for each in over_nodes if id(each.reference.row.observations) not in starts)]
    return curves


def _equal_nodes(rows: Sequence[RepeatGroup]) -> Iterator[list[RepeatGroup]]:
    """Yield rows with equally many devices on each node, with their scaling relative to the fewest nodes."""
    by_devices: dict[int, list[RepeatGroup]] = defaultdict(list)
    for row in rows:
        devices, nodes = row.fields.get(DEVICES), row.fields.get(NODES) or 1
        if isinstance(devices, int) and devices > nodes and devices % nodes == 0:
            by_devices[devices // nodes].append(replace(row, scalings=[]))
    for members in by_devices.values():
        if len({row.fields.get(NODES) or 1 for row in members}) > 1:
            set_scaling(members)
            yield members


def _curves(table: ComparisonTable, rows: Sequence[RepeatGroup], over: str) -> Iterator[ScalingCurve]:
    """Yield a curve for each kind of scaling, reference and strategy."""
    series: dict[Any, list[tuple[RepeatGroup, Scaling]]] = defaultdict(list)
    for row in rows:
        for scaling in row.scalings:
            series[scaling.kind, id(scaling.reference), row.fields.get(STRATEGY)].append((row, scaling))
    for (kind, _, strategy), members in sorted(series.items(), key=lambda item: (item[0][0], str(item[0][2]))):
        members.sort(key=lambda pair: (pair[0].fields[DEVICES], pair[0].fields.get(NODES) or 1, pair[0].fields[BATCH]))
        reference = members[0][1].reference
        points = [_point(reference, None, reference), *(_point(row, scaling, reference) for row, scaling in members)]
        yield ScalingCurve(table.title, table.units[THROUGHPUT], kind, over, strategy, tuple(points))


def _point(row: RepeatGroup, scaling: Scaling | None, reference: RepeatGroup) -> ScalingPoint:
    first = reference.means[THROUGHPUT].value
    ideal = None if first is None else first * row.fields[DEVICES] / reference.fields[DEVICES]
    speedup, efficiency = (scaling.speedup, scaling.efficiency) if scaling else (Ratio(1.0), Ratio(1.0))
    return ScalingPoint(
        row, row.means[THROUGHPUT], ideal, speedup, efficiency, explain(row, reference), scaling is None
    )
