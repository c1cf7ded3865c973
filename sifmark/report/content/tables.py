"""Tables of a report: of a workload all that systems measured, and how configurations read in words."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sifmark.report.describe import scale_of_points
from sifmark.report.results import Point, ReportResults
from sifmark.report.workloads import Workload
from sifmark.results.catalogue import MICROBENCHMARK, column_of, metric_label
from sifmark.results.comparison.compatibility import NUMERICS
from sifmark.results.comparison.intervals import CONFIDENCE, Mean, Ratio
from sifmark.results.comparison.observation import NODES, PLATFORM, Observation
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup, varying_fields
from sifmark.results.comparison.scaling import BATCH, DEVICES, STRATEGY
from sifmark.results.comparison.tables import EXPECTED, disturbances_of, ratio_text, session_notes, unlike_baselines
from sifmark.results.marks import MARKS, Mark
from sifmark.results.numbers import Scale

MOST_COLUMNS = 6  # systems side by side; more of them follow each other in rows
PRECISION, CONCURRENCY = "configuration.precision", "configuration.concurrency"
STEP_TIME, PER_DEVICE = "step_time_p50", "throughput_per_device"
# The fields that readers look for first, in the order of columns.
_FIRST = (STRATEGY, DEVICES, NODES, PRECISION, CONCURRENCY, BATCH)
_HEADS = {
    DEVICES: "devices",
    CONCURRENCY: "clients",
    BATCH: "batch size",
    "host.cpu_model.value": "CPU",
    "host.hostname.value": "host",
    "accelerator.name": "accelerator",
    "numerics.state": "correctness",
}
# Metrics of a table after the headlines of its kind of run.
_MORE = (
    STEP_TIME,
    "step_time_p99",
    PER_DEVICE,
    "utilisation_of_measured_peak",
    "throughput_per_watt",
    "units_per_watt_hour",
    "energy_per_epoch",
    "power_mean",
    "utilisation",
    "fraction_of_bound",
    "peak_allocated_memory",
    "peak_process_memory",
    "time_to_first_step",
    "time_to_result",
    "epoch_time",
    "training_time",
)
# The same of micro-benchmarks: rates and efficiencies of a whole sweep over sizes say nothing of a device.
_OF_SWEEPS = ("power_mean", "peak_allocated_memory", "peak_process_memory", "time_to_first_step")


@dataclass(frozen=True)
class MetricColumn:
    """A metric in a table, and the unit in which all of its numbers are shown."""

    metric: str
    scale: Scale
    is_compared: bool  # whether any number has a ratio

    @property
    def head(self) -> str:
        """The metric with its unit: `throughput [images/s]`."""
        unit = "" if self.scale.unit == "1" else f" [{self.scale.unit}]"
        return f"{metric_label(self.metric)}{unit}"


@dataclass(frozen=True)
class Measured:
    """A number of a table: of a point, or of other results that systems are divided by."""

    mean: Mean
    point: Point | None

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The reasons not to publish it."""
        return self.point.marks if self.point else ()

    @property
    def ratio(self) -> Ratio | None:
        """Its ratio, if it has one."""
        return self.point.ratio if self.point else None


@dataclass(frozen=True)
class TableRow:
    """A configuration on a system, with what it measured of each metric."""

    values: tuple[str, ...]
    system: str  # or the name of the results that systems are divided by
    cells: tuple[Measured | None, ...]

    @property
    def anchor(self) -> str:
        """The place on the page of the first of its results; empty for other results."""
        points = (cell.point for cell in self.cells if cell and cell.point)
        return next((point.results[0].anchor for point in points), "")


@dataclass(frozen=True)
class WorkloadTable:
    """All that systems measured of a workload: a row for each configuration and system, a column for each metric."""

    workload: Workload
    fields: tuple[str, ...]  # what distinguishes rows, as heads of columns
    common: str  # what rows have in common, of the fields that readers look for
    columns: tuple[MetricColumn, ...]
    rows: tuple[TableRow, ...]
    divisor: str  # what systems are divided by; empty without ratios
    notes: tuple[str, ...]  # why a number has no ratio, or one that says nothing, and what ratios are of

    @property
    def points(self) -> list[Point]:
        """All of its numbers that are of the report's results."""
        return [cell.point for row in self.rows for cell in row.cells if cell and cell.point]

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """All marks of its numbers."""
        return all_marks(self.points)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """On how many repeats numbers rest."""
        return tuple(sorted({point.mean.count for point in self.points}))

    @property
    def basis(self) -> str:
        """What the numbers are, in a sentence."""
        return basis_of(self.points)


def basis_of(points: Sequence[Point]) -> str:
    """Return what numbers are, in a sentence: `Geometric means of 3 repeats, with 95% intervals.`"""
    counts = sorted({point.mean.count for point in points})
    if counts == [1]:
        return "Single runs, without intervals."
    kind = "Geometric means" if all(point.mean.geometric for point in points) else "Means"
    repeats = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    intervals = any(point.mean.low is not None for point in points)
    return f"{kind} of {repeats} repeats" + (f", with {CONFIDENCE:.0%} intervals." if intervals else ".")


def all_marks(points: Iterable[Point]) -> tuple[Mark, ...]:
    """Return the marks of some numbers, each once."""
    marks = {mark for point in points for mark in point.marks}
    return tuple(mark for mark in MARKS if mark in marks)


def _notes(point: Point) -> Iterator[str]:
    if point.ratio and point.ratio.reason:
        yield f"cannot tell: {point.ratio.reason}"
    if point.row.no_baseline:
        yield f"no ratio: {point.row.no_baseline}"
    reference = point.row.baseline
    if reference and reference.side != point.row.side:
        yield from (f"of the reference: {text.removeprefix('warning: ')}" for text in disturbances_of([reference]))
        if reference.fields.get(NUMERICS) != "passed":
            yield f"of the reference: {NUMERICS} {reference.fields.get(NUMERICS)}"


def notes_of_ratios(rows: Sequence[RepeatGroup], query: Query) -> Iterator[str]:
    """Yield in which settings rows differ from their baselines, and what verdicts allow for."""
    yield from unlike_baselines(rows, query)
    yield from session_notes([row for row in rows if row.ratios], query)


def ratio_words(ratio: Ratio | None, unit: str) -> str:
    """Return a ratio in words as `compare` prints it; a dash without one."""
    return "-" if ratio is None else ratio_text(ratio, unit)


def head(field: str) -> str:
    """Return a field as the head of a column."""
    return _HEADS.get(field) or column_of(field).replace("_", " ")


def value_text(value: Any) -> str:
    """Return the value of a field in a cell."""
    if value is None:
        return "-"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:19] if text.startswith("sha256:") else text


def workload_table(workload: Workload) -> WorkloadTable | None:
    """Return the table of a workload, or None if no result has a value that may be compared."""
    columns = {metric: workload.points(metric) for metric in _metrics(workload)}
    every = [point for points in columns.values() for point in points]
    if not every:
        return None
    results = workload.results
    identity = _identity_fields(every, results.by)
    shown = _shown_fields(every, identity)
    cells: dict[tuple[Any, ...], dict[str, Measured]] = defaultdict(dict)
    fields: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for metric, points in columns.items():
        for point in points:
            key = (point.system, point.observation.id)
            cells[key][metric], fields[key] = Measured(point.mean, point), point.fields
            reference = point.row.baseline
            if reference and reference.side != point.row.side:
                other = (results.reference_name, *(reference.fields.get(name) for name in identity))
                cells[other][metric], fields[other] = Measured(reference.means[metric], None), reference.fields
    order = {name: place for place, name in enumerate((results.reference_name, *results.systems))}
    keys = sorted(cells, key=lambda key: (_order(fields[key], shown), order.get(key[0], len(order)), str(key[1:])))
    rows = [
        TableRow(
            tuple(value_text(fields[key].get(name)) for name in shown), key[0], tuple(map(cells[key].get, columns))
        )
        for key in keys
    ]
    compared = {metric: any(point.ratio for point in points) for metric, points in columns.items()}
    return WorkloadTable(
        workload=workload,
        fields=tuple(map(head, shown)),
        common=configuration_of(every[0].observation, [name for name in _FIRST if name not in shown]),
        columns=tuple(MetricColumn(name, scale_of_points(points), compared[name]) for name, points in columns.items()),
        rows=tuple(rows),
        divisor=results.divisor if any(compared.values()) else "",
        notes=tuple(dict.fromkeys(_notes_of(results, columns))),
    )


def _metrics(workload: Workload) -> list[str]:
    """Return the metrics that have values, without that which would repeat throughput: per device, of one device."""
    others = _OF_SWEEPS if workload.kind == MICROBENCHMARK else _MORE
    named = [name for name in dict.fromkeys((*workload.headlines, *others)) if workload.points(name)]
    one_device = all(point.fields[DEVICES] == 1 for point in workload.points(PER_DEVICE))
    return [name for name in named if not (name == PER_DEVICE and one_device)]


def _notes_of(results: ReportResults, columns: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    for metric, points in columns.items():
        yield from notes_of_ratios([point.row for point in points], results.compare(metric).query)
        yield from (note for point in points for note in _notes(point))


def configuration_text(fields: Mapping[str, Any], names: Iterable[str] = _FIRST) -> str:
    """Return what of a configuration readers look for first, in words: `bf16, batch size 64, 4 devices`."""
    return ", ".join(_in_words(name, fields[name]) for name in names if _says_something(fields, name))


def configuration_of(observation: Observation, names: Iterable[str] = _FIRST) -> str:
    """Return the same of a result; the batch size of a microbenchmark says nothing."""
    meant = [name for name in names if name != BATCH or observation.group.task != MICROBENCHMARK]
    return configuration_text(observation.fields, meant)


def _says_something(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    return value is not None and value != EXPECTED.get(name) and (name, value) not in ((DEVICES, 1), (NODES, 1))


def _in_words(name: str, value: Any) -> str:
    if name in (PRECISION, STRATEGY):
        return str(value)
    if name == BATCH:
        return f"batch size {value}"
    noun = head(name)
    return f"{value} {noun.removesuffix('s') if value == 1 else noun}"


def _identity_fields(points: Sequence[Point], by: str) -> list[str]:
    """Return the fields in which two rows of a table differ.

    What describes a platform and is the same throughout a system is none of them: it names the column.
    """
    by_system: dict[str, list[RepeatGroup]] = defaultdict(list)
    for point in points:
        by_system[point.system].append(point.row)
    within = {name for rows in by_system.values() for name in varying_fields(rows)}
    between = varying_fields([point.row for point in points])
    return [name for name in between if name != by and (name in within or name not in PLATFORM)]


def _shown_fields(points: Sequence[Point], identity: Sequence[str]) -> list[str]:
    """Return the fewest fields that distinguish all rows, the ones that readers look for among them."""
    shown = [name for name in _FIRST if name in identity and not _follows_devices(points, name)]
    others = [name for name in identity if name not in shown]
    for name in sorted(others, key=lambda name: (name in PLATFORM, name)):
        if len(_distinct(points, shown)) == len(_distinct(points, identity)):
            break
        if len(_distinct(points, [*shown, name])) > len(_distinct(points, shown)):
            shown.append(name)
    return shown or [name for name in (BATCH, PRECISION) if configuration_of(points[0].observation, [name])][:1]


def _follows_devices(points: Sequence[Point], name: str) -> bool:
    """Return whether a field of runs on several devices says nothing: all of them have the same value."""
    values = {point.fields.get(name) for point in points} - {None, EXPECTED.get(name)}
    return name in (STRATEGY, NODES) and (len(values) == 1 or values == {1})


def _distinct(points: Sequence[Point], fields: Sequence[str]) -> set[tuple[Any, ...]]:
    return {tuple(point.fields.get(name) for name in fields) for point in points}


def _order(fields: Mapping[str, Any], shown: Sequence[str]) -> list[tuple[int, float, str]]:
    values = (fields.get(name) for name in shown)
    return [(0, value, "") if isinstance(value, int | float) else (1, 0, str(value)) for value in values]
