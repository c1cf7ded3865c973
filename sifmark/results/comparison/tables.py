"""A comparison as tables for people: for a terminal and in Markdown. A dash marks what is missing; a note says why."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sifmark.core.console import align_columns, printable
from sifmark.results.comparison.compare import Comparison, ComparisonTable
from sifmark.results.comparison.compatibility import EXCLUSIONS, NUMERICS, Excluded, Incompatibility, format_value
from sifmark.results.comparison.intervals import CONFIDENCE, Mean, Ratio
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup, varying_fields

MOST_NOTES = 12  # below one table
# Fields that are not worth mentioning if all results have this value.
EXPECTED = {
    "schema_version": "1.0",
    "status.state": "completed",
    NUMERICS: "passed",
    "configuration.meter": "auto",
    "accelerator.ranks": 1,
    "accelerator.replicas": 1,
    "configuration.device_iterations": 1,
    "configuration.gradient_accumulation": 1,
    "configuration.stages": 1,
}
Cells = list[str]


def as_text(comparison: Comparison) -> str:
    """Return tables for a terminal."""
    return "\n\n".join("\n".join(_titled(table, comparison.query, _aligned)) for table in comparison.tables)


def as_markdown(comparison: Comparison) -> str:
    """Return the same tables in Markdown."""
    return "\n\n".join("\n".join(_titled(table, comparison.query, _piped)) for table in comparison.tables)


def incompatibility_text(incompatibility: Incompatibility) -> str:
    """Return an incompatibility in one line."""
    counts = ", ".join(f"{value}: {count}" for value, count in incompatibility.counts.items())
    example = f"for example {incompatibility.example}"
    return printable(f"{incompatibility.field} ({counts}): {incompatibility.why}; {example}")


def exclusion_text(excluded: Excluded) -> str:
    """Return which result is left out, by which fields and why, in one line."""
    fields = excluded.result.fields
    reasons = (f"{name} {format_value(fields[name])}: {EXCLUSIONS[name][1]}" for name in excluded.fields)
    return printable(f"{excluded.result.file}: {'; '.join(reasons)}")


def _titled(table: ComparisonTable, query: Query, layout: Callable[[list[Cells]], Iterator[str]]) -> Iterator[str]:
    group = table.group
    yield printable(f"{table.title}: {group.task}, {group.source} data, phase {group.phase}, {group.identity[:19]}")
    varying = varying_fields(table.rows)
    yield printable(f"in all: {', '.join(_common_fields(table, varying))}")
    for incompatibility in table.allowed:
        yield f"ALLOWED although it does not compare: {incompatibility_text(incompatibility)}"
    yield ""
    yield from layout([_header(table, query, varying), *(_cells(row, table, query, varying) for row in table.rows)])
    if notes := list(dict.fromkeys(_notes(table))):
        yield ""
        yield from map(printable, notes[:MOST_NOTES])
        if len(notes) > MOST_NOTES:
            yield f"and {len(notes) - MOST_NOTES} notes more: --format json has them all"


def _common_fields(table: ComparisonTable, varying: Sequence[str]) -> list[str]:
    common = {name: value for name, value in table.rows[0].fields.items() if name not in varying}
    return [f"{_short(name)} {_cell(value)}" for name, value in common.items() if not _is_expected(name, value)]


def _header(table: ComparisonTable, query: Query, varying: Sequence[str]) -> Cells:
    names = [*(["side"] if query.against else []), *map(_short, varying), "n"]
    for metric in query.metrics:
        names.append(f"{metric} [{table.units[metric]}]")
        names += ["ratio"] if query.relative else []
    return [*names, *(["efficiency"] if table.scales else [])]


def _cells(row: RepeatGroup, table: ComparisonTable, query: Query, varying: Sequence[str]) -> Cells:
    cells = [*([row.side] if query.against else []), *(_cell(row.fields.get(name)) for name in varying)]
    cells.append(str(len(row.observations)))
    for metric in query.metrics:
        cells.append(_mean_cell(row.means[metric], len(row.observations)))
        cells += [_ratio_cell(row, metric)] if query.relative else []
    if table.scales:
        scaling = row.scaling
        cells.append(f"{_ratio_text(scaling.efficiency)} {scaling.kind}" if scaling else "-")
    return cells


def _mean_cell(mean: Mean, count: int) -> str:
    if mean.value is None:
        return "-"
    spread = f" ±{mean.value - mean.low:.2g}" if mean.low is not None else ""
    return f"{mean.value:.5g}{spread}" + (f" ({mean.count} of {count})" if mean.count < count else "")


def _ratio_cell(row: RepeatGroup, metric: str) -> str:
    if metric not in row.ratios:
        return "-" if row.no_baseline else "baseline"
    return _ratio_text(row.ratios[metric])


def _ratio_text(ratio: Ratio) -> str:
    if ratio.value is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.4g}, {ratio.verdict}"
    return f"{ratio.value:.4g} [{ratio.low:.4g}, {ratio.high:.4g}] {ratio.verdict}"


def _notes(table: ComparisonTable) -> Iterator[str]:
    if any(mean.low is not None for row in table.rows for mean in row.means.values()):
        yield f"± and [ ]: {CONFIDENCE:.0%} intervals over fresh-process repeats, Student's and Welch's on logarithms"
    states = Counter(observation.fields[NUMERICS] for row in table.rows for observation in row.observations)
    for state in ("not_run", "not_provable"):
        if states[state]:
            yield f"not proved: {states[state]} results, {NUMERICS} {state}"
    if unsteady := [file for row in table.rows for file in row.unsteady]:
        yield f"not steady within the timed window: {len(unsteady)} results, for example {unsteady[0]}"
    for row in table.rows:
        yield from _missing(row)


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
    if row.scaling and row.scaling.efficiency.reason:
        yield f"cannot tell: {row.scaling.efficiency.reason}"


def _aligned(rows: list[Cells]) -> Iterator[str]:
    return align_columns([[printable(cell) for cell in row] for row in rows])


def _piped(rows: list[Cells]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield "| " + " | ".join(printable(cell).replace("|", "\\|") for cell in row) + " |"
        if number == 0:
            yield "|" + "---|" * len(row)


def _short(name: str) -> str:
    return name.removeprefix("configuration.").removeprefix("provenance.").removesuffix(".value")


def _is_expected(name: str, value: Any) -> bool:
    return value is None or value is False or value == EXPECTED.get(name)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:19] if text.startswith("sha256:") else text
