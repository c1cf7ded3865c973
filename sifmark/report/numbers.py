"""The numbers behind the scorecard: a table for each kind of run, a row for each workload and system.

A row is of the configuration with the system's highest rate on the fewest devices: all of its cells are of the same
results, but for those whose head says otherwise.
"""

from collections.abc import Callable, Iterable, Mapping

from sifmark.core.console import counted
from sifmark.report.describe import MIB_PER_GIB, basis_of, failure_text, memory_of_device, scale_of_points, slug
from sifmark.report.figures import (
    ALLOCATED,
    ENERGY,
    FIRST_TOKEN,
    TAIL,
    TARGET,
    TOKEN_GAP,
    budget_of,
    budget_text,
    goodputs,
    memory_metric,
    within_budget,
)
from sifmark.report.results import Point
from sifmark.report.tables import Cell, Column, Kind, Row, Table, number_cell
from sifmark.report.workloads import GENERATION, REQUESTS, SERVING, TRAINING, Workload, ranked
from sifmark.results.catalogue import metric_label
from sifmark.results.comparison.scaling import DEVICES
from sifmark.results.numbers import format_number, scale_of, split_interval

_OF_PEAK = {
    "utilisation_of_measured_peak": "of the measured peak",
    "utilisation": "of the rated peak",
    "fraction_of_bound": "of the bound",
}
Fill = Callable[[Workload, Point], Cell | None]
FilledColumn = tuple[str, str, Fill]


def number_tables(workloads: Iterable[Workload]) -> tuple[Table, ...]:
    kinds: dict[tuple[str, str], list[Workload]] = {}
    for workload in ranked(workloads):
        if workload.best:
            kinds.setdefault((workload.kind, workload.rate), []).append(workload)
    return tuple(_table(kind, metric_label(rate).capitalize(), members) for (kind, rate), members in kinds.items())


def _table(kind: str, rate: str, workloads: list[Workload]) -> Table:
    columns = _COLUMNS.get(kind, _USUAL)
    pairs = [(workload, point) for workload in workloads for point in workload.best.values()]
    filled = [[fill(workload, point) for _, _, fill in columns] for workload, point in pairs]
    used = [place for place in range(len(columns)) if any(cells[place] for cells in filled)]
    has_bars = len(pairs) > len(workloads)  # with one system each would be whole
    rows = [
        _row(workload, point, [cells[place] or Cell("") for place in used], has_bars)
        for (workload, point), cells in zip(pairs, filled, strict=True)
    ]
    return Table(
        name=f"numbers-{slug(kind, rate)}",
        title=f"{kind.capitalize()}: each system at its highest rate",
        columns=(
            *(Column(kind.capitalize(), Kind.SYSTEM), Column(rate, Kind.NUMBER)),
            *(Column(columns[place][0], Kind.NUMBER, columns[place][1]) for place in used),
        ),
        rows=tuple(rows),
        caption=basis_of([point for _, point in pairs]),
    )


def _row(workload: Workload, point: Point, cells: Iterable[Cell], has_bar: bool) -> Row:
    scale = scale_of_points(workload.best.values())
    is_leader = workload.leader is not None and workload.leader.system == point.system
    rate = number_cell(point, scale, ratio="", look="best" if is_leader else "", anchor=point.results[0].anchor)
    most = max(each.value for each in workload.best.values())
    fewest = counted(workload.fewest, "device") if workload.fewest and workload.fewest > 1 else ""
    precision = "" if workload.precision == "None" else workload.precision
    about = ", ".join(filter(None, (scale.unit, precision, fewest)))
    share = (point.value / most if most else 0.0) if has_bar else None
    return Row((Cell(point.system), rate, *cells), point.system, (workload.title, about), share)


def _quantity(point: Point | None) -> Cell | None:
    """Return a number with its unit, and with half its interval."""
    if point is None:
        return None
    scale = scale_of(point.unit, [point.value])
    number, interval = split_interval(scale.text(point.value, point.mean.low, point.mean.high))
    return Cell(number, " ".join(filter(None, [scale.unit if scale.unit != "1" else "", interval])), point.marks)


def _load(workload: Workload, point: Point) -> Cell | None:
    load = workload.load_of(point.fields)
    clients = counted(load, "client").partition(" ")[2] if workload.has_clients else ""
    small = ", ".join(filter(None, [clients, workload.variant_of(point)]))
    return Cell(f"{load:,}" if load else "", small) if load or small else None


def _scaled(workload: Workload, point: Point) -> Cell | None:
    """Return the throughput on most devices of the curve of scaling, with its efficiency."""
    curve = workload.curves.get(point.system)
    if curve is None:
        return None
    last, ratio = curve.points[-1]
    return Cell(format_number(last.value), f"on {last.fields[DEVICES]}, {ratio.value or 0.0:.0%}", last.marks)


def _of_metric(metric: str) -> Fill:
    return lambda workload, point: _quantity(workload.beside(point, metric))


def _memory(workload: Workload, point: Point) -> Cell | None:
    used, memory = workload.beside(point, memory_metric(workload)), memory_of_device(point.results[0].document)
    if used is None:
        return None
    number, unit = (used.value / MIB_PER_GIB, "GiB") if used.value >= MIB_PER_GIB else (used.value, "MiB")
    of_device = f"{unit} of {memory / MIB_PER_GIB:.0f} GiB".removeprefix("GiB ") if memory else f"{unit} of a device"
    of = of_device if used.metric == ALLOCATED else f"{unit} on the host"
    return Cell(format_number(number, 3), of, used.marks)


def _peak(workload: Workload, point: Point) -> Cell | None:
    for metric, of_what in _OF_PEAK.items():
        if share := workload.beside(point, metric):
            return Cell(f"{share.value:.1%}".replace("%", " %"), of_what, share.marks)
    return None


def _next(workload: Workload, point: Point) -> Cell | None:
    """Return what became of the batch size after the largest one that ran; nothing where none tried a larger one.

    Where each system is a batch size, no other was to be tried.
    """
    largest = max(workload.ran.get(point.system, {}), default=0)
    lost = workload.lost.get(point.system, {})
    if beyond := [load for load in lost if load > largest]:
        return Cell(f"{beyond[0]:,}", failure_text(lost[beyond[0]]), look="bad")
    if workload.results.by == workload.load:
        return None
    every = [*map(set, workload.ran.values()), *map(set, workload.lost.values())]
    tried = {load for load in set[int]().union(*every) if load > largest}
    return Cell(f"{min(tried):,}", "not tried") if tried else None


def _within(workload: Workload, point: Point) -> Cell | None:
    best, budget = within_budget(workload).get(point.system), budget_of(workload)
    if best is None or budget is None:
        return None
    return Cell(format_number(best.value), f"within {budget_text(budget)}", best.marks)


def _goodput(workload: Workload, point: Point) -> Cell | None:
    """Return the goodput of a system, with the limits that it was asked to keep; of several the first."""
    for limits, points in goodputs(workload).items():
        for each in points:
            if each.system == point.system:
                return Cell(format_number(each.value), limits, each.marks)
    return None


def _price(workload: Workload, point: Point) -> Cell | None:
    """Return the price of a million new tokens at that load, where the site says what an hour of a device costs."""
    prices, tokens = workload.results.prices, workload.beside(point, "output_token_throughput_per_device")
    hour = prices.get("per_hour", {}).get(point.system)
    if hour is None or tokens is None:
        return None
    return Cell(format_number(hour / 3600 / tokens.value * 1e6), prices["currency"], tokens.marks)


_AT, _ENERGY_COLUMN = ("Batch size", "", _load), ("Energy", "", _of_metric(ENERGY))
_MEMORY_COLUMN: FilledColumn = ("Memory", "", _memory)
_PEAK_COLUMN: FilledColumn = ("Of the peak", "", _peak)
_NEXT_COLUMN: FilledColumn = ("Next larger batch", "", _next)
_USUAL: tuple[FilledColumn, ...] = (
    *(_AT, ("Many devices", "and efficiency", _scaled)),
    *(_ENERGY_COLUMN, _PEAK_COLUMN, _MEMORY_COLUMN, _NEXT_COLUMN),
)
_COLUMNS: Mapping[str, tuple[FilledColumn, ...]] = {
    TRAINING: (*_USUAL, ("Time to target", "", _of_metric(TARGET))),
    GENERATION: (
        *(_AT, ("First token", "median", _of_metric(FIRST_TOKEN)), ("Between tokens", "median", _of_metric(TOKEN_GAP))),
        *(_ENERGY_COLUMN, _PEAK_COLUMN, _MEMORY_COLUMN, _NEXT_COLUMN),
    ),
    REQUESTS: (
        *(("Load", "", _load), ("Latency", "p99 at that load", _of_metric(TAIL))),
        *(("Rate within a time", "of 99 % of requests", _within), _ENERGY_COLUMN, _MEMORY_COLUMN),
    ),
    SERVING: (
        *(("Load", "", _load), ("First token", "p99 at that load", _of_metric("time_to_first_token_p99"))),
        ("Token", "p99 at that load", _of_metric("time_per_output_token_p99")),
        ("Goodput", "requests/s within limits", _goodput),
        *(("Energy", "", _of_metric("energy_per_output_token")), ("Million tokens", "price of new ones", _price)),
        _MEMORY_COLUMN,
    ),
}
