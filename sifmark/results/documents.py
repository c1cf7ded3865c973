"""Reading values and metrics out of result documents."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from sifmark.results.catalogue import spelled
from sifmark.results.copies import with_bandwidths
from sifmark.results.versions import STEP_P99, is_in_todays_terms, too_few_steps, with_full_attention

Document = dict[str, Any]

# A number outside is no measurement, and its square might be no number.
SMALLEST, LARGEST = 1e-100, 1e100
# Whether compiled code came from a cache, and the metrics that contain the time of compilation.
COMPILE_CACHE, COLD = "accelerator.compilation.cache", "cold"
OF_COMPILATION = ("phases.compile", "time_to_first_step", "time_to_result")
_SCALARS = {str, int, float, bool, type(None)}


class MetricValue(NamedTuple):
    """A metric of one result, or None with the reason."""

    value: float | None
    unit: str
    reason: str | None


def value_at(document: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path as a scalar or JSON text, or None if the document has no such path."""
    return hashable(follow(document, _keys(path)))


def has_path(document: Mapping[str, Any], path: str) -> bool:
    """Return whether the document has a dotted path, even with the value null."""
    *parents, last = _keys(path)
    parent = follow(document, parents)
    return type(parent) is dict and last in parent


def metrics_of(document: Document) -> dict[str, Document]:
    """Return metrics by name, with phases as `phases.compile` and epochs as `epochs.1`, both in seconds.

    `epochs.1.throughput` is of an epoch alone: units per second.
    """
    counted = document["workload"]["unit"]
    spans = document["phases"].items()
    phases = {f"phases.{name}": {**span, "value": span["seconds"], "unit": "s"} for name, span in spans}
    epochs = {f"epochs.{epoch['index']}": {"value": epoch["seconds"], "unit": "s"} for epoch in document["epochs"]}
    rates = {
        f"epochs.{epoch['index']}.throughput": {"value": epoch["units"] / epoch["seconds"], "unit": f"{counted}/s"}
        for epoch in document["epochs"]
        if epoch["seconds"]
    }
    measured = measured_metrics(document)
    named = {name: {**metric, "unit": spelled(name, metric["unit"])} for name, metric in measured.items()}
    return _by_cache(document, {**named, **phases, **epochs, **rates})


def measured_metrics(document: Document) -> dict[str, Document]:
    """Return the metrics that a document has by name, those of earlier schema versions as they are called today."""
    measured = with_bandwidths(document, document["metrics"])
    if is_in_todays_terms(document["schema_version"]):
        return measured
    workload, steps = document["workload"], document["steps"]
    measured = with_full_attention(measured, workload["identity"], workload["name"], _without)
    why = too_few_steps(steps["count"] - steps["untimed"])
    if why and measured.get(STEP_P99, {}).get("value") is not None:
        measured[STEP_P99] = _without(measured[STEP_P99], why)
    return with_bandwidths(document, measured)


def _without(metric: Document, reason: str) -> Document:
    """Return a metric without its value; one that has none keeps its own reason."""
    return metric if metric["value"] is None else {**metric, "value": None, "reason": reason}


def metric_value(metric: Document) -> MetricValue:
    """Return a metric as a number that can be computed with."""
    value, unit = metric["value"], metric["unit"]
    if value and not SMALLEST <= abs(value) <= LARGEST:
        return MetricValue(None, unit, f"{value:.0e} is beyond any measurement")
    return MetricValue(value, unit, metric.get("reason"))


def hashable(value: Any) -> Any:
    """Return a value that can be a key: scalars unchanged, others as JSON text."""
    return value if type(value) in _SCALARS else json.dumps(value, sort_keys=True)


def follow(document: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """Return the value that keys lead to, or None."""
    value: Any = document
    for key in keys:
        value = value.get(key) if type(value) is dict else None
    return value


@cache
def _keys(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _by_cache(document: Document, metrics: dict[str, Document]) -> dict[str, Document]:
    """Return metrics in which a time of compilation has another name if compiled code came from a cache.

    It is `phases.compile.warm` then, or `.mixed`, so that no mean has both.
    """
    cache = value_at(document, COMPILE_CACHE)
    if cache in (None, COLD):
        return metrics
    reason = f"compiled code came from a cache: see NAME.{cache}"
    kept = {f"{name}.{cache}": metrics[name] for name in OF_COMPILATION if name in metrics}
    without = {
        name: {**metrics[name], "value": None, "reason": reason.replace("NAME", name)}
        for name in OF_COMPILATION
        if name in metrics and metrics[name]["value"] is not None
    }
    return {**metrics, **without, **kept}
