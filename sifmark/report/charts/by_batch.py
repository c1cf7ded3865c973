"""Metrics along a field that differs from run to run, such as throughput and memory by batch size."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sifmark.report.charts import axes
from sifmark.report.charts.chart import Chart, ChartTable, Layer
from sifmark.report.charts.glyphs import curves, failures, layered, published
from sifmark.report.charts.series import (
    Place,
    PointSeries,
    failed_runs,
    lines_of,
    most_complete,
    printed_figures,
    series_of,
)
from sifmark.report.charts.words import caption, caption_more_lines, caption_sources, chart_name
from sifmark.report.describe import failure_text, mean_text, published_text, remarks, scale_of_points
from sifmark.report.results import Section
from sifmark.report.texts import short
from sifmark.results.catalogue import metric_label
from sifmark.results.comparison.scaling import BATCH
from sifmark.results.numbers import Scale


@dataclass(frozen=True)
class Curves:
    """What a chart of curves shows."""

    kind: str  # as its file is called: throughput-by-batch
    title: str
    metric: str
    quantity: str  # the metric as the axis has it: throughput
    place: Place
    explanation: str = ""  # a sentence of the caption


def curve_chart(
    section: Section, what: Curves, behind: Sequence[Layer] = (), including: Iterable[float] = ()
) -> Chart | None:
    """Return the chart of a metric along a field, or None if no series has two places.

    `behind` are layers below the lines. The axis of the quantity reaches to the values in `including`.
    """
    every = series_of(section.results, section.points(what.metric), what.place)
    if max((len(each.points) for each in every), default=0) < 2:
        return None
    points = [point for each in every for point in each.points]
    lines = most_complete(lines_of(every, what.place))
    printed, printed_failures = printed_figures(section.published(what.metric), what.place)
    failed = [*failed_runs(section.results, section.failures, what.place), *printed_failures]
    marks = [mark for line in lines for mark in line.marks]
    values = [*(value for mark in marks for value in (mark.y, *mark.repeats)), *including]
    values += [value for each in printed for value in (each.low, each.high)]
    places = [*(each.x for each in marks), *(each.x for each in failed), *(each.x for each in printed)]
    x = axes.doubling(what.place.name, places)
    y = axes.quantity(what.quantity, points[0].unit, values, [mark.high for mark in marks])
    layers = [*behind, *published(printed), *curves(lines), *failures(failed)]
    words = caption(
        *(what.title, points, section.failures),
        *caption_sources(section.published(what.metric)),
        *caption_more_lines(len(every), len(lines)),
        *filter(None, [what.explanation]),
    )
    table = _table(section, what, every, scale_of_points(points))
    return Chart(chart_name(section, what.kind), what.title, words, layered(x, y, *layers), table)


def _table(section: Section, what: Curves, every: Iterable[PointSeries], scale: Scale) -> ChartTable:
    """Return the points, failures and published figures of a chart as rows."""
    place = what.place
    rows = [
        (
            *(each.label, place.number(point.fields), mean_text(point.mean, scale), str(point.mean.count)),
            ", ".join(remarks(point.results)),
        )
        for each in every
        for point in each.points
    ]
    for failure in section.failures:
        fields = failure.result.observation.fields
        if place.of(fields) is not None:
            rows.append((short(failure.system), place.number(fields), failure_text(failure), "1", ""))
    for mark in section.published(what.metric):
        if place.of(mark.conditions) is not None:
            name = f"{short(mark.device)} ({mark.source})"
            rows.append((name, place.number(mark.conditions), published_text(mark), "", ", ".join(mark.remarks)))
    return ChartTable(("system", place.name, axes.titled(what.quantity, scale.unit), "repeats", "remarks"), tuple(rows))


def throughput_by_batch(section: Section) -> Chart | None:
    """Return a line of throughput for each system, of generation of tokens, if any ran with two batch sizes."""
    name = metric_label(section.rate)
    title = f"{name[:1].upper()}{name[1:]} by batch size"
    return curve_chart(section, Curves("throughput-by-batch", title, section.rate, name, Place(BATCH, "batch size")))
