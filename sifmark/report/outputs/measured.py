"""The tables and figures that a study declares, filled with results, and with the published figures as hollow marks."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from sifmark.report.anonymous import WITHHELD
from sifmark.report.charts import axes
from sifmark.report.charts.axes import Axis
from sifmark.report.charts.chart import Chart, ChartTable, Spec
from sifmark.report.charts.glyphs import (
    Curve,
    Datum,
    Failed,
    HeatCell,
    Printed,
    bars,
    cells,
    curves,
    failures,
    layered,
    panel_chart,
    published,
)
from sifmark.report.charts.series import (
    Place,
    PointSeries,
    failed_runs,
    lines_of,
    most_complete,
    printed_figures,
    styles_of,
)
from sifmark.report.charts.words import (
    caption,
    caption_missing,
    caption_more_lines,
    caption_reservations,
    caption_sources,
)
from sifmark.report.describe import describe, failure_text, mean_text, published_text, remarks, scale_of_points
from sifmark.report.outputs.members import RunsOf, runs_of_results
from sifmark.report.results import Failure, Point, PublishedMark, ReportResult, ReportResults
from sifmark.report.texts import distinct, short
from sifmark.report.variants import PER_DEVICE, system_labels, variant, variant_fields
from sifmark.results.catalogue import column_of
from sifmark.results.comparison.compatibility import format_value
from sifmark.results.comparison.intervals import CONFIDENCE
from sifmark.results.comparison.scaling import WEAK
from sifmark.results.documents import value_at
from sifmark.studies.published.load import select_tables
from sifmark.studies.published.measured import FIELD_OF
from sifmark.studies.study import Output, Run, Scalar, Study

_INTERVALS = f"Intervals are {CONFIDENCE:.0%} confidence intervals."
SYSTEM, WORKLOAD, BATCH = "system", "workload", "batch_size"
_VARIANT = "variant"  # the column of what else tells rows apart
_NOTHING = "-"


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
        """The points of all lines."""
        return [point for line in self.lines for point in line.points]

    @property
    def quantity(self) -> str:
        """What is measured, in words."""
        return column_of(self.output.y).replace("_", " ")

    @property
    def is_named(self) -> bool:
        """Whether the places are names, and not numbers."""
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
        """Return the place of a point as text."""
        return _text(self.results, point.system, point.fields, self.output.x)


def output_charts(results: ReportResults, study: Study) -> list[Chart]:
    """Return the outputs of a study that its results can fill."""
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
        if key in FIELD_OF:
            fields.setdefault(FIELD_OF[key], 1 if key == "nodes" else value_at(document, FIELD_OF[key]))
        elif key == PER_DEVICE:
            fields[key] = document["configuration"][BATCH] // run.devices
        elif key != SYSTEM:
            value = document["workload"]["task"] if key == "task" else run.cell.get(key)
            fields[key] = document["data"]["source"] if key == "data" and value is None else _public(value, anonymous)
    return replace(result, observation=replace(result.observation, fields=fields))


def _public(value: Scalar | None, anonymous: bool) -> Scalar | None:
    """Return a value of a study file as a report may have it: of a path the name, in an anonymous report none."""
    if not isinstance(value, str) or re.fullmatch(r"[\w.,-]+", value):
        return value
    return WITHHELD if anonymous else PurePath(value).name


def _field_of(results: ReportResults, key: str) -> str:
    """Return the field of results that has a key of runs."""
    return results.by if key == SYSTEM else FIELD_OF.get(key, key)


def _text(results: ReportResults, system: str, fields: Mapping[str, Any], key: str) -> str:
    """Return the value of a key of runs as a label."""
    if key == SYSTEM:
        return system_labels(results)[system]
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
    """Return the points of which several have the same keys."""
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
    names, several = system_labels(results), len({point.system for point in points}) > 1
    labels = distinct(
        ", ".join(
            filter(
                None, [names[first.system] if SYSTEM in keys and several else "", variant(first.fields, shown), more]
            )
        )
        or (column_of(first.metric) if place.field == results.by else names[first.system])
        for (*_, more), (first, *_) in groups.items()
    )
    systems = [results.systems[0] if place.field == results.by else first.system for first, *_ in groups.values()]
    return tuple(
        PointSeries(label, style, tuple(sorted(members, key=lambda point: place.of(point.fields) or 0)))
        for label, style, members in zip(labels, styles_of(results, systems), groups.values(), strict=True)
    )


def _chart(filled: FilledOutput) -> Chart:
    output = filled.output
    draw = {"line": _line_spec, "bar": _bar_spec, "heat-map": _map_spec}.get(output.kind)
    if output.kind == "line" and filled.is_named:
        draw = _bar_spec
    name = re.sub(r"[^a-z0-9]+", "-", f"study-{output.name}".lower()).strip("-")
    spec = panel_chart([draw(each) for each in filled.by_unit]) if draw and filled.lines else {}
    return Chart(name, output.title, _caption(filled, draw is _line_spec), spec, _table(filled))


def _caption(filled: FilledOutput, shows_failures: bool) -> str:
    output, points = filled.output, filled.points
    if output.kind in ("line", "bar") and points:
        more = [
            *(() if shows_failures else caption_missing(filled.failed)),
            *caption_sources(filled.marks),
            *caption_more_lines(len(filled.lines), len(most_complete(_curves(filled)))),
        ]
        return caption(output.title, points, filled.failed if shows_failures else (), *more)
    intervals = [_INTERVALS] if output.kind == "table" and any(point.mean.low is not None for point in points) else []
    names = dict.fromkeys(mark.source for mark in filled.marks if output.kind == "table")
    printed = [f"Published figures: {'; '.join(names)}."] if names else []
    return caption(
        output.title, (), (), "Numbers are means over repeats.", *intervals, *printed, *caption_reservations(points)
    )


def _curves(filled: FilledOutput) -> list[Curve]:
    """Return the lines with their places as names."""
    return [
        Curve(line.label, line.style, tuple(_datum(filled, line, point) for point in line.points))
        for line in filled.lines
    ]


def _datum(filled: FilledOutput, line: PointSeries, point: Point) -> Datum:
    mean, place = point.mean, filled.at(point)
    words = describe(point, line.label, f"{filled.place.name} {place}")
    repeats = tuple(point.row.values(point.metric))
    return Datum(place, mean.value or 0.0, mean.low, mean.high, repeats, words, f"#{point.results[0].anchor}")


def _printed(filled: FilledOutput) -> tuple[list[Printed], list[Failed]]:
    """Return the published figures that have a place."""
    return ([], []) if filled.is_named else printed_figures(filled.marks, filled.place)


def _y_axis(filled: FilledOutput, lines: Sequence[Curve], printed: Sequence[Printed], bars_: bool) -> Axis:
    marks = [mark for line in lines for mark in line.marks]
    values = [*(value for mark in marks for value in (mark.y, *mark.repeats)), *(each.high for each in printed)]
    axis = axes.from_zero if bars_ else axes.quantity
    return axis(filled.quantity, filled.points[0].unit, values, [mark.high for mark in marks])


def _line_spec(filled: FilledOutput) -> Spec:
    lines = most_complete(lines_of(filled.lines, filled.place))
    printed, printed_failures = _printed(filled)
    failed = [*failed_runs(filled.results, filled.failed, filled.place), *printed_failures]
    places = [mark.x for line in lines for mark in line.marks]
    places += [*(each.x for each in failed), *(each.x for each in printed)]
    x, y = axes.doubling(filled.place.name, places), _y_axis(filled, lines, printed, False)
    return layered(x, y, *published(printed), *curves(lines), *failures(failed))


def _bar_spec(filled: FilledOutput) -> Spec:
    """Return bars beside each other at each place, in the order of the places."""
    lines = most_complete(_curves(filled))
    printed = [_at_name(each) for each in _printed(filled)[0]]
    x = axes.names(filled.place.name, _places(filled, printed))
    return layered(x, _y_axis(filled, lines, printed, True), *bars(lines), *published(printed))


def _at_name(printed: Printed) -> Printed:
    """Return a published figure whose place is a name, so that bars have room beside each other."""
    return replace(printed, x=f"{float(printed.x):g}", curve=printed.description, note="")


def _places(filled: FilledOutput, printed: Sequence[Printed] = ()) -> list[str]:
    places = dict.fromkeys([*(filled.at(point) for point in filled.points), *(str(each.x) for each in printed)])
    return list(places) if filled.is_named else sorted(places, key=_number)


def _number(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return float("inf"), text


def _map_spec(filled: FilledOutput) -> Spec:
    """Return a cell for each place of each line, the darker the larger."""
    most = max(point.mean.value or 0.0 for point in filled.points) or 1.0
    factor = scale_of_points(filled.points).factor
    every = [
        HeatCell(
            *(filled.at(point), line.label, axes.compact(datum.y / factor), datum.y / most),
            *(datum.description, datum.href),
        )
        for line in filled.lines
        for point in line.points
        for datum in (_datum(filled, line, point),)
    ]
    x = axes.names(filled.place.name, _places(filled), domain=False, ticks=False)
    y = axes.names(None, [line.label for line in filled.lines], labelLimit=300, domain=False, ticks=False)
    return layered(x, y, *cells(every), width={"step": 52}, height={"step": 26})


def _table(filled: FilledOutput) -> ChartTable:
    """Return a row for each point, with the published figures that are its counterparts, then what has no number."""
    output, results = filled.output, filled.results
    scales = {each.points[0].unit: scale_of_points(each.points) for each in filled.by_unit}
    unit = next(iter(scales.values())).unit if len(scales) == 1 else ""
    header = [filled.place.name, *(key.replace("_", " ") for key in filled.keys), _VARIANT]
    header += [axes.titled(filled.quantity, unit), "unit", "repeats", "published", "remarks"]

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
    cells_of_rows = tuple(tuple(row[place] for place in kept) for row in rows)
    return ChartTable(tuple(header[place] for place in kept), cells_of_rows)


def _published_beside(filled: FilledOutput, point: Point) -> Iterator[str]:
    """Yield the published figures whose counterpart a point is."""
    own = {each.observation.id for each in point.results}
    yield from (published_text(mark) for mark in filled.marks if mark.counterparts & own)
