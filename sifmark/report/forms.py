"""The forms of charts: lines of systems with intervals, and bars, stacked or not. They are drawn by `svg`."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from sifmark.report.describe import describe, distinct, short, variant, variant_fields
from sifmark.report.results import Point, ReportResults
from sifmark.report.svg import (
    Bar,
    Dot,
    Margins,
    Plot,
    Rule,
    Scale,
    Text,
    scale_from_zero,
    scale_log,
    text_width,
    tick_text,
    ticks_of,
)
from sifmark.results.comparison.intervals import Ratio

HEIGHT = 190.0  # px between the axes
MOST_SERIES = 8  # lines of a chart: more are in the table alone
WIDER = 1.3  # a bold name in a wide font of a reader, than the same text in ours: it has that much room
LONGEST_NAME = 16  # characters of a name beside a line
_CROSS_STEP, _CROSS_FOOT = 16, 12  # px between crosses at one place, and below the first
_ROW, _NOTED_ROW, _BAR, _GROUP_GAP = 20.0, 34.0, 15.0, 10.0  # px of rows of bars
_LEGEND_WIDTH, _LEGEND_ROW = 250.0, 17.0  # px
_FARTHEST_RATIO = 1000.0  # from a ratio to the end of its interval
_WIDEST = 30.0  # the ratio of two values up to which an axis from zero shows the smaller one
_FARTHEST = 3.0  # of the largest value, or below the least: an interval that reaches further is cut off


@dataclass(frozen=True)
class Figure:
    """A chart of the page and of files."""

    name: str  # of its files: lower-case letters, digits and hyphens; unique in a report
    title: str
    note: str  # what is not said by the title: a unit, a condition
    plot: Plot


def numbered(name: str, title: str, plots: Sequence[Plot]) -> list[Figure]:
    """Return plots with names of files: the first has that of all, others a number behind it."""
    numbers = range(1, len(plots) + 1)
    names = [name if number == 1 else f"{name}-{number}" for number in numbers]
    return [Figure(each, title, "", plot) for each, plot in zip(names, plots, strict=True)]


@dataclass(frozen=True)
class Spot:
    """A mark of a line, with its interval and what a pointer shows. A hollow one has a reservation."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    words: str = ""
    hollow: bool = False


@dataclass(frozen=True)
class Series:
    """A line of a system, by its place among all."""

    system: int | None
    label: str
    spots: tuple[Spot, ...]
    end: str = ""  # what stands behind its name: a value


@dataclass(frozen=True)
class Cross:
    """A run that failed, at a place across."""

    x: float
    system: int | None
    words: str


@dataclass(frozen=True)
class Level:
    """A line across the whole chart: an ideal, a budget, what a device has."""

    y: float
    words: str = ""
    system: int | None = None


@dataclass(frozen=True)
class Diamond:
    """A published figure."""

    x: float
    y: float
    words: str


@dataclass(frozen=True)
class Axis:
    """An axis: its title, whether it is logarithmic, and ticks and ends where values do not set them."""

    title: str = ""
    is_log: bool = False
    at: tuple[float, ...] = ()  # ticks; empty for round numbers
    low: float | None = None
    high: float | None = None
    words: Callable[[float], str] = tick_text

    def scale(self, values: Sequence[float]) -> Scale:
        """Return the scale that holds some values, from zero unless it is logarithmic."""
        made = scale_log(values) if self.is_log else scale_from_zero(values)
        low, high = (own if fixed is None else fixed for own, fixed in ((made.low, self.low), (made.high, self.high)))
        return Scale(low, high, self.is_log)

    def ticks(self, scale: Scale) -> list[float]:
        return [tick for tick in self.at if scale.has(tick)] or ticks_of(scale)


def places_axis(title: str, values: Iterable[float]) -> Axis:
    """Return a logarithmic axis for what is doubled, such as batch sizes and devices: ticks where runs are."""
    at = sorted(set(values))
    room = (at[-1] / at[0]) ** 0.04 if len(at) > 1 else 2.0
    return Axis(title, True, tuple(at), at[0] / room, at[-1] * room, lambda value: f"{value:g}")


def axis_up(title: str, values: Sequence[float], is_log: bool = False, is_wide: bool = True) -> Axis:
    """Return the axis of measured values: logarithmic if asked for, or if some are too small to see beside others.

    It never is where values are not positive. With `is_wide`, the smallest is to be seen.
    """
    spread = max(values) / min(values) if min(values) > 0 else 0.0
    is_log = spread > 0 and (is_log or (is_wide and spread > _WIDEST))
    return Axis(f"{title}{', logarithmic' if is_log else ''}", is_log=is_log)


@dataclass(frozen=True)
class LineChart:
    """Lines of systems, named at their ends."""

    label: str  # what the chart shows, for those who cannot see it
    series: Sequence[Series]
    x: Axis
    y: Axis
    crosses: Sequence[Cross] = ()
    levels: Sequence[Level] = ()
    diamonds: Sequence[Diamond] = ()
    named_at: Literal["right", "top"] = "right"
    height: float = HEIGHT
    dots: bool = True

    def plot(self) -> Plot:
        spots = [spot for each in self.series for spot in each.spots]
        xs = [*(spot.x for spot in spots), *(cross.x for cross in self.crosses), *(each.x for each in self.diamonds)]
        ys = [*(spot.y for spot in spots), *(each.y for each in self.levels), *(each.y for each in self.diamonds)]
        top, foot = max(ys, default=1.0), min(ys, default=1.0)
        highs = [min(spot.high, top * _FARTHEST) for spot in spots if spot.high is not None]
        lows = [max(spot.low, foot / _FARTHEST) for spot in spots if spot.low is not None]
        x, y = self.x.scale(xs), self.y.scale([*ys, *highs, *lows])
        ticks = self.y.ticks(y)
        left = max((text_width(self.y.words(tick)) for tick in ticks), default=0) + 10
        plot = Plot(self.label, self.height, x, y, Margins(left, self._right(x), 22, 42))
        plot.grid(ticks, self.y.words, self.y.title)
        plot.ticks(self.x.ticks(x), self.x.words, self.x.title)
        for level in self.levels:
            plot.level(level.y, "ideal" if level.system is None else "limit", level.words, level.system)
        for each in self.series:
            if len(each.spots) > 1:
                plot.line([(spot.x, y.clamp(spot.y)) for spot in each.spots], each.system)
        named = [(*self._end(each), each.system, self._name(each)) for each in self.series if each.spots]
        plot.names([each for each in named if each[-1]])  # above lines, and below dots
        for each in self.series if self.dots else ():
            self._dots(plot, each)
        for diamond in self.diamonds:
            plot.published(diamond.x, diamond.y, diamond.words)
        self._crosses(plot)
        return plot

    def _dots(self, plot: Plot, each: Series) -> None:
        for spot in each.spots:
            if spot.low is not None and spot.high is not None:
                plot.whisker(spot.x, spot.low, spot.high, each.system)
            plot.dot(spot.x, plot.y.clamp(spot.y), each.system, spot.words, "hollow" if spot.hollow else "dot")

    def _crosses(self, plot: Plot) -> None:
        stacked: dict[float, int] = defaultdict(int)
        for cross in self.crosses:
            y = self.height - _CROSS_FOOT - _CROSS_STEP * stacked[cross.x]
            stacked[cross.x] += 1
            plot.failed(cross.x, y, cross.system, cross.words)

    def _name(self, each: Series) -> str:
        """Return what stands at the end of a line: its name, unless it is the only one, and its value."""
        return f"{each.label if len(self.series) > 1 else ''} {each.end}".strip()

    def _end(self, each: Series) -> tuple[float, float]:
        spot = max(each.spots, key=lambda spot: spot.x if self.named_at == "right" else spot.y)
        return spot.x, spot.y

    def _right(self, x: Scale) -> float:
        """Return the room that names need beyond the right end, in the narrowest chart."""
        reach = [
            text_width(self._name(each), 12.5) * WIDER + 12 - 200 * (1 - x.share(self._end(each)[0]))
            for each in self.series
            if each.spots
        ]
        return max([10.0, *reach])


class BarRow(NamedTuple):
    """A bar of one or more parts, with its name, what stands behind it and a note below."""

    system: int | None
    label: str
    parts: tuple[tuple[float, str], ...]  # a value, and what a pointer shows
    text: str
    note: str = ""
    group: str = ""


@dataclass(frozen=True)
class BarChart:
    """Bars from zero; of several parts, whose names are above them."""

    label: str
    rows: Sequence[BarRow]
    parts: tuple[str, ...] = ()

    def plot(self) -> Plot:
        step = _NOTED_ROW if any(row.note for row in self.rows) else _ROW
        groups = list(dict.fromkeys(row.group for row in self.rows))
        height = step * len(self.rows) + _GROUP_GAP * (len(groups) - 1)
        scale = Scale(0.0, max([*(sum(value for value, _ in row.parts) for row in self.rows), 1e-300]))
        legend = _legend(self.parts)
        names = max((text_width(row.label, 12.5) * WIDER for row in self.rows), default=0) + 12
        left = names + (max(map(text_width, groups)) + 8 if any(groups) else 0)
        right = max((text_width(row.text, 12.5) * WIDER for row in self.rows), default=0) + 12
        top = 8 + _LEGEND_ROW * (1 + max((line for line, _, _ in legend), default=-1))
        plot = Plot(self.label, height, scale, margins=Margins(left, right, top, 4))
        for number, (line, dx, words) in enumerate(legend, start=1):
            y = -top + 8 + _LEGEND_ROW * line
            plot.marks.append(Text(0, y, "■", dx=dx - left, look=f"part-{number}"))
            plot.marks.append(Text(0, y, words, dx=dx - left + 14, look="hint"))
        for place, row in enumerate(self.rows):
            y = place * step + _GROUP_GAP * groups.index(row.group)
            first = place == 0 or self.rows[place - 1].group != row.group
            self._row(plot, row, y, -left if first and row.group else None)
        return plot

    def _row(self, plot: Plot, row: BarRow, y: float, group: float | None) -> None:
        middle, at = y + _BAR / 2, 0.0
        if group is not None:
            plot.marks.append(Text(0, middle, row.group, dx=group, look="hint"))
        plot.marks.append(Text(0, middle, row.label, "end", dx=-8, look="name", system=row.system))
        for number, (value, words) in enumerate(row.parts, start=1):
            look = f"part-{number}" if self.parts else "bar"
            ends = plot.across(at), plot.across(at + value)
            plot.marks.append(Bar(*ends, y, _BAR, look=look, system=row.system, title=words))
            at += value
        plot.marks.append(Text(plot.across(at), middle, row.text, dx=6, look="value"))
        if row.note:
            plot.marks.append(Text(0, y + _BAR + 9, row.note, look="hint"))


def _legend(parts: Sequence[str]) -> list[tuple[int, float, str]]:
    """Return for each part its line, its place in px and its name."""
    placed, line, at = [], 0, 0.0
    for name in parts:
        width = text_width(name) + 30
        if at and at + width > _LEGEND_WIDTH:
            line, at = line + 1, 0.0
        placed.append((line, at, name))
        at += width
    return placed


@dataclass(frozen=True)
class RatioRow:
    """A ratio with its interval, in a row of its own. A hollow mark has a reservation, or shows no difference."""

    system: int | None
    label: str
    ratio: Ratio
    words: str
    group: str = ""
    hollow: bool = False


@dataclass(frozen=True)
class RatioChart:
    """Ratios below each other on a logarithmic axis, with a line where both sides are the same."""

    label: str
    rows: Sequence[RatioRow]

    def plot(self) -> Plot:
        """Return the chart, drawn. A group has its name above its first row."""
        scale = scale_log([0.8, 1.25, *(end for row in self.rows for end in ends_of(row.ratio))])
        left = max(text_width(row.label) for row in self.rows) + 12
        lines: list[RatioRow | str] = []
        for group, rows in groupby(self.rows, key=lambda row: row.group):
            lines += [*filter(None, [group]), *rows]
        height = _ROW * len(lines)
        plot = Plot(self.label, height, scale, margins=Margins(left, 14, 6, 42))
        plot.ticks(ticks_of(scale), lambda value: f"{tick_text(value)}x", "measured / published")
        one = plot.across(1.0)
        plot.backdrop.append(Rule(one, 0, one, height, look="ideal"))
        for place, line in enumerate(lines):
            middle = _ROW * (place + 0.5)
            if isinstance(line, str):
                plot.marks.append(Text(0, middle, line, dx=-left, look="hint"))
                continue
            plot.marks.append(Text(0, middle, line.label, "end", dx=-8, look="value"))
            mark_ratio(plot, middle, line.ratio, line.system, line.words, line.hollow)
        return plot


def mark_ratio(
    plot: Plot, y: float, ratio: Ratio, system: int | None, title: str, hollow: bool, radius: float = 4.0
) -> None:
    """Draw a ratio with its interval at px down."""
    low, value, high = map(plot.across, ends_of(ratio))
    plot.marks.append(Rule(low, y, high, y, look="wide", system=system))
    look = "hollow" if hollow else "dot"
    plot.marks.append(Dot(value, y, None, radius, look=look, system=system, title=title))


def ends_of(ratio: Ratio) -> tuple[float, float, float]:
    """Return the ends of an interval and the ratio between them, no farther apart than a drawing can show."""
    value = min(max(ratio.value or 1.0, 1e-9), 1e9)
    low, high = (value if end is None else end for end in (ratio.low, ratio.high))
    return max(low, value / _FARTHEST_RATIO), value, min(high, value * _FARTHEST_RATIO)


Place = tuple[float, Point]  # where on the axis across a point is


def spot_of(x: float, point: Point, label: str, place: str, factor: float = 1.0) -> Spot:
    """Return a point as a mark, in units of `factor`."""
    low, high = (None if end is None else end / factor for end in (point.mean.low, point.mean.high))
    return Spot(x, point.value / factor, low, high, describe(point, label, place), bool(point.marks))


def grouped(results: ReportResults, placed: Iterable[Place], *fields: str) -> list[tuple[str, str, list[Place]]]:
    """Return points by system and by what else tells them apart, with a label each, in the order of `placed`.

    `fields` differ along a line.
    """
    every = list(placed)
    names = variant_fields(results, [point for _, point in every], *fields)
    groups: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for x, point in every:
        groups[point.system, variant(point.fields, names)].append((x, point))
    ordered = sorted(groups.items(), key=lambda item: results.systems.index(item[0][0]))
    systems = system_labels(results)
    labels = distinct(
        (words if words and len(systems) == 1 else ", ".join(filter(None, [systems[name], words])))
        for (name, words), _ in ordered
    )
    return [(name, label, members) for label, ((name, _), members) in zip(labels, ordered, strict=True)]


def system_labels(results: ReportResults, longest: int = LONGEST_NAME) -> dict[str, str]:
    return dict(zip(results.systems, distinct(short(name, longest) for name in results.systems), strict=True))


def place_of(results: ReportResults, system: str) -> int:
    """Return the place of a system among all, by which it has its colour and shape."""
    return results.systems.index(system)


def shown(series: Sequence[Series], rates: Mapping[int, float] | None = None) -> list[Series]:
    """Return as many lines as a chart can show, in their order: those with most marks, then of the fastest systems.

    `rates` are by system. The first system, to which others are compared, is among them.
    """
    known = rates or {}

    def rank(each: Series) -> tuple[bool, int, float]:
        return each.system == 0, len(each.spots), known.get(each.system or 0, 0.0)

    chosen = sorted(series, key=rank, reverse=True)[:MOST_SERIES]
    return [each for each in series if each in chosen]
