"""Rooflines: what workloads reach of the peaks that micro-benchmarks measured on the same system.

How many bytes a workload moves is not measured, so its intensity is unknown: its rate is a line over all intensities
at which the memory could be fast enough.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sifmark.report.charts import axes
from sifmark.report.charts.axes import Axis
from sifmark.report.charts.chart import Chart, ChartTable, Spec
from sifmark.report.charts.layers import WORDS, Layer, layer
from sifmark.report.charts.marks import layered
from sifmark.report.charts.series import PRECISION, system_labels
from sifmark.report.charts.shared.microbenchmarks import MATMUL, MEMORY_COPY, MICROBENCHMARK, sections_of
from sifmark.report.charts.shared.panels import panel_chart, panel_title
from sifmark.report.charts.theme import INK, Colour, style_of
from sifmark.report.charts.words import caption, mean_text, of_remarks, remarks
from sifmark.report.results import Point, ReportResults
from sifmark.results.comparison.scaling import BATCH, DEVICES
from sifmark.results.numbers import format_scaled

_RATE, _PEAK, _BANDWIDTH = "achieved_flops", "peak_flops", "peak_bandwidth"
_GIGA = 1e9
_REACH = 30.0  # times the intensity of the ridge, on both sides of it
_MOST_RATES, _MOST_PANELS = 8, 6
_WIDTH = 270
_APART = 0.062  # of the height, between the names of two lines
_LONGEST_NAME = 30
_TITLE = "Rooflines"


class _Rate(NamedTuple):
    """What a workload reaches at its best."""

    name: str
    point: Point

    @property
    def value(self) -> float:
        return self.point.mean.value or 0.0


class _Roof(NamedTuple):
    """The measured peaks of a system in a precision, and what workloads reach in it."""

    label: str
    colour: Colour
    compute: Point  # FLOP/s
    memory: Point  # GB/s
    rates: tuple[_Rate, ...]

    @property
    def flops(self) -> float:
        return self.compute.mean.value or 0.0

    @property
    def bandwidth(self) -> float:
        """In B/s."""
        return (self.memory.mean.value or 0.0) * _GIGA

    @property
    def ridge(self) -> float:
        """The intensity from which computing is the limit, in FLOP/B."""
        return self.flops / self.bandwidth


def draw(results: ReportResults) -> Chart | None:
    """Return a panel for each system and precision with both peaks and a workload, or None without any."""
    roofs = list(_roofs(results))
    if not roofs:
        return None
    shown = roofs[:_MOST_PANELS]
    peaks = f"Roofs are measured: products of matrices and copies within memory ({MATMUL}, {MEMORY_COPY})."
    unknown = (
        "How many bytes workloads move is not measured: each line is the rate that one achieved, "
        "at all intensities that are possible."
    )
    left = len(roofs) - len(shown) + sum(max(0, len(roof.rates) - _MOST_RATES) for roof in shown)
    more = ["The table has more than is drawn."] if left else []
    if any(rate.value > roof.flops for roof in roofs for rate in roof.rates):
        more.append("Where a line is above the roof, the micro-benchmark was slower than the workload.")
    points = [point for roof in roofs for point in (roof.compute, roof.memory, *(rate.point for rate in roof.rates))]
    text = caption(_TITLE, (), (), peaks, unknown, *more, *of_remarks(points))
    return Chart("roofline", _TITLE, text, panel_chart([_panel(roof) for roof in shown]), _table(roofs))


def _roofs(results: ReportResults) -> Iterator[_Roof]:
    memory = {(point.system, point.fields[DEVICES]): point for point in _best(results, MEMORY_COPY, _BANDWIDTH)}
    labels = system_labels(results)
    for point in _best(results, MATMUL, _PEAK):
        copies = memory.get((point.system, point.fields[DEVICES]))
        rates = tuple(_rates(results, point))
        if copies is not None and copies.mean.value and point.mean.value and rates:
            label = f"{labels[point.system]}, {point.fields[PRECISION]}"
            colour = style_of(results.systems.index(point.system)).colour
            yield _Roof(label, colour, point, copies, rates)


def _best(results: ReportResults, operation: str, metric: str) -> list[Point]:
    """Return the points of a micro-benchmark: of each system, number of devices and precision the highest."""
    best: dict[object, Point] = {}
    for section in sections_of(results, operation):
        for point in section.points(metric):
            precision = point.fields[PRECISION] if operation == MATMUL else None
            key = (results.systems.index(point.system), point.fields[DEVICES], str(precision))
            if key not in best or (point.mean.value or 0.0) > (best[key].mean.value or 0.0):
                best[key] = point
    return [best[key] for key in sorted(best, key=str)]


def _rates(results: ReportResults, peak: Point) -> Iterator[_Rate]:
    """Yield what workloads reach on as many devices of a system in the precision of a peak, the highest first."""
    best = []
    for section in results.sections:
        points = [
            point
            for point in (section.points(_RATE) if section.key.task != MICROBENCHMARK else [])
            if point.system == peak.system
            and all(point.fields[name] == peak.fields[name] for name in (DEVICES, PRECISION))
        ]
        if points:
            fastest = max(points, key=lambda point: point.mean.value or 0.0)
            workload = section.members[0].document["workload"]["name"]
            best.append(_Rate(f"{workload} {section.key.task}", fastest))
    yield from sorted(best, key=lambda rate: -rate.value)


def _panel(roof: _Roof) -> Spec:
    low, high = roof.ridge / _REACH, roof.ridge * _REACH
    rates = roof.rates[:_MOST_RATES]
    y = axes.logarithmic("rate", "FLOP/s", [roof.bandwidth * low, roof.flops, *(rate.value for rate in rates)])
    peaks = (format_scaled(roof.flops, "FLOP/s"), format_scaled(roof.bandwidth, "B/s"))
    title = panel_title(f"{roof.label}: {' and '.join(peaks)}")
    layers = [*_roof_layers(roof, low, high), *_rate_layers(roof, rates, high, y)]
    return {**layered(_intensities(low, high), y, *layers), "title": title, "width": _WIDTH}


def _intensities(low: float, high: float) -> Axis:
    axis = axes.logarithmic("operational intensity", "FLOP/B", [low, high])
    return axis | {"scale": axis["scale"] | {"domain": [low, high]}}


def _roof_layers(roof: _Roof, low: float, high: float) -> list[Layer]:
    corners = [(low, low * roof.bandwidth), (roof.ridge, roof.flops), (high, roof.flops)]
    words = (
        f"{roof.label}: {format_scaled(roof.flops, 'FLOP/s')} of {MATMUL}, "
        f"{format_scaled(roof.bandwidth, 'B/s')} of {MEMORY_COPY}"
    )
    line: Layer = {"type": "line", "stroke": INK.light, "strokeWidth": 1.8, "aria": False, "clip": True}
    corner: Layer = {"type": "point", "filled": True, "size": 30, "fill": INK.light}
    ridge = {"x": roof.ridge, "y": roof.flops, "description": words, "href": f"#{roof.compute.results[0].anchor}"}
    return [
        layer([{"x": x, "y": y} for x, y in corners], line),
        layer([ridge], corner, **WORDS),
    ]


def _rate_layers(roof: _Roof, rates: Sequence[_Rate], high: float, y: Axis) -> list[Layer]:
    """Return a line for each workload from where it meets the roof, and names that do not cover each other."""
    rows = [
        {
            "x": max(rate.value / roof.bandwidth, roof.ridge / _REACH),
            "x2": high,
            "y": rate.value,
            "description": "; ".join([f"{roof.label}, {rate.name}: {_text(rate)}", *remarks(rate.point.results)]),
            "href": f"#{rate.point.results[0].anchor}",
        }
        for rate in rates
    ]
    low, top = y["scale"]["domain"]
    names = [
        {"y": (top / low) ** height * low, "name": rate.name[:_LONGEST_NAME]}
        for rate, height in zip(rates, _spread([rate.value for rate in rates], low, top), strict=True)
    ]
    rule: Layer = {"type": "rule", "stroke": roof.colour.light, "strokeWidth": 1.6, "clip": True}
    text: Layer = {"type": "text", "align": "left", "baseline": "middle", "dx": 5, "aria": False}
    return [
        layer(rows, rule, x2={"field": "x2"}, **WORDS),
        layer(names, text, x={"value": "width"}, text={"field": "name", "type": "nominal"}),
    ]


def _spread(values: Sequence[float], low: float, high: float) -> list[float]:
    """Return the heights of names from 0 to 1, from the highest down: at their values, but not over each other."""
    heights: list[float] = []
    for value in values:
        height = math.log(value / low) / math.log(high / low)
        heights.append(min([height, *(before - _APART for before in heights[-1:])]))
    return heights


def _text(rate: _Rate) -> str:
    point = rate.point
    batch = point.fields.get(BATCH)
    return f"{mean_text(point.mean)} {point.unit} at batch {batch}"


def _table(roofs: Sequence[_Roof]) -> ChartTable:
    rows = []
    for roof in roofs:
        rows.append((roof.label, MATMUL, "", mean_text(roof.compute.mean), "FLOP/s"))
        rows.append((roof.label, MEMORY_COPY, "", mean_text(roof.memory.mean), roof.memory.unit))
        for rate in roof.rates:
            batch = str(rate.point.fields.get(BATCH))
            rows.append((roof.label, rate.name, batch, mean_text(rate.point.mean), "FLOP/s"))
    return ChartTable(("system", "workload", "batch size", "rate", "unit"), tuple(rows))
