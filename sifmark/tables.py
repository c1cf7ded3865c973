"""A comparison as text, Markdown, CSV or JSON. A dash stands for what is missing; the reason follows below."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sifmark.comparability import Finding
from sifmark.comparison import Answer, Line, Question, Table, varying
from sifmark.results import legible
from sifmark.spread import CONFIDENCE, Mean, Ratio

MOST_NOTES = 12  # below one table
Row = list[str]


def as_text(answer: Answer) -> str:
    """Tables for a terminal."""
    return "\n\n".join("\n".join(_titled(table, answer.question, _aligned)) for table in answer.tables)


def as_markdown(answer: Answer) -> str:
    """The same tables in Markdown."""
    return "\n\n".join("\n".join(_titled(table, answer.question, _piped)) for table in answer.tables)


def as_csv(answer: Answer) -> str:
    """One row per line and metric, every field a column."""
    stream = io.StringIO()
    records = list(_records(answer))
    names = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return stream.getvalue().rstrip("\n")


def as_json(answer: Answer) -> str:
    """Everything, refusals too."""
    tables = [
        {
            "group": table.group._asdict(),
            "title": table.title,
            "allowed": [told(finding) for finding in table.allowed],
            "lines": [_line_json(line, table) for line in table.lines],
        }
        for table in answer.tables
    ]
    document = {"confidence": CONFIDENCE, "tables": tables, "refused": [told(finding) for finding in answer.refused]}
    return json.dumps(document, indent=2, allow_nan=False)


FORMATS: dict[str, Callable[[Answer], str]] = {
    "table": as_text,
    "json": as_json,
    "csv": as_csv,
    "markdown": as_markdown,
}


def told(finding: Finding) -> dict[str, Any]:
    """A finding as JSON values."""
    known = {"field": finding.field, "why": finding.why, "counts": finding.counts, "example": finding.example}
    return {"group": finding.group._asdict(), **known}


def sentence(finding: Finding) -> str:
    """A finding in one line."""
    counts = ", ".join(f"{value}: {count}" for value, count in finding.counts.items())
    return legible(f"{finding.field} ({counts}): {finding.why}; for example {finding.example}")


def _titled(table: Table, question: Question, layout: Callable[[list[Row]], Iterator[str]]) -> Iterator[str]:
    group = table.group
    yield legible(f"{table.title}: {group.task}, {group.source} data, phase {group.phase}, {group.identity[:19]}")
    shown = varying(table.lines)
    common = {name: value for name, value in table.lines[0].fields.items() if name not in shown}
    told_of = [f"{_short(n)} {_said(v)}" for n, v in common.items() if v is not None and v is not False]
    yield legible(f"in all: {', '.join(told_of)}")
    for finding in table.allowed:
        yield f"ALLOWED although it does not compare: {sentence(finding)}"
    yield ""
    yield from layout([_header(table, question, shown), *(_row(line, table, question, shown) for line in table.lines)])
    if notes := list(dict.fromkeys(_notes(table, question))):
        yield ""
        yield from map(legible, notes[:MOST_NOTES])
        if len(notes) > MOST_NOTES:
            yield f"and {len(notes) - MOST_NOTES} notes more: --format json has them all"


def _header(table: Table, question: Question, shown: Sequence[str]) -> Row:
    names = [*(["side"] if question.against else []), *map(_short, shown), "n"]
    for metric in question.metrics:
        names.append(f"{metric} [{table.units[metric]}]")
        names += ["ratio"] if _asks_for_ratios(question) else []
    return [*names, *(["efficiency"] if table.scales else [])]


def _row(line: Line, table: Table, question: Question, shown: Sequence[str]) -> Row:
    cells = [*([line.side] if question.against else []), *(_said(line.fields.get(name)) for name in shown)]
    cells.append(str(len(line.found)))
    for metric in question.metrics:
        cells.append(_mean_cell(line.means[metric], len(line.found)))
        cells += [_ratio_cell(line, metric)] if _asks_for_ratios(question) else []
    if table.scales:
        scaling = line.scaling
        cells.append(f"{_ratio_text(scaling.efficiency)} {scaling.kind}" if scaling else "-")
    return cells


def _mean_cell(mean: Mean, count: int) -> str:
    if mean.value is None:
        return "-"
    spread = f" ±{mean.value - mean.low:.2g}" if mean.low is not None else ""
    return f"{mean.value:.5g}{spread}" + (f" ({mean.count} of {count})" if mean.count < count else "")


def _ratio_cell(line: Line, metric: str) -> str:
    if metric not in line.ratios:
        return "-" if line.no_baseline else "baseline"
    return _ratio_text(line.ratios[metric])


def _ratio_text(ratio: Ratio) -> str:
    if ratio.value is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.4g}, {ratio.verdict}"
    return f"{ratio.value:.4g} [{ratio.low:.4g}, {ratio.high:.4g}] {ratio.verdict}"


def _notes(table: Table, question: Question) -> Iterator[str]:
    if any(mean.low is not None for line in table.lines for mean in line.means.values()):
        yield f"± and [ ]: {CONFIDENCE:.0%} intervals over fresh-process repeats, Student's and Welch's on logarithms"
    if unsteady := [one.file for line in table.lines for one in line.found if one.unsteady]:
        yield f"not steady within the timed window: {len(unsteady)} results, for example {unsteady[0]}"
    for line in table.lines:
        for metric in question.metrics:
            mean, ratio = line.means[metric], line.ratios.get(metric)
            if mean.count < len(line.found):
                yield f"{metric}: {line.absent(metric) or mean.reason}"
            if ratio is not None and ratio.reason and mean.count:
                yield f"cannot tell: {ratio.reason}"
        if line.no_baseline:
            yield f"no ratio: {line.no_baseline}"
        if line.scaling and line.scaling.efficiency.reason:
            yield f"cannot tell: {line.scaling.efficiency.reason}"


def _asks_for_ratios(question: Question) -> bool:
    return question.against or question.baseline is not None


def _aligned(rows: list[Row]) -> Iterator[str]:
    rows = [[legible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _piped(rows: list[Row]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield "| " + " | ".join(legible(cell).replace("|", "\\|") for cell in row) + " |"
        if number == 0:
            yield "|" + "---|" * len(row)


def _records(answer: Answer) -> Iterator[dict[str, Any]]:
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
                    "allowed": " ".join(finding.field for finding in table.allowed),
                }


def _number_json(line: Line, metric: str) -> dict[str, Any]:
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


def _line_json(line: Line, table: Table) -> dict[str, Any]:
    scaling = line.scaling
    return {
        "side": line.side,
        "fields": line.fields,
        "results": [one.file for one in line.found],
        "metrics": {name: {"unit": table.units[name], **_number_json(line, name)} for name in line.means},
        "scaling": scaling
        and {
            "kind": scaling.kind,
            "fewest_devices": scaling.devices,
            "efficiency": scaling.efficiency.value,
            "low": scaling.efficiency.low,
            "high": scaling.efficiency.high,
            "reason": scaling.efficiency.reason,
        },
    }


def _short(name: str) -> str:
    return name.removeprefix("configuration.").removeprefix("provenance.").removesuffix(".value")


def _said(value: Any) -> str:
    if value is None:
        return "-"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:19] if text.startswith("sha256:") else text
