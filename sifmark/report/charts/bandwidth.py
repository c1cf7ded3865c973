"""Bandwidth by message size: of copies within a device, between it and the host, and between devices."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sifmark.report.charts import axes
from sifmark.report.charts.axes import Axis
from sifmark.report.charts.chart import Chart, ChartTable, Layer, Row, Spec, layer
from sifmark.report.charts.glyphs import Curve, Datum, curves, layered, panel_chart, panel_title
from sifmark.report.charts.series import labels_of, styles_of
from sifmark.report.charts.theme import MUTED
from sifmark.report.charts.words import caption, caption_reservations
from sifmark.report.describe import mean_text, remarks, repeats_text
from sifmark.report.results import Point, ReportResults, Section
from sifmark.report.variants import variant, variant_fields
from sifmark.results.catalogue import MICROBENCHMARK
from sifmark.results.comparison.intervals import CONFIDENCE, Mean, mean
from sifmark.results.copies import caches_of
from sifmark.results.numbers import format_scaled

_METRIC, _UNIT = "small_message_latency", "GB/s"  # that every operation has, whatever it moves
_BANDWIDTH = "bus_bandwidth_gb_per_second"
_MOST_LINES, _MOST_PANELS = 12, 8
_MEMORY_COPY = "memory_copy"
_TITLE = "Bandwidth by message size"
_BUS = "Bus bandwidth, as nccl-tests counts it: it does not depend on the number of ranks."
_COPIES = "Copies within memory count each byte twice: it is read and written."
_CACHES = "Right of a dashed line buffers are at least four times the last-level caches, so that they are in memory."


class _Way(NamedTuple):
    """The bandwidth of repeats by size, on one way between memories."""

    label: str
    line: Curve
    point: Point
    means: tuple[tuple[int, Mean], ...]


def bandwidth(results: ReportResults) -> Chart | None:
    """Return a panel for each operation that moves data, or None if none was measured at two sizes."""
    panels = {_operation(section): ways for section in _sections(results) if (ways := _curves(section))}
    if not panels:
        return None
    shown = dict(sorted(panels.items())[:_MOST_PANELS])
    points = list({id(each.point): each.point for ways in panels.values() for each in ways}.values())
    left = sum(max(0, len(ways) - _MOST_LINES) for ways in shown.values())
    left += sum(len(ways) for name, ways in panels.items() if name not in shown)
    more = [f"The table has {left} lines more, which are not drawn."] if left else []
    counted = [*([_BUS] if set(panels) - {_MEMORY_COPY} else []), *([_COPIES] if _MEMORY_COPY in panels else [])]
    counted += [_CACHES] if any(map(_memory_begins, panels.get(_MEMORY_COPY, ()))) else []
    text = caption(_TITLE, (), (), *counted, *_of_curves(panels), *more, *caption_reservations(points))
    spec = panel_chart([_panel(name, ways) for name, ways in shown.items()])
    return Chart("bandwidth-by-message-size", _TITLE, text, spec, _table(panels))


def _curves(section: Section) -> list[_Way]:
    systems = section.results.systems
    points = sorted(section.points(_METRIC), key=lambda point: systems.index(point.system))
    names = variant_fields(section.results, points)
    ways: list[tuple[Point, str, tuple[tuple[int, Mean], ...]]] = []
    for point in points:
        for way, means in _by_way(point).items():
            if len(means) > 1:
                ways.append((point, ", ".join(filter(None, [variant(point.fields, names), way])), means))
    labels = labels_of(section.results, [(point.system, words) for point, words, _ in ways])
    styles = styles_of(section.results, [point.system for point, _, _ in ways])
    return [
        _Way(label, Curve(label, style, tuple(_data(point, label, means))), point, means)
        for (point, _, means), label, style in zip(ways, labels, styles, strict=True)
    ]


def _by_way(point: Point) -> dict[str, tuple[tuple[int, Mean], ...]]:
    """Return the means over repeats by size, for each way between host and device."""
    values: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in point.results:
        for row in result.document["points"]["measured"]:
            if row[_BANDWIDTH]:
                values[_way(row)][row["size"]].append(row[_BANDWIDTH])
    return {way: tuple((size, mean(each)) for size, each in sorted(sizes.items())) for way, sizes in values.items()}


def _way(row: dict[str, Any]) -> str:
    return " ".join(word.replace("_", " ") for word in (row["direction"], row["memory"]) if word)


def _data(point: Point, label: str, means: Sequence[tuple[int, Mean]]) -> Iterator[Datum]:
    href = f"#{point.results[0].anchor}"
    for size, each in means:
        if each.value is not None:
            words = f"{label}, {_bytes(size)}: {mean_text(each)} {_UNIT}, {repeats_text(each.count)}"
            words = "; ".join([words, *remarks(point.results)])
            yield Datum(size, each.value, each.low, each.high, (), words, href)


def _panel(operation: str, every: Sequence[_Way]) -> Spec:
    lines = [each.line for each in every[:_MOST_LINES]]
    data = [datum for line in lines for datum in line.marks]
    y = axes.logarithmic("bus bandwidth", _UNIT, [datum.y for datum in data], [datum.low for datum in data])
    begins = {begin for each in every if operation == _MEMORY_COPY and (begin := _memory_begins(each))}
    return {
        **layered(_sizes([float(datum.x) for datum in data]), y, *_edges(begins), *curves(lines)),
        "title": panel_title(operation.replace("_", " ")),
    }


def _memory_begins(way: _Way) -> float | None:
    """Return the bytes from which on copies are in memory, if there are such and smaller ones."""
    begin = caches_of(way.point.results[0].document).left_from
    sizes = [size for size, _ in way.means]
    return begin if begin and min(sizes) < begin <= max(sizes) else None


def _edges(places: Iterable[float]) -> list[Layer]:
    """Return a dashed vertical line at each place."""
    rule: Layer = {"type": "rule", "strokeDash": [5, 3], "color": MUTED.light, "aria": False}
    rows: list[Row] = [{"x": place} for place in sorted(places)]
    return [layer(rows, rule, y={"value": 0}, y2={"value": "height"})] if rows else []


def _sizes(values: Sequence[float]) -> Axis:
    """Return a logarithmic axis of bytes, with ticks at powers of 1024 or, over a short range, of 4."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
    every = next(step for step in (1, 2, 5, 10) if len(powers) / step <= 8 or step == 10)
    ticks = [2.0**power for power in powers if power % every == 0 and low <= 2**power <= high]
    units = "datum.value >= 1073741824 ? format(datum.value/1073741824, '~r') + ' GiB'"
    units += " : datum.value >= 1048576 ? format(datum.value/1048576, '~r') + ' MiB'"
    units += " : datum.value >= 1024 ? format(datum.value/1024, '~r') + ' KiB' : format(datum.value, '~r') + ' B'"
    scale = {"type": "log", "base": 2, "domain": [low / 1.3, high * 1.3], "nice": False}
    axis = {"values": ticks, "labelExpr": units, "labelOverlap": "greedy"}
    return {"type": "quantitative", "title": "message size", "scale": scale, "axis": axis}


def _bytes(size: int) -> str:
    return format_scaled(size, "B")


def _of_curves(panels: dict[str, list[_Way]]) -> Iterator[str]:
    counts = sorted({each.count for ways in panels.values() for way in ways for _, each in way.means})
    if counts == [1]:
        yield "Each mark is the median of a single run."
    else:
        span = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
        yield f"Marks are geometric means of the medians of {span} repeats in fresh processes."
    if any(each.low is not None for ways in panels.values() for way in ways for _, each in way.means):
        yield f"Thin rules are {CONFIDENCE:.0%} confidence intervals."


def _table(panels: dict[str, list[_Way]]) -> ChartTable:
    rows = (
        (operation.replace("_", " "), way.label, str(size), mean_text(each), str(each.count), _place(way, size))
        for operation, ways in sorted(panels.items())
        for way in ways
        for size, each in way.means
    )
    return ChartTable(("operation", "system", "size [B]", f"bus bandwidth [{_UNIT}]", "repeats", "in"), tuple(rows))


def _place(way: _Way, size: int) -> str:
    """Return where the buffers of a copy within a memory are."""
    document = way.point.results[0].document
    return caches_of(document).place(size) if document["points"]["operation"] == _MEMORY_COPY else ""


def _sections(results: ReportResults) -> Iterator[Section]:
    """Return the sections of micro-benchmarks."""
    return (section for section in results.sections if section.key.task == MICROBENCHMARK)


def _operation(section: Section) -> str:
    """Return the operation of a micro-benchmark: `all_reduce` ...; empty if no run got so far."""
    points = (each.document["points"] for each in section.members)
    return next((str(point["operation"]) for point in points if point), "")
