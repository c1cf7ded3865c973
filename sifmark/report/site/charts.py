"""The charts of a site, and its overview: histories with change points, and the charts of workloads of the newest."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import exp

from sifmark.report.describe import all_marks, short
from sifmark.report.figures import MOST_FIGURES, figures_of
from sifmark.report.forms import Figure
from sifmark.report.results import Point
from sifmark.report.site.read import SiteResult
from sifmark.report.site.rows import report_results
from sifmark.report.site.series import SeriesHistory, change_text, changed_with
from sifmark.report.svg import Bar, Dot, Margins, Plot, Rule, Scale, Text, text_width, tick_text, ticks_of
from sifmark.report.workloads import workloads_of
from sifmark.results.comparison.intervals import CONFIDENCE
from sifmark.results.marks import Mark
from sifmark.results.numbers import format_quantity, scale_of
from sifmark.studies.history.changes import Change, Period
from sifmark.studies.history.series import HistoryRun

HEIGHT = 200.0  # px of the area between the axes of a history
MOST_POINTS = 400  # runs; of a longer history each mark is a session
LEAST_SPAN = 0.1  # of the largest value, that an axis shows at least: noise of 1 % is to look like noise
MOST_UNCHANGED = 20  # places marked at which only the environment changed
_MOST_DAYS = 6  # named on the axis of a history
SectionKey = tuple[str, str, str]  # title of the workload, task and data


def workload_charts(members: Iterable[SiteResult], by: str, most: int) -> dict[str, dict[SectionKey, list[Figure]]]:
    """Return the charts that some results can fill, as reports have them, by workload and section, `most` at most.

    All are of one set of results, so that a system has the same colour and shape on each.
    """
    charts: dict[str, dict[SectionKey, list[Figure]]] = {}
    for workload in workloads_of(report_results(members, by)) if most > 0 else ():
        key = workload.section.title, workload.section.key.task, workload.section.key.source
        figures = figures_of(workload)[: min(most, MOST_FIGURES)]
        if figures:
            charts.setdefault(workload.name, {}).setdefault(key, []).extend(figures)
        most -= len(figures)
    return charts


@dataclass(frozen=True)
class OverviewRow:
    """The best of a workload on each system, on the fewest devices: those on more do not compete with them."""

    workload: str  # its name, as pages are called
    task: str
    devices: int | None
    best: tuple[Point | None, ...]  # by system


@dataclass(frozen=True)
class Overview:
    """Workloads by systems: training before inference, micro-benchmarks last."""

    systems: tuple[str, ...]
    rows: tuple[OverviewRow, ...]

    @property
    def marks(self) -> tuple[Mark, ...]:
        return all_marks(point for row in self.rows for point in row.best if point)


def overview_of(members: Iterable[SiteResult], by: str) -> Overview:
    results = report_results(members, by)
    rows = (
        OverviewRow(each.name, each.task, each.fewest, tuple(map(each.best.get, results.systems)))
        for each in workloads_of(results)
    )
    return Overview(results.systems, tuple(row for row in rows if any(row.best)))


def history_chart(series: SeriesHistory) -> Figure:
    """Return the chart of a series: runs by date, the mean of each period with its interval, and change points."""
    history, points = series.history, list(_points(series))
    scale = scale_of(history.series.unit, (y for _, y, _ in points))
    low, high = (edge / scale.factor for edge in _reach([y for _, y, _ in points]))
    times = [when.timestamp() for when, _, _ in points]
    room = (max(times) - min(times) or 86400.0) * 0.02
    across = Scale(min(times) - room, max(times) + room)
    up = Scale(low, high)
    ticks = ticks_of(up)
    left = max(text_width(tick_text(tick)) for tick in ticks) + 10
    plot = Plot(_label(series), HEIGHT, across, up, Margins(left, 12, 40 if history.changes else 24, 42))
    plot.grid(ticks, tick_text, f"throughput [{scale.unit}]")
    plot.ticks(_days(across), _day, "date (UTC)", 300)
    for change in history.unchanged[-MOST_UNCHANGED:]:
        x = plot.across(change.before.timestamp())
        plot.backdrop.append(Rule(x, 0, x, HEIGHT, look="unchanged", title=changed_with(change)))
    for period in history.periods:
        _period(plot, period, scale.factor)
    for when, y, words in points:
        x, down = plot.across(when.timestamp()), plot.down(y / scale.factor)
        plot.marks.append(Dot(x, down, look="small", system=0, title=words, radius=3.0))
    _changes(plot, history.changes, history.series.unit)
    title = f"Throughput over time: {short(series.system)}"
    return Figure(f"history-{series.page}", title, _note(series), plot)


def _label(series: SeriesHistory) -> str:
    history, unit = series.history, series.history.series.unit
    means = [format_quantity(period.mean.value or 0.0, unit) for period in history.periods]
    changes = f", changed {len(history.changes)} times" if len(history.changes) > 1 else ""
    return f"Throughput of {len(history.series.runs)} runs over time: {', then '.join(means[-6:])}{changes}"


def _reach(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis around some values. It does not begin at zero: a change of a few per cent has to be
    seen.
    """
    low, high = min(values), max(values)
    room = max(high - low, high * LEAST_SPAN) * 0.15
    return max(0.0, low - room), high + room


def _days(across: Scale) -> list[float]:
    """Return midnights within an axis, evenly apart, as many as can be named."""
    day = 86400.0
    first, last = int(across.low // day) + 1, int(across.high // day)
    step = max(1, -(-(last - first + 1) // _MOST_DAYS))
    return [number * day for number in range(first, last + 1, step)] or [(across.low + across.high) / 2]


def _day(stamp: float) -> str:
    return f"{datetime.fromtimestamp(stamp, UTC):%Y-%m-%d}"


def _points(series: SeriesHistory) -> Iterator[tuple[datetime, float, str]]:
    data = series.history.series
    if len(data.runs) <= MOST_POINTS:
        yield from ((run.started, run.value, _of_run(run, data.unit)) for run in data.runs)
        return
    for session in data.sessions[-MOST_POINTS * 5 :]:
        value = exp(session.logarithm)
        words = f"{session.started:%Y-%m-%d}: {format_quantity(value, data.unit)}, {len(session.runs)} runs"
        yield session.started, value, words


def _of_run(run: HistoryRun, unit: str) -> str:
    return f"{run.started:%Y-%m-%d %H:%M} UTC: {format_quantity(run.value, unit)}"


def _period(plot: Plot, period: Period, factor: float) -> None:
    ends = plot.across(period.first.timestamp()), plot.across(period.last.timestamp())
    value = (period.mean.value or 0.0) / factor
    if period.mean.low is not None and period.mean.high is not None:
        top, bottom = (plot.down(plot.y.clamp(end / factor)) for end in (period.mean.high, period.mean.low))
        plot.backdrop.append(Bar(*ends, top, bottom - top, look="interval", system=0))
    plot.backdrop.append(Rule(ends[0], plot.down(value), ends[1], plot.down(value), look="one", system=0))


def _changes(plot: Plot, changes: Sequence[Change], unit: str) -> None:
    """Draw a line at each change, with its number above it: the page lists what changed."""
    for number, change in enumerate(changes, start=1):
        x = plot.across(change.before.timestamp())
        words = f"{change.before:%Y-%m-%d}: {change_text(change, unit)}; {changed_with(change)}"
        plot.backdrop.append(Rule(x, -4, x, HEIGHT, look="one", system=1, title=words))
        plot.marks.append(Text(x, -12, str(number), "middle", on_line=True, look="name", system=1))


def _note(series: SeriesHistory) -> str:
    """Return what the marks of a chart mean."""
    history = series.history
    each = "a run" if len(history.series.runs) <= MOST_POINTS else "the mean of a session"
    words = [f"Each dot is {each}. Lines are means of periods, bands their {CONFIDENCE:.0%} intervals."]
    words.append("The axis does not begin at zero.")
    words += ["Numbered lines are change points."] if history.changes else []
    words += ["At dotted lines something else changed, and performance did not."] if history.unchanged else []
    return " ".join(words)
