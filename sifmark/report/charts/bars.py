"""Charts of bars: one for each configuration of each system, in parts if several metrics add up to it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sifmark.report.charts import axes
from sifmark.report.charts.chart import COLOUR, WORDS, Chart, ChartTable, Layer, Row, layer
from sifmark.report.charts.glyphs import legend_of
from sifmark.report.charts.series import identity
from sifmark.report.charts.theme import FAILED_SHAPE, INK, MUTED, PAPER, PUBLISHED_SHAPE, style_of
from sifmark.report.charts.words import caption, caption_reservations, caption_sources, chart_name
from sifmark.report.describe import (
    describe_published,
    failure_text,
    mean_text,
    published_text,
    quantity_text,
    remarks,
    repeats_text,
    scale_of_points,
)
from sifmark.report.results import Document, Point, PublishedMark, ReportResults, Section
from sifmark.report.texts import distinct, short
from sifmark.report.variants import system_labels, variant, variant_fields
from sifmark.results.comparison.intervals import CONFIDENCE

MOST_BARS = 24  # of a chart: more are in its table alone
_STEP, _THICKNESS = 19, 13
_LONGEST_LABEL = 230
_DARKEST, _PALEST, _ALONE = 0.95, 0.15, 0.75  # opacity of the first part, the last, and the only one


@dataclass(frozen=True)
class BarPart:
    """A part of each bar: the mean of a metric."""

    name: str  # as the legend has it
    metric: str
    within_next: bool = False  # it is contained in the next part, and drawn at its begin


@dataclass(frozen=True)
class Bars:
    """What a chart of bars shows."""

    kind: str  # as its file is called: latency-breakdown
    title: str
    quantity: str  # as the axis has it: latency
    parts: tuple[BarPart, ...]
    explanation: str = ""  # a sentence of the caption
    concerns: Callable[[Document], bool] = lambda _: True  # whether it is about a result: runs that were asked for it


@dataclass(frozen=True)
class Limit:
    """A value that bars cannot exceed, such as the memory of a device."""

    value: float
    label: str


class Bar(NamedTuple):
    """The means of one configuration on one system, by metric; no points if it has no value, but the reason.

    A published figure has neither a system nor points.
    """

    label: str
    system: str
    points: tuple[Point, ...]
    reason: str = ""
    href: str = ""
    published: PublishedMark | None = None


def bar_chart(section: Section, what: Bars, limits: Sequence[Limit] = (), fewest: int = 1) -> Chart | None:
    """Return the chart of a section, or None if fewer configurations than `fewest` have all parts."""
    results, alone = section.results, len(what.parts) == 1
    bars = _bars_of(section, what) + (_published_bars(section.published(what.parts[0].metric)) if alone else [])
    if sum(bool(bar.points) for bar in bars) < fewest:
        return None
    failed = [each for each in section.failures if what.concerns(each.result.document)]
    labels = distinct(bar.label for bar in bars)
    bars = [bar._replace(label=label) for bar, label in zip(bars, labels, strict=True)]
    shown = bars[:MOST_BARS]
    points = [bar.points[0] for bar in bars if bar.points]
    rows = [row for bar in shown if bar.points for row in _segments(results, bar, what.parts)]
    ends = [row["x2"] for row in rows] + [limit.value for limit in limits]
    ends += [bar.published.high for bar in shown if bar.published and bar.published.high is not None]
    x = axes.from_zero(what.quantity, points[0].unit, [0.0, *ends], [point.mean.high for point in points if alone])
    names = axes.names(None, [bar.label for bar in shown], labelLimit=_LONGEST_LABEL, domain=False, ticks=False)
    layers = [
        *_segment_layers(rows, what.parts),
        *(_whiskers(shown) if alone else []),
        *_missing(results, [bar for bar in shown if bar.reason]),
        *_limits(limits),
        *_published([bar for bar in shown if bar.published and not bar.reason]),
    ]
    encoding = {"y": {"field": "bar", **names}, "x": {"field": "x", **x}}
    spec = {"layer": layers, "encoding": encoding, "height": {"step": _STEP}}
    more = f"The table has {len(bars) - len(shown)} bars more, which are not drawn." if len(bars) > MOST_BARS else ""
    figures = caption_sources([bar.published for bar in bars if bar.published])
    words = [
        _of_bars(points, len(what.parts)),
        what.explanation,
        *_of_limits(limits),
        *figures,
        more,
        *caption_reservations(points),
    ]
    name = chart_name(section, what.kind)
    return Chart(name, what.title, caption(what.title, (), failed, *filter(None, words)), spec, _table(what, bars))


def _published_bars(marks: Sequence[PublishedMark]) -> list[Bar]:
    """Return published figures as bars."""
    return [
        Bar(
            label=f"{short(mark.device)} ({mark.source})",
            system="",
            points=(),
            reason=published_text(mark) if mark.low is None or mark.high is None else "",
            href=mark.url,
            published=mark,
        )
        for mark in marks
    ]


def _bars_of(section: Section, what: Bars) -> list[Bar]:
    """Return the bars of a section, configuration by configuration the systems; also what failed or has no value."""
    rows: dict[tuple[str, ...], list[Point]] = {}
    for point in (point for part in what.parts for point in section.all_points(part.metric)):
        if what.concerns(point.results[0].document) and _is_known(point):
            rows.setdefault(identity(point), []).append(point)
    names = variant_fields(section.results, [points[0] for points in rows.values()])
    labels = system_labels(section.results)

    def placed(system: str, fields: Any, points: Sequence[Point], reason: str, anchor: str) -> tuple[Any, Bar]:
        label = ", ".join(filter(None, [labels[system], variant(fields, names)]))
        return _place(fields, names, section.results.systems.index(system)), Bar(
            label, system, tuple(points), reason, f"#{anchor}"
        )

    bars = []
    for points in rows.values():
        reason = next((point.mean.reason or "" for point in points if point.mean.value is None), "")
        if reason or len(points) == len(what.parts):
            whole = () if reason else points
            bars.append(placed(points[0].system, points[0].fields, whole, reason, points[0].results[0].anchor))
    for failure in section.failures:
        if what.concerns(failure.result.document):
            fields = failure.result.observation.fields
            bars.append(placed(failure.system, fields, (), failure_text(failure), failure.result.anchor))
    return [bar for _, bar in sorted(bars, key=lambda each: each[0])]


def _is_known(point: Point) -> bool:
    """Return whether results have a metric, if only with the reason why it has no value."""
    return any(point.metric in each.observation.numbers for each in point.results)


def _place(fields: Any, names: Sequence[str], system: int) -> tuple[Any, ...]:
    """Return the place of a bar: numbers in their order, before texts, and then the systems."""
    values = (fields.get(name) for name in names)
    keys = [(0, value, "") if type(value) in (int, float) else (1, 0, str(value)) for value in values]
    return (*keys, system)


def _segments(results: ReportResults, bar: Bar, parts: Sequence[BarPart]) -> Iterator[Row]:
    """Yield a row for each part of a bar, one after the other."""
    colour = _colour(results, bar)
    begin, within = 0.0, 0.0
    for part, point in zip(parts, bar.points, strict=True):
        value = point.mean.value or 0.0
        words = f"{bar.label}, {part.name}: {quantity_text(point.mean, point.unit)}, {repeats_text(point.mean.count)}"
        words = "; ".join([words, *remarks(point.results)])
        looks = {"bar": bar.label, "part": part.name, "colour": colour}
        yield {**looks, "x": begin + within, "x2": begin + value, "description": words, "href": bar.href}
        within = value if part.within_next else 0.0
        begin += 0.0 if part.within_next else value


def _segment_layers(rows: Sequence[Row], parts: Sequence[BarPart]) -> list[Layer]:
    """Return the parts in the colours of the systems, paler from part to part, with outlines of full colour."""
    names = [part.name for part in parts]
    legend = {"symbolType": "square", "symbolFillColor": INK.light, "symbolStrokeColor": INK.light}
    shown = {**legend, **legend_of(names), "symbolOpacity": None, "symbolStrokeWidth": 0.8}
    scale = {"domain": names, "range": [_DARKEST, _PALEST]}
    paler = {"opacity": {"field": "part", "type": "nominal", "scale": scale, "legend": shown}}
    ends = {"x2": {"field": "x2"}}
    area: Layer = {"type": "bar", "height": _THICKNESS, "clip": True, "aria": False, "opacity": _ALONE}
    outline = {"type": "bar", "height": _THICKNESS, "clip": True, "fill": "transparent", "strokeWidth": 0.8}
    return [
        layer(rows, area, **ends, fill=COLOUR, **(paler if len(names) > 1 else {})),
        layer(rows, outline, **ends, stroke=COLOUR, **WORDS),
    ]


def _whiskers(bars: Sequence[Bar]) -> list[Layer]:
    """Return the intervals and repeats of bars of one part."""
    means = [(bar.label, bar.points[0]) for bar in bars if bar.points]
    intervals = [
        {"bar": label, "x": point.mean.low, "x2": point.mean.high}
        for label, point in means
        if point.mean.low is not None
    ]
    repeats = [
        {"bar": label, "x": value}
        for label, point in means
        for value in point.row.values(point.metric)
        if point.mean.count > 1
    ]
    rule: Layer = {"type": "rule", "aria": False, "clip": True, "strokeWidth": 1.4, "color": INK.light}
    dot = {"type": "point", "filled": True, "size": 9, "aria": False, "clip": True, "opacity": 1}
    dot |= {"fill": PAPER.light, "stroke": INK.light, "strokeWidth": 0.8}
    drawn = [layer(intervals, rule, x2={"field": "x2"})] if intervals else []
    return [*drawn, layer(repeats, dot)] if repeats else drawn


def _missing(results: ReportResults, bars: Sequence[Bar]) -> list[Layer]:
    """Return a hollow triangle and the reason for each configuration without a value."""
    if not bars:
        return []
    rows = [
        {
            "bar": bar.label,
            "reason": short(bar.reason),
            "colour": _colour(results, bar),
            "description": f"{bar.label}: {bar.reason}",
            "href": bar.href,
        }
        for bar in bars
    ]
    triangle = {"type": "point", "shape": FAILED_SHAPE, "size": 55, "filled": False, "strokeWidth": 1.6}
    text: Layer = {"type": "text", "align": "left", "dx": 16, "color": MUTED.light, "aria": False}
    reason = {"field": "reason", "type": "nominal"}
    return [
        layer(rows, {**triangle, "fill": PAPER.light}, x={"value": 8}, stroke=COLOUR, **WORDS),
        layer(rows, text, x={"value": 0}, text=reason),
    ]


def _published(bars: Sequence[Bar]) -> list[Layer]:
    """Return a hollow diamond for each published figure, and a line over a range."""
    marks = [(bar, bar.published) for bar in bars if bar.published is not None]
    rows = [
        {
            "bar": bar.label,
            "x": ((mark.low or 0.0) + (mark.high or 0.0)) / 2,
            "low": mark.low,
            "high": mark.high,
            "description": describe_published(mark, bar.label),
            "href": bar.href,
        }
        for bar, mark in marks
    ]
    if not rows:
        return []
    range_of: Layer = {"type": "rule", "aria": False, "color": MUTED.light}
    diamond = {"type": "point", "shape": PUBLISHED_SHAPE, "size": 60, "filled": False, "strokeWidth": 1.4}
    return [
        layer(rows, range_of, x={"field": "low", "type": "quantitative"}, x2={"field": "high"}),
        layer(rows, {**diamond, "fill": PAPER.light, "stroke": MUTED.light}, **WORDS),
    ]


def _colour(results: ReportResults, bar: Bar) -> str:
    return MUTED.light if bar.published else style_of(results.systems.index(bar.system)).colour.light


def _limits(limits: Sequence[Limit]) -> list[Layer]:
    """Return a dashed vertical line for each limit."""
    if not limits:
        return []
    rows = [{"x": limit.value, "description": limit.label} for limit in limits]
    rule: Layer = {"type": "rule", "strokeDash": [5, 3], "color": MUTED.light, "strokeWidth": 1.4}
    description = {"field": "description", "type": "nominal"}
    return [layer(rows, rule, y={"value": 0}, y2={"value": "height"}, description=description)]


def _of_bars(points: Sequence[Point], parts: int) -> str:
    counts = sorted({point.mean.count for point in points})
    what = "Each bar is" if parts == 1 else "Parts of a bar are"
    if counts == [1]:
        return f"{what} of a single run."
    span = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    kind = "geometric means" if all(point.mean.geometric for point in points) else "means"
    kind = kind.removesuffix("s") if parts == 1 else kind
    means = f"{what} {'the ' if parts == 1 else ''}{kind} of {span} repeats in fresh processes"
    shown = f", lines are {CONFIDENCE:.0%} confidence intervals, and dots the repeats" if parts == 1 else ""
    return f"{means}{shown}."


def _of_limits(limits: Sequence[Limit]) -> Iterator[str]:
    if limits:
        yield f"Dashed lines: {'; '.join(limit.label for limit in limits)}."


def _table(what: Bars, bars: Sequence[Bar]) -> ChartTable:
    scale = scale_of_points(point for bar in bars for point in bar.points)  # parts add up: all have one unit
    columns = [axes.titled(part.name, scale.unit) for part in what.parts]
    rows = []
    for bar in bars:
        if bar.points:
            numbers = [mean_text(point.mean, scale) for point in bar.points]
            rows.append((bar.label, *numbers, str(bar.points[0].mean.count), ", ".join(remarks(bar.points[0].results))))
        elif bar.published and not bar.reason:
            rows.append((bar.label, published_text(bar.published), "", ", ".join(bar.published.remarks)))
        else:
            rows.append((bar.label, *["-"] * len(columns), "", bar.reason))
    return ChartTable(("system", *columns, "repeats", "remarks"), tuple(rows))
