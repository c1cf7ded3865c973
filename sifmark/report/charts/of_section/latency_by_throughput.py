"""Latency by throughput, a panel for each percentile: what answers take as more clients ask."""

from collections.abc import Iterator, Mapping

from sifmark.report.charts import axes
from sifmark.report.charts.chart import Chart, Spec
from sifmark.report.charts.marks import curves, layered, notes, stacked
from sifmark.report.charts.series import CONCURRENCY, MOST_LINES, Place, identity, most_complete
from sifmark.report.charts.shared.trades import Trades, throughput_axis, trade_lines, trade_table
from sifmark.report.charts.words import caption, chart_name, of_absent, of_rest
from sifmark.report.results import Point, Section
from sifmark.results.comparison.scaling import BATCH

_TITLE = "Latency by throughput"
_PERCENTILES = {"latency_p50": "p50", "latency_p90": "p90", "latency_p99": "p99"}
_PLACE = Place(CONCURRENCY, "clients", (BATCH,))
_HEIGHT = 120  # of a panel
_NOTE = "Lines lead from few to many clients, whose numbers are at their ends."


def draw(section: Section) -> Chart | None:
    """Return the percentiles of latency over throughput, if a series has two numbers of clients."""
    panels = {metric: trade_lines(section, metric, _PLACE) for metric in _PERCENTILES}
    panels = {metric: trades for metric, trades in panels.items() if any(len(own) > 1 for _, own in trades)}
    if not panels:
        return None
    first, *_ = panels.values()
    drawn = {metric: most_complete([line for line, _ in trades]) for metric, trades in panels.items()}
    x = throughput_axis(first[0][1][0][0].unit, next(iter(drawn.values())))
    marks = [mark for lines in drawn.values() for line in lines for mark in line.marks]
    values, ends = [value for mark in marks for value in (mark.y, *mark.repeats)], [mark.high for mark in marks]
    specs: list[Spec] = []
    for metric, lines in drawn.items():
        y = axes.quantity(f"{_PERCENTILES[metric]} latency", "s", values, ends)
        x_here = x if metric == list(drawn)[-1] else axes.without_words(x)
        layers = [*curves(lines, legend=not specs), *notes(lines)]
        specs.append(layered(x_here, y, *layers, height=_HEIGHT))
    points = [pair[0] for _, own in first for pair in own]
    columns = [axes.titled("throughput", points[0].unit), *(f"{_PERCENTILES[metric]} [s]" for metric in panels)]
    return Chart(
        chart_name(section, "latency-by-throughput"),
        _TITLE,
        caption(_TITLE, points, (), _NOTE, *of_absent(section.failures), *of_rest(len(first), MOST_LINES)),
        stacked(*specs),
        trade_table(_PLACE, columns, _rows(panels)),
    )


def _rows(panels: Mapping[str, Trades]) -> Iterator[tuple[str, list[Point]]]:
    """Yield label, throughput and percentiles of each point that has all of them."""
    first, *others = panels.values()
    by_results = [{identity(pair[0]): pair[1] for _, pairs in trades for pair in pairs} for trades in others]
    for line, own in first:
        for point, latency in own:
            same = [latencies[identity(point)] for latencies in by_results if identity(point) in latencies]
            if len(same) == len(others):
                yield line.label, [point, latency, *same]
