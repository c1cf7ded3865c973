"""One metric over throughput: what more throughput costs in latency or energy, with a line for each series."""

from collections.abc import Iterable, Sequence

from sifmark.report.charts import axes
from sifmark.report.charts.axes import Axis
from sifmark.report.charts.chart import ChartTable
from sifmark.report.charts.marks import Curve, Datum
from sifmark.report.charts.series import Place, paired, series_of
from sifmark.report.charts.words import mean_text, remarks, repeats_text
from sifmark.report.results import Point, Section
from sifmark.results.comparison.scaling import THROUGHPUT

_MOST_NOTED = 6  # lines whose ends have a note: more would lie on each other
Pairs = list[tuple[Point, Point]]  # of throughput and another metric, of the same results
Trades = list[tuple[Curve, Pairs]]


def trade_lines(section: Section, metric: str, place: Place) -> Trades:
    """Return the series of a metric over throughput, in the order of their places, with the points that they are of."""
    pairs = paired(section, THROUGHPUT, metric)
    others = {id(first): second for first, second in pairs}
    every = series_of(section.results, [first for first, _ in pairs], place)
    noted = len(every) <= _MOST_NOTED
    trades = []
    for series in every:
        own = [(point, others[id(point)]) for point in series.points]
        marks = [_mark(pair, series.label, place, noted and pair in (own[0], own[-1])) for pair in own]
        trades.append((Curve(series.label, series.style, tuple(marks)), own))
    return trades


def throughput_axis(unit: str, lines: Iterable[Curve]) -> Axis:
    """Return the axis of throughput, along which the marks are."""
    marks = [mark for line in lines for mark in line.marks]
    values = [float(x) for mark in marks for x in (mark.x, *mark.places)]
    return axes.quantity("throughput", unit, values, [mark.across[1] for mark in marks if mark.across])


def trade_table(place: Place, names: Sequence[str], rows: Iterable[tuple[str, Sequence[Point]]]) -> ChartTable:
    """Return a table with a column for each metric. A row has its label, and the points of the same results."""
    columns = ("system", place.name, *names, "repeats", "remarks")
    return ChartTable(
        columns,
        tuple(
            (
                *(label, place.number(points[0].fields), *(mean_text(point.mean) for point in points)),
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
        (each.observation.numbers[THROUGHPUT], each.observation.numbers[second.metric]) for each in first.results
    ]
    both = [(x.value, y.value) for x, y in numbers if x.value is not None and y.value is not None]
    texts = [f"{mean_text(point.mean)} {point.unit}" for point in pair]
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
