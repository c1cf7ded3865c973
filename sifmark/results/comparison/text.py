"""A comparison for people: systems as columns, configurations as rows, the answer first, and notes last.

A terminal gets as many words as its width has room for: `1.225x slower ±0.8%`, or `0.816x ±0.8% -`, or `0.816x -`. What
is piped has all of them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from sifmark.core.console import counted, text_width
from sifmark.results.catalogue import KINDS, column_of
from sifmark.results.comparison.cells import SIGNS, CellWriter, Detail, Parts
from sifmark.results.comparison.columns import (
    CPU,
    DEVICE_NAME,
    OF_DEVICE,
    SITE,
    Following,
    Grid,
    Line,
    cell_text,
    grid_of,
)
from sifmark.results.comparison.compare import Comparison, ComparisonTable
from sifmark.results.comparison.forest import Dot, forest, letters_of, named_letters
from sifmark.results.comparison.observation import PRECISION, PRECISION_KIND
from sifmark.results.comparison.overview import WIDE, Overview, baseline_of, dot_of, kind_of_table
from sifmark.results.comparison.repeats import RepeatGroup, Scaling, varying_fields
from sifmark.results.comparison.scaling import BATCH, DEVICES
from sifmark.results.comparison.tables import (
    EXPECTED,
    MARKDOWN,
    TEXT,
    Cells,
    TableStyle,
    counts_of,
    efficiency_text,
    factor_text,
    incompatibility_text,
    notes_of,
    reference_name,
)
from sifmark.results.marks import meaning_of_letters
from sifmark.results.numbers import (
    Scale,
    scale_of,
)
from sifmark.results.summary import PURE

RECIPE, BUILD = "provenance.image.recipe", "provenance.image.build_key"
FRAMEWORK = "provenance.software.framework_version"
_OF_SYSTEMS = (DEVICE_NAME, RECIPE, BUILD, FRAMEWORK, CPU)  # above all tables
Block = tuple[str, list[Cells]]  # a table and what stands above it


def as_text(comparison: Comparison, details: bool = False, style: TableStyle = TEXT) -> str:
    """Return tables as text, for a terminal if the style has a width.

    With `details` also what all results of a table have in common.
    """
    tables = sorted(comparison.tables, key=lambda table: KINDS.index(kind_of_table(table)))
    grids = [grid_of(table, comparison) for table in tables]
    steps = (Detail.FULL,) if style.width is None else (Detail.WORDS, Detail.SIGNS, Detail.BARE)
    bests = [Overview(grids, CellWriter(style, step)) for step in steps]
    best = next(filter(Overview.fits, bests), bests[-1])
    texts = [_Text(comparison, grids, style, step) for step in steps]
    text = next(filter(_Text.fits, texts), texts[-1])
    return "\n".join(text.lines(best, details))


def as_markdown(comparison: Comparison, details: bool = False) -> str:
    """Return the same tables in Markdown."""
    return as_text(comparison, details, MARKDOWN)


class _Text:
    """The tables of a comparison at one level of detail."""

    def __init__(self, comparison: Comparison, grids: Sequence[Grid], style: TableStyle, detail: Detail) -> None:
        self.comparison, self.query, self.style, self.detail = comparison, comparison.query, style, detail
        self.grids = grids
        self.cells = CellWriter(style, detail)
        self.drawn: list[str] = []  # what the letters of a scale are

    @cached_property
    def blocks(self) -> list[list[Block]]:
        """The tables of each grid."""
        return [self._blocks(grid) for grid in self.grids]

    def fits(self) -> bool:
        """Return whether no table has to be folded."""
        return all(self.cells.has_room(table) for blocks in self.blocks for _, table in blocks)

    def lines(self, best: Overview, details: bool) -> Iterator[str]:
        """Yield everything: systems, the best of each, tables, notes."""
        said, systems = self._systems()
        yield from map(self.style.line, systems)
        if best.rows:
            yield from [""] * bool(systems)
            yield from self.style.table(best.drawn_rows())
        for number, (grid, blocks) in enumerate(zip(self.grids, self.blocks, strict=True)):
            yield from [""] * bool(number or systems or best.rows)
            yield from self._titled(grid, said, details)
            for heading, table in blocks:
                yield ""
                if heading:
                    yield self.style.line(heading)
                yield from self.style.table(table)
            if grid.table.scalings:
                yield ""
                yield from self.style.table(self._scaling(grid))
        notes = list(dict.fromkeys(chain(self._doubts(), notes_of(self.comparison))))
        legend = [*self._legend(best)]
        yield from [""] * bool(legend or notes)
        yield from map(self.style.line, legend)
        yield from self.style.notes(notes)

    # Around the tables

    def _systems(self) -> tuple[set[str], list[str]]:
        """Return what is said of systems above all tables: the fields, and a line for each system, or for all."""
        known: dict[str, dict[str, set[str]]] = {}
        rows = {leader for grid in self.grids for leader in grid.following if leader != DEVICES}
        keys = {name for grid in self.grids for name in grid.keys} - rows
        fields = [name for name in _OF_SYSTEMS if name not in keys]
        for name, values in chain.from_iterable(map(_named_systems, self.grids)):
            of_system = known.setdefault(name, {})
            for field in fields:
                if values.get(field) is not None:
                    of_system.setdefault(field, set()).add(cell_text(values[field]))
        first, *others = known.values() if known else [{}]
        differing = [name for name in fields if any(each.get(name) != first.get(name) for each in others)]
        said = {name for name in differing if all(len(each.get(name, ())) <= 1 for each in known.values())}
        texts = {name: text for name, values in known.items() if (text := _system_text(values, said))}
        if not texts:
            return set(), []
        width = max(map(text_width, texts))
        baseline = baseline_of(self.grids) if self.query.relative else None
        return said, [
            f"{name}{' ' * (width - text_width(name))}  {text}{' (baseline)' * (name == baseline)}".rstrip()
            for name, text in texts.items()
        ]

    def _titled(self, grid: Grid, said: set[str], details: bool) -> Iterator[str]:
        line, table = self.style.line, grid.table
        yield line(_title(table))
        if details:
            varying = varying_fields(table.rows)
            common = {name: value for name, value in table.rows[0].fields.items() if name not in varying}
            texts = [f"{column_of(n)} {cell_text(v)}" for n, v in common.items() if not _is_expected(n, v)]
            yield line(f"workload {table.group.identity}; in all: {', '.join(texts)}")
        for incompatibility in table.allowed:
            yield line(f"ALLOWED although not comparable: {incompatibility_text(incompatibility)}")
        yield from map(line, self._differing(grid, said))
        for leader, following in grid.following.items():
            names = [name for name in next(iter(following.values())) if not _is_said(name, leader, following, said)]
            texts = [
                f"{column_of(name)} {' / '.join(dict.fromkeys(each.get(name, '-') for each in following.values()))}"
                for name in names
            ]
            if texts:
                yield line(f"with {self.cells.head(leader)}: {', '.join(texts)}")

    def _differing(self, grid: Grid, said: set[str]) -> Iterator[str]:
        """Yield in which settings the columns differ, besides what is asked for and what is said of systems."""
        named = {SITE, *([self.query.baseline[0]] if self.query.baseline else [])}
        if PRECISION in named:
            named.add(PRECISION_KIND)
        if texts := [f"{column_of(name)} {' / '.join(v)}" for name, v in grid.differing(named | said)]:
            yield f"the columns differ in {', '.join(texts)}"

    def _legend(self, best: Overview) -> Iterator[str]:
        """Yield what signs and letters mean."""
        if signs := self.cells.signs | best.cells.signs:
            texts = [f"{sign} {word}" for sign, word in SIGNS.items() if sign in signs]
            where = "beside or below" if self.detail is Detail.BARE else "beside"
            yield f"{where} a number its ratio to {baseline_of(self.grids)}: {', '.join(texts)}"
        if best.elsewhere:
            yield "in parentheses the best number of a system, of another configuration, which has no ratio"
        if drawn := self.drawn or best.drawn:
            yield f"on the scale right is better: {', '.join(drawn)}"
        if self.cells.letters:
            yield f"{meaning_of_letters(self.cells.letters)}: do not publish these"

    def _doubts(self) -> Iterator[str]:
        """Yield why one cannot tell, where the cells do not say it."""
        if self.detail is Detail.FULL:
            return
        shown = (row.ratios.get(name) for grid in self.grids for row in grid.table.rows for name in grid.table.metrics)
        doubts = Counter(ratio.doubt for ratio in shown if ratio is not None and ratio.doubt)
        if doubts:
            texts = [f"{doubt} ({counted(count, 'ratio')})" for doubt, count in doubts.items()]
            yield f"cannot tell: {', '.join(texts)}"

    # Tables

    def _blocks(self, grid: Grid) -> list[Block]:
        """Return tables with what stands above them: one for all metrics, or on a terminal one for each."""
        metrics = grid.table.metrics
        if len(grid.systems) == 1 and not grid.relative:
            table = self._by_metric(grid)
            if self.cells.has_room(table):
                return [("", table)]
        if self.style.width is None or len(grid.lines) == 1:
            return [("", table) for table in self._divided(grid, metrics, named=True)]
        scales = _scales(grid.table)
        return [
            ("" if number else f"{metric} [{scales[metric].unit}]", table)
            for metric in metrics
            for number, table in enumerate(self._divided(grid, [metric], named=False))
        ]

    def _divided(self, grid: Grid, metrics: Sequence[str], named: bool) -> list[list[Cells]]:
        """Return a table, or several with fewer systems each where that makes them fit."""
        first = int(grid.relative)
        others = range(first, len(grid.systems))

        def table_of(part: Sequence[int]) -> list[Cells]:
            return self._table(grid, [*range(first), *part], self._lines_of(grid, part), metrics, named)

        return self.style.parts(others, table_of) if self.detail is Detail.BARE else [table_of(others)]

    @staticmethod
    def _lines_of(grid: Grid, systems: Sequence[int]) -> list[Line]:
        """Return the lines of a table of some systems: the first has all, others those that say something of theirs."""
        if not systems or systems[0] <= grid.relative:
            return grid.lines
        return [line for line in grid.lines if any(n in line.cells or n in line.failed for n in systems)]

    def _table(
        self, grid: Grid, systems: Sequence[int], lines: Sequence[Line], metrics: Sequence[str], named: bool
    ) -> list[Cells]:
        """Return a row for each configuration and metric, with columns for these systems.

        Of one configuration, where numbers and ratios do not fit side by side, ratios are in rows of their own below.
        """
        scales, below = _scales(grid.table), named and self.style.width is not None and self.detail is Detail.BARE
        places = [(line, metric) for metric in metrics for line in lines]
        if self.style.width is None:
            places = [(line, metric) for line in lines for metric in metrics]
        columns = self._key_columns(grid, [line for line, _ in places])
        if named:
            columns.append(["metric", *(f"{metric} [{scales[metric].unit}]" for _, metric in places)])
        if below:
            columns = [[head, *chain.from_iterable((cell, "") for cell in cells)] for head, *cells in columns]
        for number in systems:
            columns += self._system_columns(grid, number, places, scales, below)
        if below:
            return [list(row) for row in zip(*columns, strict=True) if any(row)]
        table = [list(row) for row in zip(*columns, strict=True)]
        return self._drawn(table, [self._dots(grid, line, metric) for line, metric in places])

    def _system_columns(
        self, grid: Grid, number: int, places: Sequence[tuple[Line, str]], scales: dict[str, Scale], below: bool
    ) -> list[list[str]]:
        """Return the column of a system, and that of its ratios where these have one of their own."""
        name, uniform = grid.systems[number].name, counts_of(grid.table.rows)
        values = [self.cells.value(line, number, metric, scales[metric], uniform) for line, metric in places]
        ratios: list[Parts] = [("", "", "")] * len(places)
        if grid.relative and number:
            units = grid.table.units
            ratios = [self.cells.ratio(line.cells.get(number), name, units[name], below) for line, name in places]
        if below:
            lines = [" ".join(filter(None, ratio)) for ratio in ratios]
            return [self.cells.padded(name, [*chain.from_iterable(zip(values, lines, strict=True))])]
        if not (grid.relative and number):
            return [self.cells.padded(name, values)]
        if self.detail >= Detail.SIGNS:
            both = [
                value if isinstance(value, str) else value + ratio for value, ratio in zip(values, ratios, strict=True)
            ]
            return [self.cells.padded(name, both)]
        head = f"{name} / {grid.systems[0].name}"
        return [self.cells.padded(name, values), self.cells.padded(head, ratios)]

    def _by_metric(self, grid: Grid) -> list[Cells]:
        """Return a row for each configuration with a column for each metric."""
        scales, rows = _scales(grid.table), grid.lines
        columns = self._key_columns(grid, rows)
        columns.append(["n", *(str(sum(len(row.observations) for row in line.rows)) for line in rows)])
        for metric in grid.table.metrics:
            values = [self.cells.value(line, 0, metric, scales[metric], uniform=1) for line in rows]
            columns.append(self.cells.padded(f"{metric} [{scales[metric].unit}]", values))
        return [list(row) for row in zip(*columns, strict=True)]

    def _reference(self, row: RepeatGroup) -> str:
        if self.detail is Detail.FULL:
            return reference_name(row)
        return f"batch {row.fields[BATCH]} on {row.fields[DEVICES]}"

    def _scaling(self, grid: Grid) -> list[Cells]:
        """Return a row for each way in which a configuration scales, with the reference that it is relative to."""
        names = [system.name for system in grid.systems]
        alone = len(names) == 1
        rows: dict[tuple[str, ...], dict[int, Sequence[str]]] = {}
        for kind, line, number, scaling in _scalings(grid):
            speedup, efficiency = factor_text(scaling.speedup), efficiency_text(scaling.efficiency, self.style)
            key = (kind, *line.keys, self._reference(scaling.reference))
            rows.setdefault(key, {})[number] = (self.cells.short(speedup), efficiency)
        if alone:
            heads = ["speed-up", "efficiency"]
            values = [list(cells[0]) for cells in rows.values()]
        else:
            heads = [f"efficiency, {name}" if self.detail is Detail.FULL else name for name in names]
            values = [[cells.get(number, ("", "-"))[1] for number in range(len(names))] for cells in rows.values()]
        first = ["scaling", *map(self.cells.head, grid.keys), *heads, "reference"]
        return [first, *([*key[:-1], *cells, key[-1]] for key, cells in zip(rows, values, strict=True))]

    # Cells

    def _key_columns(self, grid: Grid, lines: Sequence[Line]) -> list[list[str]]:
        return [
            [self.cells.head(name), *(line.keys[number] for line in lines)] for number, name in enumerate(grid.keys)
        ]

    # Pictures

    def _dots(self, grid: Grid, line: Line, metric: str) -> list[Dot]:
        if not grid.relative:
            return []
        letters = letters_of([system.name for system in grid.systems[1:]])
        rows = ((line.cells.get(number), letter) for number, letter in enumerate(letters, start=1))
        dots = (dot_of(row, row.baseline, metric, letter) for row, letter in rows if row and row.baseline)
        return [dot for dot in dots if dot]

    def _drawn(self, table: list[Cells], dots: Sequence[Sequence[Dot]]) -> list[Cells]:
        """Return a table with its ratios drawn, if it is the only one and there is room."""
        if len(self.grids) > 1 or self.style.width is None or self.style.width < WIDE:
            return table
        drawn = forest(dots, self.style.blocks)
        wider = [[*row, scale] for row, scale in zip(table, drawn, strict=True)] if drawn else table
        if not drawn or not self.cells.has_room(wider):
            return table
        self.drawn = named_letters([system.name for system in self.grids[0].systems[1:]])
        return wider


def _scalings(grid: Grid) -> Iterator[tuple[str, Line, int, Scaling]]:
    """Yield how rows scale, by kind, each with its line and the number of its system."""
    places = {id(row): (line, number) for line in grid.lines for number, row in line.cells.items()}
    order = {id(line): number for number, line in enumerate(grid.lines)}
    found = [(scaling.kind, *places[id(row)], scaling) for row, scaling in grid.table.scalings if id(row) in places]
    yield from sorted(found, key=lambda each: (each[0], order[id(each[1])]))


def _title(table: ComparisonTable) -> str:
    group = table.group
    phase = "" if group.phase == "steady" else f", phase {group.phase}"
    precision = {row.fields.get(PRECISION) for row in table.rows}
    kinds = {row.fields.get(PRECISION_KIND) for row in table.rows}
    word = f" ({PURE})" if kinds == {PURE} else ""
    common = f", {precision.pop()}{word}" if len(precision) == 1 else ""
    return f"{table.title}: {group.task}{common}, {group.source} data{phase}"


def _is_said(name: str, leader: str, following: Following, said: set[str]) -> bool:
    """Return whether what the name of a system decides is said above all tables, or follows from its device."""
    if leader == DEVICES:
        return False
    named = leader == DEVICE_NAME or DEVICE_NAME in next(iter(following.values()))
    return name in said or (name in OF_DEVICE and named)


def _named_systems(grid: Grid) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the systems of a grid that has several, as columns or as rows, with the fields of each."""
    if len(grid.systems) > 1:
        yield from ((system.name, system.fields) for system in grid.systems)
    for leader, following in grid.following.items():
        if leader != DEVICES:
            yield from ((value, {leader: value, **fields}) for value, fields in following.items())


def _system_text(values: dict[str, set[str]], said: set[str]) -> str:
    """Return what a system is, in words: its device, image, framework and processor, as far as systems differ."""
    texts = {name: next(iter(values[name])) for name in _OF_SYSTEMS if name in said and name in values}
    if RECIPE in texts and BUILD in texts:
        texts[RECIPE] = f"{texts[RECIPE]} ({texts.pop(BUILD).removeprefix('sha256:')})"
    return ", ".join(texts.values())


def _scales(table: ComparisonTable) -> dict[str, Scale]:
    """Return the unit in which a table shows each metric."""
    means = {metric: [row.means[metric].value for row in table.rows] for metric in table.metrics}
    return {
        metric: scale_of(table.units[metric], (value for value in values if value is not None))
        for metric, values in means.items()
    }


def _is_expected(name: str, value: object) -> bool:
    return value is None or value is False or name == "schema_version" or value == EXPECTED.get(name)
