"""A comparison for programs: CSV and JSON."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from sifmark.core.console import printable
from sifmark.results.comparison.compare import Comparison, ComparisonTable
from sifmark.results.comparison.compatibility import EXCLUSIONS, Excluded, Incompatibility
from sifmark.results.comparison.intervals import CONFIDENCE, Ratio
from sifmark.results.comparison.repeats import RepeatGroup, Scaling
from sifmark.results.comparison.scaling import DEVICES

Record = dict[str, Any]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # owasp.org/www-community/attacks/CSV_Injection


def as_csv(comparison: Comparison) -> str:
    """Return one record per row and metric, with a column for every field."""
    return csv_text(record for _, record in comparison_records(comparison)).rstrip("\n")


def csv_text(records: Iterable[Record]) -> str:
    """Return records as CSV, with a column for every field that any of them has."""
    kept = list(records)
    stream = io.StringIO()
    write_csv(stream, dict.fromkeys(name for record in kept for name in record), kept)
    return stream.getvalue()


def write_csv(stream: TextIO, names: Iterable[str], records: Iterable[Record]) -> None:
    """Write records below a line of names. No text in it is a formula of a spreadsheet."""
    writer = csv.DictWriter(stream, list(names), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow(
            {name: spreadsheet_text(each) if isinstance(each, str) else each for name, each in record.items()}
        )


def spreadsheet_text(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: one that begins like one gets an apostrophe."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def as_json(comparison: Comparison) -> str:
    """Return everything, also what was refused or left out."""
    tables = [
        {
            "group": table.group._asdict(),
            "title": table.title,
            "allowed": [_incompatibility(incompatibility) for incompatibility in table.allowed],
            "lines": [_row(row, table) for row in table.rows],
        }
        for table in comparison.tables
    ]
    document = {
        "confidence": CONFIDENCE,
        "tables": tables,
        "refused": [_incompatibility(incompatibility) for incompatibility in comparison.refused],
        "left_out": [_excluded(excluded) for excluded in comparison.excluded],
    }
    return json.dumps(document, indent=2, allow_nan=False)


def comparison_records(comparison: Comparison) -> Iterator[tuple[RepeatGroup, Record]]:
    """Yield each row with a record for each metric."""
    for table in comparison.tables:
        for row in table.rows:
            for metric in comparison.query.metrics:
                record = {
                    "title": table.title,
                    **table.group._asdict(),
                    "side": row.side,
                    **row.fields,
                    "metric": metric,
                    "unit": table.units[metric],
                    **_number(row, metric),
                    "unsteady": len(row.unsteady),
                    **_scaling(row),
                    **_scaling_columns(row),
                    "allowed": " ".join(incompatibility.field for incompatibility in table.allowed),
                }
                yield row, record


def _row(row: RepeatGroup, table: ComparisonTable) -> dict[str, Any]:
    return {
        "side": row.side,
        "fields": row.fields,
        "results": [observation.file for observation in row.observations],
        "unsteady": len(row.unsteady),
        "metrics": {name: {"unit": table.units[name], **_number(row, name)} for name in row.means},
        **_scaling(row),
        **({"scalings": list(map(_scaling_record, row.scalings))} if row.scalings else {}),
    }


def _number(row: RepeatGroup, metric: str) -> dict[str, Any]:
    mean, ratio = row.means[metric], row.ratios.get(metric)
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
        "ratio_reason": ratio.reason if ratio else row.no_baseline,
    }


def _scaling(row: RepeatGroup) -> dict[str, Any]:
    """Return the efficiency of a row alone; of one that scales in both ways, the strong one."""
    scaling = row.scalings[0] if row.scalings else None
    efficiency = scaling.efficiency if scaling else Ratio(None)
    return {
        "scaling": scaling.kind if scaling else None,
        "fewest_devices": scaling.reference.fields[DEVICES] if scaling else None,
        "efficiency": efficiency.value,
        "efficiency_low": efficiency.low,
        "efficiency_high": efficiency.high,
        "efficiency_reason": efficiency.reason,
    }


def _scaling_record(scaling: Scaling) -> dict[str, Any]:
    speedup, efficiency, reference = scaling.speedup, scaling.efficiency, scaling.reference
    return {
        "kind": scaling.kind,
        "reference": [observation.file for observation in reference.observations],
        "reference_devices": reference.fields[DEVICES],
        "speedup": speedup.value,
        "speedup_low": speedup.low,
        "speedup_high": speedup.high,
        "efficiency": efficiency.value,
        "efficiency_low": efficiency.low,
        "efficiency_high": efficiency.high,
        "reason": efficiency.reason,
    }


def _scaling_columns(row: RepeatGroup) -> dict[str, Any]:
    """Return every scaling of a row as columns that begin with its kind."""
    return {
        f"{scaling.kind}_{name}": " ".join(value) if name == "reference" else value
        for scaling in row.scalings
        for name, value in _scaling_record(scaling).items()
        if name != "kind"
    }


def _incompatibility(incompatibility: Incompatibility) -> dict[str, Any]:
    return {
        "group": incompatibility.group._asdict(),
        "field": incompatibility.field,
        "why": incompatibility.why,
        "counts": incompatibility.counts,
        "example": incompatibility.example,
        "examples": incompatibility.examples,
    }


def _excluded(excluded: Excluded) -> dict[str, Any]:
    result = excluded.result
    fields = {name: {"value": result.fields[name], "why": EXCLUSIONS[name][1]} for name in excluded.fields}
    return {"side": result.side, "file": result.file, "id": result.id, "fields": fields}
