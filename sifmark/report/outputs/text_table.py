"""A table as a picture: text between three rules, as in papers."""

import textwrap
from collections.abc import Sequence
from itertools import accumulate

from sifmark.report.charts.chart import Spec
from sifmark.report.charts.layers import Layer, layer
from sifmark.report.charts.theme import FONT_SIZE, INK, WIDTH
from sifmark.report.charts.words import short_phrase

_LETTER = FONT_SIZE * 0.56  # about the mean width of one
_LINE, _GAP = 18, 20  # height of a line, width between columns
_HEAD = 24  # letters of a line of a column's title
_THICK, _THIN = 1.4, 0.7  # rules


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Spec:
    """Return a table as a specification. Columns of numbers are flush right."""
    heads = [textwrap.wrap(short_phrase(title), _HEAD) or [""] for title in columns]
    cells = [[short_phrase(cell) if cell else "" for cell in row] for row in rows]
    widths = [
        _LETTER * max(map(len, [*head, *(row[place] for row in cells)])) + _GAP for place, head in enumerate(heads)
    ]
    stretch = max(1.0, WIDTH / sum(widths))  # a table of two columns is no wider than others when it fills a page
    widths = [stretch * width for width in widths]
    lefts = [0.0, *accumulate(widths)]
    right = {place for place in range(len(heads)) if _is_numeric([row[place] for row in cells])}
    edges = [lefts[place + 1] - _GAP / 2 if place in right else lefts[place] + _GAP / 2 for place in range(len(heads))]
    depth = max(map(len, heads))
    lines = [[head[line - depth] if line >= depth - len(head) else "" for head in heads] for line in range(depth)]
    texts = [
        {"x": edges[place], "y": (number + 0.5) * _LINE, "text": cell, "right": place in right}
        for number, row in enumerate([*lines, *cells])
        for place, cell in enumerate(row)
        if cell
    ]
    height = (depth + len(cells)) * _LINE
    rules = [(0, _THICK), (depth * _LINE, _THIN), (height, _THICK)]
    layers = [
        *(_rule(place, thickness, lefts[-1]) for place, thickness in rules),
        *(_texts([text for text in texts if text["right"] is flush], flush) for flush in (False, True)),
    ]
    return {"layer": layers, "width": round(lefts[-1]), "height": height}


def _rule(place: float, thickness: float, width: float) -> Layer:
    mark = {"type": "rule", "strokeWidth": thickness, "color": INK.light, "aria": False}
    return layer([{"y": place}], mark, y=_pixel("y"), x={"value": 0}, x2={"value": width})


def _texts(texts: Sequence[dict[str, object]], right: bool) -> Layer:
    mark = {"type": "text", "align": "right" if right else "left", "baseline": "middle", "aria": False}
    return layer(texts, mark, x=_pixel("x"), y=_pixel("y"), text={"field": "text", "type": "nominal"})


def _pixel(field: str) -> dict[str, object]:
    return {"field": field, "type": "quantitative", "scale": None, "axis": None}


def _is_numeric(cells: Sequence[str]) -> bool:
    """Return whether most cells of a column are numbers: one may say why it has none."""
    words = [cell for cell in cells if cell and not cell[:1].isdigit()]
    return len(words) < len([cell for cell in cells if cell]) / 2
