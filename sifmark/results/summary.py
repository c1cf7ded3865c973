"""A result in a few lines for people: the number that matters first, then what it rests on."""

from collections.abc import Iterable, Iterator
from typing import Any

from sifmark.results.catalogue import MICROBENCHMARK, headlines, kind_of, metric_label, path_of, rates
from sifmark.results.documents import measured_metrics, metrics_of, value_at
from sifmark.results.numbers import format_number, format_quantity, format_seconds
from sifmark.results.warnings import duration, warnings_of

Document = dict[str, Any]
_LABEL = 29  # columns of a label
# Metrics that have lines of their own, or say the same as one of these.
_THROUGHPUT, _STEP_TIME = "throughput", "step_time_p50"
_MEMORY_COPY, _OF_MEMORY = "memory_copy", "memory_bandwidth"
_MOST_LEADING = 3  # headlines before everything else
_SPANS = ("phases.", "epochs.")
# What a run reached of the most that its devices can do, by metric. Each has a line, with a value or without.
FRACTIONS = {"fraction_of_bound": "fraction of its bound", "utilisation_of_measured_peak": "fraction of measured peak"}
_SHOWN = {
    "throughput_per_device",
    _STEP_TIME,
    "step_time_p99",
    "step_time_mean",
    "step_time_p90",
    "step_time_p95",
    "peak_process_memory",
    "peak_allocated_memory",
    *FRACTIONS,
}
NO_RESULT = "-"
NEAREST = "nearest published figure"

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


def summary(document: Document, every_metric: bool = False, published: str = "") -> list[str]:
    """Return the lines that summarise a valid result; with `every_metric` also why some metrics have no value.

    `published` says which published figure is the nearest.
    """
    lines = [title(document), *_labelled(_key_figures(document)), *_labelled(_other_metrics(document))]
    lines += _labelled(
        (label, fraction_text(document, name)) for name, label in fractions_of(document["workload"]["task"])
    )
    lines += _labelled([(NEAREST, published)] if published else [])
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
    """Return the first headline of which more is better, with its unit, or a dash: of throughput with its interval."""
    measured = metrics_of(document)
    name = next((name for name in rates(kind_of(document)) if _value(measured, name) is not None), "")
    return _figure(document, measured, name) if name else NO_RESULT


def fractions_of(task: str) -> tuple[tuple[str, str], ...]:
    """Return the metrics of FRACTIONS with their labels; a sweep over sizes has none."""
    return () if task == MICROBENCHMARK else tuple(FRACTIONS.items())


def fraction_text(document: Document, name: str) -> str:
    """Return what a run reached of a bound, by the name of one of FRACTIONS, or why that is not known."""
    metric = metrics_of(document).get(name)
    if metric is None:
        return f"not known: results of schema {document['schema_version']} do not have it"
    value = metric["value"]
    return f"not known: {metric['reason']}" if value is None else format_number(value)


def _figure(document: Document, measured: Document, name: str) -> str:
    """Return a metric that has a value with its unit, and where it has one its interval over steps."""
    metric = measured[name]
    interval = document["steadiness"].get("throughput_interval", {}) if name == _THROUGHPUT else {}
    low, high = interval.get("low"), interval.get("high")
    scope = "" if low is None or high is None else "   (95 % over steps)"
    return f"{format_quantity(metric['value'], metric['unit'], low, high)}{scope}"


def _leading(document: Document, measured: Document) -> list[str]:
    """Return the metrics with a value to show first."""
    known = [name for name in headlines(kind_of(document)) if _value(measured, name) is not None]
    return [name for name in known[:_MOST_LEADING] if name not in _SHOWN]


def _key_figures(document: Document) -> Iterator[tuple[str, str]]:
    metrics, numerics, measured = document["metrics"], document["numerics"], metrics_of(document)
    for name in _leading(document, measured):
        yield metric_label(name), _figure(document, measured, name)
    if document["workload"]["name"] == _MEMORY_COPY and (why := measured.get(_OF_MEMORY, {}).get("reason")):
        yield metric_label(_OF_MEMORY), f"not known: {why}"
    elif main_figure(document) == NO_RESULT:
        yield metric_label(headlines(kind_of(document))[0]), NO_RESULT
    if (median := _value(metrics, _STEP_TIME)) is not None:
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
    measured = {name: metric for name, metric in metrics_of(document).items() if not name.startswith(_SPANS)}
    named = headlines(kind_of(document))
    of_a_sweep = {_THROUGHPUT} - set(named)  # that is no headline: the mean of all sizes
    shown = _SHOWN.union(_leading(document, measured), of_a_sweep)
    for name in dict.fromkeys((*named, *measured)):
        metric = measured.get(name)
        if metric and name not in shown and metric["value"] is not None:
            yield metric_label(name), format_quantity(metric["value"], metric["unit"])


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
