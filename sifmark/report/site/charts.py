"""The charts of a site, and its overview: histories with change points, and throughput by batch size of the newest."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from math import exp
from typing import Any

from sifmark.report.charts import axes
from sifmark.report.charts.by_batch import throughput_by_batch
from sifmark.report.charts.chart import WORDS, Chart, Layer, layer
from sifmark.report.charts.glyphs import layered
from sifmark.report.charts.render import page_svg
from sifmark.report.charts.theme import MUTED, SYSTEMS
from sifmark.report.content.overview import Summary, summary_of
from sifmark.report.results import ReportResult, ReportResults
from sifmark.report.site.read import SiteResult, in_processes, usable_processors
from sifmark.report.site.rows import marks_named
from sifmark.report.site.series import SeriesHistory, change_text, changed_with
from sifmark.report.texts import short
from sifmark.results.comparison.intervals import CONFIDENCE
from sifmark.results.numbers import format_quantity
from sifmark.studies.history.changes import Change, Period
from sifmark.studies.history.series import HistoryRun, Series

WIDTH, HEIGHT = 420, 200  # of the area between the axes of a history
MOST_POINTS = 400  # runs; of a longer history each mark is a session
LEAST_SPAN = 0.1  # of the largest value, that an axis shows at least: noise of 1 % is to look like noise
MOST_UNCHANGED = 20  # places marked at which only the environment changed
_CHARTS_AT_ONCE, _MOST_PROCESSES = 4, 2  # each process has a JavaScript engine of 100 MB
_RENDERER = "vl_convert"
_COLOUR = SYSTEMS[0].light


def draw_all(charts: Sequence[Chart], processes: int = 0) -> list[str]:
    """Return charts as SVG. A process that has drawn before does it alone: its copies would wait for its threads."""
    most = 1 if _RENDERER in sys.modules else min(processes or usable_processors(), _MOST_PROCESSES)
    return list(in_processes(_draw, charts, _CHARTS_AT_ONCE, most))


def batch_charts(members: Iterable[SiteResult], by: str) -> list[tuple[tuple[str, str, str], Chart]]:
    """Return the charts of throughput by batch size that some results can fill, by title, task and data."""
    drawn = ((section, throughput_by_batch(section)) for section in _report_results(members, by).sections)
    return [((each.title, each.key.task, each.key.source), chart) for each, chart in drawn if chart is not None]


def overview_of(members: Iterable[SiteResult], by: str) -> Summary | None:
    """Return the best of each workload on each system; None of a single workload or system."""
    summary = summary_of(_report_results(members, by))
    return summary if min(len(summary.systems), len(summary.rows)) > 1 else None


def _report_results(members: Iterable[SiteResult], by: str) -> ReportResults:
    """Return results as charts take them, with the parts of documents that these charts read."""
    results = tuple(ReportResult(each.observation, _document(each), marks_named(each.marks)) for each in members)
    return ReportResults(members=results, invalid=(), unsigned=(), duplicates=0, by=by)


def history_chart(series: SeriesHistory, name: str) -> Chart:
    """Return the chart of a series: runs by date, the mean of each period with its interval, and change points."""
    history = series.history
    points = list(_points(history.series))
    y = _values([row["y"] for row in points], history.series.unit)
    x = {
        "type": "temporal",
        "title": "date (UTC)",
        "scale": {"type": "utc"},
        "axis": {"tickCount": 6, "labelOverlap": True},
    }
    layers = [
        *_unchanged(history.unchanged[-MOST_UNCHANGED:]),
        *_periods(history.periods),
        layer(points, {"type": "point", "filled": True, "size": 24, "color": _COLOUR}, **WORDS),
        *_changes(history.changes, history.series.unit),
    ]
    spec = layered(x, y, *layers, width=WIDTH, height=HEIGHT)
    return Chart(name, f"Throughput over time: {short(series.system)}", _caption(series), spec, series.period_table)


def _values(values: Sequence[float], unit: str) -> axes.Axis:
    """Return an axis around some values. It does not begin at zero: a change of a few per cent has to be seen."""
    low, high = min(values), max(values)
    room = max(high - low, high * LEAST_SPAN) * 0.15
    scale = {"domain": [max(0.0, low - room), high + room], "nice": False, "zero": False}
    return axes.measured("throughput", unit, high) | {"scale": scale}


def _draw(charts: Sequence[Chart]) -> list[str]:
    return [page_svg(chart) for chart in charts]


def _document(result: SiteResult) -> dict[str, Any]:
    """Return the parts of a document that charts read besides its observation."""
    return {"workload": {"name": result.workload, "unit": result.unit}, "status": {"state": result.state}}


def _points(series: Series) -> Iterator[dict[str, Any]]:
    unit = series.unit
    if len(series.runs) <= MOST_POINTS:
        for run in series.runs:
            yield {"x": _stamp(run.started), "y": run.value, "description": _of_run(run, unit), "href": "#periods"}
        return
    for session in series.sessions[-MOST_POINTS * 5 :]:
        value = exp(session.logarithm)
        text = f"{session.started:%Y-%m-%d}: {format_quantity(value, unit)}, {len(session.runs)} runs"
        yield {"x": _stamp(session.started), "y": value, "description": text, "href": "#periods"}


def _of_run(run: HistoryRun, unit: str) -> str:
    return f"{run.started:%Y-%m-%d %H:%M} UTC: {format_quantity(run.value, unit)}"


def _periods(periods: Sequence[Period]) -> list[Layer]:
    rows = [
        {
            "x": _stamp(period.first),
            "x2": _stamp(period.last),
            "y": period.mean.value,
            "low": period.mean.low if period.mean.low is not None else period.mean.value,
            "high": period.mean.high if period.mean.high is not None else period.mean.value,
        }
        for period in periods
    ]
    ends = {"x2": {"field": "x2"}, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
    band = {"type": "rect", "color": _COLOUR, "opacity": 0.18, "aria": False, "clip": True}
    line = {"type": "rule", "color": _COLOUR, "strokeWidth": 1.8, "aria": False}
    return [layer(rows, band, **ends), layer(rows, line, x2={"field": "x2"})]


def _changes(changes: Sequence[Change], unit: str) -> list[Layer]:
    """Return a line at each change, with its number above it, which leads to what changed."""
    if not changes:
        return []
    rows = [
        {
            "x": _stamp(change.before),
            "label": str(number),
            "description": f"{change.before:%Y-%m-%d}: {change_text(change, unit)}; {changed_with(change)}",
            "href": f"#change-{number}",
        }
        for number, change in enumerate(changes, start=1)
    ]
    colour = SYSTEMS[1].light
    rule = {"type": "rule", "color": colour, "strokeWidth": 1.4, "aria": False}
    text = {"type": "text", "color": colour, "baseline": "bottom", "dy": -3, "fontSize": 13}
    height = {"y": {"value": 0}, "y2": {"value": HEIGHT}}
    label = {"text": {"field": "label", "type": "nominal"}}
    return [layer(rows, rule, **height), layer(rows, text, y={"value": 0}, **label, **WORDS)]


def _unchanged(places: Sequence[Change]) -> list[Layer]:
    """Return a dotted line where the environment changed and performance did not."""
    if not places:
        return []
    rule = {"type": "rule", "color": MUTED.light, "strokeDash": [2, 3], "strokeWidth": 1, "aria": False}
    rows = [{"x": _stamp(change.before)} for change in places]
    return [layer(rows, rule, y={"value": 0}, y2={"value": HEIGHT})]


def _caption(series: SeriesHistory) -> str:
    history = series.history
    each = "a run" if len(history.series.runs) <= MOST_POINTS else "the mean of a session"
    words = [f"Each dot is {each}. Lines are means of periods, bands their {CONFIDENCE:.0%} intervals."]
    words.append("The axis does not begin at zero.")
    if history.changes:
        words.append("Numbered lines are change points.")
    if history.unchanged:
        words.append("At dotted lines something else changed, such as the image, and performance did not.")
    if series.marks:
        words.append(f"Not for publication: {', '.join(mark.name for mark in series.marks)}.")
    return " ".join(words)


def _stamp(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%S}Z"
