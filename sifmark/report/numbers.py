"""The numbers behind the scorecard: a table for each kind of run, a row for each workload and system.

A row is of the configuration with the system's highest rate on the fewest devices: all of its cells are of the same
results, but for those whose head says otherwise.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sifmark.report.describe import MIB_PER_GIB, failure_text, mean_text, memory_of_device, scale_of_points
from sifmark.report.figures import (
    ALLOCATED,
    ENERGY,
    FIRST_TOKEN,
    TAIL,
    TARGET,
    TOKEN_GAP,
    budget_of,
    budget_text,
    memory_metric,
    within_budget,
)
from sifmark.report.results import Point
from sifmark.report.workloads import GENERATION, REQUESTS, TRAINING, Workload, ranked
from sifmark.results.catalogue import metric_label
from sifmark.results.comparison.observation import CONCURRENCY
from sifmark.results.comparison.scaling import DEVICES
from sifmark.results.numbers import format_number, scale_of, split_interval

_OF_PEAK = ("utilisation_of_measured_peak", "utilisation", "fraction_of_bound")
_OF_WHAT = {
    "utilisation_of_measured_peak": "of the measured peak",
    "utilisation": "of the rated peak",
    "fraction_of_bound": "of the bound",
}


@dataclass(frozen=True)
class NumberCell:
    """A number, what stands small behind it, and whether it tells of a failure."""

    text: str = ""
    small: str = ""
    is_failure: bool = False


@dataclass(frozen=True)
class NumberRow:
    """What a system measured of a workload."""

    system: str
    point: Point
    number: str
    interval: str
    share: float  # of the highest rate of the workload: the length of its bar
    is_leader: bool
    cells: tuple[NumberCell, ...]


@dataclass(frozen=True)
class NumberBlock:
    """A workload in a table."""

    workload: Workload
    unit: str
    precision: str
    rows: tuple[NumberRow, ...]


@dataclass(frozen=True)
class NumberTable:
    """The workloads of a kind of run."""

    title: str
    rate: str  # in words
    heads: tuple[tuple[str, str], ...]  # of the cells: a title, and what it adds
    blocks: tuple[NumberBlock, ...]

    @property
    def has_bars(self) -> bool:
        """Whether rates are compared in length: with one system each would be whole."""
        return any(len(block.rows) > 1 for block in self.blocks)

    @property
    def points(self) -> list[Point]:
        """Its rates."""
        return [row.point for block in self.blocks for row in block.rows]


Fill = Callable[[Workload, Point], NumberCell | None]
Column = tuple[str, str, Fill]


def number_tables(workloads: Iterable[Workload]) -> tuple[NumberTable, ...]:
    """Return the tables in the order of workloads."""
    kinds: dict[tuple[str, str], list[Workload]] = {}
    for workload in ranked(workloads):
        if workload.best:
            kinds.setdefault((workload.kind, workload.rate), []).append(workload)
    return tuple(_table(kind, rate, members) for (kind, rate), members in kinds.items())


def _table(kind: str, rate: str, workloads: list[Workload]) -> NumberTable:
    columns = _COLUMNS.get(kind, _USUAL)
    filled = {
        (workload.anchor, name): [fill(workload, point) for _, _, fill in columns]
        for workload in workloads
        for name, point in workload.best.items()
    }
    used = [place for place in range(len(columns)) if any(cells[place] for cells in filled.values())]
    blocks = []
    for workload in workloads:
        scale = scale_of_points(workload.best.values())
        most = max(point.value for point in workload.best.values())
        leader = workload.leader.system if workload.leader else ""
        rows = []
        for name, point in workload.best.items():
            cells = filled[workload.anchor, name]
            number, interval = split_interval(mean_text(point.mean, scale))
            kept = tuple(cells[place] or NumberCell() for place in used)
            rows.append(
                NumberRow(name, point, number, interval, point.value / most if most else 0.0, name == leader, kept)
            )
        precision = "" if workload.precision == "None" else workload.precision
        blocks.append(NumberBlock(workload, scale.unit, precision, tuple(rows)))
    heads = tuple((columns[place][0], columns[place][1]) for place in used)
    return NumberTable(kind.capitalize(), metric_label(rate).capitalize(), heads, tuple(blocks))


def _quantity(point: Point | None, note: str = "") -> NumberCell | None:
    """Return a number with its unit, and with half its interval."""
    if point is None:
        return None
    scale = scale_of(point.unit, [point.value])
    number, interval = split_interval(scale.text(point.value, point.mean.low, point.mean.high))
    return NumberCell(number, " ".join(filter(None, [scale.unit if scale.unit != "1" else "", interval, note])))


def _load(workload: Workload, point: Point) -> NumberCell | None:
    load = workload.load_of(point.fields)
    words = ["clients" if workload.load == CONCURRENCY else "", workload.variant_of(point)]
    return NumberCell(f"{load:,}" if load else "", ", ".join(filter(None, words))) if load or words[1] else None


def _scaled(workload: Workload, point: Point) -> NumberCell | None:
    """Return the throughput on most devices of the curve of scaling, with its efficiency."""
    curve = workload.curves.get(point.system)
    if curve is None:
        return None
    last, ratio = curve.points[-1]
    return NumberCell(format_number(last.value), f"on {last.fields[DEVICES]}, {ratio.value or 0.0:.0%}")


def _of_metric(metric: str) -> Fill:
    return lambda workload, point: _quantity(workload.beside(point, metric))


def _memory(workload: Workload, point: Point) -> NumberCell | None:
    used, memory = workload.beside(point, memory_metric(workload)), memory_of_device(point.results[0].document)
    if used is None:
        return None
    of = f"of {memory / MIB_PER_GIB:.0f} GiB" if memory and used.metric == ALLOCATED else "GiB"
    return NumberCell(format_number(used.value / MIB_PER_GIB, 3), of)


def _peak(workload: Workload, point: Point) -> NumberCell | None:
    for metric in _OF_PEAK:
        if share := workload.beside(point, metric):
            return NumberCell(f"{share.value:.1%}".replace("%", " %"), _OF_WHAT[metric])
    return None


def _next(workload: Workload, point: Point) -> NumberCell | None:
    """Return what became of the batch size after the largest one that ran; nothing where none tried a larger one."""
    largest = max(workload.ran.get(point.system, {}), default=0)
    lost = workload.lost.get(point.system, {})
    if beyond := [load for load in lost if load > largest]:
        return NumberCell(f"{beyond[0]:,}", failure_text(lost[beyond[0]]), is_failure=True)
    every = [*map(set, workload.ran.values()), *map(set, workload.lost.values())]
    tried = {load for load in set[int]().union(*every) if load > largest}
    return NumberCell(f"{min(tried):,}", "not tried") if tried else None


def _within(workload: Workload, point: Point) -> NumberCell | None:
    best, budget = within_budget(workload).get(point.system), budget_of(workload)
    if best is None or budget is None:
        return None
    return NumberCell(format_number(best.value), f"within {budget_text(budget)}")


_AT, _ENERGY_COLUMN = ("Batch size", "", _load), ("Energy", "", _of_metric(ENERGY))
_MEMORY_COLUMN: Column = ("Memory", "of a device", _memory)
_PEAK_COLUMN: Column = ("Of the peak", "", _peak)
_USUAL: tuple[Column, ...] = (
    _AT,
    ("Many devices", "and efficiency", _scaled),
    _ENERGY_COLUMN,
    _PEAK_COLUMN,
    _MEMORY_COLUMN,
    ("Next larger batch", "", _next),
)
_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    TRAINING: (*_USUAL, ("Time to target", "", _of_metric(TARGET))),
    GENERATION: (
        _AT,
        ("First token", "median", _of_metric(FIRST_TOKEN)),
        ("Between tokens", "median", _of_metric(TOKEN_GAP)),
        _ENERGY_COLUMN,
        _PEAK_COLUMN,
        _MEMORY_COLUMN,
        ("Next larger batch", "", _next),
    ),
    REQUESTS: (
        ("Load", "", _load),
        ("Latency", "p99 at that load", _of_metric(TAIL)),
        ("Rate in time", "99 % of requests", _within),
        _ENERGY_COLUMN,
        _MEMORY_COLUMN,
    ),
}
