"""A comparison for programs: CSV and JSON."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sifmark.core.spreadsheets import csv_text
from sifmark.results.catalogue import column_of
from sifmark.results.comparison.compare import Comparison, ComparisonTable
from sifmark.results.comparison.compatibility import EXCLUSIONS, Excluded, Incompatibility
from sifmark.results.comparison.intervals import CONFIDENCE, Ratio
from sifmark.results.comparison.observation import ComparisonGroup
from sifmark.results.comparison.repeats import RepeatGroup, Scaling
from sifmark.results.comparison.scaling import DEVICES
from sifmark.results.marks import UNSTEADY

Record = dict[str, Any]


def as_csv(comparison: Comparison) -> str:
    """Return a row for each configuration and metric, with a column for every field."""
    return csv_text(comparison_rows(comparison)).rstrip("\n")


def as_json(comparison: Comparison) -> str:
    """Return everything, also what was refused or left out."""
    tables = [
        {
            **_group(table),
            "allowed": [_incompatibility(incompatibility) for incompatibility in table.allowed],
            "rows": [_row(row, table) for row in table.rows],
        }
        for table in comparison.tables
    ]
    document = {
        "confidence": CONFIDENCE,
        "tables": tables,
        "refused": [_incompatibility(incompatibility) for incompatibility in comparison.refused],
        "excluded": [_excluded(excluded) for excluded in comparison.excluded],
        "unmatched_baselines": [
            {**group_columns(table.group), "fields": field_columns(row.fields), "results": _files(row)}
            for table in comparison.tables
            for row in table.unmatched_baselines(comparison.query)
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False)


def comparison_rows(comparison: Comparison) -> Iterator[Record]:
    """Yield a row for each configuration and metric: fields, value, interval, ratio, verdict, scaling."""
    return (record for _, record in comparison_records(comparison))


def comparison_records(comparison: Comparison) -> Iterator[tuple[RepeatGroup, Record]]:
    """Yield the same rows, each with the repeats that it is of."""
    for table in comparison.tables:
        for row in table.rows:
            for metric in table.metrics:
                record = {
                    **_group(table),
                    "side": row.side,
                    **field_columns(row.fields),
                    "metric": metric,
                    "unit": table.units[metric],
                    **_number(row, metric),
                    "unsteady": len(row.marked(UNSTEADY)),
                    **_scaling(row),
                    **_scaling_columns(row),
                    "allowed": " ".join(incompatibility.field for incompatibility in table.allowed),
                }
                yield row, record


def _group(table: ComparisonTable) -> Record:
    """Return what the results of a table have in common, by the fields' own names."""
    group = table.group
    return {"workload.title": table.title, **group_columns(group)}


def group_columns(group: ComparisonGroup) -> Record:
    """Return what the results of a group have in common, by the names that tables have for it."""
    return {
        "workload.identity": group.identity,
        "workload.task": group.task,
        "status.phase": group.phase,
        "data.source": group.source,
    }


def field_columns(fields: Mapping[str, Any]) -> Record:
    """Return fields by the names that tables have for them."""
    return {column_of(path): value for path, value in fields.items()}


def _row(row: RepeatGroup, table: ComparisonTable) -> dict[str, Any]:
    return {
        "side": row.side,
        "fields": field_columns(row.fields),
        "results": _files(row),
        "unsteady": len(row.marked(UNSTEADY)),
        "metrics": {name: {"unit": table.units[name], **_number(row, name)} for name in table.units},
        **_scaling(row),
        **({"scalings": list(map(_scaling_record, row.scalings))} if row.scalings else {}),
    }


def _files(row: RepeatGroup) -> list[str]:
    return [observation.file for observation in row.observations]


def _number(row: RepeatGroup, metric: str) -> dict[str, Any]:
    mean, ratio = row.means[metric], row.ratios.get(metric)
    return {
        "repeats": mean.count,
        "sessions": mean.sessions,
        "value": mean.value,
        "low": mean.low,
        "high": mean.high,
        "reason": mean.reason,
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "verdict": ratio.verdict if ratio else None,
        "ratio_reason": (ratio.reason or ratio.doubt or None) if ratio else row.no_baseline,
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
        **group_columns(incompatibility.group),
        "field": column_of(incompatibility.field),
        "why": incompatibility.why,
        "counts": incompatibility.counts,
        "example": incompatibility.example,
        "examples": incompatibility.examples,
    }


def _excluded(excluded: Excluded) -> dict[str, Any]:
    result = excluded.result
    fields = {column_of(name): {"value": result.fields[name], "why": EXCLUSIONS[name].why} for name in excluded.fields}
    return {"side": result.side, "file": result.file, "id": result.id, "fields": fields}
