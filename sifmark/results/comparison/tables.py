"""A comparison as tables for people: for a terminal and in Markdown. A dash marks what is missing; a note says why."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.core.console import align_columns, counted, markdown_lines, markdown_text, printable
from sifmark.results.catalogue import Direction, column_of, direction_of, fields
from sifmark.results.comparison.baselines import fields_that_may_differ
from sifmark.results.comparison.compare import Comparison, ComparisonTable
from sifmark.results.comparison.compatibility import NUMERICS, Excluded, Incompatibility
from sifmark.results.comparison.intervals import CANNOT_TELL, CONFIDENCE, Mean, Ratio
from sifmark.results.comparison.observation import PLATFORM, PRECISION, PRECISION_KIND, SETTING
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup, varying_fields
from sifmark.results.comparison.scaling import BATCH, DEVICES, EXECUTION, SHOWN, follows_devices
from sifmark.results.comparison.sessions import ONE_SESSION
from sifmark.results.marks import BUSY, FEWEST_REPEATS, STALLED_RUN, THROTTLED_RUN, UNSTEADY
from sifmark.results.numbers import Scale, format_interval, format_number, format_quantity, scale_of
from sifmark.results.summary import HALF, PURE
from sifmark.results.warnings import STALLED

ITERATIONS = "configuration.device_iterations"
MOST_NOTES = 12  # below one table
MOST_FIELDS = 8  # in one note
# Fields that are not worth mentioning if all results have this value.
EXPECTED = {each.path: each.usual for each in fields() if each.is_usual_known}
# Fields that name a system, the best first.
_SYSTEM_NAMES = ("site", "accelerator.name", "configuration.framework", "accelerator.kind")
Cells = list[str]


@dataclass(frozen=True)
class TableStyle:
    """How tables are written, and the lines around them, which may hold untrusted text."""

    table: Callable[[list[Cells]], Iterator[str]]
    line: Callable[[str], str]


def _aligned(rows: list[Cells]) -> Iterator[str]:
    return align_columns([[printable(cell) for cell in row] for row in rows])


TEXT = TableStyle(_aligned, printable)
MARKDOWN = TableStyle(markdown_lines, markdown_text)


@dataclass(frozen=True)
class Systems:
    """What the two columns of a comparison with baselines are called, and the fields that keep their pairs apart."""

    baseline: str
    other: str
    keys: list[str]


def as_text(comparison: Comparison, details: bool = False) -> str:
    """Return tables for a terminal; with `details` also what all results of a table have in common."""
    return _tables(comparison, TEXT, details)


def as_markdown(comparison: Comparison, details: bool = False) -> str:
    """Return the same tables in Markdown."""
    return _tables(comparison, MARKDOWN, details)


def incompatibility_text(incompatibility: Incompatibility) -> str:
    """Return an incompatibility in one line."""
    counts = ", ".join(f"{value}: {count}" for value, count in incompatibility.counts.items())
    examples = ", ".join(f"{file} ({value})" for value, file in incompatibility.examples.items())
    return printable(f"{column_of(incompatibility.field)} ({counts}): {incompatibility.why}; for example {examples}")


def exclusion_text(excluded: Excluded) -> str:
    """Return which result is left out, by which fields and why, in one line."""
    return printable(f"{excluded.result.file}: {excluded.reason}")


def ratio_text(ratio: Ratio, unit: str) -> str:
    """Return a ratio in words: `1.371x faster ± 2.4 %`, `1.02x [0.91, 1.14], no difference shown`."""
    if ratio.value is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{format_number(ratio.value)}x, {CANNOT_TELL}"
    if ratio.doubt:
        return f"{_factor(ratio)}, {CANNOT_TELL}: {ratio.doubt}"
    if ratio.low <= 1 <= ratio.high:
        return f"{_factor(ratio)}, no difference shown"
    more, less = _words(unit)
    if ratio.low > 1:
        return _factor(ratio, more)
    return _factor(Ratio(1 / ratio.value, 1 / ratio.high, 1 / max(ratio.low, 1e-300)), less)


def _words(unit: str) -> tuple[str, str]:
    """Return what more and less of a metric with this unit means."""
    if unit.endswith("/s"):
        return "faster", "slower"
    return ("slower", "faster") if unit == "s" else ("more", "less")


def _tables(comparison: Comparison, style: TableStyle, details: bool) -> str:
    tables = ["\n".join(_titled(table, comparison.query, style, details)) for table in comparison.tables]
    overview = _overview(comparison) if comparison.query.relative and len(comparison.tables) > 1 else []
    return "\n\n".join([*(["\n".join(style.table(overview))] if overview else []), *tables])


def session_notes(rows: Sequence[RepeatGroup], query: Query) -> Iterator[str]:
    """Yield what the verdicts allow for, and what an interval does not cover."""
    ratios = [ratio for row in rows for ratio in row.ratios.values()]
    if any(ratio.scope and not ratio.withheld for ratio in ratios):
        yield (
            f"ratios and intervals are {ONE_SESSION}; faster, slower, more and less allow for sessions that differ by "
            f"{100 * query.between:g} % (standard deviation, --between)"
        )
    elif any(mean.sessions >= FEWEST_REPEATS for row in rows for mean in row.means.values()):
        yield "the means of sessions are the sample where a side has three or more of them: boots, days or jobs"


def _titled(table: ComparisonTable, query: Query, style: TableStyle, details: bool) -> Iterator[str]:
    group = table.group
    phase = "" if group.phase == "steady" else f", phase {group.phase}"
    varying = varying_fields(table.rows)
    precision = {row.fields.get(PRECISION) for row in table.rows}
    kinds = {row.fields.get(PRECISION_KIND) for row in table.rows}
    word = f" ({PURE})" if kinds == {PURE} else ""
    common = f", {precision.pop()}{word}" if len(precision) == 1 else ""
    yield style.line(f"{table.title}: {group.task}{common}, {group.source} data{phase}")
    if details:
        yield style.line(f"workload {group.identity}; in all: {', '.join(_common_fields(table, varying))}")
    for incompatibility in table.allowed:
        yield style.line(f"ALLOWED although not comparable: {incompatibility_text(incompatibility)}")
    yield from map(style.line, unlike_baselines(table.rows, query))
    yield ""
    rows = _pair_rows(table, query, varying) if query.relative else _plain_rows(table, varying)
    yield from style.table(rows)
    if table.scalings:
        yield ""
        yield from style.table(_scaling_rows(table, varying))
    if notes := list(dict.fromkeys(_notes(table, query))):
        yield ""
        yield from map(style.line, notes[:MOST_NOTES])
        if len(notes) > MOST_NOTES:
            yield f"and {len(notes) - MOST_NOTES} notes more: --format json has them all"


def _overview(comparison: Comparison) -> list[Cells]:
    """Return a row for each table: the best of each side by the first metric, and their ratio."""
    rows = [["workload", "task", "metric", "best baseline", "best other", "other / baseline"]]
    for table in comparison.tables:
        metric = table.metrics[0]
        unit = table.units[metric]
        baseline, other = (_best(table, comparison.query, metric, side) for side in (True, False))
        if baseline is None or other is None:
            continue
        # The best rows may be of different configurations, which have no ratio.
        best = other.ratios[metric] if other.baseline is baseline else Ratio(None)
        values = [_quantity(row.means[metric], unit) for row in (baseline, other)]
        rows.append([table.title.partition(",")[0], table.group.task, metric, *values, ratio_text(best, unit)])
    return rows if len(rows) > 1 else []


def _best(table: ComparisonTable, query: Query, metric: str, baselines: bool) -> RepeatGroup | None:
    rows = [row for row in table.rows if query.is_baseline(row) is baselines and row.means[metric].value is not None]
    lower_is_better = direction_of(metric) is Direction.LOWER
    return (min if lower_is_better else max)(rows, key=lambda row: row.means[metric].value or 0.0, default=None)


def _pair_rows(table: ComparisonTable, query: Query, varying: Sequence[str]) -> list[Cells]:
    """Return a row for each pair and metric: its configuration, the baseline, the other, and their ratio."""
    systems = _systems(table, query, varying)
    ratio_name = f"{systems.other} / {systems.baseline}"
    cells = [[*map(column_of, systems.keys), "metric", systems.baseline, systems.other, ratio_name]]
    scales = _scales(table)
    lonely = set(map(id, table.unmatched_baselines(query)))
    for row in table.rows:
        is_baseline = query.is_baseline(row)
        if is_baseline and id(row) not in lonely:
            continue
        for number, metric in enumerate(table.metrics):
            keys = [_cell(row.fields.get(name)) if number == 0 else "" for name in systems.keys]
            values = [
                _mean_cell(side, metric, scales[metric])
                for side in ((row, None) if is_baseline else (row.baseline, row))
            ]
            compared = ratio_text(row.ratios[metric], table.units[metric]) if metric in row.ratios else "-"
            cells.append([*keys, f"{metric} [{scales[metric].unit}]", *values, compared])
    return cells


def _systems(table: ComparisonTable, query: Query, varying: Sequence[str]) -> Systems:
    """Return what the sides are called.

    A field with one value on each side distinguishes sides, not pairs; unless it is the reason why there are none.
    """
    sides = [[row for row in table.rows if query.is_baseline(row) is side] for side in (True, False)]
    values = {name: [{row.fields.get(name) for row in rows} for rows in sides] for name in varying}
    may_differ = fields_that_may_differ(query).union(PLATFORM)
    constant = {
        name
        for name, (ours, theirs) in values.items()
        if len(ours) == 1 and len(theirs) == 1 and (name in may_differ or not name.startswith(SETTING))
    }
    keys = [name for name in varying if name not in constant]
    if query.baseline:
        name, value = query.baseline
        others = values.get(name, [set(), set()])[1]
        other = _cell(next(iter(others))) if len(others) == 1 else "other"
        return Systems(value, other, keys if len(others) <= 1 or name in keys else [name, *keys])
    for name in _SYSTEM_NAMES:
        if name in constant and None not in values[name][0] | values[name][1]:
            baseline, other = (_cell(next(iter(side))) for side in values[name])
            return Systems(baseline, other, keys)
    return Systems("baseline", "results", keys)


def _plain_rows(table: ComparisonTable, varying: Sequence[str]) -> list[Cells]:
    """Return a row for each configuration: its fields, how many repeats, and the mean of each metric."""
    scales = _scales(table)
    cells = [[*map(column_of, varying), "n", *(f"{metric} [{scale.unit}]" for metric, scale in scales.items())]]
    for row in table.rows:
        fields = [_cell(row.fields.get(name)) for name in varying]
        means = [_mean_text(row.means[metric], scale, len(row.observations)) for metric, scale in scales.items()]
        cells.append([*fields, str(len(row.observations)), *means])
    return cells


def _scaling_rows(table: ComparisonTable, varying: Sequence[str]) -> list[Cells]:
    """Return a row for each way in which a configuration scales, with the reference that it is relative to."""
    names = [name for name in varying if name in SHOWN or not (follows_devices(name) or name == EXECUTION)]
    cells = [["scaling", *map(column_of, names), "speed-up", "efficiency", "reference"]]
    for row, scaling in table.scalings:
        fields = [_cell(row.fields.get(name)) for name in names]
        speedup, efficiency = scaling.speedup, scaling.efficiency
        factor = "-" if speedup.value is None else _factor(speedup)
        cells.append([scaling.kind, *fields, factor, percentage_text(efficiency), _reference_name(scaling.reference)])
    return cells


def _reference_name(row: RepeatGroup) -> str:
    devices = row.fields[DEVICES]
    return f"{devices} device{'s' if devices > 1 else ''}, batch_size {row.fields[BATCH]}"


def _common_fields(table: ComparisonTable, varying: Sequence[str]) -> list[str]:
    common = {name: value for name, value in table.rows[0].fields.items() if name not in varying}
    return [f"{column_of(name)} {_cell(value)}" for name, value in common.items() if not _is_expected(name, value)]


def _scales(table: ComparisonTable) -> dict[str, Scale]:
    """Return the unit in which a table shows each metric."""
    means = {metric: [row.means[metric].value for row in table.rows] for metric in table.metrics}
    return {
        metric: scale_of(table.units[metric], (value for value in values if value is not None))
        for metric, values in means.items()
    }


def _mean_cell(row: RepeatGroup | None, metric: str, scale: Scale) -> str:
    if row is None or row.means[metric].value is None:
        return "-"
    return f"{_mean_text(row.means[metric], scale, len(row.observations))}  n={row.means[metric].count}"


def _quantity(mean: Mean, unit: str) -> str:
    return "-" if mean.value is None else format_quantity(mean.value, unit, mean.low, mean.high)


def _mean_text(mean: Mean, scale: Scale, count: int) -> str:
    if mean.value is None:
        return "-"
    part = f" ({mean.count} of {count})" if mean.count < count else ""
    return scale.text(mean.value, mean.low, mean.high) + part


def _factor(ratio: Ratio, word: str = "") -> str:
    """Return `1.371x faster ± 2.4 %` of a ratio that has an interval."""
    number, _, interval = format_interval(ratio.value or 0.0, ratio.low, ratio.high).partition(" ")
    return f"{number}x{word and f' {word}'} {interval}"


def percentage_text(ratio: Ratio) -> str:
    """Return a ratio in percent: `93% [91%, 95%]`."""
    if ratio.value is None:
        return "-"
    interval = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.0%}, {ratio.high:.0%}]"
    return f"{ratio.value:.0%}{interval}"


def _notes(table: ComparisonTable, query: Query) -> Iterator[str]:
    means = [mean for row in table.rows for mean in row.means.values()]
    if any(mean.low is not None for mean in means):
        kinds = "geometric means" if all(mean.geometric for mean in means if mean.value is not None) else "means"
        yield f"{kinds} of n fresh-process repeats, with {CONFIDENCE:.0%} intervals (Student's, Welch's)"
    if any(row.fields.get("provenance.stand_in") for row in table.rows):
        yield "warning: these images have test bases, not those of the vendors. Do not publish these numbers"
    yield from _unlike(table)
    yield from session_notes(table.rows, query)
    states = Counter(observation.fields[NUMERICS] for row in table.rows for observation in row.observations)
    for state in ("not_run", "not_provable"):
        if states[state]:
            yield f"correctness not checked: {states[state]} results, {NUMERICS} {state}"
    yield from disturbances_of(table.rows)
    hosts = max((len(row.hosts) for row in table.rows), default=1)
    if hosts > 1:
        yield f"repeats of {hosts} hosts are in one row: --by host.hostname separates them"
    if lonely := len(table.unmatched_baselines(query)):
        have = counted(lonely, "baseline has", "baselines have")
        yield f"no ratio: {have} no counterpart with the same configuration"
    for reference in {id(scaling.reference): scaling.reference for _, scaling in table.scalings}.values():
        first, *others = (observation.file for observation in reference.observations)
        more = f" and its {len(others)} repeats" if others else ""
        yield f"reference of scaling, {_reference_name(reference)}: {first}{more}"
    for row in table.rows:
        yield from _missing(row)


def _unlike(table: ComparisonTable) -> Iterator[str]:
    """Yield which words mean different things in the rows of a table."""
    iterations = sorted({row.fields.get(ITERATIONS) or 1 for row in table.rows})
    if table.group.task == "training" and len(iterations) > 1:
        calls = " or ".join(map(str, iterations))
        yield f"a step is a call of {calls} updates (device_iterations), and step times are of whole calls"
    kinds_of_precision = {row.fields.get(PRECISION_KIND) for row in table.rows if row.fields.get(PRECISION) in HALF}
    if len(kinds_of_precision) > 1:
        yield "half precision is pure in some of these results, and mixed in others: weights and sums are not the same"


def unlike_baselines(rows: Iterable[RepeatGroup], query: Query) -> Iterator[str]:
    """Yield the fields, besides the one that was asked for, in which rows differ from the baselines of their ratios."""
    asked = {query.baseline[0]} if query.baseline else set()
    if PRECISION in asked:
        asked.add(PRECISION_KIND)
    differing: dict[str, str] = {}
    for row in rows:
        if row.baseline is not None:
            before = row.baseline.fields
            for name in row.fields.keys() - asked:
                if before.get(name) != row.fields[name]:
                    differing.setdefault(name, f"{_cell(before.get(name))} / {_cell(row.fields[name])}")
    if differing:
        texts = [f"{column_of(name)} {change}" for name, change in sorted(differing.items())]
        more = f" and {len(texts) - MOST_FIELDS} more" if len(texts) > MOST_FIELDS else ""
        yield f"the columns differ in {', '.join(texts[:MOST_FIELDS])}{more}"


def disturbances_of(rows: Sequence[RepeatGroup]) -> Iterator[str]:
    """Yield what disturbed runs, each with the number of its results and one of them."""
    if disturbed := [file for row in rows for file in row.marked(BUSY)]:
        yield (
            f"warning: the host was busy in {len(disturbed)} results, for example {disturbed[0]}. "
            "Do not publish these numbers"
        )
    if stalled := [file for row in rows for file in row.marked(STALLED_RUN)]:
        yield (
            f"warning: something stopped the run for over {STALLED:.0%} of the timed window in {len(stalled)} results, "
            f"for example {stalled[0]}. Do not publish these numbers"
        )
    if throttled := [file for row in rows for file in row.marked(THROTTLED_RUN)]:
        yield (
            f"warning: heat or hardware held the clocks of a device down in {len(throttled)} results, for example "
            f"{throttled[0]}. Do not publish these numbers"
        )
    if unsteady := [file for row in rows for file in row.marked(UNSTEADY)]:
        yield f"warning: not steady within the timed window: {len(unsteady)} results, for example {unsteady[0]}"


def _missing(row: RepeatGroup) -> Iterator[str]:
    """Yield why a row has no number, no interval or no ratio somewhere."""
    for metric, mean in row.means.items():
        ratio = row.ratios.get(metric)
        if mean.count < len(row.observations):
            yield f"{metric}: {row.missing_reason(metric) or mean.reason}"
        if ratio is not None and ratio.reason and mean.count:
            yield f"cannot tell: {ratio.reason}"
    if row.no_baseline:
        yield f"no ratio: {row.no_baseline}"
    for scaling in row.scalings:
        if scaling.efficiency.reason:
            yield f"cannot tell: {scaling.efficiency.reason}"


def _is_expected(name: str, value: Any) -> bool:
    return value is None or value is False or name == "schema_version" or value == EXPECTED.get(name)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:19] if text.startswith("sha256:") else text
