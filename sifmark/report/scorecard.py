"""The scorecard: the picture of `compare`, a row for each workload, with the ratios of systems to the baseline.

Right is always better: where less is, as of energy and latency, a ratio is turned round. A ratio is there only if
`compare` has it, of one configuration that the systems have in common, which the row names.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sifmark.report.describe import configuration_of, factor_text
from sifmark.report.figures import ENERGY, TAIL, TOKEN_GAP, TOKEN_TIME
from sifmark.report.forms import ends_of, mark_ratio, place_of, system_labels
from sifmark.report.results import Point, ReportResults
from sifmark.report.svg import Anchor, Bar, Margins, Plot, Rule, Scale, Text, text_width, thinned
from sifmark.report.tables import Cell, Column, Kind, Row, Table
from sifmark.report.workloads import (
    BETTER,
    GENERATION,
    REQUESTS,
    SAME,
    SERVING,
    TRAINING,
    UNKNOWN,
    WORSE,
    Shared,
    Workload,
    judged,
    ranked,
)
from sifmark.results.catalogue import Direction, direction_of, metric_label
from sifmark.results.comparison.intervals import Ratio
from sifmark.results.comparison.scaling import BATCH, DEVICES
from sifmark.results.comparison.tables import ratio_text

MOST_SYSTEMS = 6  # with the baseline: more are in the heat map
_ROW, _EDGE = 20.0, 16.0  # px between systems, and to the edge
_NARROWEST = 280.0  # px of a column on a desk: the room that labels need is reckoned from it
_LONGEST_NAME = 14  # characters of a system beside its mark
_MOST_OF_WIDTH = 0.8  # that words on both sides of a cell take
_WIDER = 1.18  # a font of a reader than ours
_STEPS = 30
# Ticks of ratios, each list for a wider axis than the one before.
_TICKS = (
    (0.9, 0.95, 1, 1.05, 1.1),
    (0.8, 0.9, 1, 1.1, 1.25),
    (0.5, 0.7, 1, 1.4, 2),
    (0.25, 0.5, 1, 2, 4),
    (0.2, 0.5, 1, 2, 5),
    (0.01, 0.1, 1, 10, 100),
    (1e-6, 1e-3, 1, 1e3, 1e6),
)


@dataclass(frozen=True)
class Score:
    """A system in a cell: its ratio to the baseline, above 1 if it is better."""

    system: str
    point: Point
    ratio: Ratio
    verdict: str  # better, worse, same or cannot-tell

    @property
    def words(self) -> str:
        """The ratio as `compare` has it."""
        return ratio_text(self.point.ratio, self.point.unit) if self.point.ratio else ""


@dataclass(frozen=True)
class ScoreCell:
    """The scores of a workload in one respect."""

    metric: str
    configuration: str  # in words
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class ScoreRow:
    """A workload in the scorecard, with a cell or none in each column."""

    workload: Workload
    cells: tuple[ScoreCell | None, ...]

    @property
    def lost(self) -> tuple[str, ...]:
        named = {score.system for cell in self.cells if cell for score in cell.scores}
        results = self.workload.results
        return tuple(name for name in results.systems if name not in named and name != results.divisor)


@dataclass(frozen=True)
class Group:
    """Rows with the same columns."""

    title: str
    columns: tuple[tuple[str, str], ...]  # a title, and what it says of the configuration
    rows: tuple[ScoreRow, ...]

    @property
    def cells(self) -> list[ScoreCell]:
        return [cell for row in self.rows for cell in row.cells if cell]


@dataclass(frozen=True)
class Scorecard:
    """The scorecard of a report."""

    results: ReportResults
    groups: tuple[Group, ...]

    @property
    def points(self) -> list[Point]:
        return [score.point for group in self.groups for cell in group.cells for score in cell.scores]


Choose = Callable[[Workload], Shared | None]


def _alone(workload: Workload) -> Shared | None:
    return workload.contest


def _many(workload: Workload) -> Shared | None:
    """Return the configuration on most devices that most systems have."""
    shared = workload.shared(workload.rate, many=True)
    most = max((len(each.points) for each in shared), default=0)
    return max(
        (each for each in shared if len(each.points) == most),
        key=lambda each: (each.baseline.fields.get(DEVICES) or 0, each.reach),
        default=None,
    )


def _energy(workload: Workload) -> Shared | None:
    """Return energy in the configuration in which rates are compared."""
    return _beside(workload, workload.contest, ENERGY)


def _response(workload: Workload) -> Shared | None:
    """Return the latency of requests, or the time of a further token, at the middle of the loads that systems share."""
    metric = {REQUESTS: TAIL, GENERATION: TOKEN_GAP, SERVING: TOKEN_TIME}.get(workload.kind, "")
    shared = workload.shared(metric) if metric else []
    most = max((len(each.points) for each in shared), default=0)
    loads = sorted(
        (each for each in shared if len(each.points) == most),
        key=lambda each: each.baseline.fields.get(workload.load) or 0,
    )
    return loads[len(loads) // 2] if loads else None


def _beside(workload: Workload, shared: Shared | None, metric: str) -> Shared | None:
    if shared is None:
        return None
    points = {name: workload.beside(point, metric) for name, point in shared.points.items()}
    found = {name: point for name, point in points.items() if point and point.ratio and point.row.baseline}
    return Shared(next(iter(found.values())).row.baseline or shared.baseline, found) if found else None


_COLUMNS: Mapping[str, tuple[tuple[str, str, Choose], ...]] = {
    TRAINING: (
        ("Throughput", "on {fewest}, in the configuration named", _alone),
        ("Throughput, many devices", "the most that systems share", _many),
        ("Work per joule", "on {fewest}, at that throughput", _energy),
    ),
    "": (
        ("Throughput", "on {fewest}, in the configuration named", _alone),
        ("Speed of response", "at a middle load of all", _response),
        ("Work per joule", "on {fewest}, at that throughput", _energy),
    ),
}
_TITLES = {TRAINING: "Training", "sampling": "Sampling"}


def scorecard_of(results: ReportResults, workloads: Iterable[Workload]) -> Scorecard | None:
    """Return the scorecard, or None where nothing has a ratio."""
    groups: dict[str, list[Workload]] = {}
    for workload in ranked(workloads):
        groups.setdefault(_TITLES.get(workload.kind, "Inference"), []).append(workload)
    made = [group for title, members in groups.items() if (group := _group(title, members))]
    return Scorecard(results, tuple(made)) if made else None


def _group(title: str, workloads: Sequence[Workload]) -> Group | None:
    columns = _COLUMNS.get(workloads[0].kind, _COLUMNS[""])
    rows = [ScoreRow(each, tuple(_cell(each, choose(each)) for _, _, choose in columns)) for each in workloads]
    used = [place for place in range(len(columns)) if any(row.cells[place] for row in rows)]
    if not used:
        return None
    counts = {each.fewest for each in workloads}
    fewest = "one device" if counts <= {1, None} else f"{counts.pop()} devices" if len(counts) == 1 else "few devices"
    return Group(
        title,
        tuple((columns[place][0], columns[place][1].format(fewest=fewest)) for place in used),
        tuple(replace(row, cells=tuple(row.cells[place] for place in used)) for row in rows),
    )


def _cell(workload: Workload, shared: Shared | None) -> ScoreCell | None:
    if shared is None:
        return None
    scores = [
        Score(name, point, better_above_one(point.ratio, point.metric), judged(point.ratio, point.metric))
        for name in workload.results.systems
        if (point := shared.points.get(name)) and point.ratio and point.ratio.value
    ]
    if not scores:
        return None
    names = [BATCH] if workload.load == BATCH else [workload.load]
    first = scores[0].point
    devices = [DEVICES] if (first.fields.get(DEVICES) or 1) != workload.fewest else []
    configuration = configuration_of(first.observation, [*devices, *names])
    words = ", ".join(filter(None, [configuration, workload.variant_of(first)]))
    return ScoreCell(first.metric, words, tuple(scores))


def better_above_one(ratio: Ratio, metric: str) -> Ratio:
    """Return a ratio that is above 1 if its system is better: that of a metric of which less is better turned round."""
    if direction_of(metric) is not Direction.LOWER or not ratio.value:
        return ratio
    low, high = (None if end is None else 1 / max(end, 1e-300) for end in (ratio.high, ratio.low))
    return replace(ratio, value=1 / ratio.value, low=low, high=high)


def _label(score: Score, name: str = "") -> str:
    sign = {SAME: " ≈", UNKNOWN: " ?"}.get(score.verdict, "")
    return f"{name} {factor_text(score.ratio.value or 0.0)}x{sign}".strip()


def _is_named(group: Group, cell: ScoreCell) -> bool:
    """Return whether the systems of a cell have their names: in the first column, colours and shapes say the rest."""
    return any(row.cells[0] is cell for row in group.rows)


def scale_of_group(group: Group, names: Mapping[str, str]) -> Scale:
    """Return the axis of all cells of a group: ratios of it, with room for the words beside them."""
    ends = [ends_of(score.ratio) for cell in group.cells for score in cell.scores]
    low = math.log(min([1 / 1.05, *(each[0] for each in ends)]))
    high = math.log(max([1.05, *(each[2] for each in ends)]))
    left = right = (high - low) / 20
    words = [_room(group, cell, score, names) for cell in group.cells for score in cell.scores]
    sides = (max((share for _, share, on_left in words if on_left is side), default=0.0) for side in (True, False))
    part = min(1.0, _MOST_OF_WIDTH / max(sum(sides), 1e-9))
    for _ in range(_STEPS):  # more room for words makes the whole wider, of which words take a share
        whole = high - low + left + right
        left = max([left, *(part * share * whole - (place - low) for place, share, on_left in words if on_left)])
        right = max([right, *(part * share * whole - (high - place) for place, share, on_left in words if not on_left)])
    return Scale(math.exp(low - left), math.exp(high + right), is_log=True)


def _room(group: Group, cell: ScoreCell, score: Score, names: Mapping[str, str]) -> tuple[float, float, bool]:
    """Return where the words of a mark begin, what share of the width they take, and whether they stand left of it."""
    label = _label(score, names[score.system] if _is_named(group, cell) else "")
    share = (text_width(label, 12.5) * _WIDER + 12) / _NARROWEST
    low, value, high = ends_of(score.ratio)
    return math.log(low if value < 1 else high), share, value < 1


def ticks_of_ratios(scale: Scale) -> list[float]:
    """Return the ratios at which an axis has a line: 1, and some on both sides."""
    for ticks in _TICKS:
        inside = [float(tick) for tick in ticks if scale.has(tick)]
        places = [scale.share(tick) * _NARROWEST for tick in inside]
        if len(inside) > 2 and len(thinned(places, [text_width(f"{tick:g}x") for tick in inside])) == len(inside):
            return inside
    return [1.0]


def cell_plot(group: Group, cell: ScoreCell, results: ReportResults) -> Plot:
    names = system_labels(results, _LONGEST_NAME)
    scale = scale_of_group(group, names)
    height = 2 * _EDGE + _ROW * (len(cell.scores) - 1)
    words = "; ".join(f"{names[score.system]} {score.words}" for score in cell.scores)
    plot = Plot(f"{cell.configuration}: {words}", height, scale, margins=Margins(0, 0, 0, 0))
    one = plot.across(1.0)
    plot.backdrop.append(Bar(one, 1.0, 0, height, look="ahead"))
    for tick in ticks_of_ratios(scale):
        look = "one" if tick == 1 else "grid"
        system = place_of(results, results.divisor) if tick == 1 and results.divisor in results.systems else None
        plot.backdrop.append(Rule(plot.across(tick), 0, plot.across(tick), height, look=look, system=system))
    for place, score in enumerate(cell.scores):
        y, system = _EDGE + _ROW * place, place_of(results, score.system)
        low, value, high = ends_of(score.ratio)
        title = f"{names[score.system]}, {cell.configuration}: {score.words}"
        hollow = score.verdict in (SAME, UNKNOWN) or bool(score.point.marks)
        mark_ratio(plot, y, score.ratio, system, title, hollow, 5.0)
        left = value < 1
        x, shift = (plot.across(low), -9) if left else (plot.across(high), 9)
        anchor: Anchor = "end" if left else "start"
        label = _label(score, names[score.system] if _is_named(group, cell) else "")
        plot.marks.append(Text(x, y, label, anchor, dx=shift, look="name", system=system))
    return plot


def axis_plot(group: Group, results: ReportResults) -> Plot:
    scale = scale_of_group(group, system_labels(results, _LONGEST_NAME))
    plot = Plot("Scale of the ratios", 4, scale, margins=Margins(0, 0, 0, 16))
    for tick in ticks_of_ratios(scale):
        plot.marks.append(Text(plot.across(tick), 14, f"{tick:g}x", "middle", on_line=True, look="axis"))
    return plot


_SHADES = (1.1, 1.5)  # ratios from which a shade is deeper


def heat_of(scorecard: Scorecard) -> Table:
    """Return the scorecard of many systems: a row for each, a column for each workload, by the first respect alone."""
    pairs = [(row, row.cells[0]) for group in scorecard.groups for row in group.rows]
    shown = [(row.workload, cell) for row, cell in pairs if cell]
    heads = (
        Column(work.title, Kind.NUMBER, ", ".join(filter(None, (work.task, cell.configuration))))
        for work, cell in shown
    )
    by_system = [{score.system: _heat_cell(score) for score in cell.scores} for _, cell in shown]
    named = [name for name in scorecard.results.systems if any(name in cells for cells in by_system)]
    rows = (Row((Cell(name), *(cells.get(name, Cell()) for cells in by_system)), name) for name in named)
    return Table("heat", "Ratios of systems to the baseline", (Column("system", Kind.SYSTEM), *heads), tuple(rows))


def _heat_cell(score: Score) -> Cell:
    """Return a ratio, the deeper shaded the further it is from 1: b1 to b3 if it is better, w1 to w3 if worse."""
    value = score.ratio.value or 1.0
    level = 1 + sum(max(value, 1 / value) >= limit for limit in _SHADES)
    shade = {BETTER: f"b{level}", WORSE: f"w{level}"}.get(score.verdict, "")
    return Cell(_label(score), look=shade, anchor=score.point.results[0].anchor)


def scorecard_table(scorecard: Scorecard) -> Table:
    """Return the ratios of the scorecard, as `compare` has them: a row for each of them."""
    divisor = scorecard.results.divisor
    columns = (
        *map(Column, ("workload", "metric", "configuration")),
        *(Column("system", Kind.SYSTEM), Column(f"relative to {divisor}", Kind.RATIO)),
    )
    rows = [
        Row(
            (
                *(Cell(f"{row.workload.title}, {row.workload.task}"), Cell(metric_label(cell.metric))),
                *(Cell(cell.configuration), Cell(score.system), Cell(score.words, marks=score.point.marks)),
            ),
            score.system,
        )
        for group in scorecard.groups
        for row in group.rows
        for cell in filter(None, row.cells)
        for score in cell.scores
    ]
    return Table("scorecard", f"Compared with {divisor}", columns, tuple(rows))
