"""One metric over throughput: what more throughput costs in latency or energy, with a line for each series."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sifmark.report.charts import axes
from sifmark.report.charts.axes import Axis
from sifmark.report.charts.chart import Chart, ChartTable, Spec
from sifmark.report.charts.glyphs import Curve, Datum, circled, curves, layered, notes, stacked
from sifmark.report.charts.series import MOST_LINES, Place, identity, most_complete, paired, series_of
from sifmark.report.charts.words import caption, caption_missing, caption_more_lines, caption_scopes, chart_name
from sifmark.report.describe import mean_text, quantity_text, remarks, repeats_text, scale_of_points
from sifmark.report.results import Point, Section
from sifmark.results.catalogue import metric_label
from sifmark.results.comparison.observation import CONCURRENCY
from sifmark.results.comparison.scaling import BATCH

_MOST_NOTED = 6  # lines whose ends have a note: more would lie on each other
Pairs = list[tuple[Point, Point]]  # of throughput and another metric, of the same results
Trades = list[tuple[Curve, Pairs]]
_LATENCY = "Latency by throughput"
_PERCENTILES = {"latency_p50": "p50", "latency_p90": "p90", "latency_p99": "p99"}
_PANEL_HEIGHT = 120  # of a panel
_LATENCY_NOTE = "Lines lead from few to many clients, whose numbers are at their ends."
_ENERGY = "Energy by throughput"
ENERGY_PER_UNIT = "energy_per_unit"
_BATCHES, _CLIENTS = Place(BATCH, "batch size"), Place(CONCURRENCY, "clients", (BATCH,))
_ENERGY_NOTE = "Circles mark the Pareto front: no other run has both more throughput and less energy per unit."


def trade_lines(section: Section, metric: str, place: Place) -> Trades:
    """Return the series of a metric over throughput, in the order of their places, with the points that they are of."""
    pairs = paired(section, section.rate, metric)
    others = {id(first): second for first, second in pairs}
    every = series_of(section.results, [first for first, _ in pairs], place)
    noted = len(every) <= _MOST_NOTED
    trades = []
    for series in every:
        own = [(point, others[id(point)]) for point in series.points]
        marks = [_mark(pair, series.label, place, noted and pair in (own[0], own[-1])) for pair in own]
        trades.append((Curve(series.label, series.style, tuple(marks)), own))
    return trades


def throughput_axis(section: Section, unit: str, lines: Iterable[Curve]) -> Axis:
    """Return the axis of throughput, along which the marks are."""
    marks = [mark for line in lines for mark in line.marks]
    values = [float(x) for mark in marks for x in (mark.x, *mark.places)]
    return axes.quantity(metric_label(section.rate), unit, values, [mark.across[1] for mark in marks if mark.across])


def trade_table(place: Place, names: Sequence[str], rows: Iterable[tuple[str, Sequence[Point]]]) -> ChartTable:
    """Return a table with a column for each metric. A row has its label, and the points of the same results."""
    rows = list(rows)
    scales = [scale_of_points(points) for points in zip(*(points for _, points in rows), strict=True)]
    columns = [axes.titled(name, scale.unit) for name, scale in zip(names, scales, strict=True)]
    return ChartTable(
        ("system", place.name, *columns, "repeats", "remarks"),
        tuple(
            (
                *(label, place.number(points[0].fields)),
                *(mean_text(point.mean, scale) for point, scale in zip(points, scales, strict=True)),
                *(str(points[0].mean.count), ", ".join(remarks(points[0].results))),
            )
            for label, points in rows
        ),
    )


def _mark(pair: tuple[Point, Point], label: str, place: Place, noted: bool) -> Datum:
    """Return the mark of a pair, with the values of those repeats that have both."""
    first, second = pair
    low, high = first.mean.low, first.mean.high
    numbers = [
        (each.observation.numbers[first.metric], each.observation.numbers[second.metric]) for each in first.results
    ]
    both = [(x.value, y.value) for x, y in numbers if x.value is not None and y.value is not None]
    texts = [quantity_text(point.mean, point.unit) for point in pair]
    words = f"{label}, {place.text(first.fields)}: {', '.join(texts)}, {repeats_text(first.mean.count)}"
    return Datum(
        x=first.mean.value or 0.0,
        y=second.mean.value or 0.0,
        low=second.mean.low,
        high=second.mean.high,
        repeats=tuple(y for _, y in both),
        description="; ".join([words, *remarks(first.results)]),
        href=f"#{first.results[0].anchor}",
        across=None if low is None or high is None else (low, high),
        places=tuple(x for x, _ in both),
        note=place.number(first.fields) if noted else "",
    )


def latency_by_throughput(section: Section) -> Chart | None:
    """Return the percentiles of latency over throughput, if a series has two numbers of clients."""
    panels = {metric: trade_lines(section, metric, _CLIENTS) for metric in _PERCENTILES}
    panels = {metric: trades for metric, trades in panels.items() if any(len(own) > 1 for _, own in trades)}
    if not panels:
        return None
    first, *_ = panels.values()
    drawn = {metric: most_complete([line for line, _ in trades]) for metric, trades in panels.items()}
    x = throughput_axis(section, first[0][1][0][0].unit, next(iter(drawn.values())))
    marks = [mark for lines in drawn.values() for line in lines for mark in line.marks]
    values, ends = [value for mark in marks for value in (mark.y, *mark.repeats)], [mark.high for mark in marks]
    specs: list[Spec] = []
    for metric, lines in drawn.items():
        y = axes.quantity(f"{_PERCENTILES[metric]} latency", "s", values, ends)
        x_here = x if metric == list(drawn)[-1] else axes.without_words(x)
        layers = [*curves(lines, legend=not specs), *notes(lines)]
        specs.append(layered(x_here, y, *layers, height=_PANEL_HEIGHT))
    points = [pair[0] for _, own in first for pair in own]
    names = [metric_label(section.rate), *(_PERCENTILES[metric] for metric in panels)]
    return Chart(
        chart_name(section, "latency-by-throughput"),
        _LATENCY,
        caption(
            _LATENCY,
            points,
            (),
            _LATENCY_NOTE,
            *caption_missing(section.failures),
            *caption_more_lines(len(first), MOST_LINES),
        ),
        stacked(*specs),
        trade_table(_CLIENTS, names, _percentile_rows(panels)),
    )


def _percentile_rows(panels: Mapping[str, Trades]) -> Iterator[tuple[str, list[Point]]]:
    """Yield label, throughput and percentiles of each point that has all of them."""
    first, *others = panels.values()
    by_results = [{identity(pair[0]): pair[1] for _, pairs in trades for pair in pairs} for trades in others]
    for line, own in first:
        for point, latency in own:
            same = [latencies[identity(point)] for latencies in by_results if identity(point) in latencies]
            if len(same) == len(others):
                yield line.label, [point, latency, *same]


def energy_by_throughput(section: Section) -> Chart | None:
    """Return energy per unit over throughput, if two results have both."""
    by_requests = any(_CLIENTS.of(point.fields) for point in section.points(ENERGY_PER_UNIT))
    place = _CLIENTS if by_requests else _BATCHES
    trades = trade_lines(section, ENERGY_PER_UNIT, place)
    pairs = [pair for _, own in trades for pair in own]
    if len(pairs) < 2:
        return None
    lines = most_complete([line for line, _ in trades])
    marks = [mark for line in lines for mark in line.marks]
    unit, energy_unit = pairs[0][0].unit, f"J/{section.unit.removesuffix('s')}"
    values = [value for mark in marks for value in (mark.y, *mark.repeats)]
    y = axes.quantity("energy", energy_unit, values, [mark.high for mark in marks])
    layers = [*circled(pareto_front(marks)), *curves(lines), *notes(lines)]
    points = [first for first, _ in pairs]
    words = caption(
        _ENERGY,
        points,
        (),
        _ENERGY_NOTE,
        f"Numbers at the ends of lines: {place.name}.",
        *caption_scopes(points),
        *caption_missing(section.failures),
        *caption_more_lines(len(trades), len(lines)),
    )
    table = trade_table(
        place, (metric_label(section.rate), "energy"), ((line.label, pair) for line, own in trades for pair in own)
    )
    spec = layered(throughput_axis(section, unit, lines), y, *layers)
    return Chart(chart_name(section, "energy-by-throughput"), _ENERGY, words, spec, table)


def pareto_front(marks: Iterable[Datum]) -> list[Datum]:
    """Return the marks that none beats in both more throughput and less energy, from the fastest on."""
    front: list[Datum] = []
    for mark in sorted(marks, key=lambda mark: (-float(mark.x), mark.y)):
        if not front or mark.y < front[-1].y:
            front.append(mark)
    return front
