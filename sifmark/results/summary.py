"""A result in a few lines for people: the number that matters first, then what it rests on."""

from collections.abc import Iterable, Iterator
from typing import Any

from sifmark.results.catalogue import headlines, kind_of, metric_of, path_of, spelled
from sifmark.results.documents import measured_metrics, value_at
from sifmark.results.numbers import format_interval, format_quantity, format_seconds
from sifmark.results.warnings import duration, warnings_of

Document = dict[str, Any]
_LABEL = 29  # columns of a label
# Metrics that have lines of their own, or say the same as one of these.
_SHOWN = {
    "throughput",
    "throughput_per_device",
    "step_time_p50",
    "step_time_p99",
    "step_time_mean",
    "step_time_p90",
    "step_time_p95",
    "peak_process_memory",
    "peak_allocated_memory",
}
_NO_RESULT = "-"


HALF = ("bf16", "fp16")
MIXED, PURE = "mixed", "pure"  # what of a run in half precision is: products, or weights and everything else too
SHORT_COLUMNS = (
    "run",
    "precision",
    "batch",
    "state",
    "throughput",
    "step time",
    "correctness",
    "site or host",
    "started",
)
_SUMMARY_FIELDS = (
    *("id", "site", "host.hostname", "started", "workload.name", "workload.task", "accelerator.name"),
    *("precision", "batch_size", "status.state", "numerics.state"),
)


def summary_row(document: Document) -> Document:
    """Return a result as a row, by the names that tables have for fields: throughput in `unit`, s, and MiB."""
    metrics = document["metrics"]
    return {
        **{name: value_at(document, path_of(name)) for name in _SUMMARY_FIELDS},
        "throughput": _value(metrics, "throughput"),
        "unit": metrics["throughput"]["unit"],
        "step_time_p50": _value(metrics, "step_time_p50"),
        "peak_process_memory": _value(metrics, "peak_process_memory"),
    }


def short_row(document: Document) -> list[str]:
    """Return a result as a row of the table for people, by SHORT_COLUMNS."""
    row = summary_row(document)
    flags = "!" if any(warnings_of(document)) else ""
    return [
        f"{row['workload.name']} {row['workload.task']}",
        precision_text(document["configuration"]),
        str(row["batch_size"]),
        row["status.state"],
        main_figure(document).partition("   ")[0] + flags,
        "" if row["step_time_p50"] is None else format_quantity(row["step_time_p50"], "s"),
        row["numerics.state"].replace("_", " "),
        str(row["site"] or row["host.hostname"] or ""),
        _started(document),
    ]


def summary(document: Document, every_metric: bool = False) -> list[str]:
    """Return the lines that summarise a valid result; with `every_metric` also why some metrics have no value."""
    lines = [title(document), *_labelled(_key_figures(document)), *_labelled(_other_metrics(document))]
    lines += _labelled(_origin(document))
    lines += _labelled(("warning", text) for text in warnings_of(document))
    missing = {name: metric["reason"] for name, metric in measured_metrics(document).items() if metric["value"] is None}
    if every_metric:
        return [*lines, *_missing_metrics(missing)]
    return [*lines, f"  {len(missing)} metrics have no value: --all-metrics says why"] if missing else lines


def precision_kind(configuration: Document) -> str | None:
    """Return what is computed in half precision, `mixed` or `pure`; results that do not say it go by their device."""
    pure = configuration["precision"] in HALF and configuration["device"] == "ipu"
    kind: str | None = configuration.get("precision_kind", PURE if pure else None)
    return kind


def precision_text(configuration: Document) -> str:
    """Return the precision, with a word if weights are in half precision too: `fp16 (pure)`."""
    precision: str = configuration["precision"]
    return f"{precision} ({PURE})" if precision_kind(configuration) == PURE else precision


def title(document: Document) -> str:
    """Return workload, task, precision, batch size, state and duration in one line."""
    workload, configuration, status = document["workload"], document["configuration"], document["status"]
    clients = f", {configuration['concurrency']} clients" if configuration["concurrency"] else ""
    experiment = f"{workload['name']} {workload['task']}  {precision_text(configuration)}"
    state = status["state"] + ("" if status["state"] == "completed" else f": {status.get('message', '')}")
    return f"{experiment}  batch {configuration['batch_size']}{clients}   {state}, {format_seconds(duration(document))}"


def main_figure(document: Document) -> str:
    """Return the throughput with its unit and interval, or a dash."""
    metric = document["metrics"]["throughput"]
    if metric["value"] is None:
        return _NO_RESULT
    interval = document["steadiness"].get("throughput_interval", {})
    low, high = interval.get("low"), interval.get("high")
    scope = "" if low is None or high is None else "   (95 % over steps)"
    return f"{format_interval(metric['value'], low, high)} {metric['unit']}{scope}"


def _key_figures(document: Document) -> Iterator[tuple[str, str]]:
    metrics, numerics = document["metrics"], document["numerics"]
    yield "throughput", main_figure(document)
    if (median := _value(metrics, "step_time_p50")) is not None:
        yield "step time", f"{format_quantity(median, 's')} median{_slowest_step(document)}"
    memory = {"host": _value(metrics, "peak_process_memory"), "device": _value(metrics, "peak_allocated_memory")}
    if used := [f"{format_quantity(size, 'MiB')} {where}" for where, size in memory.items() if size is not None]:
        yield "memory", ", ".join(used)
    reason = f": {numerics['reason']}" if "reason" in numerics else ""
    yield "correctness", numerics["state"].replace("_", " ") + reason


def _slowest_step(document: Document) -> str:
    """Return the 99th percentile of the step time if there are steps enough for it, else the slowest step."""
    if (p99 := _value(measured_metrics(document), "step_time_p99")) is not None:
        return f", {format_quantity(p99, 's')} p99"
    slowest = (document["steps"]["quantiles"] or {}).get("p100")
    return "" if slowest is None else f", {format_quantity(slowest, 's')} slowest"


def _other_metrics(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the other metrics by their labels, those first that matter most of such a run."""
    measured = measured_metrics(document)
    for name in dict.fromkeys((*headlines(kind_of(document)), *measured)):
        metric, known = measured.get(name), metric_of(name)
        if metric and name not in _SHOWN and metric["value"] is not None:
            unit = spelled(name, metric["unit"])
            yield known.label if known else name, format_quantity(metric["value"], unit)


def _origin(document: Document) -> Iterator[tuple[str, str]]:
    accelerator, provenance = document["accelerator"], document["provenance"]
    image, software = provenance["image"], provenance["software"]
    count = f"{accelerator['count']} x " if accelerator.get("count", 1) != 1 else ""
    yield "device", f"{count}{accelerator.get('name', accelerator['kind'])} on {document['host']['hostname']['value']}"
    yield "image", f"{image['recipe']}, build {image['build_key'][7:19]}" if image else "none: run outside an image"
    if software.get("framework_version"):
        yield "framework", f"{software['framework']} {software['framework_version']}"
    yield "started", f"{_started(document)} UTC"


def _started(document: Document) -> str:
    return str(document["started"]).partition(".")[0].replace("T", " ").removesuffix("Z")


def _missing_metrics(reasons: dict[str, str]) -> Iterator[str]:
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names_by_reason.setdefault(reason, []).append(name)
    for reason, names in names_by_reason.items():
        yield f"  no value: {', '.join(names)}: {reason}"


def _value(metrics: Document, name: str) -> float | None:
    """Return a metric's value; None if there is none, or no such metric."""
    value: float | None = metrics.get(name, {}).get("value")
    return value


def _labelled(facts: Iterable[tuple[str, str]]) -> Iterator[str]:
    for label, text in facts:
        yield f"  {label:<{_LABEL}} {text}"
