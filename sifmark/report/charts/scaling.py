"""Scaling: throughput over the number of devices with the ideal, and below it the efficiency."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sifmark.report.charts import axes
from sifmark.report.charts.axes import Axis
from sifmark.report.charts.chart import Chart, ChartTable, Spec
from sifmark.report.charts.glyphs import Curve, Datum, curves, failures, layered, level, published, reference, stacked
from sifmark.report.charts.series import (
    MOST_LINES,
    Place,
    failed_runs,
    labels_of,
    mark_of,
    most_complete,
    printed_figures,
    styles_of,
)
from sifmark.report.charts.words import caption, caption_more_lines, caption_sources, chart_name
from sifmark.report.describe import mean_text, remarks, scale_of_points
from sifmark.report.results import Failure, Point, PublishedMark, Section
from sifmark.report.variants import variant, variant_fields
from sifmark.results.comparison.observation import NODES
from sifmark.results.comparison.scaling import BATCH, DEVICES, STRATEGY, STRONG, THROUGHPUT
from sifmark.results.comparison.tables import percentage_text
from sifmark.results.numbers import Scale
from sifmark.studies.analysis.scaling import OVER_DEVICES, ScalingCurve, scaling_curves

_TITLE = "Scaling over devices"
_PLACE = Place(DEVICES, "devices", (BATCH, NODES, STRATEGY))
_LOWER = 110  # the height of the efficiency
_MOST_IDEALS = 4
_IDEAL = "Dotted lines are throughput in proportion to devices."


@dataclass(frozen=True)
class _Curve:
    """A curve with its line, and with the points of the report that its rows are."""

    curve: ScalingCurve
    points: tuple[Point, ...]
    line: Curve


def scaling(section: Section) -> Chart | None:
    """Return the curves of scaling of a section, or None if no two runs differ in the number of devices alone."""
    drawn = _curves_of(section)
    if not drawn:
        return None
    points = list({id(point): point for each in drawn for point in each.points}.values())
    fewest = min(each.curve.reference.devices for each in drawn)
    lost = [each for each in section.failures if (_PLACE.of(each.result.observation.fields) or 0) > fewest]
    figures = _published_curves(section)
    name, unit = chart_name(section, "scaling"), points[0].unit
    words = caption(
        _TITLE,
        points,
        lost,
        *([_IDEAL] if _ideals(drawn) else []),
        *caption_sources(figures),
        *caption_more_lines(len(drawn), MOST_LINES),
    )
    lines = most_complete([each.line for each in drawn])
    shown = [each for each in drawn if each.line in lines]
    table = _table(drawn, scale_of_points(points))
    return Chart(name, _TITLE, words, _spec(section, shown, lost, figures, unit), table)


def _spec(
    section: Section, drawn: Sequence[_Curve], lost: Sequence[Failure], figures: Sequence[PublishedMark], unit: str
) -> Spec:
    printed, _ = printed_figures(figures, _PLACE)
    failed = failed_runs(section.results, lost, _PLACE)
    lines = [each.line for each in drawn]
    marks = [mark for line in lines for mark in line.marks]
    x = axes.doubling(_PLACE.name, [*(m.x for m in marks), *(f.x for f in failed), *(p.x for p in printed)])
    ideals = _ideals(drawn)
    values = [*(mark.y for mark in marks), *(each.low for each in printed), *(y for ideal in ideals for _, y in ideal)]
    y = axes.logarithmic("throughput", unit, values, [mark.low for mark in marks])
    above = [*reference(ideals), *published(printed), *curves(lines), *failures(failed)]
    return stacked(layered(axes.without_words(x), y, *above), _efficiency(x, drawn))


def _ideals(drawn: Sequence[_Curve]) -> list[list[tuple[float, float]]]:
    """Return the ideal of each curve, unless there are so many that they would hide the curves."""
    if len(drawn) > _MOST_IDEALS:
        return []
    return [[(point.devices, point.ideal) for point in each.curve.points if point.ideal] for each in drawn]


def _efficiency(x: Axis, drawn: Sequence[_Curve]) -> Spec:
    lines = [replace(each.line, marks=tuple(_efficiency_marks(each))) for each in drawn]
    marks = [mark for line in lines for mark in line.marks]
    y = axes.quantity("efficiency", "%", [100.0, *(mark.y for mark in marks)], [mark.high for mark in marks])
    return layered(x, y, *level(100.0), *curves(lines, legend=False), height=_LOWER)


def _efficiency_marks(drawn: _Curve) -> Iterator[Datum]:
    """Yield the efficiency of each point in percent, with the interval that `compare` gives it."""
    for point, mark in zip(drawn.curve.points, drawn.line.marks, strict=True):
        value, low, high = point.efficiency.value, point.efficiency.low, point.efficiency.high
        if value is not None:
            ends = (None, None) if low is None or high is None else (100 * low, 100 * high)
            words = f"{drawn.line.label}, {point.devices} devices: {percentage_text(point.efficiency)} of the ideal"
            yield replace(mark, y=100 * value, low=ends[0], high=ends[1], repeats=(), description=words)


def _curves_of(section: Section) -> list[_Curve]:
    """Return the curves whose points are of a section, each with a label that no other has."""
    points = {id(point.row): point for point in section.points(THROUGHPUT)}
    every = [
        curve
        for curve in scaling_curves(section.results.compare(THROUGHPUT))
        if curve.over == OVER_DEVICES and all(id(point.row) in points for point in curve.points)
    ]
    own = [tuple(points[id(point.row)] for point in curve.points) for curve in every]
    systems = [members[0].system for members in own]
    labels = labels_of(section.results, zip(systems, _variants(section, every, own), strict=True))
    styles = styles_of(section.results, systems)
    return [
        _Curve(curve, members, Curve(label, style, tuple(mark_of(point, label, _PLACE) for point in members)))
        for curve, members, label, style in zip(every, own, labels, styles, strict=True)
    ]


def _variants(section: Section, every: Sequence[ScalingCurve], own: Sequence[Sequence[Point]]) -> list[str]:
    """Return in which fields curves differ, apart from the system."""
    names = variant_fields(section.results, [point for members in own for point in members], DEVICES, *_PLACE.followers)
    parts = [
        (curve.strategy, f"{curve.kind} scaling", _batch(curve), variant(members[0].fields, names))
        for curve, members in zip(every, own, strict=True)
    ]
    differing = [len(set(column)) > 1 for column in zip(*parts, strict=True)]
    return [
        ", ".join(text for text, differs in zip(part, differing, strict=True) if differs and text) for part in parts
    ]


def _batch(curve: ScalingCurve) -> str:
    first = curve.reference
    batch = int(first.row.fields[BATCH])
    return f"batch {batch}" if curve.kind == STRONG else f"batch {batch // first.devices} per device"


def _published_curves(section: Section) -> list[PublishedMark]:
    """Return the published figures of throughput that name their devices, if any two are of different numbers."""
    marks = [mark for mark in section.published(THROUGHPUT) if _PLACE.of(mark.conditions) is not None]
    return marks if len({_PLACE.of(mark.conditions) for mark in marks}) > 1 else []


def _table(drawn: Sequence[_Curve], scale: Scale) -> ChartTable:
    columns = (
        "system",
        "scaling",
        "devices",
        axes.titled("throughput", scale.unit),
        "efficiency",
        "repeats",
        "remarks",
    )
    rows = tuple(
        (
            *(each.line.label, each.curve.kind, str(place.devices), mean_text(point.mean, scale)),
            *("reference" if place.is_reference else percentage_text(place.efficiency), str(point.mean.count)),
            ", ".join(remarks(point.results)),
        )
        for each in drawn
        for place, point in zip(each.curve.points, each.points, strict=True)
    )
    return ChartTable(columns, rows)
