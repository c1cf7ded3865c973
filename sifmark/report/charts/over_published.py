"""Measured over published: the ratio of each published figure's counterpart to it, by table, on a logarithmic axis."""

from collections.abc import Iterable, Iterator, Sequence

from sifmark.report.charts import axes
from sifmark.report.charts.chart import COLOUR, WORDS, Chart, ChartTable, Layer, Row, Spec, layer
from sifmark.report.charts.glyphs import panel_title
from sifmark.report.charts.theme import MUTED, style_of
from sifmark.report.charts.words import caption, caption_more_lines, caption_reservations
from sifmark.report.describe import remarks
from sifmark.report.results import OverPublished, ReportResults
from sifmark.report.texts import distinct, short
from sifmark.report.variants import system_labels
from sifmark.results.catalogue import column_of
from sifmark.results.comparison.intervals import CONFIDENCE

MOST_ROWS = 40
_TITLE = "Ours over published"
_EXPLANATION = "Marks are what was measured over what was published: at the dotted line both are the same."
_FARTHEST = 1000.0  # from a ratio to the end of its interval
_LINE = 19


def ours_over_published(results: ReportResults) -> Chart | None:
    """Return a panel for each published table, or None if no figure has a counterpart that is a number."""
    every = results.over_published
    if not every:
        return None
    shown = every[:MOST_ROWS]
    labels = _labels(results, every)
    ends = [end for each in shown for end in _ends(each)]
    axis = axes.logarithmic("measured / published", "1", [0.5, 1.0, 2.0, *ends])
    tables = dict.fromkeys(each.table for each in shown)
    members = list(zip(shown, labels, strict=False))
    panels = [_panel(results, table, axis, [pair for pair in members if pair[0].table == table]) for table in tables]
    interval = [f"Rules are {CONFIDENCE:.0%} confidence intervals."] if any(each.ratio.low for each in shown) else []
    words = caption(
        _TITLE,
        (),
        (),
        _EXPLANATION,
        *interval,
        *caption_more_lines(len(every), len(shown)),
        *caption_reservations(every),
    )
    spec = {"vconcat": panels} if len(panels) > 1 else panels[0]
    return Chart("ours-over-published", _TITLE, words, spec, _table(every, labels))


def _labels(results: ReportResults, every: Sequence[OverPublished]) -> list[str]:
    """Return a label for each row: what the figure is of, and the system where there are several."""
    names = system_labels(results)
    return distinct(
        ", ".join(filter(None, [short(each.label), names[_system(results, each)] if len(names) > 1 else ""]))
        for each in every
    )


def _system(results: ReportResults, each: OverPublished) -> str:
    return results.system(each.results[0].observation.fields)


def _ends(each: OverPublished) -> Iterator[float]:
    """Yield the ratio and the ends of its interval, no further from it than a drawing can show."""
    value = each.ratio.value or 1.0
    for end in (value, each.ratio.low, each.ratio.high):
        if end is not None:
            yield min(max(end, value / _FARTHEST), value * _FARTHEST)


def _panel(results: ReportResults, table: str, axis: axes.Axis, members: Iterable[tuple[OverPublished, str]]) -> Spec:
    rows = [_row(results, each, label) for each, label in members]
    y = axes.names(None, [row["y"] for row in rows], labelLimit=320, domain=False, ticks=False)
    encoding = {"x": {"field": "x", **axis}, "y": {"field": "y", **y}}
    return {
        "title": panel_title(table),
        "layer": list(_layers(rows)),
        "encoding": encoding,
        "height": {"step": _LINE},
    }


def _layers(rows: Sequence[Row]) -> Iterator[Layer]:
    equal = {"type": "rule", "strokeDash": [1, 3], "color": MUTED.light, "aria": False}
    yield layer([{"x": 1.0}], equal, y={"value": 0}, y2={"value": "height"})
    rule = {"type": "rule", "aria": False, "strokeWidth": 1.4}
    if intervals := [row | {"x": row["low"]} for row in rows if row["low"] is not None]:
        yield layer(intervals, rule, x2={"field": "high"}, stroke=COLOUR)
    mark = {"type": "point", "filled": True, "size": 50}
    shape = {"field": "shape", "type": "nominal", "scale": None, "legend": None}
    yield layer(rows, mark, fill=COLOUR, shape=shape, **WORDS)


def _row(results: ReportResults, each: OverPublished, label: str) -> Row:
    style = style_of(results.systems.index(_system(results, each)))
    value, *ends = _ends(each)
    low, high = ends if len(ends) == 2 else (None, None)
    return {
        "y": label,
        "x": value,
        "low": low,
        "high": high,
        "colour": style.colour.light,
        "shape": style.shape,
        "href": f"#{each.results[0].anchor}",
        "description": "; ".join([f"{label}: {_numbers(each)}", *remarks(each.results), *each.remarks]),
    }


def _numbers(each: OverPublished) -> str:
    return f"measured {each.measured}, published {each.published}: {each.verdict}"


def _table(every: Sequence[OverPublished], labels: Sequence[str]) -> ChartTable:
    rows = tuple(
        (
            *(each.table, label, f"{column_of(each.metric)} [{each.unit}]", each.published, each.measured),
            *(each.verdict, ", ".join([*remarks(each.results), *each.remarks])),
        )
        for each, label in zip(every, labels, strict=True)
    )
    columns = ("table", "figure", "metric", "published", "measured", "measured / published", "remarks")
    return ChartTable(columns, rows)
