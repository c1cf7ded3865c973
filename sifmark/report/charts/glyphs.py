"""The layers that charts share: lines, bars, intervals, failures and published figures, and panels of them.

A chart is data first: curves of data points, with failures and published figures beside them. Layers draw these:

    datum = Datum(16, 410.0, 405.0, 415.0, (408.0, 412.0), "alpha, batch 16: ...", "#result-...")
    lines = [Curve("alpha", style_of(0), (datum,))]
    x = axes.doubling("batch size", [16])
    y = axes.quantity("throughput", "images/s", [410.0], [415.0])
    spec = layered(x, y, *curves(lines), *failures([...]), *published([...]))

`curves` of one or more lines has the legend. `series` makes lines, failures and published figures of a section, and
`by_batch.curve_chart` the whole chart, for those that show a metric along one field.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.report.charts.axes import Axis, measured
from sifmark.report.charts.chart import COLOUR, WORDS, Layer, Row, Spec, layer
from sifmark.report.charts.theme import (
    FAILED_SHAPE,
    FONT_SIZE,
    MUTED,
    PAPER,
    PUBLISHED_SHAPE,
    SYSTEMS,
    WIDTH,
    Style,
)

_LETTER = FONT_SIZE * 0.55  # about the mean width of one
_SYMBOL = 36  # the width of a symbol in a legend, and of what separates it from others
_SIDE_STEP = 3.0  # between marks of neighbouring lines at the same place, so that intervals do not hide each other
_WIDEST_STEP = 18.0  # of all lines together
_PALEST, _DARKEST = 0.06, 0.62  # opacity of cells: ink can be read on all
_FARTHEST = 1e6  # from a mean to the end of its interval
_STACK_STEP = 11  # between failures at the same place
_BESIDE: dict[str, Any] = {"xOffset": {"expr": "datum.beside"}}
_COLUMNS, _SPACING = 2, 36  # names beside a panel may be wider in the font of a reader
_SHADE = 0.14


@dataclass(frozen=True)
class Datum:
    """A mean with its interval and repeats at a place of an axis.

    Where the place is a mean too, `across` is its interval, and `places` has those of the repeats.
    """

    x: float | str
    y: float
    low: float | None
    high: float | None
    repeats: tuple[float, ...]
    description: str
    href: str = ""
    across: tuple[float, float] | None = None
    places: tuple[float, ...] = ()
    note: str = ""  # a word or number beside it


@dataclass(frozen=True)
class Curve:
    """Marks in the order in which a line joins them: of one system, and of one variant of its runs."""

    label: str
    style: Style
    marks: tuple[Datum, ...]


@dataclass(frozen=True)
class Failed:
    """A run that failed, at the place where its mark would be."""

    x: float | str
    style: Style
    description: str
    href: str = ""


@dataclass(frozen=True)
class HeatCell:
    """A cell of a heat map: its words, and what share of the most it is, from 0 to 1."""

    x: str
    y: str
    text: str
    share: float
    description: str
    href: str = ""


@dataclass(frozen=True)
class Printed:
    """A published figure; a range has two ends. `curve` says which figures one line joins, `note` what is beside it."""

    x: float | str
    low: float
    high: float
    curve: str
    description: str
    href: str = ""
    note: str = ""


def layered(x: Axis, y: Axis, *layers: Layer, **size: Any) -> Spec:
    """Return layers over the same axes as a specification. Their rows have the keys `x` and `y`."""
    encoding = {"x": {"field": "x", **x}, "y": {"field": "y", **y}}
    return {"layer": list(layers), "encoding": encoding, **size}


def stacked(*panels: Spec) -> Spec:
    """Return charts below each other."""
    return {"vconcat": list(panels)}


def curves(lines: Sequence[Curve], legend: bool = True) -> list[Layer]:
    """Return a line of means for each series, with intervals, repeats as dots, and a legend for more than one."""
    rows = list(_rows(lines))
    mark: Layer = {"type": "line", "aria": False, "clip": True, **_BESIDE}
    dash = {"field": "dash", "type": "nominal", "scale": None, "legend": None}
    path = {"detail": {"field": "series", "type": "nominal"}, "order": {"field": "order", "type": "quantitative"}}
    line = layer(rows, mark, stroke=COLOUR, strokeDash=dash, **path)
    return [line, *intervals(rows), means(lines, rows, legend)]


def bars(lines: Sequence[Curve], legend: bool = True, filled: bool = True) -> list[Layer]:
    """Return a bar to each mark, or without `filled` the mark alone, those of several lines beside each other.

    Places are names. Bars are pale, with the shape of their line on top, so that they differ by more than colour.
    """
    rows = list(_rows(lines))
    pale = {"type": "bar", "aria": False, "fillOpacity": 0.25, "strokeWidth": 1}
    layers = [layer(rows, pale, fill=COLOUR, stroke=COLOUR)] if filled else []
    layers += [*intervals(rows), means(lines, rows, legend)]
    scale = {"domain": [line.label for line in lines], "paddingInner": 0.15}
    offset = {"xOffset": {"field": "series", "type": "nominal", "scale": scale}}
    return [layer | {"encoding": layer["encoding"] | offset} for layer in layers]


def intervals(rows: Sequence[Row]) -> list[Layer]:
    """Return a rule for each interval, and a small dot for each repeat."""
    rules = [row for row in rows if row["low"] is not None]
    across = [row for row in rows if row["across"]]
    dots = [row | {"x": x, "y": y} for row in rows if len(row["repeats"]) > 1 for x, y in row["repeats"]]
    rule = {"type": "rule", "aria": False, "clip": True, "strokeWidth": 1.2, **_BESIDE}
    dot = {"type": "point", "filled": True, "size": 7, "aria": False, "clip": True, **_BESIDE}
    return _drawn(
        layer(rules, rule, stroke=COLOUR, **_between("y", "low", "high")),
        layer(across, rule, stroke=COLOUR, **_between("x", "across[0]", "across[1]")),
        layer(dots, dot, fill=COLOUR),
    )


def means(lines: Sequence[Curve], rows: Sequence[Row], legend: bool = True) -> Layer:
    """Return a shape for each mean, with its words and its link."""
    mark = {"type": "point", "filled": True, "size": 46, **_BESIDE}
    shown = legend_of([line.label for line in lines]) if legend and len(lines) > 1 else None
    colour = _scaled(lines, [line.style.colour.light for line in lines], shown)
    shape = _scaled(lines, [line.style.shape for line in lines], shown)
    return layer(rows, mark, color=colour, shape=shape, **WORDS)


def notes(lines: Sequence[Curve]) -> list[Layer]:
    """Return the notes of marks, above them."""
    rows = [row for row in _rows(lines) if row["note"]]
    mark = {"type": "text", "dy": -13, "fontSize": FONT_SIZE - 2, "color": MUTED.light, "aria": False}
    return _drawn(layer(rows, mark, text={"field": "note", "type": "nominal"}))


def cells(every: Sequence[HeatCell]) -> list[Layer]:
    """Return a cell each, the darker the larger its share."""
    rows = [
        _words(
            {"x": each.x, "y": each.y, "text": each.text, "opacity": _PALEST + (_DARKEST - _PALEST) * each.share},
            *(each.description, each.href),
        )
        for each in every
    ]
    opacity = {"field": "opacity", "type": "quantitative", "scale": None, "legend": None}
    letters = {"type": "text", "fontSize": FONT_SIZE - 1, "aria": False}
    return _drawn(
        layer(rows, {"type": "rect", "fill": SYSTEMS[0].light}, fillOpacity=opacity, **WORDS),
        layer(rows, letters, text={"field": "text", "type": "nominal"}),
    )


def failures(failed: Sequence[Failed]) -> list[Layer]:
    """Return a hollow triangle for each failure, at the bottom of the chart and above others at the same place."""
    height: Counter[float | str] = Counter()
    rows = []
    for each in failed:
        row = {"x": each.x, "stack": height[each.x], "colour": each.style.colour.light}
        rows.append(_words(row, each.description, each.href))
        height[each.x] += 1
    above = {"fill": PAPER.light, "yOffset": {"expr": f"-{_STACK_STEP} * datum.stack - 7"}}
    mark = {"type": "point", "shape": FAILED_SHAPE, "size": 55, "filled": False, "strokeWidth": 1.6, **above}
    return _drawn(layer(rows, mark, y={"value": "height"}, stroke=COLOUR, **WORDS))


def published(printed: Sequence[Printed]) -> list[Layer]:
    """Return a hollow diamond for each published figure, a dotted line where several belong together, and ranges."""
    rows = [
        _words(
            {
                "x": each.x,
                "y": (each.low + each.high) / 2,
                "low": each.low,
                "high": each.high,
                "curve": each.curve,
                "note": each.note,
                "inward": "left" if _is_left(each.x, [other.x for other in printed]) else "right",
            },
            *(each.description, each.href),
        )
        for each in printed
    ]
    thin = {"aria": False, "color": MUTED.light, "strokeWidth": 1}
    detail = {"field": "curve", "type": "nominal"}
    ranges = [row for row in rows if row["low"] != row["high"]]
    noted = [row for row in rows if row["note"]]
    note = {
        "type": "text",
        "align": {"expr": "datum.inward"},
        "dx": {"expr": "datum.inward === 'left' ? -8 : 8"},
        "dy": -11,
        "fontSize": FONT_SIZE - 2,
        "color": MUTED.light,
        "aria": False,
    }
    diamond = {"type": "point", "shape": PUBLISHED_SHAPE, "size": 60, "filled": False, "strokeWidth": 1.4}
    return _drawn(
        layer(rows, {"type": "line", "strokeDash": [2, 2], **thin}, detail=detail),
        layer(ranges, {"type": "rule", **thin}, **_between("y", "low", "high")),
        layer(rows, {**diamond, "fill": PAPER.light, "stroke": MUTED.light}, **WORDS),
        layer(noted, note, text={"field": "note", "type": "nominal"}),
    )


def _is_left(place: float | str, places: Sequence[float | str]) -> bool:
    """Return whether a place is in the left half of an axis for what is doubled."""
    numbers = [number for number in places if not isinstance(number, str) and number > 0]
    return not isinstance(place, str) and bool(numbers) and place**2 < min(numbers) * max(numbers)


def level(value: float, label: str = "") -> list[Layer]:
    """Return a dashed horizontal line with words above its left end: a limit, or what is ideal."""
    rule = {"type": "rule", "strokeDash": [5, 3], "color": MUTED.light, "aria": False}
    text = {"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -2, "color": MUTED.light}
    text |= {"limit": 0.85 * WIDTH, "aria": False}
    rows = [{"y": value, "label": label}]
    return _drawn(
        layer(rows, rule, x={"value": 0}, x2={"value": "width"}),
        layer(rows if label else [], text, x={"value": 0}, text={"field": "label", "type": "nominal"}),
    )


def reference(ways: Sequence[Sequence[tuple[float, float]]]) -> list[Layer]:
    """Return dotted lines that no result is on, each through some places: what is ideal, or a limit."""
    rows = [{"x": x, "y": y, "way": number} for number, way in enumerate(ways) for x, y in way]
    mark = {"type": "line", "aria": False, "clip": True, "strokeWidth": 1, "strokeDash": [1, 3], "color": MUTED.light}
    return _drawn(layer(rows, mark, detail={"field": "way", "type": "nominal"}))


def legend_of(labels: Sequence[str], width: float = WIDTH) -> dict[str, Any]:
    """Return a legend with as many columns as fit above a chart."""
    longest = max(map(len, labels)) * _LETTER + _SYMBOL
    return {"columns": max(1, min(len(labels), int(width / longest))), "symbolOpacity": 1}


def _rows(lines: Sequence[Curve]) -> Iterator[Row]:
    """Yield a row for each mark, those of later lines a little to the right of the earlier ones' at the same place."""
    shared = any(count > 1 for count in Counter(mark.x for line in lines for mark in line.marks).values())
    named = any(isinstance(mark.x, str) for line in lines for mark in line.marks)  # bars have places of their own
    step = min(_SIDE_STEP, _WIDEST_STEP / len(lines)) if shared and not named else 0.0
    for place, line in enumerate(lines):
        beside = (place - (len(lines) - 1) / 2) * step
        for order, mark in enumerate(line.marks):
            places = mark.places or (mark.x,) * len(mark.repeats)
            repeats = [list(pair) for pair in zip(places, mark.repeats, strict=True)]
            row: Row = {
                "order": order,
                "x": mark.x,
                "y": mark.y,
                "low": mark.low,
                "high": mark.high,
                "repeats": repeats,
            }
            row |= {"across": mark.across, "note": mark.note}
            looks = {"series": line.label, "colour": line.style.colour.light, "dash": list(line.style.dash)}
            yield _words({**row, **looks, "beside": beside}, mark.description, mark.href)


def _ends(mark: Datum) -> tuple[float | None, float | None]:
    """Return the ends of an interval, no further from a positive mean than a drawing can show."""
    if mark.low is None or mark.high is None or mark.y <= 0:
        return mark.low, mark.high
    return max(mark.low, mark.y / _FARTHEST), min(mark.high, mark.y * _FARTHEST)


def _words(row: Row, description: str, href: str) -> Row:
    return {**row, "description": description, **({"href": href} if href else {})}


def _between(channel: str, low: str, high: str) -> dict[str, Any]:
    """Return the encoding of a rule between two fields."""
    return {channel: {"field": low, "type": "quantitative"}, f"{channel}2": {"field": high}}


def _drawn(*layers: Layer) -> list[Layer]:
    """Return the layers that have rows."""
    return [layer for layer in layers if layer["data"]["values"]]


def _scaled(lines: Sequence[Curve], values: Sequence[Any], legend: dict[str, Any] | None) -> dict[str, Any]:
    """Return the channel that gives each line one of these values."""
    scale = {"domain": [line.label for line in lines], "range": list(values)}
    return {"field": "series", "type": "nominal", "scale": scale, "legend": legend}


def panel_chart(panels: Sequence[Spec]) -> Spec:
    """Return panels as one chart, two in a row; a single panel unchanged."""
    if len(panels) == 1:
        return panels[0]
    # Otherwise all panels have the lines of all, and colours and shapes are not those of systems.
    apart = dict.fromkeys(("color", "shape", "strokeDash"), "independent")
    return {
        "concat": list(panels),
        "columns": _COLUMNS,
        "spacing": _SPACING,
        "resolve": {"scale": apart, "legend": apart},
    }


def window(begin: float, end: float, description: str, href: str) -> Layer:
    """Return the timed window as a shade that says what it is and leads to the result."""
    row = {"x": begin, "x2": end, "description": description, "href": href}
    shade: Layer = {"type": "rect", "fill": MUTED.light, "opacity": _SHADE}
    return layer([row], shade, x2={"field": "x2"}, y={"value": 0}, y2={"value": "height"}, **WORDS)


def span(title: str, unit: str, begin: float, end: float) -> Axis:
    """Return an axis from begin to end."""
    axis = measured(title, unit, max(abs(begin), abs(end)))
    return axis | {"scale": {"domain": [begin, end], "nice": False, "zero": False}}
