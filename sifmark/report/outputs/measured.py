"""The tables and figures that a study declares, filled with results, and with the published figures as hollow marks."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
    published,
)
from sifmark.report.charts.series import (
    Place,
    PointSeries,
    failed_runs,
    labels_of,
    lines_of,
    most_complete,
    printed_figures,
    series_of,
    styles_of,
    system_labels,
    variant,
    variant_fields,
)
from sifmark.report.charts.words import (
    caption,
    caption_more_lines,
    caption_reservations,
    caption_sources,
    describe,
    failure_text,
    mean_text,
    published_text,
    remarks,
    scale_of_points,
    short,
)
from sifmark.report.results import Failure, Point, PublishedMark, ReportResult, ReportResults, Section
from sifmark.results.catalogue import column_of
from sifmark.results.comparison.intervals import CONFIDENCE
from sifmark.results.numbers import Scale
from sifmark.studies.published.load import select_tables
from sifmark.studies.published.measured import FIELD_OF
from sifmark.studies.study import Group, Output, Scalar, Study

_INTERVALS = f"Intervals are {CONFIDENCE:.0%} confidence intervals."
SYSTEM, WORKLOAD, DATA = "system", "workload", "data"  # keys along which places are names
_IDENTITY = ("workload", "task", "precision", "strategy")  # keys of a group that its results cannot differ in


@dataclass(frozen=True)
class FilledOutput:
    """An output with what results have of it."""

    output: Output
    results: ReportResults
    place: Place
    lines: tuple[PointSeries, ...]
    failed: tuple[Failure, ...]
    marks: tuple[PublishedMark, ...]

    @property
    def points(self) -> list[Point]:
        """The points of all lines."""
        return [point for line in self.lines for point in line.points]

    @property
    def unit(self) -> str:
        """The unit of all points."""
        return self.points[0].unit

    @property
    def scale(self) -> Scale:
        """The unit in which they are shown."""
        return scale_of_points(self.points)

    @property
    def quantity(self) -> str:
        """What is measured, in words."""
        return column_of(self.output.y).replace("_", " ")

    def at(self, point: Point) -> str:
        """Return the place of a point as text."""
        document = point.results[0].document
        match self.output.x:
            case "system":
                return system_labels(self.results)[point.system]
            case "workload":
                return short(document["workload"]["name"])
            case "data":
                return short(document["data"]["source"])
        value = point.fields.get(self.place.field)
        return "-" if value is None else short(str(value))


def output_charts(results: ReportResults, study: Study) -> list[Chart]:
    """Return the outputs of a study that its results can fill."""
    filled = (fill(results, study, output) for output in study.outputs)
    return [_chart(each) for each in filled if each is not None]


def fill(results: ReportResults, study: Study, output: Output) -> FilledOutput | None:
    """Return an output with what results have of it; None if that is nothing, or if `compare` refuses all of it."""
    groups = [group for group in study.groups if not output.groups or group.name in output.groups]
    sections = [section for section in results.sections if any(_is_of(section, group) for group in groups)]
    points = [
        point
        for section in sections
        for point in section.points(output.y)
        if any(_belongs(point.results[0], group) for group in groups)
    ]
    points = [point for point in points if point.unit == points[0].unit]
    if not points:
        return None
    place = Place(results.by if output.x == SYSTEM else FIELD_OF.get(output.x, output.x), output.x.replace("_", " "))
    lines = _lines(results, points, output, place)
    failed = [
        failure
        for section in sections
        for failure in section.failures
        if any(_belongs(failure.result, group) for group in groups)
    ]
    if output.kind == "line" and not _is_named(output) and len({place.of(point.fields) for point in points}) < 2:
        return None
    marks = [mark for section in sections for mark in section.published(output.y) if _repeats(output, mark)]
    return FilledOutput(output, results, place, tuple(lines), tuple(failed), tuple(marks)) if lines else None


def _is_of(section: Section, group: Group) -> bool:
    return _belongs(section.members[0], group, ("workload", "task"))


def _belongs(result: ReportResult, group: Group, keys: Sequence[str] = _IDENTITY) -> bool:
    """Return whether a result may be one of a group of runs."""
    document = result.document
    own: dict[str, Scalar | None] = {"workload": document["workload"]["name"], "task": document["workload"]["task"]}
    own |= {key: document["configuration"].get(key) for key in ("precision", "strategy")}
    return all(own[key] is None or own[key] in group.axes[key] for key in keys if key in group.axes)


def _repeats(output: Output, mark: PublishedMark) -> bool:
    """Return whether an output repeats the table that a figure is in; one that repeats none may have any."""
    if not output.published:
        return True
    study, tables = select_tables(output.published)
    return mark.table in {f"{study.name}/{table.name}" for table in tables}


def _is_named(output: Output) -> bool:
    return output.x in (SYSTEM, WORKLOAD, DATA)


def _lines(results: ReportResults, points: Sequence[Point], output: Output, place: Place) -> list[PointSeries]:
    """Return the points as lines, bars, or columns: of a system and a variant, unless the places are systems."""
    if not _is_named(output):
        return series_of(results, points, place)
    names = variant_fields(results, points, place.field)
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in sorted(points, key=lambda point: results.systems.index(point.system)):
        system = results.systems[0] if output.x == SYSTEM else point.system
        groups[system, variant(point.fields, names)].append(point)
    labels = labels_of(results, groups)
    styles = styles_of(results, [system for system, _ in groups])
    members = groups.values()
    return [PointSeries(label, style, tuple(each)) for label, style, each in zip(labels, styles, members, strict=True)]


def _chart(filled: FilledOutput) -> Chart:
    output = filled.output
    draw = {"line": _line_spec, "bar": _bar_spec, "heat-map": _map_spec}.get(output.kind)
    if output.kind == "line" and _is_named(output):
        draw = _bar_spec
    table = _table(filled)
    name = re.sub(r"[^a-z0-9]+", "-", f"study-{output.name}".lower()).strip("-")
    return Chart(name, output.title, _caption(filled), draw(filled) if draw else {}, table)


def _caption(filled: FilledOutput) -> str:
    output, points = filled.output, filled.points
    if output.kind in ("line", "bar"):
        more = [
            *caption_sources(filled.marks),
            *caption_more_lines(len(filled.lines), len(most_complete(_curves(filled)))),
        ]
        return caption(output.title, points, filled.failed, *more)
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
    return ([], []) if _is_named(filled.output) else printed_figures(filled.marks, filled.place)


def _y_axis(filled: FilledOutput, lines: Sequence[Curve], printed: Sequence[Printed], bars_: bool) -> Axis:
    marks = [mark for line in lines for mark in line.marks]
    values = [*(value for mark in marks for value in (mark.y, *mark.repeats)), *(each.high for each in printed)]
    axis = axes.from_zero if bars_ else axes.quantity
    return axis(filled.quantity, filled.unit, values, [mark.high for mark in marks])


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
    return list(places) if _is_named(filled.output) else sorted(places, key=_number)


def _number(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return float("inf"), text


def _map_spec(filled: FilledOutput) -> Spec:
    """Return a cell for each place of each line, the darker the larger."""
    most = max(point.mean.value or 0.0 for point in filled.points) or 1.0
    factor = filled.scale.factor
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
    """Return a row for each point, with the published figures that have the same place, then failures."""
    columns = (
        filled.place.name,
        "system",
        axes.titled(filled.quantity, filled.scale.unit),
        "repeats",
        "published",
        "remarks",
    )
    rows = [row for line in filled.lines for point in line.points for row in (_row(filled, line, point),)]
    rows.sort(key=lambda row: _number(row[0]))
    for failure in filled.failed:
        place = filled.place.number(failure.result.observation.fields)
        rows.append((place, short(failure.system), failure_text(failure), "1", "", ""))
    kept = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    return ChartTable(
        tuple(columns[place] for place in kept), tuple(tuple(row[place] for place in kept) for row in rows)
    )


def _row(filled: FilledOutput, line: PointSeries, point: Point) -> tuple[str, ...]:
    beside = "; ".join(dict.fromkeys(_published_beside(filled, point)))
    label = line.label if filled.output.x == SYSTEM or len(filled.lines) > 1 else short(point.system)
    numbers = (mean_text(point.mean, filled.scale), str(point.mean.count), beside)
    return (filled.at(point), label, *numbers, ", ".join(remarks(point.results)))


def _published_beside(filled: FilledOutput, point: Point) -> Iterator[str]:
    """Yield the published figures whose counterpart a point is."""
    own = {each.observation.id for each in point.results}
    yield from (published_text(mark) for mark in filled.marks if mark.counterparts & own)
