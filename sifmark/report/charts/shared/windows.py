"""What charts of the course of a run share: its timed window as a shade behind, and levels with their names."""

from sifmark.report.charts.axes import Axis, measured
from sifmark.report.charts.layers import WORDS, Layer, layer
from sifmark.report.charts.theme import MUTED

_SHADE = 0.14


def window(begin: float, end: float, description: str, href: str) -> Layer:
    """Return the timed window as a shade that says what it is and leads to the result."""
    row = {"x": begin, "x2": end, "description": description, "href": href}
    shade: Layer = {"type": "rect", "fill": MUTED.light, "opacity": _SHADE}
    return layer([row], shade, x2={"field": "x2"}, y={"value": 0}, y2={"value": "height"}, **WORDS)


def named_level(value: float, name: str) -> list[Layer]:
    """Return a dashed line across a chart, with its name to the right of it."""
    row = {"y": value, "name": name}
    rule: Layer = {"type": "rule", "strokeDash": [5, 3], "color": MUTED.light, "aria": False}
    text: Layer = {"type": "text", "align": "left", "baseline": "middle", "dx": 5, "color": MUTED.light, "aria": False}
    return [
        layer([row], rule, x={"value": 0}, x2={"value": "width"}),
        layer([row], text, x={"value": "width"}, text={"field": "name", "type": "nominal"}),
    ]


def span(title: str, unit: str, begin: float, end: float) -> Axis:
    """Return an axis from begin to end."""
    axis = measured(title, unit, max(abs(begin), abs(end)))
    return axis | {"scale": {"domain": [begin, end], "nice": False, "zero": False}}
