"""The tables and figures that a study declares, filled with results, and with the published figures as diamonds."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any

from sifmark.report.anonymous import WITHHELD
from sifmark.report.describe import (
    LONGEST_NAME,
    PER_DEVICE,
    basis_of,
    describe,
    describe_failure,
    describe_published,
    distinct,
    failure_text,
    mean_text,
    published_text,
    quantity_text,
    remarks,
    scale_of_points,
    short,
    slug,
    titled,
    variant,
    variant_fields,
)
from sifmark.report.forms import (
    BarChart,
    BarRow,
    Cross,
    Diamond,
    Figure,
    LineChart,
    Series,
    axis_up,
    numbered,
    place_of,
    places_axis,
    shown,
    spot_of,
    system_labels,
)
from sifmark.report.outputs.cells import Cell, CellChart
from sifmark.report.outputs.members import RunsOf, runs_of_results
from sifmark.report.results import Failure, Point, PublishedMark, ReportResult, ReportResults
from sifmark.report.svg import Plot, tick_text
from sifmark.report.tables import Table, plain_table
from sifmark.results.catalogue import column_of
from sifmark.results.comparison.compatibility import format_value
from sifmark.results.comparison.observation import PREFILL, SERVING
from sifmark.results.comparison.scaling import THROUGHPUT, WEAK
from sifmark.results.documents import value_at
from sifmark.results.numbers import Scale
from sifmark.studies.published.load import select_tables
from sifmark.studies.published.measured import FIELD_OF
from sifmark.studies.study import Output, Run, Scalar, Study

SYSTEM, WORKLOAD, BATCH = "system", "workload", "batch_size"
_NEEDED = (THROUGHPUT, PREFILL)  # the metrics that tell kinds of runs apart, and how they scale
_VARIANT = "variant"  # the column of what else tells rows apart
_NOTHING = "-"
_LONGEST_LABEL = 24  # characters of a name at the end of a line
MOST_BARS = 60  # of a plot: more are in the table alone


@dataclass(frozen=True)
class Chart:
    """A chart with its numbers, or a table alone. Both have the name, the title and the caption of the table."""

    plots: tuple[Plot, ...]  # one for each unit or quantity; none of a table
    table: Table

    @property
    def is_table(self) -> bool:
        """Whether it has no picture: pages and files show its table."""
        return not self.plots

    @property
    def figures(self) -> Sequence[Figure]:
        return numbered(self.table.name, self.table.title, self.plots)


@dataclass(frozen=True)
class Place:
    """The axis along which runs differ: a field, and what it is called."""

    field: str  # by its dotted path in a result
    name: str  # batch size

    def of(self, fields: Mapping[str, Any]) -> float | None:
        """Return where on the axis a result is, or None if it has no place there."""
        value: Any = fields.get(self.field)
        return value if type(value) in (int, float) and math.isfinite(value) and value > 0 else None

    def text(self, fields: Mapping[str, Any]) -> str:
        return f"{self.name} {format_value(fields.get(self.field))}"


@dataclass(frozen=True)
class PointSeries:
    """Points that one line joins."""

    label: str
    system: int  # the place of its system among all; of results of one system, that of the line
    points: tuple[Point, ...]


@dataclass(frozen=True)
class FilledOutput:
    """An output with what results have of it."""

    output: Output
    results: ReportResults  # all of the report: they have the order and the colours of systems
    place: Place
    keys: tuple[str, ...]  # of runs, which lines, or columns of a table, stand for
    lines: tuple[PointSeries, ...]
    without: tuple[Point, ...]  # runs that lack the metric
    failed: tuple[Failure, ...]
    marks: tuple[PublishedMark, ...]
    variants: Mapping[int, str]  # what else tells points apart, by their `id()`

    @property
    def points(self) -> list[Point]:
        return [point for line in self.lines for point in line.points]

    @property
    def quantity(self) -> str:
        return column_of(self.output.y).replace("_", " ")

    @property
    def scale(self) -> Scale:
        return scale_of_points(self.points)

    @cached_property
    def shown(self) -> list[Series]:
        """As many lines as a chart can show, of points that have a place, in units of the scale."""
        labels = distinct(short(line.label, _LONGEST_LABEL) for line in self.lines)
        return shown(
            [
                Series(
                    line.system,
                    label,
                    tuple(
                        spot_of(x, point, line.label, f"{self.place.name} {self.at(point)}", self.scale.factor)
                        for point in line.points
                        if (x := self.place.of(point.fields)) is not None
                    ),
                )
                for label, line in zip(labels, self.lines, strict=True)
            ]
        )

    @property
    def is_named(self) -> bool:
        return any(self.place.of(point.fields) is None for point in self.points)

    @property
    def by_unit(self) -> "list[FilledOutput]":
        """The output once for each unit, with the lines that have it."""
        units = dict.fromkeys(point.unit for point in self.points)
        return [self._of_unit(unit) for unit in units]

    def _of_unit(self, unit: str) -> "FilledOutput":
        parts = [
            replace(line, points=tuple(point for point in line.points if point.unit == unit)) for line in self.lines
        ]
        marks = tuple(mark for mark in self.marks if mark.unit == unit or mark.low is None)
        return replace(self, lines=tuple(part for part in parts if part.points), marks=marks)

    def at(self, point: Point) -> str:
        return _text(self.results, point.system, point.fields, self.output.x)


def output_charts(results: ReportResults, study: Study) -> list[Chart]:
    runs = runs_of_results(results, study) if study.outputs else {}
    filled = (fill(results, runs, output) for output in study.outputs)
    return [_chart(each) for each in filled if each is not None]


def fill(results: ReportResults, runs: RunsOf, output: Output) -> FilledOutput | None:
    """Return an output with the results of its runs; None if there are none, or none with its metric or a failure.

    They are compared with each other alone, so that no other result changes a mean or is refused for them.
    """
    own_runs = {
        each.observation.id: next(run for run in runs[each.observation.id] if run.group in output.groups)
        for each in results.members
        if any(run.group in output.groups for run in runs[each.observation.id])
    }
    if any(run.cell.get("scaling") == WEAK for run in own_runs.values()):
        output = replace(output, series=tuple(PER_DEVICE if key == BATCH else key for key in output.series))
    shown = tuple(
        _with_keys(each, own_runs[each.observation.id], output, results.anonymous)
        for each in results.members
        if each.observation.id in own_runs
    )
    own = replace(results, members=shown)
    every = [point for section in own.sections for point in section.all_points(output.y)]
    points = [point for point in every if point.mean.value is not None]
    if not points and not own.failures:
        return None
    place = Place(_field_of(results, output.x), output.x.replace("_", " "))
    ids = {each.observation.id for each in shown}
    marks = [mark for section in own.sections for mark in section.published(output.y) if _repeats(output, mark, ids)]
    keys, variants = _distinguished(results, every, output)
    lines = _lines(results, points, place, keys, variants)
    without = tuple(point for point in every if point.mean.value is None)
    return FilledOutput(output, results, place, keys, lines, without, own.failures, tuple(marks), variants)


def _with_keys(result: ReportResult, run: Run, output: Output, anonymous: bool) -> ReportResult:
    """Return a result with the keys of its run among its fields, so that another cell is no repeat of it."""
    document, fields = result.document, dict(result.observation.fields)
    for key in dict.fromkeys((*run.cell, output.x, *output.series)):
        if key in (load := document["configuration"].get(SERVING) or {}):  # a client is one of the load
            fields[FIELD_OF.get(key, key)] = load[key]
        elif key in FIELD_OF:
            fields.setdefault(FIELD_OF[key], 1 if key == "nodes" else value_at(document, FIELD_OF[key]))
        elif key == PER_DEVICE:
            fields[key] = document["configuration"][BATCH] // run.devices
        elif key != SYSTEM:
            value = document["workload"]["task"] if key == "task" else run.cell.get(key)
            fields[key] = document["data"]["source"] if key == "data" and value is None else _public(value, anonymous)
    needed = {name: number for name, number in result.observation.numbers.items() if name in (output.y, *_NEEDED)}
    return replace(result, observation=replace(result.observation, fields=fields, numbers=needed))


def _public(value: Scalar | None, anonymous: bool) -> Scalar | None:
    """Return a value of a study file as a report may have it: of a path the name, in an anonymous report none."""
    if not isinstance(value, str) or re.fullmatch(r"[\w.,-]+|\d[\d/-]*", value):  # a word, or lengths such as 1024/128
        return value
    return WITHHELD if anonymous else PurePath(value).name


def _field_of(results: ReportResults, key: str) -> str:
    return results.by if key == SYSTEM else FIELD_OF.get(key, key)


def _text(results: ReportResults, system: str, fields: Mapping[str, Any], key: str) -> str:
    """Return the value of a key of runs as a label."""
    if key == SYSTEM:
        return system_labels(results, LONGEST_NAME)[system]
    value = fields.get(_field_of(results, key))
    return _NOTHING if value is None else short(format_value(value))


def _repeats(output: Output, mark: PublishedMark, ids: set[str]) -> bool:
    """Return whether a figure belongs beside an output: beside one of its results, and in the table it repeats."""
    if not output.published or not mark.counterparts & ids:
        return not output.published and bool(mark.counterparts & ids)
    study, tables = select_tables(output.published)
    return mark.table in {f"{study.name}/{table.name}" for table in tables}


def _distinguished(
    results: ReportResults, points: Sequence[Point], output: Output
) -> tuple[tuple[str, ...], Mapping[int, str]]:
    """Return the keys of an output's lines, with those of systems and workloads if they need it, and what is left."""
    keys = tuple(key for key in dict.fromkeys(output.series) if key != output.x)
    for key in (SYSTEM, WORKLOAD):
        differs = len({_text(results, point.system, point.fields, key) for point in points}) > 1
        if key not in (output.x, *keys) and differs and _alike(results, points, (output.x, *keys)):
            keys = (key, *keys)
    variants: dict[int, str] = {}
    for alike in _alike(results, points, (output.x, *keys)):
        names = variant_fields(results, alike, "workload.unit", *(_field_of(results, key) for key in (output.x, *keys)))
        variants |= {id(point): variant(point.fields, names) for point in alike}
    return keys, variants


def _alike(results: ReportResults, points: Iterable[Point], keys: Sequence[str]) -> list[list[Point]]:
    same: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for point in points:
        same[tuple(_text(results, point.system, point.fields, key) for key in keys)].append(point)
    return [members for members in same.values() if len(members) > 1]


def _lines(
    results: ReportResults, points: Sequence[Point], place: Place, keys: Sequence[str], variants: Mapping[int, str]
) -> tuple[PointSeries, ...]:
    """Return the points as lines, bars, or rows of cells: one for each value of the keys."""
    groups: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for point in sorted(points, key=lambda point: results.systems.index(point.system)):
        values = (_text(results, point.system, point.fields, key) for key in keys)
        groups[*values, variants.get(id(point), "")].append(point)
    fields = [_field_of(results, key) for key in keys if key != SYSTEM]
    shown = [field for field in fields if len({str(point.fields.get(field)) for point in points}) > 1]
    names, several = system_labels(results, LONGEST_NAME), len({point.system for point in points}) > 1
    labels = distinct(
        ", ".join(
            filter(
                None, [names[first.system] if SYSTEM in keys and several else "", variant(first.fields, shown), more]
            )
        )
        or (column_of(first.metric) if place.field == results.by else names[first.system])
        for (*_, more), (first, *_) in groups.items()
    )
    return tuple(
        PointSeries(
            label,
            number if len(results.systems) == 1 else place_of(results, members[0].system),
            tuple(sorted(members, key=lambda point: place.of(point.fields) or 0)),
        )
        for number, (label, members) in enumerate(zip(labels, groups.values(), strict=True))
    )


def _chart(filled: FilledOutput) -> Chart:
    kind = filled.output.kind
    if kind == "line" and any(each.is_named for each in filled.by_unit):
        kind = "bar"
    draw = {"line": _line_plot, "bar": _bar_plot, "heat-map": _cell_plot}.get(kind)
    plots = tuple(map(draw, filled.by_unit)) if draw else ()
    return Chart(plots, _table(filled, kind))


def _caption(filled: FilledOutput, kind: str) -> str:
    """Return what the numbers are, what the marks mean, and what keeps the results from publication."""
    points, failures = filled.points, ""
    left = sum(len(each.lines) - len(each.shown) for each in filled.by_unit) if kind == "line" and points else 0
    if kind == "bar":
        left = sum(max(0, len(each.points) - MOST_BARS) for each in filled.by_unit)
    if filled.failed and kind in ("line", "bar"):
        counts = Counter(map(failure_text, filled.failed))
        states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        said = "Crosses are runs" if kind == "line" else "Without a bar are runs"
        failures = f"{said} that are no measurement: {states}."
    names = dict.fromkeys(f"{mark.source} ({short(mark.device)})" for mark in filled.marks if kind in ("line", "table"))
    diamonds = "Hollow diamonds are published figures" if kind == "line" else "Published figures"
    reservations = Counter(mark for point in points for mark in point.marks)
    shares = [f"{mark.name} ({'all' if count == len(points) else count})" for mark, count in reservations.items()]
    texts = (
        *(basis_of(points) if points else "", failures, f"{diamonds}: {'; '.join(names)}." if names else ""),
        f"The table has {left} {kind}s more, which are not drawn." if left else "",
        f"Not for publication: {', '.join(shares)}." if shares else "",
    )
    return " ".join(filter(None, texts))


def _line_plot(filled: FilledOutput) -> Plot:
    """Return lines over the places of runs, with failures and published figures at theirs."""
    place, scale, series = filled.place, filled.scale, filled.shown
    printed = [(x, mark) for mark in filled.marks if (x := place.of(mark.conditions)) is not None]
    diamonds = [
        Diamond(x, end / scale.factor, describe_published(mark, place.text(mark.conditions)))
        for x, mark in printed
        for end in dict.fromkeys(each for each in (mark.low, mark.high) if each is not None)
    ]
    crosses = [
        Cross(x, place_of(filled.results, each.system), describe_failure(each, place.text(fields)))
        for each in filled.failed
        if (x := place.of(fields := each.result.observation.fields)) is not None
    ]
    crosses += [
        Cross(x, None, describe_published(mark, place.text(mark.conditions))) for x, mark in printed if mark.low is None
    ]
    values = [*(spot.y for each in series for spot in each.spots), *(each.y for each in diamonds)]
    places = [spot.x for each in series for spot in each.spots]
    places += [*(each.x for each in crosses), *(each.x for each in diamonds)]
    up = axis_up(titled(filled.quantity, scale.unit), values)
    label = f"{filled.output.title}, {filled.quantity} by {place.name}"
    return LineChart(label, series, places_axis(place.name, places), up, crosses, (), diamonds).plot()


def _bar_plot(filled: FilledOutput) -> Plot:
    named = len(filled.lines) > 1
    placed = [(filled.at(point), line, point) for line in filled.lines for point in line.points]
    if not filled.is_named:
        placed.sort(key=lambda each: _number(each[0]))
    else:
        order = list(dict.fromkeys(at for at, _, _ in placed))
        placed.sort(key=lambda each: order.index(each[0]))
    rows = [
        BarRow(
            system=place_of(filled.results, point.system),
            label=short(line.label, _LONGEST_LABEL) if named else at,
            parts=((point.value, describe(point, line.label, f"{filled.place.name} {at}")),),
            text=quantity_text(point.mean, point.unit),
            note="; ".join(f"published: {words}" for words in dict.fromkeys(_published_beside(filled, point))),
            group=at if named else "",
        )
        for at, line, point in placed[:MOST_BARS]
    ]
    return BarChart(f"{filled.output.title}: {filled.quantity} by {filled.place.name}", rows).plot()


def _number(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return float("inf"), text


def _cell_plot(filled: FilledOutput) -> Plot:
    """Return a cell for each place of each line, the darker the larger."""
    most, scale = max(point.value for point in filled.points) or 1.0, filled.scale
    every = [
        Cell(
            *(filled.at(point), line.label, tick_text(point.value / scale.factor), point.value / most),
            describe(point, line.label, f"{filled.place.name} {filled.at(point)}"),
        )
        for line in filled.lines
        for point in line.points
    ]
    places = dict.fromkeys(cell.x for cell in every)
    columns = list(places) if filled.is_named else sorted(places, key=_number)
    title = f"{filled.place.name}; {titled(filled.quantity, scale.unit)}"
    return CellChart(filled.output.title, title, columns, [line.label for line in filled.lines], every).plot()


def _table(filled: FilledOutput, kind: str) -> Table:
    """Return a row for each point, with the published figures that are its counterparts, then what has no number."""
    output, results = filled.output, filled.results
    scales = {each.points[0].unit: scale_of_points(each.points) for each in filled.by_unit}
    unit = next(iter(scales.values())).unit if len(scales) == 1 else ""
    header = [filled.place.name, *(key.replace("_", " ") for key in filled.keys), _VARIANT]
    header += [titled(filled.quantity, unit), "unit", "repeats", "published", "remarks"]

    def row(system: str, fields: Mapping[str, Any], more: str, *rest: str) -> tuple[str, ...]:
        return (*(_text(results, system, fields, key) for key in (output.x, *filled.keys)), more, *rest)

    rows = [
        row(
            *(point.system, point.fields, filled.variants.get(id(point), "")),
            *(mean_text(point.mean, scale), "" if unit else scale.unit, str(point.mean.count)),
            *("; ".join(dict.fromkeys(_published_beside(filled, point))), ", ".join(remarks(point.results))),
        )
        for point in filled.points
        for scale in (scales[point.unit],)
    ]
    rows.sort(key=lambda row: _number(row[0]))
    for point in filled.without:
        missing = point.row.missing_reason(point.metric) or ""
        more = filled.variants.get(id(point), "")
        rows.append(row(point.system, point.fields, more, _NOTHING, "", str(len(point.results)), "", missing))
    rows += [
        row(each.system, each.result.observation.fields, "", failure_text(each), "", "1", "", "")
        for each in filled.failed
    ]
    kept = [place for place in range(len(header)) if any(row[place] for row in rows)]
    cells = ([row[place] for place in kept] for row in rows)
    name = slug("study", output.name)
    return plain_table(name, output.title, (header[place] for place in kept), cells, _caption(filled, kind))


def _published_beside(filled: FilledOutput, point: Point) -> Iterator[str]:
    own = {each.observation.id for each in point.results}
    yield from (published_text(mark) for mark in filled.marks if mark.counterparts & own)
