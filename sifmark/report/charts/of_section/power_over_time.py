"""Power over the time of a run, with the timed window and the power at rest: one run of each system."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sifmark.report.charts import axes
from sifmark.report.charts.axes import Axis
from sifmark.report.charts.chart import Chart, ChartTable, Spec
from sifmark.report.charts.layers import Layer, Row, layer
from sifmark.report.charts.marks import layered, stacked
from sifmark.report.charts.series import system_labels, variant, variant_fields
from sifmark.report.charts.shared.panels import panel_title
from sifmark.report.charts.shared.windows import named_level, span, window
from sifmark.report.charts.theme import HEIGHT, WIDTH, Colour, style_of
from sifmark.report.charts.words import caption, chart_name, of_remarks, scopes
from sifmark.report.results import Point, ReportResult, Section
from sifmark.results.numbers import format_number, format_quantity

_METRIC = "power_mean"
_MOST_RUNS = 6
_LOW = 105  # the height of a panel, if there are several
_FEW_TICKS = 4  # of a low panel
_TITLE = "Power over time"
_TIME = "time since the timed window began"


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
        return float(self.result.document["metrics"][_METRIC]["value"])

    @property
    def rows(self) -> list[Row]:
        """The mean of each interval at its begin, and the last one also at its end."""
        trace = self.power["trace"]
        begin, interval, watts = trace["begin_seconds"], trace["interval_seconds"], trace["watts"]
        return [{"x": begin + number * interval, "y": value} for number, value in enumerate([*watts, watts[-1]])]


def draw(section: Section) -> Chart | None:
    """Return the course of power of the fastest metered run of each system, or None if no result has one."""
    runs = _fastest(section)
    if not runs:
        return None
    shown = runs[:_MOST_RUNS]
    rows = [row for run in shown for row in run.rows]
    x = span(_TIME, "s", min(row["x"] for row in rows), max(row["x"] for row in rows))
    y = axes.from_zero("power", "W", [row["y"] for row in rows if row["y"] is not None])
    points = [run.point for run in shown]
    more = [f"The table has {len(runs) - len(shown)} systems more, which are not drawn."] * (len(runs) > len(shown))
    words = [_of_runs(shown), *scopes(points), *more, *of_remarks(points)]
    return Chart(
        chart_name(section, "power-over-time"),
        _TITLE,
        caption(_TITLE, (), (), *words),
        _spec(shown, x, y),
        _table(runs),
    )


def _fastest(section: Section) -> list[_Run]:
    """Return the fastest run of each system that has the course of its power: repeats of the same, the first."""
    points = section.points(_METRIC)
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


def _spec(runs: Sequence[_Run], x: Axis, y: Axis) -> Spec:
    if len(runs) == 1:
        return layered(x, y, *_layers(runs[0]), width=WIDTH, height=HEIGHT)
    last = len(runs) - 1
    y["axis"]["tickCount"] = _FEW_TICKS
    panels = []
    for number, run in enumerate(runs):
        own = x if number == last else axes.without_words(x)
        panels.append(layered(own, y, *_layers(run), width=WIDTH, height=_LOW, title=panel_title(run.label)))
    return stacked(*panels)


def _layers(run: _Run) -> list[Layer]:
    seconds = run.power["trace"]["window_seconds"]
    words = f"{run.label}: {format_quantity(run.mean, 'W')} in the timed window of {format_quantity(seconds, 's')}"
    course: Layer = {"type": "line", "interpolate": "step-after", "clip": True, "strokeWidth": 1.3, "aria": False}
    idle = named_level(run.idle, f"idle {format_number(run.idle)} W") if run.idle is not None else []
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


def _table(runs: Sequence[_Run]) -> ChartTable:
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
