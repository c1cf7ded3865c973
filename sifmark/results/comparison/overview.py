"""The best of each side of a comparison with several tables, in one table above them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from sifmark.core.console import GAP, fold_first, text_width
from sifmark.results.catalogue import Direction, direction_of
from sifmark.results.comparison.cells import CellWriter, Detail
from sifmark.results.comparison.columns import MOST_SYSTEMS, Grid, Line, cell_text
from sifmark.results.comparison.compare import ComparisonTable
from sifmark.results.comparison.forest import WIDTH, Dot, forest, letters_of, named_letters
from sifmark.results.comparison.observation import PRECISION
from sifmark.results.comparison.repeats import RepeatGroup, varying_fields
from sifmark.results.comparison.scaling import DEVICES, THROUGHPUT
from sifmark.results.comparison.tables import Cells
from sifmark.results.numbers import format_quantity, scale_of

LEAST_SCALE = 20  # columns of a scale on which ratios are drawn
WIDE = 140  # columns of a terminal from which ratios are drawn too
_COLUMN = 17  # columns of a terminal that a system takes
_NAME_WIDTH = 20  # columns that the name of a workload gets at least


@dataclass(frozen=True)
class Contest:
    """The best baseline of some lines, the best of other systems by name, and what the lines have in common."""

    grid: Grid
    label: str
    baseline: RepeatGroup
    others: dict[str, RepeatGroup]

    def winner(self, metric: str) -> tuple[str, RepeatGroup | None]:
        """Return the best of all systems but that of the baselines."""
        better = min if direction_of(metric) is Direction.LOWER else max
        return better(self.others.items(), key=lambda item: item[1].means[metric].value or 0.0, default=("", None))


class Overview:
    """The best of each table at one level of detail; of one table, or without baselines, it has no rows."""

    def __init__(self, grids: Sequence[Grid], cells: CellWriter) -> None:
        self.grids = grids if len(grids) > 1 and grids[0].relative else ()
        self.cells, self.style, self.detail = cells, cells.style, cells.detail
        self.baseline = baseline_of(grids)
        self.elsewhere = False  # whether a best number has no ratio
        self.drawn: list[str] = []  # what the letters of a scale are

    @cached_property
    def _columns(self) -> list[str]:
        """The systems that the overview compares, that of the baselines first; alone if there are too many others."""
        others = list(dict.fromkeys(system.name for grid in self.grids for system in grid.systems[1:]))
        most = MOST_SYSTEMS if self.style.width is None else self.style.width // _COLUMN - 2
        many = len(others) > most or any(grid.many for grid in self.grids)
        return [self.baseline] if many else [self.baseline, *others]

    def fits(self) -> bool:
        """Return whether it has to be folded at most in the names of workloads."""
        return not self.rows or self.cells.has_room([["", *row[1:]] for row in self.rows], besides=_NAME_WIDTH)

    @cached_property
    def rows(self) -> list[Cells]:
        """Return a row for each table, precision and extreme number of devices: the best of each side, and ratios.

        A ratio is only that of two rows with the same configuration.
        """
        others = self._columns[1:]
        rows = []
        for contest in self._contests():
            grid, first = contest.grid, contest.baseline
            metric = grid.table.metrics[0]
            title = f"{grid.table.title.partition(',')[0]} {kind_of_table(grid.table)}"
            if self.detail is not Detail.FULL and metric != THROUGHPUT:
                title += f", {metric}"
            cells = [self._compared(contest.others.get(name), first, metric, grid) for name in others]
            if not others:
                name, row = contest.winner(metric)
                cells = [f"{name}: {self._compared(row, first, metric, grid)}" if row else "-"]
            rows.append([title, metric, contest.label, self.cells.short(_quantity(first, metric, grid)), *cells])
        if not rows:
            return []
        names = [f"{name} / {self.baseline}" for name in others] or ["best other"]
        heads = ["best", "metric", self.cells.head(DEVICES), self.baseline, *names]
        kept = set(range(len(heads))) - ({1} if self.detail is not Detail.FULL else set())
        if not any(row[2] for row in rows):
            kept.discard(2)
        return [[row[number] for number in sorted(kept)] for row in [heads, *rows]]

    def drawn_rows(self) -> list[Cells]:
        """Return the overview as a terminal has it: names folded to what is left, and ratios drawn."""
        if self.style.width is None:
            return self.rows
        width = self.style.width
        rest = sum(max(map(text_width, column)) + GAP for column in list(zip(*self.rows, strict=True))[1:])
        scale = min(WIDTH, width - rest - GAP - _NAME_WIDTH)
        drawn = forest(self._dots_of_best(), self.style.blocks, scale) if width >= WIDE and scale >= LEAST_SCALE else []
        if drawn:
            self.drawn = named_letters(self._columns[1:])
        table = [[*row, *drawn[number : number + 1]] for number, row in enumerate(self.rows)]
        return fold_first(table, width, _NAME_WIDTH)

    def _contests(self) -> Iterator["Contest"]:
        """Yield where sides have a best number each: of one precision, on the fewest and on the most devices."""
        for grid in self.grids:
            for label, lines in _contests(grid):
                rows = [_best(lines, number, grid.table.metrics[0]) for number in range(len(grid.systems))]
                first, *others = enumerate(rows)
                best = {grid.name_of(number, row): row for number, row in others if row}
                if first[1] is not None:
                    yield Contest(grid, label, first[1], best)

    def _dots_of_best(self) -> list[list[Dot]]:
        others = self._columns[1:]
        letters, lines = letters_of(others), []
        for contest in self._contests():
            pairs = zip(others, letters, strict=True)
            metric, first = contest.grid.table.metrics[0], contest.baseline
            dots = (dot_of(contest.others.get(name), first, metric, letter) for name, letter in pairs)
            lines.append([dot for dot in dots if dot])
        return lines

    def _compared(self, row: RepeatGroup | None, baseline: RepeatGroup, metric: str, grid: Grid) -> str:
        """Return the ratio of the best of a system, or its number if it is of another configuration."""
        if row is None:
            return "-"
        if row.baseline is not baseline:
            self.elsewhere = True
            scale = scale_of(grid.table.units[metric], [baseline.means[metric].value or 0.0])
            return f"({scale.text(row.means[metric].value or 0.0)})"
        parts = self.cells.ratio(row, metric, grid.table.units[metric])
        return " ".join(filter(None, parts))


def baseline_of(grids: Sequence[Grid]) -> str:
    """Return what the system of the baselines of all tables is called."""
    names = {grid.systems[0].name for grid in grids}
    return names.pop() if len(names) == 1 else "baseline"


def kind_of_table(table: ComparisonTable) -> str:
    """Return the kind of its runs, or their task if they are of several kinds."""
    kinds = {observation.kind for row in table.rows for observation in row.observations}
    return kinds.pop() if len(kinds) == 1 else table.group.task


def _contests(grid: Grid) -> Iterator[tuple[str, list[Line]]]:
    """Yield the lines among which each system has a best one: of one precision, and the fewest and most devices."""
    groups: dict[tuple[str, float], list[Line]] = {}
    varying = varying_fields(grid.table.rows)
    for line in grid.lines:
        for row in line.rows[:1]:
            precision = cell_text(row.fields.get(PRECISION)) if PRECISION in grid.keys else ""
            devices = row.fields.get(DEVICES) if DEVICES in varying and DEVICES in grid.keys else None
            groups.setdefault((precision, float(devices or 0)), []).append(line)
    for precision in dict.fromkeys(precision for precision, _ in groups):
        counts = sorted(count for each, count in groups if each == precision)
        for count in dict.fromkeys((counts[0], counts[-1])):
            devices = f"{count:.0f}" if count else ""
            yield " ".join(filter(None, (precision, devices))), groups[precision, count]


def _best(lines: Sequence[Line], number: int, metric: str) -> RepeatGroup | None:
    rows = [line.cells[number] for line in lines if number in line.cells]
    measured = [row for row in rows if row.means[metric].value is not None]
    better = min if direction_of(metric) is Direction.LOWER else max
    return better(measured, key=lambda row: row.means[metric].value or 0.0, default=None)


def _quantity(row: RepeatGroup, metric: str, grid: Grid) -> str:
    mean = row.means[metric]
    return format_quantity(mean.value or 0.0, grid.table.units[metric], mean.low, mean.high)


def dot_of(row: RepeatGroup | None, baseline: RepeatGroup, metric: str, letter: str) -> Dot | None:
    """Return a ratio to be drawn: more is better, so that of times and energy it is the inverse."""
    direction = direction_of(metric)
    ratio = row.ratios.get(metric) if row is not None and row.baseline is baseline else None
    if ratio is None or not ratio.value or direction is Direction.NONE:
        return None
    if direction is Direction.HIGHER or not ratio.low or not ratio.high:
        value = ratio.value if direction is Direction.HIGHER else 1 / ratio.value
        return Dot(letter, value, ratio.low, ratio.high)
    return Dot(letter, 1 / ratio.value, 1 / ratio.high, 1 / ratio.low)
