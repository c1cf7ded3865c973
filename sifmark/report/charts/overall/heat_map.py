"""Workloads by systems as a heat map: the best throughput, and in colour how near it is to that of the best system."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.report.charts import axes
from sifmark.report.charts.chart import Chart, ChartTable
from sifmark.report.charts.marks import HeatCell, cells, layered
from sifmark.report.charts.series import PRECISION, system_labels, variant
from sifmark.report.charts.words import caption, describe, distinct, failure_text, mean_text, of_remarks, short
from sifmark.report.results import Failure, Point, ReportResults, Section
from sifmark.results.comparison.scaling import DEVICES, THROUGHPUT

_TITLE = "Best throughput by workload and system"
_NOTE = (
    "Numbers are geometric means over repeats. The stronger a cell's colour, the nearer it is to the best of its row; "
    "dashed cells have runs that failed and no other."
)
_APART = (PRECISION, DEVICES)  # fields whose values have separate rows
_NO_TASK = "microbenchmark"  # its title says what it does
_MOST_SYSTEMS = 40
_STEPS = ((8, 62), (16, 46))  # the width of a cell with words, by the number of systems
_NARROW, _LINE = 24, 26  # width without words, height
_LETTER = 6.5  # about the width of one


@dataclass(frozen=True)
class _Row:
    """A row of the map: what the runs of a section with equal choices achieved at best, by system."""

    section: Section
    choices: tuple[Any, ...]
    best: Mapping[str, Point]
    failures: Mapping[str, Failure]


def draw(results: ReportResults) -> Chart | None:
    """Return the map of two workloads or more on two systems or more."""
    rows = [row for section in results.sections for row in _rows(section)]
    systems = [name for name in results.systems if any(name in row.best or name in row.failures for row in rows)]
    if len(systems) < 2 or len(rows) < 2:
        return None
    shown = systems[:_MOST_SYSTEMS]
    labels = system_labels(results)
    names = _row_names(rows)
    every = [cell for row, name in zip(rows, names, strict=True) for cell in _cells(row, name, shown, labels)]
    step = next((width for most, width in _STEPS if len(shown) <= most), _NARROW)
    flat = max(len(labels[name]) for name in shown) * _LETTER <= step
    angle = {"labelAngle": 0} if flat else {"labelAngle": -40, "labelAlign": "right", "labelLimit": 160}
    x = axes.names(None, [labels[name] for name in shown], domain=False, ticks=False, **angle) | {
        "scale": {"paddingInner": 0.06}
    }
    y = axes.names(None, names, labelLimit=380, grid=False, domain=False, ticks=False)
    spec = layered(x, y, *cells(every, worded=step != _NARROW), width={"step": step}, height={"step": _LINE})
    points = [point for row in rows for point in row.best.values()]
    more = [
        _NOTE,
        *([f"{len(systems) - len(shown)} systems more are in the table."] if len(systems) > len(shown) else []),
    ]
    words = caption(_TITLE, (), (), *more, *of_remarks(points))
    return Chart("throughput-by-workload-and-system", _TITLE, words, spec, _table(rows, names, systems, labels))


def _rows(section: Section) -> Iterator[_Row]:
    """Yield the rows of a section: for each precision and number of devices, the fastest run of each system."""
    best: dict[tuple[Any, ...], dict[str, Point]] = {}
    for point in section.points(THROUGHPUT):
        row = best.setdefault(tuple(point.fields.get(name) for name in _APART), {})
        if point.system not in row or (point.mean.value or 0) > (row[point.system].mean.value or 0):
            row[point.system] = point
    failures: dict[tuple[Any, ...], dict[str, Failure]] = {}
    for failure in section.failures:
        fields = failure.result.observation.fields
        failures.setdefault(tuple(fields.get(name) for name in _APART), {})[failure.system] = failure
    for choices in sorted({**best, **failures}, key=str):
        yield _Row(section, choices, best.get(choices, {}), failures.get(choices, {}))


def _row_names(rows: Sequence[_Row]) -> list[str]:
    """Return a name for each row: workload, task, and the choices that differ anywhere."""
    differing = [len({row.choices[place] for row in rows}) > 1 for place in range(len(_APART))]
    names = []
    for row in rows:
        fields = {name: value for name, value, differs in zip(_APART, row.choices, differing, strict=True) if differs}
        task = "" if row.section.key.task == _NO_TASK else f" {row.section.key.task}"
        words = f"{short(row.section.title.partition(',')[0])}{task}, {variant(fields, fields)}".removesuffix(", ")
        names.append(f"{words} [{row.section.unit}/s]")
    return distinct(names)


def _cells(row: _Row, name: str, systems: Sequence[str], labels: Mapping[str, str]) -> Iterator[HeatCell]:
    most = max((point.mean.value or 0.0 for point in row.best.values()), default=0.0)
    for system in systems:
        label = labels[system]
        if point := row.best.get(system):
            value = point.mean.value or 0.0
            words = describe(point, label, f"{name.partition(' [')[0]}, {value / most:.0%} of the best")
            yield HeatCell(label, name, axes.compact(value), value / most, words, f"#{point.results[0].anchor}")
        elif failure := row.failures.get(system):
            text = "OOM" if failure.state == "out_of_memory" else "failed"
            words = f"{label}, {name}: {failure_text(failure)}"
            yield HeatCell(label, name, text, None, words, f"#{failure.result.anchor}")


def _table(rows: Sequence[_Row], names: Sequence[str], systems: Sequence[str], labels: Mapping[str, str]) -> ChartTable:
    def text(row: _Row, system: str) -> str:
        if point := row.best.get(system):
            return mean_text(point.mean)
        return failure_text(row.failures[system]) if system in row.failures else "-"

    lines = ((name, *(text(row, system) for system in systems)) for row, name in zip(rows, names, strict=True))
    return ChartTable(("workload", *(labels[system] for system in systems)), tuple(lines))
