"""A comparison as text, Markdown, CSV or JSON. A dash stands for what is missing; the reason follows below."""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sifmark.core.console import align_columns, printable
from sifmark.results.comparison import Comparison, ComparisonTable, Query, RepeatGroup, varying_fields
from sifmark.results.compatibility import NUMERICS, UNFIT, Excluded, Incompatibility, format_value
from sifmark.results.intervals import CONFIDENCE, Mean, Ratio

MOST_NOTES = 12  # below one table
# Where all results say so, it is not worth a word.
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
Row = list[str]


def as_text(answer: Comparison) -> str:
    """Tables for a terminal."""
    return "\n\n".join("\n".join(_titled(table, answer.question, _aligned)) for table in answer.tables)


def as_markdown(answer: Comparison) -> str:
    """The same tables in Markdown."""
    return "\n\n".join("\n".join(_titled(table, answer.question, _piped)) for table in answer.tables)


def as_csv(answer: Comparison) -> str:
    """One row per line and metric, every field a column."""
    stream = io.StringIO()
    records = [
        {name: printable(value) if isinstance(value, str) else value for name, value in record.items()}
        for record in _records(answer)
    ]
    names = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return stream.getvalue().rstrip("\n")


def as_json(answer: Comparison) -> str:
    """Everything, refusals too."""
    tables = [
        {
            "group": table.group._asdict(),
            "title": table.title,
            "allowed": [incompatibility_json(finding) for finding in table.allowed],
            "lines": [_line_json(line, table) for line in table.lines],
        }
        for table in answer.tables
    ]
    document = {
        "confidence": CONFIDENCE,
        "tables": tables,
        "refused": [incompatibility_json(finding) for finding in answer.refused],
        "left_out": [_unfit_json(unfit) for unfit in answer.left_out],
    }
    return json.dumps(document, indent=2, allow_nan=False)


FORMATS: dict[str, Callable[[Comparison], str]] = {
    "table": as_text,
    "json": as_json,
    "csv": as_csv,
    "markdown": as_markdown,
}


def incompatibility_json(finding: Incompatibility) -> dict[str, Any]:
    """A finding as JSON values."""
    known = {"field": finding.field, "why": finding.why, "counts": finding.counts, "example": finding.example}
    return {"group": finding.group._asdict(), **known}


def incompatibility_text(finding: Incompatibility) -> str:
    """A finding in one line."""
    counts = ", ".join(f"{value}: {count}" for value, count in finding.counts.items())
    return printable(f"{finding.field} ({counts}): {finding.why}; for example {finding.example}")


def exclusion_text(unfit: Excluded) -> str:
    """What is left out, by which field and why, in one line."""
    reasons = (f"{name} {format_value(unfit.result.fields[name])}: {UNFIT[name][1]}" for name in unfit.fields)
    return printable(f"{unfit.result.file}: {'; '.join(reasons)}")


def _titled(table: ComparisonTable, question: Query, layout: Callable[[list[Row]], Iterator[str]]) -> Iterator[str]:
    group = table.group
    yield printable(f"{table.title}: {group.task}, {group.source} data, phase {group.phase}, {group.identity[:19]}")
    shown = varying_fields(table.lines)
    common = {name: value for name, value in table.lines[0].fields.items() if name not in shown}
    told_of = [f"{_short(n)} {_said(v)}" for n, v in common.items() if not _goes_without_saying(n, v)]
    yield printable(f"in all: {', '.join(told_of)}")
    for finding in table.allowed:
        yield f"ALLOWED although it does not compare: {incompatibility_text(finding)}"
    yield ""
    yield from layout([_header(table, question, shown), *(_row(line, table, question, shown) for line in table.lines)])
    if notes := list(dict.fromkeys(_notes(table))):
        yield ""
        yield from map(printable, notes[:MOST_NOTES])
        if len(notes) > MOST_NOTES:
            yield f"and {len(notes) - MOST_NOTES} notes more: --format json has them all"


def _header(table: ComparisonTable, question: Query, shown: Sequence[str]) -> Row:
    names = [*(["side"] if question.against else []), *map(_short, shown), "n"]
    for metric in question.metrics:
        names.append(f"{metric} [{table.units[metric]}]")
        names += ["ratio"] if question.relative else []
    return [*names, *(["efficiency"] if table.scales else [])]


def _row(line: RepeatGroup, table: ComparisonTable, question: Query, shown: Sequence[str]) -> Row:
    cells = [*([line.side] if question.against else []), *(_said(line.fields.get(name)) for name in shown)]
    cells.append(str(len(line.found)))
    for metric in question.metrics:
        cells.append(_mean_cell(line.means[metric], len(line.found)))
        cells += [_ratio_cell(line, metric)] if question.relative else []
    if table.scales:
        scaling = line.scaling
        cells.append(f"{_ratio_text(scaling.efficiency)} {scaling.kind}" if scaling else "-")
    return cells


def _mean_cell(mean: Mean, count: int) -> str:
    if mean.value is None:
        return "-"
    spread = f" ±{mean.value - mean.low:.2g}" if mean.low is not None else ""
    return f"{mean.value:.5g}{spread}" + (f" ({mean.count} of {count})" if mean.count < count else "")


def _ratio_cell(line: RepeatGroup, metric: str) -> str:
    if metric not in line.ratios:
        return "-" if line.no_baseline else "baseline"
    return _ratio_text(line.ratios[metric])


def _ratio_text(ratio: Ratio) -> str:
    if ratio.value is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.4g}, {ratio.verdict}"
    return f"{ratio.value:.4g} [{ratio.low:.4g}, {ratio.high:.4g}] {ratio.verdict}"


def _notes(table: ComparisonTable) -> Iterator[str]:
    if any(mean.low is not None for line in table.lines for mean in line.means.values()):
        yield f"± and [ ]: {CONFIDENCE:.0%} intervals over fresh-process repeats, Student's and Welch's on logarithms"
    states = Counter(one.fields[NUMERICS] for line in table.lines for one in line.found)
    for state in ("not_run", "not_provable"):
        if states[state]:
            yield f"not proved: {states[state]} results, {NUMERICS} {state}"
    if unsteady := [file for line in table.lines for file in line.unsteady]:
        yield f"not steady within the timed window: {len(unsteady)} results, for example {unsteady[0]}"
    for line in table.lines:
        yield from _missing(line)


def _missing(line: RepeatGroup) -> Iterator[str]:
    """Why a line has no number, no interval or no ratio somewhere."""
    for metric, mean in line.means.items():
        ratio = line.ratios.get(metric)
        if mean.count < len(line.found):
            yield f"{metric}: {line.absent(metric) or mean.reason}"
        if ratio is not None and ratio.reason and mean.count:
            yield f"cannot tell: {ratio.reason}"
    if line.no_baseline:
        yield f"no ratio: {line.no_baseline}"
    if line.scaling and line.scaling.efficiency.reason:
        yield f"cannot tell: {line.scaling.efficiency.reason}"


def _aligned(rows: list[Row]) -> Iterator[str]:
    return align_columns([[printable(cell) for cell in row] for row in rows])


def _piped(rows: list[Row]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield "| " + " | ".join(printable(cell).replace("|", "\\|") for cell in row) + " |"
        if number == 0:
            yield "|" + "---|" * len(row)


def _records(answer: Comparison) -> Iterator[dict[str, Any]]:
    for table in answer.tables:
        for line in table.lines:
            for metric in answer.question.metrics:
                yield {
                    "title": table.title,
                    **table.group._asdict(),
                    "side": line.side,
                    **line.fields,
                    "metric": metric,
                    "unit": table.units[metric],
                    **_number_json(line, metric),
                    "unsteady": len(line.unsteady),
                    **_scaling_json(line),
                    "allowed": " ".join(finding.field for finding in table.allowed),
                }


def _number_json(line: RepeatGroup, metric: str) -> dict[str, Any]:
    mean, ratio = line.means[metric], line.ratios.get(metric)
    return {
        "repeats": mean.count,
        "value": mean.value,
        "low": mean.low,
        "high": mean.high,
        "reason": mean.reason,
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "verdict": ratio.verdict if ratio else None,
        "ratio_reason": ratio.reason if ratio else line.no_baseline,
    }


def _line_json(line: RepeatGroup, table: ComparisonTable) -> dict[str, Any]:
    return {
        "side": line.side,
        "fields": line.fields,
        "results": [one.file for one in line.found],
        "unsteady": len(line.unsteady),
        "metrics": {name: {"unit": table.units[name], **_number_json(line, name)} for name in line.means},
        **_scaling_json(line),
    }


def _scaling_json(line: RepeatGroup) -> dict[str, Any]:
    scaling = line.scaling
    efficiency = scaling.efficiency if scaling else Ratio(None)
    return {
        "scaling": scaling.kind if scaling else None,
        "fewest_devices": scaling.devices if scaling else None,
        "efficiency": efficiency.value,
        "efficiency_low": efficiency.low,
        "efficiency_high": efficiency.high,
        "efficiency_reason": efficiency.reason,
    }


def _unfit_json(unfit: Excluded) -> dict[str, Any]:
    one = unfit.result
    fields = {name: {"value": one.fields[name], "why": UNFIT[name][1]} for name in unfit.fields}
    return {"side": one.side, "file": one.file, "id": one.id, "fields": fields}


def _short(name: str) -> str:
    return name.removeprefix("configuration.").removeprefix("provenance.").removesuffix(".value")


def _goes_without_saying(name: str, value: Any) -> bool:
    return value is None or value is False or value == EXPECTED.get(name)


def _said(value: Any) -> str:
    if value is None:
        return "-"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:19] if text.startswith("sha256:") else text
