"""Results as tidy tables: `runs`, `points` and `steps`, each with the fields' own names as columns.

`runs` has a row for each run and metric, with every field of the catalogue that describes the run; `points` has the
curves inside a result; `steps` what was kept of single steps, requests and intervals of power.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from sifmark.core.errors import unknown_name
from sifmark.results.catalogue import Field, Role, fields
from sifmark.results.documents import Document, follow, metric_value, metrics_of
from sifmark.results.marks import marks_of_result
from sifmark.results.versions import highest_percentile, too_few_steps

Row = dict[str, Any]
THROUGHPUT = "throughput"
_SLOWEST = 100  # per cent
_SQL = {"string": "VARCHAR", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "json": "VARCHAR"}
# Texts that only say why something else is missing, and what tables cannot use.
_LEFT_OUT = ("reason", "notes")
# Where a result is: not in its document.
PLACE = {"file": "VARCHAR", "study": "VARCHAR"}
# The fields of `runs` that say what a curve or a step is of; the rest follow from `id`.
_BRIEF = (
    *("id", "site", "workload.name", "workload.task", "accelerator.name", "accelerator.count"),
    *("precision", "batch_size", "concurrency"),
)


class Table(StrEnum):
    """A table of results."""

    RUNS = "runs"
    POINTS = "points"
    STEPS = "steps"

    @classmethod
    def named(cls, name: str) -> "Table":
        """Return a table by its name. Raises UsageError."""
        if name not in list(cls):
            raise unknown_name("table", name, cls)
        return cls(name)


@dataclass(frozen=True)
class ResultPlace:
    """Where a result is: its file, and the study that it is of."""

    file: str
    study: str = ""


@cache
def columns(table: Table) -> Mapping[str, str]:
    """Return the columns of a table in their order, by name their types in SQL."""
    if table is Table.RUNS:
        of_fields = {each.column: _sql_type(each) for each in run_fields()}
        first = {name: of_fields[name] for name in _BRIEF}
        values = {"metric": "VARCHAR", "unit": "VARCHAR", "value": "DOUBLE", "marks": "VARCHAR"}
        return {**first, **values, **of_fields, **PLACE}
    brief = {each.column: _sql_type(each) for each in _brief_fields()}
    if table is Table.POINTS:
        own = {
            "curve": "VARCHAR",
            "x": "DOUBLE",
            "x_name": "VARCHAR",
            "direction": "VARCHAR",
            "memory": "VARCHAR",
            "mode": "VARCHAR",
        }
    else:
        own = {"series": "VARCHAR", "index": "BIGINT", "offset_seconds": "DOUBLE"}
    return {**brief, **own, "metric": "VARCHAR", "unit": "VARCHAR", "value": "DOUBLE", **PLACE}


def rows(table: Table, document: Document, place: ResultPlace) -> Iterator[Row]:
    """Yield the rows of a valid result in a table, each with all of its columns."""
    made = {Table.RUNS: _run_rows, Table.POINTS: _point_rows, Table.STEPS: _step_rows}[table](document)
    common = {**_values(run_fields() if table is Table.RUNS else _brief_fields(), document), **vars(place)}
    if table is Table.RUNS:
        common["marks"] = ", ".join(mark.name for mark in marks_of_result(document))
    whole = {name: common.get(name) for name in columns(table)}
    for row in made:
        yield whole | row


@cache
def run_fields() -> tuple[Field, ...]:
    """Return the fields that describe a run: its settings, platform, conditions and identity, and how it ended."""
    return tuple(each for each in fields() if not each.repeated and _describes_run(each))


def _describes_run(field: Field) -> bool:
    if field.column.rpartition(".")[2] in _LEFT_OUT or field.column == "provenance.command":
        return False
    return field.role is not Role.OUTCOME or field.compare is not None


@cache
def _brief_fields() -> tuple[Field, ...]:
    by_name = {each.column: each for each in run_fields()}
    return tuple(by_name[name] for name in _BRIEF)


def _sql_type(field: Field) -> str:
    return "TIMESTAMP" if field.path in ("started", "finished") else _SQL[field.type]


def _values(described: Sequence[Field], document: Document) -> Row:
    return {each.column: _value(each, document) for each in described}


def _value(field: Field, document: Document) -> Any:
    value = follow(document, field.path.split("."))
    if field.type != "json" or value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True)


def _run_rows(document: Document) -> Iterator[Row]:
    """Yield a row for each metric that has a value, and for the throughput in any case."""
    for name, metric in metrics_of(document).items():
        number = metric_value(metric)
        if number.value is not None or name == THROUGHPUT:
            yield {"metric": name, "unit": number.unit, "value": number.value}


def _point_rows(document: Document) -> Iterator[Row]:
    yield from _of_microbenchmark(document.get("points") or {})  # schema 1.0 has none
    steps, requests = document["steps"], document["requests"]
    most = 95 if too_few_steps(steps["count"] - steps["untimed"]) else 99
    yield from _of_quantiles("step_time", steps["quantiles"], most)
    most = highest_percentile(requests.get("count", 0))
    yield from _of_quantiles("latency", requests.get("quantiles"), most)
    for name, quantiles in requests.get("parts", {}).items():
        yield from _of_quantiles(f"latency_{name}", quantiles, most)
    yield from _of_epochs(document["epochs"], document["workload"]["unit"])
    yield from _of_evaluations((document["target"] or {}).get("evaluations", ()))
    yield from _of_search((document["search"] or {}).get("trials", ()))


_OF_POINTS = (
    ("bus_bandwidth_gb_per_second", "bus_bandwidth", "GB/s"),
    ("algorithm_bandwidth_gb_per_second", "algorithm_bandwidth", "GB/s"),
    ("flop_per_second", "flops", "FLOP/s"),
)


def _of_microbenchmark(points: Mapping[str, Any]) -> Iterator[Row]:
    for point in points.get("measured", ()):
        where = {name: point.get(name) for name in ("direction", "memory", "mode")}
        for key, metric, unit in _OF_POINTS:
            if point.get(key) is not None:
                yield {**_point("size", "size", point["size"], metric, unit, point[key]), **where}
        yield {**_point("size", "size", point["size"], "time_p50", "s", point["seconds"]["p50"]), **where}


def _of_quantiles(metric: str, quantiles: Mapping[str, float] | None, most: int) -> Iterator[Row]:
    """Yield the percentiles up to one that there are enough values for, and the slowest of them."""
    for name, value in (quantiles or {}).items():
        if (percentile := int(name[1:])) <= most or percentile == _SLOWEST:
            yield _point("percentile", "percentile", percentile, metric, "s", value)


def _of_epochs(epochs: Sequence[Mapping[str, Any]], counted: str) -> Iterator[Row]:
    for epoch in epochs:
        yield _point("epoch", "epoch", epoch["index"], "epoch_time", "s", epoch["seconds"])
        yield _point("epoch", "epoch", epoch["index"], "units", counted, epoch["units"])
        if (energy := epoch.get("energy")) and energy["value"] is not None:
            yield _point("epoch", "epoch", epoch["index"], "energy", energy["unit"], energy["value"])


def _of_evaluations(evaluations: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    for each in evaluations:
        for metric in ("loss", "accuracy", "exact_match", "f1"):
            if each.get(metric) is not None:
                yield _point("evaluation", "step", each["steps"], metric, "1", each[metric])
        yield _point("evaluation", "step", each["steps"], "training_time", "s", each["training_seconds"])


def _of_search(trials: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    for each in trials:
        if (memory := each["peak_process_mib"]) is not None:
            yield _point("search", "batch_size", each["batch_size"], "peak_process_memory", "MiB", memory)


def _point(curve: str, x_name: str, x: float, metric: str, unit: str, value: float) -> Row:
    return {"curve": curve, "x_name": x_name, "x": x, "metric": metric, "unit": unit, "value": value}


def _step_rows(document: Document) -> Iterator[Row]:
    steps, requests = document["steps"], document["requests"]
    for series, metric, unit, values in (
        ("steps", "step_time", "s", steps["seconds"]),
        ("steps", "data_wait", "s", steps["data_wait_seconds"]),
        ("steps", "loss", "1", steps["losses"]),
        ("requests", "latency", "s", requests.get("latencies")),
    ):
        for index, value in enumerate(values or (), 1):
            if value is not None:
                yield {"series": series, "index": index, "metric": metric, "unit": unit, "value": value}
    trace = document["power"].get("trace") or {}
    for index, watts in enumerate(trace.get("watts", ())):
        if watts is not None:
            offset = trace["begin_seconds"] + index * trace["interval_seconds"]
            row = {"series": "power", "index": index + 1, "offset_seconds": offset}
            yield {**row, "metric": "power", "unit": "W", "value": watts}
