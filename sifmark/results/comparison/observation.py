"""What a comparison needs of a result: its group, its fields and its numbers."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sifmark.results.summary import MIXED, precision_kind
from sifmark.results.warnings import is_disturbed, is_stalled, is_throttled

# Settings that are no choice of the experiment: the group has them already, they concern what happens around the run,
# when it has to end or which repeat it is, or others imply them.
IGNORED_SETTINGS = {
    "data",
    "data_path",
    "evaluation_path",
    "idle_seconds",
    "instances",
    "measured_peak",
    "chosen_for",
    "memory_limit_mib",
    "meter_period_seconds",
    "micro_batch_size",
    "probe_numerics",
    "repeat",
    "replicas",
    "seed",
    "time_limit_seconds",
}
# Where a result was measured, including defaults that a machine sets: a baseline may differ in these fields.
PLATFORM = (
    "accelerator.kind",
    "accelerator.vendor",
    "accelerator.name",
    "accelerator.count",
    "accelerator.ranks",
    "accelerator.replicas",
    "accelerator.execution",
    "configuration.device_iterations",
    "configuration.framework",
    "configuration.device",
    "configuration.threads",
    "configuration.data_workers",
    "configuration.gradient_accumulation",
    "configuration.io_tiles",
    "configuration.memory_proportion",
    "configuration.meter",
    "configuration.stages",
    "configuration.strategy",
    "host.cpu_model.value",
    "provenance.image.recipe",
    "provenance.image.build_key",
    "provenance.software.framework_version",
    "site",
)
SETTING = "configuration."
# Settings that schema 1.0 lacks: their defaults distinguish no results.
NEWER_SETTINGS = {
    f"{SETTING}activation_checkpointing": False,
    f"{SETTING}offload": False,
    f"{SETTING}tune_kernels": False,
    f"{SETTING}cpu_bind": "auto",
    f"{SETTING}instances": 1,
    f"{SETTING}memory_proportion": None,
    f"{SETTING}io_tiles": None,
    f"{SETTING}precision_kind": MIXED,
}
PRECISION, PRECISION_KIND = f"{SETTING}precision", f"{SETTING}precision_kind"
# The data that a target was evaluated on. The same data may have another path, so their number identifies them.
EVALUATED = f"{SETTING}evaluated"
ENVIRONMENT = "environment."
# What only results of several ranks have: the hosts they ran on, and what carried their data.
NODES, NETWORK = "nodes", "transport.network"
# A number outside is no measurement, and its square might be no number.
SMALLEST, LARGEST = 1e-100, 1e100

# Whether compiled code came from a cache, and the metrics that contain the time of compilation.
COMPILE_CACHE, COLD = "accelerator.compilation.cache", "cold"
OF_COMPILATION = ("phases.compile", "time_to_first_step")
COMPILED = f"{SETTING}compile"

_NOT_SETTINGS = tuple(name for name in PLATFORM if not name.startswith(SETTING))
_SCALARS = {str, int, float, bool, type(None)}

Document = dict[str, Any]


class ComparisonGroup(NamedTuple):
    """What results have in common that measure the same thing. `phase` is `steady` for all completed runs."""

    identity: str
    task: str
    phase: str
    source: str


class MetricValue(NamedTuple):
    """A metric of one result, or None with the reason."""

    value: float | None
    unit: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Observation:
    """One result. `fields` has everything that distinguishes it from a repeat, by dotted path."""

    side: str
    file: str
    id: str
    title: str
    group: ComparisonGroup
    fields: dict[str, Any]
    numbers: dict[str, MetricValue]
    unsteady: bool = False  # False also where it cannot be decided
    disturbed: bool = False  # by other work on the host
    stalled: bool = False  # by whatever stopped the run for a time
    throttled: bool = False  # by heat or hardware
    host: str | None = None


def observe(
    document: Document, side: str, file: str, more_fields: Iterable[str], numbers: dict[str, MetricValue]
) -> Observation:
    """Return a valid result as an observation, with `more_fields` among its fields and with these numbers."""
    workload = document["workload"]
    named = {name: value_at(document, name) for name in (*_NOT_SETTINGS, *more_fields)}
    phase = document["status"]["phase"] or "none"
    return Observation(
        side=side,
        file=file,
        id=document["id"],
        title=workload["title"],
        group=ComparisonGroup(workload["identity"], workload["task"], phase, document["data"]["source"]),
        fields=_settings(document) | named | _environment(document) | _of_ranks(document),
        numbers=numbers,
        unsteady=document["steadiness"]["steady"] is False,
        disturbed=is_disturbed(document),
        stalled=is_stalled(document),
        throttled=is_throttled(document),
        host=document["host"]["hostname"]["value"],
    )


def _environment(document: Document) -> dict[str, Any]:
    """Return what of the user's environment changes the speed of libraries, as fields; results of 1.0 do not have it.

    Which devices are visible is left out: the result has the device itself.
    """
    environment = document.get("environment", {})
    fields = {
        f"{ENVIRONMENT}{name}": value
        for name, value in environment.get("variables", {}).items()
        if not name.endswith("VISIBLE_DEVICES")
    }
    if preloaded := environment.get("preloaded"):
        fields[f"{ENVIRONMENT}preloaded"] = " ".join(preloaded)
    return fields


def _of_ranks(document: Document) -> dict[str, Any]:
    """Return on how many nodes the ranks of a result were, and their network, as fields; of one rank, nothing."""
    if not (ranks := document.get("ranks")):
        return {}
    return {NODES: len({rank.get("host") for rank in ranks}), NETWORK: value_at(document, NETWORK)}


def value_at(document: Document, path: str) -> Any:
    """Return the value at a dotted path as a scalar or JSON text, or None if the document has no such path."""
    return _hashable(_follow(document, _keys(path)))


def has_path(document: Document, path: str) -> bool:
    """Return whether the document has a dotted path, even with the value null."""
    *parents, last = _keys(path)
    parent = _follow(document, parents)
    return type(parent) is dict and last in parent


def metrics_of(document: Document) -> dict[str, Document]:
    """Return metrics by name, with phases as `phases.compile` and epochs as `epochs.1`, both in seconds.

    `epochs.1.throughput` is of an epoch alone: units per second.
    """
    spans = document["phases"].items()
    phases = {f"phases.{name}": {**span, "value": span["seconds"], "unit": "s"} for name, span in spans}
    epochs = {f"epochs.{epoch['index']}": {"value": epoch["seconds"], "unit": "s"} for epoch in document["epochs"]}
    unit = f"{document['workload']['unit']}/s"
    rates = {
        f"epochs.{epoch['index']}.throughput": {"value": epoch["units"] / epoch["seconds"], "unit": unit}
        for epoch in document["epochs"]
        if epoch["seconds"]
    }
    return _by_cache(document, {**document["metrics"], **phases, **epochs, **rates})


def _by_cache(document: Document, metrics: dict[str, Document]) -> dict[str, Document]:
    """Return metrics in which a time of compilation has another name if compiled code came from a cache.

    It is `phases.compile.warm` then, or `.mixed`, so that no mean has both.
    """
    cache = _follow(document, _keys(COMPILE_CACHE))
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


def metric_value(metric: Document) -> MetricValue:
    """Return a metric as a number that can be computed with."""
    value, unit = metric["value"], metric["unit"]
    if value and not SMALLEST <= abs(value) <= LARGEST:
        return MetricValue(None, unit, f"{value:.0e} is beyond any measurement")
    return MetricValue(value, unit, metric.get("reason"))


def _settings(document: Document) -> dict[str, Any]:
    """Return the settings that distinguish results, by dotted path."""
    configuration = document["configuration"]
    settings = {SETTING + key: _hashable(value) for key, value in configuration.items() if key not in IGNORED_SETTINGS}
    settings[PRECISION_KIND] = precision_kind(configuration) or MIXED
    settings[COMPILED] = settings[COMPILED] or False  # as results have it whose `compile` is no mode
    for name, default in NEWER_SETTINGS.items():
        if settings.get(name, default) == default:
            settings.pop(name, None)
    # Synthetic data without a path of evaluation data: the target is evaluated on the batch itself.
    on_batch = document["data"]["source"] == "synthetic" and not configuration["evaluation_path"]
    if document["target"] is not None and not on_batch:
        settings[EVALUATED] = _evaluation_data(document)
    return settings


def _evaluation_data(document: Document) -> str:
    """Return what the evaluations of a run with a target used, in words."""
    evaluations = document["target"]["evaluations"]
    samples = f"{evaluations[0]['samples']} samples" if evaluations else "no samples"
    return f"{samples} of {'other data' if document['configuration']['evaluation_path'] else 'the training data'}"


def _follow(document: Document, keys: Iterable[str]) -> Any:
    value: Any = document
    for key in keys:
        value = value.get(key) if type(value) is dict else None
    return value


@cache
def _keys(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _hashable(value: Any) -> Any:
    """Return a value that can be a key: scalars unchanged, others as JSON text."""
    return value if type(value) in _SCALARS else json.dumps(value, sort_keys=True)
