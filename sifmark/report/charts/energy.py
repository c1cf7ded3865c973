"""Energy of an epoch, and power over the time of a run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sifmark.report.charts import axes
from sifmark.report.charts.axes import Axis
from sifmark.report.charts.chart import Chart, ChartTable, Layer, Row, Spec, layer
from sifmark.report.charts.glyphs import Curve, bars, layered, named_level, panel_title, span, stacked, window
from sifmark.report.charts.series import Place, lines_of, most_complete, paired, series_of
from sifmark.report.charts.theme import HEIGHT, WIDTH, Colour, style_of
from sifmark.report.charts.words import caption, caption_more_lines, caption_reservations, caption_scopes, chart_name
from sifmark.report.describe import mean_text, remarks
from sifmark.report.results import Point, ReportResult, Section
from sifmark.report.variants import system_labels, variant, variant_fields
from sifmark.results.comparison.intervals import Mean
from sifmark.results.comparison.scaling import BATCH
from sifmark.results.numbers import format_number, format_quantity

_EPOCH_TITLE = "Energy per epoch"
_ENERGY, _RATE = "energy_per_epoch", "units_per_watt_hour"
_PLACE = Place(BATCH, "batch size")
_JOULES = 3600.0  # of a watt-hour
_LOWER = 110
_EPOCH_NOTE = "The first epoch, with compilation and warm-up, is not counted."
_POWER = "power_mean"
_MOST_RUNS = 6
_PANEL_HEIGHT = 105  # the height of a panel, if there are several
_FEW_TICKS = 4  # of a low panel
_POWER_TITLE = "Power over time"
_TIME = "time since the timed window began"


def energy_per_epoch(section: Section) -> Chart | None:
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
    words = caption(
        _EPOCH_TITLE, points, (), _EPOCH_NOTE, *caption_scopes(points), *caption_more_lines(len(series), len(energy))
    )
    return Chart(chart_name(section, "energy-per-epoch"), _EPOCH_TITLE, words, spec, ChartTable(columns, rows))


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


class _Run(NamedTuple):
    label: str
    colour: Colour
    point: Point
    result: ReportResult

    @property
    def power(self) -> dict[str, Any]:
        part: dict[str, Any] = self.result.document["power"]
        return part

    @property
    def idle(self) -> float | None:
        value: float | None = self.power["idle"]["power"]["value"]
        return value

    @property
    def mean(self) -> float:
        """The power in the timed window, as `compare` has it of this run."""
        return float(self.result.document["metrics"][_POWER]["value"])

    @property
    def rows(self) -> list[Row]:
        """The mean of each interval at its begin, and the last one also at its end."""
        trace = self.power["trace"]
        begin, interval, watts = trace["begin_seconds"], trace["interval_seconds"], trace["watts"]
        return [{"x": begin + number * interval, "y": value} for number, value in enumerate([*watts, watts[-1]])]


def power_over_time(section: Section) -> Chart | None:
    """Return the power trace of the fastest metered run of each system, or None if no result has one."""
    runs = _fastest(section)
    if not runs:
        return None
    shown = runs[:_MOST_RUNS]
    rows = [row for run in shown for row in run.rows]
    x = span(_TIME, "s", min(row["x"] for row in rows), max(row["x"] for row in rows))
    y = axes.from_zero("power", "W", [row["y"] for row in rows if row["y"] is not None])
    points = [run.point for run in shown]
    more = [f"The table has {len(runs) - len(shown)} systems more, which are not drawn."] * (len(runs) > len(shown))
    words = [_of_runs(shown), *caption_scopes(points), *more, *caption_reservations(points)]
    return Chart(
        chart_name(section, "power-over-time"),
        _POWER_TITLE,
        caption(_POWER_TITLE, (), (), *words),
        _power_spec(shown, x, y),
        _power_table(runs),
    )


def _fastest(section: Section) -> list[_Run]:
    """Return the fastest run with a power trace of each system."""
    points = section.points(_POWER)
    labels, names = system_labels(section.results), variant_fields(section.results, points)
    best: dict[str, tuple[float, _Run]] = {}
    for point in points:
        for result in point.results:
            speed = result.document["metrics"]["throughput"]["value"] or 0.0
            if "trace" in result.document["power"] and speed > best.get(point.system, (-1.0,))[0]:
                label = ", ".join(filter(None, [labels[point.system], variant(point.fields, names)]))
                colour = style_of(section.results.systems.index(point.system)).colour
                best[point.system] = (speed, _Run(label, colour, point, result))
    return [best[system][1] for system in section.results.systems if system in best]


def _power_spec(runs: Sequence[_Run], x: Axis, y: Axis) -> Spec:
    if len(runs) == 1:
        return layered(x, y, *_power_layers(runs[0]), width=WIDTH, height=HEIGHT)
    last = len(runs) - 1
    y["axis"]["tickCount"] = _FEW_TICKS
    panels = []
    for number, run in enumerate(runs):
        own = x if number == last else axes.without_words(x)
        panels.append(
            layered(own, y, *_power_layers(run), width=WIDTH, height=_PANEL_HEIGHT, title=panel_title(run.label))
        )
    return stacked(*panels)


def _power_layers(run: _Run) -> list[Layer]:
    seconds = run.power["trace"]["window_seconds"]
    words = f"{run.label}: {format_quantity(run.mean, 'W')} in the timed window of {format_quantity(seconds, 's')}"
    course: Layer = {"type": "line", "interpolate": "step-after", "clip": True, "strokeWidth": 1.3, "aria": False}
    idle = named_level(run.idle, f"idle {format_quantity(run.idle, 'W')}") if run.idle is not None else []
    return [
        window(0.0, seconds, words, f"#{run.result.anchor}"),
        *idle,
        layer(run.rows, {**course, "stroke": run.colour.light}),
    ]


def _of_runs(runs: Sequence[_Run]) -> str:
    which = f"The run is {runs[0].label}." if len(runs) == 1 else "Of each system, the fastest run."
    longest = max(run.power["trace"]["interval_seconds"] for run in runs)
    means = "Means over intervals of at most"
    rest = " The dashed line is the power at rest before the run." if any(run.idle is not None for run in runs) else ""
    rest = f" The shade is the timed window.{rest}"
    return f"{which} {means} {format_quantity(longest, 's')}, of all metered devices together.{rest}"


def _power_table(runs: Sequence[_Run]) -> ChartTable:
    columns = ("system", "idle [W]", "mean [W]", "lowest [W]", "highest [W]", "timed window [s]", "interval [s]")
    return ChartTable(columns, tuple(_summary(run) for run in runs))


def _summary(run: _Run) -> tuple[str, ...]:
    """Return a run as a row: the power at rest, and in the timed window."""
    trace = run.power["trace"]
    seconds, interval = trace["window_seconds"], trace["interval_seconds"]
    half = interval / 2
    inside = [row["y"] for row in run.rows[:-1] if 0 < row["x"] + half < seconds]
    numbers = [run.idle, run.mean, min(inside), max(inside), seconds, interval]
    return (run.label, *("-" if number is None else format_number(number) for number in numbers))
