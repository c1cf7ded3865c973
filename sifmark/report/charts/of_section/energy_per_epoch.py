"""Energy of an epoch as bars, and below it units per watt-hour, both by batch size."""

from collections.abc import Sequence
from dataclasses import replace

from sifmark.report.charts import axes
from sifmark.report.charts.axes import Axis
from sifmark.report.charts.chart import Chart, ChartTable
from sifmark.report.charts.marks import Curve, bars, layered, stacked
from sifmark.report.charts.series import Place, lines_of, most_complete, paired, series_of
from sifmark.report.charts.words import caption, chart_name, mean_text, of_rest, remarks, scopes
from sifmark.report.results import Section
from sifmark.results.comparison.intervals import Mean
from sifmark.results.comparison.scaling import BATCH

_TITLE = "Energy per epoch"
_ENERGY, _RATE = "energy_per_epoch", "units_per_watt_hour"
_PLACE = Place(BATCH, "batch size")
_JOULES = 3600.0  # of a watt-hour
_LOWER = 110
_NOTE = "The first epoch, with compilation and warm-up, is not counted."


def draw(section: Section) -> Chart | None:
    """Return the energy of an epoch and the units per watt-hour of the same results, if any has both."""
    pairs = paired(section, _ENERGY, _RATE)
    series = series_of(section.results, [energy for energy, _ in pairs], _PLACE)
    if not series:
        return None
    rates = {id(energy): rate for energy, rate in pairs}
    below = [replace(each, points=tuple(rates[id(point)] for point in each.points)) for each in series]
    points = [point for each in series for point in each.points]
    x = axes.names(_PLACE.name, [f"{place:g}" for place in sorted(_PLACE.of(point.fields) or 0 for point in points)])
    energy = [_named(line, 1 / _JOULES) for line in most_complete(lines_of(series, _PLACE))]
    rate = [_named(line) for line in most_complete(lines_of(below, _PLACE))]
    unit = f"{section.unit}/Wh"
    spec = stacked(
        layered(axes.without_words(x), _axis("energy of an epoch", "Wh", energy), *bars(energy)),
        layered(x, _axis("work per energy", unit, rate), *bars(rate, legend=False, filled=False), height=_LOWER),
    )
    columns = ("system", _PLACE.name, "energy of an epoch [Wh]", f"work per energy [{unit}]", "repeats", "remarks")
    rows = tuple(
        (
            *(each.label, _PLACE.number(point.fields), mean_text(_in_watt_hours(point.mean))),
            *(mean_text(rates[id(point)].mean), str(point.mean.count), ", ".join(remarks(point.results))),
        )
        for each in series
        for point in each.points
    )
    words = caption(_TITLE, points, (), _NOTE, *scopes(points), *of_rest(len(series), len(energy)))
    return Chart(chart_name(section, "energy-per-epoch"), _TITLE, words, spec, ChartTable(columns, rows))


def _axis(name: str, unit: str, lines: Sequence[Curve]) -> Axis:
    marks = [mark for line in lines for mark in line.marks]
    values = [value for mark in marks for value in (mark.y, *mark.repeats)]
    return axes.from_zero(name, unit, values, [mark.high for mark in marks])


def _named(line: Curve, factor: float = 1.0) -> Curve:
    """Return a line whose places are names, with its values times a factor."""
    marks = [
        replace(
            mark,
            x=f"{mark.x:g}",
            y=mark.y * factor,
            low=None if mark.low is None else mark.low * factor,
            high=None if mark.high is None else mark.high * factor,
            repeats=tuple(value * factor for value in mark.repeats),
        )
        for mark in line.marks
    ]
    return replace(line, marks=tuple(marks))


def _in_watt_hours(mean: Mean) -> Mean:
    value, low, high = (None if number is None else number / _JOULES for number in (mean.value, mean.low, mean.high))
    return replace(mean, value=value, low=low, high=high)
