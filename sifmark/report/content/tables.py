"""Tables of a report: for one metric a row for each configuration and a column for each system."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sifmark.report.describe import scale_of_points
from sifmark.report.results import Point, ReportResults, Section
from sifmark.results.catalogue import MICROBENCHMARK, Direction, column_of, direction_of, metric_label
from sifmark.results.comparison.compatibility import NUMERICS
from sifmark.results.comparison.intervals import CANNOT_TELL, CONFIDENCE, Mean, Ratio
from sifmark.results.comparison.observation import NODES, PLATFORM, Observation
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup, varying_fields
from sifmark.results.comparison.scaling import BATCH, DEVICES, STRATEGY
from sifmark.results.comparison.tables import EXPECTED, disturbances_of, ratio_text, session_notes, unlike_baselines
from sifmark.results.marks import MARKS, Mark
from sifmark.results.numbers import Scale

MORE, NO_DIFFERENCE = "more", "no difference shown"  # verdicts of ratios
MOST_COLUMNS = 6  # systems side by side; more of them follow each other in rows
PRECISION, CONCURRENCY = "configuration.precision", "configuration.concurrency"
# The fields that readers look for first, in the order of columns.
_FIRST = (STRATEGY, DEVICES, NODES, PRECISION, CONCURRENCY, BATCH)
_HEADS = {
    DEVICES: "devices",
    CONCURRENCY: "clients",
    BATCH: "batch size",
    "host.cpu_model.value": "CPU",
    "host.hostname.value": "host",
    "accelerator.name": "accelerator",
    "numerics.state": "correctness",
}


@dataclass(frozen=True)
class TableRow:
    """A configuration: the values of the table's fields, and what each system measured."""

    values: tuple[str, ...]
    cells: tuple[Point | None, ...]  # by system
    reference: Mean | None = None  # what other results measured, if all systems are divided by them


@dataclass(frozen=True)
class MetricTable:
    """What systems measured of a metric."""

    metric: str
    unit: str
    fields: tuple[str, ...]  # what distinguishes rows, as heads of columns
    common: str  # what rows have in common, of the fields that readers look for
    systems: tuple[str, ...]
    baseline: str  # the system that the others are divided by; empty without ratios
    reference: str  # other results that all are divided by; or empty
    rows: tuple[TableRow, ...]
    of_ratios: tuple[str, ...]  # in which settings columns with a ratio differ, and what verdicts allow for

    @property
    def title(self) -> str:
        """The metric in words."""
        return metric_label(self.metric)

    @property
    def compared(self) -> tuple[str, ...]:
        """The systems that have a ratio to something else."""
        if self.reference:
            return self.systems
        return tuple(name for name in self.systems if name != self.baseline) if self.baseline else ()

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """All that was measured, by row and system."""
        return tuple(cell for row in self.rows for cell in row.cells if cell)

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """All marks of its numbers."""
        return all_marks(self.points)

    @cached_property
    def scale(self) -> Scale:
        """The unit in which all its numbers are shown."""
        return scale_of_points(self.points)

    @property
    def uneven(self) -> bool:
        """Whether the numbers rest on different numbers of repeats."""
        return len({point.mean.count for point in self.points}) > 1

    @property
    def basis(self) -> str:
        """What the numbers are, in a sentence: `Geometric means of 3 repeats, with 95% intervals.`"""
        counts = sorted({point.mean.count for point in self.points})
        if counts == [1]:
            return "Single runs, without intervals."
        kind = "Geometric means" if all(point.mean.geometric for point in self.points) else "Means"
        repeats = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        intervals = any(point.mean.low is not None for point in self.points)
        return f"{kind} of {repeats} repeats" + (f", with {CONFIDENCE:.0%} intervals." if intervals else ".")

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Why a number has no ratio, or one that says nothing, and what a ratio is of; each once."""
        return tuple(dict.fromkeys((*self.of_ratios, *(note for point in self.points for note in _notes(point)))))


def all_marks(points: Iterable[Point]) -> tuple[Mark, ...]:
    """Return the marks of some numbers, each once."""
    marks = {mark for point in points for mark in point.marks}
    return tuple(mark for mark in MARKS if mark in marks)


def _notes(point: Point) -> Iterator[str]:
    if point.ratio and point.ratio.reason:
        yield f"cannot tell: {point.ratio.reason}"
    if point.row.no_baseline:
        yield f"no ratio: {point.row.no_baseline}"
    reference = point.row.baseline
    if reference and reference.side != point.row.side:
        yield from (f"of the reference: {text.removeprefix('warning: ')}" for text in disturbances_of([reference]))
        if reference.fields.get(NUMERICS) != "passed":
            yield f"of the reference: {NUMERICS} {reference.fields.get(NUMERICS)}"


def notes_of_ratios(rows: Sequence[RepeatGroup], query: Query) -> Iterator[str]:
    """Yield in which settings rows differ from their baselines, and what verdicts allow for."""
    yield from unlike_baselines(rows, query)
    yield from session_notes([row for row in rows if row.ratios], query)


def judged(ratio: Ratio, metric: str) -> str:
    """Return what a ratio says of a system: `better`, `worse`, `same`, or `cannot-tell`."""
    verdict, direction = ratio.verdict, direction_of(metric)
    if verdict == CANNOT_TELL:
        return "cannot-tell"
    if verdict == NO_DIFFERENCE or direction is Direction.NONE:
        return "same"
    return "better" if (verdict == MORE) == (direction is Direction.HIGHER) else "worse"


def ratio_words(ratio: Ratio | None, unit: str) -> str:
    """Return a ratio in words as `compare` prints it; a dash without one."""
    return "-" if ratio is None else ratio_text(ratio, unit)


def head(field: str) -> str:
    """Return a field as the head of a column."""
    return _HEADS.get(field) or column_of(field).replace("_", " ")


def value_text(value: Any) -> str:
    """Return the value of a field in a cell."""
    if value is None:
        return "-"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:19] if text.startswith("sha256:") else text


def metric_table(section: Section, metric: str) -> MetricTable | None:
    """Return the table of a metric, or None if no result of the section has a value that may be compared."""
    points = section.points(metric)
    if not points:
        return None
    results = section.results
    identity = _identity_fields(points, results.by)
    shown = _shown_fields(points, identity)
    rows: dict[tuple[Any, ...], dict[str, Point]] = defaultdict(dict)
    for point in points:
        key = tuple(point.fields.get(name) for name in identity)
        rows[_free(rows, key, point.system)][point.system] = point
    systems = tuple(name for name in results.systems if any(name in cells for cells in rows.values()))
    return MetricTable(
        metric=metric,
        unit=points[0].unit,
        fields=tuple(map(head, shown)),
        common=configuration_of(points[0].observation, [name for name in _FIRST if name not in shown]),
        systems=systems,
        baseline=_baseline(results, systems),
        reference=results.reference_name,
        rows=tuple(
            _row(cells, shown, systems) for cells in sorted(rows.values(), key=lambda cells: _order(cells, shown))
        ),
        of_ratios=tuple(notes_of_ratios([point.row for point in points], results.compare(metric).query)),
    )


def configuration_text(fields: Mapping[str, Any], names: Iterable[str] = _FIRST) -> str:
    """Return what of a configuration readers look for first, in words: `bf16, batch size 64, 4 devices`."""
    return ", ".join(_in_words(name, fields[name]) for name in names if _says_something(fields, name))


def configuration_of(observation: Observation, names: Iterable[str] = _FIRST) -> str:
    """Return the same of a result; the batch size of a microbenchmark says nothing."""
    meant = [name for name in names if name != BATCH or observation.group.task != MICROBENCHMARK]
    return configuration_text(observation.fields, meant)


def _says_something(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    return value is not None and value != EXPECTED.get(name) and (name, value) not in ((DEVICES, 1), (NODES, 1))


def _in_words(name: str, value: Any) -> str:
    if name in (PRECISION, STRATEGY):
        return str(value)
    if name == BATCH:
        return f"batch size {value}"
    noun = head(name)
    return f"{value} {noun.removesuffix('s') if value == 1 else noun}"


def _baseline(results: ReportResults, systems: Sequence[str]) -> str:
    return results.baseline if len(systems) > 1 and results.baseline in systems and not results.reference_name else ""


def _identity_fields(points: Sequence[Point], by: str) -> list[str]:
    """Return the fields in which two rows of a table differ.

    What describes a platform and is the same throughout a system is none of them: it names the column.
    """
    by_system: dict[str, list[RepeatGroup]] = defaultdict(list)
    for point in points:
        by_system[point.system].append(point.row)
    within = {name for rows in by_system.values() for name in varying_fields(rows)}
    between = varying_fields([point.row for point in points])
    return [name for name in between if name != by and (name in within or name not in PLATFORM)]


def _shown_fields(points: Sequence[Point], identity: Sequence[str]) -> list[str]:
    """Return the fewest fields that distinguish all rows, the ones that readers look for among them."""
    shown = [name for name in _FIRST if name in identity]
    others = [name for name in identity if name not in shown]
    for name in sorted(others, key=lambda name: (name in PLATFORM, name)):
        if len(_distinct(points, shown)) == len(_distinct(points, identity)):
            break
        if len(_distinct(points, [*shown, name])) > len(_distinct(points, shown)):
            shown.append(name)
    return shown or [name for name in (BATCH, PRECISION) if configuration_of(points[0].observation, [name])][:1]


def _distinct(points: Sequence[Point], fields: Sequence[str]) -> set[tuple[Any, ...]]:
    return {tuple(point.fields.get(name) for name in fields) for point in points}


def _free(rows: dict[tuple[Any, ...], dict[str, Point]], key: tuple[Any, ...], system: str) -> tuple[Any, ...]:
    """Return the key of a row in which a system has no point yet: those of an unknown system may be several."""
    while system in rows[key]:
        key = (*key, None)
    return key


def _row(cells: dict[str, Point], shown: Sequence[str], systems: Sequence[str]) -> TableRow:
    points = list(cells.values())
    baseline = points[0].row.baseline
    reference = baseline.means[points[0].metric] if baseline and baseline.side != points[0].row.side else None
    values = tuple(value_text(points[0].fields.get(name)) for name in shown)
    return TableRow(values, tuple(map(cells.get, systems)), reference)


def _order(cells: dict[str, Point], shown: Sequence[str]) -> list[tuple[int, float, str]]:
    fields = next(iter(cells.values())).fields
    values = (fields.get(name) for name in shown)
    return [(0, value, "") if isinstance(value, int | float) else (1, 0, str(value)) for value in values]
