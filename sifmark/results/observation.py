"""What a comparison needs of a result: its group, its fields and its numbers."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

# Of the configuration, what is no choice of experiment: what the group tells, what had to happen around the run, when
# it had to end, which repeat it was; and what others imply.
ASIDE = {
    "data",
    "data_path",
    "evaluation_path",
    "idle_seconds",
    "memory_limit_mib",
    "meter_period_seconds",
    "micro_batch_size",
    "probe_numerics",
    "repeat",
    "replicas",
    "seed",
    "time_limit_seconds",
}
# What tells where it ran, defaults that a machine sets included: a baseline may differ in it.
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
# What a target was held against: the same data may lie at another path, so that their number stands for them.
EVALUATED = f"{SETTING}evaluated"
# A number outside is no measurement, and its square might be no number.
LEAST, MOST = 1e-100, 1e100

_BESIDE_SETTINGS = tuple(name for name in PLATFORM if not name.startswith(SETTING))
_SCALARS = {str, int, float, bool, type(None)}

Document = dict[str, Any]


class ComparisonGroup(NamedTuple):
    """Results in one group answer one question. The phase, where a run ended, is `steady` for all that completed."""

    identity: str
    task: str
    phase: str
    source: str


class MetricValue(NamedTuple):
    """A metric of one result; null with the reason."""

    value: float | None
    unit: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Observation:
    """One result. `fields` are all that tells it from a repeat of itself, by dotted path."""

    side: str
    file: str
    id: str
    title: str
    group: ComparisonGroup
    fields: dict[str, Any]
    numbers: dict[str, MetricValue]
    unsteady: bool = False  # shown to be; where it cannot be told it is not


def observe(
    document: Document, side: str, file: str, more_fields: Iterable[str], numbers: dict[str, MetricValue]
) -> Observation:
    """The observation that a valid result is, with those of its numbers that are asked for."""
    workload = document["workload"]
    named = {name: value_at(document, name) for name in (*_BESIDE_SETTINGS, *more_fields)}
    chosen = {SETTING + key: _plain(value) for key, value in document["configuration"].items() if key not in ASIDE}
    own = document["data"]["source"] == "synthetic" and not document["configuration"]["evaluation_path"]
    if document["target"] is not None and not own:  # what is synthetic is judged by the batch itself
        chosen[EVALUATED] = _evaluated(document)
    phase = document["status"]["phase"] or "none"
    return Observation(
        side=side,
        file=file,
        id=document["id"],
        title=workload["title"],
        group=ComparisonGroup(workload["identity"], workload["task"], phase, document["data"]["source"]),
        fields=chosen | named,
        numbers=numbers,
        unsteady=document["steadiness"]["steady"] is False,
    )


def value_at(document: Document, path: str) -> Any:
    """What stands at a dotted path; None where the document does not go there."""
    return _plain(_reached(document, _keys(path)))


def has_path(document: Document, path: str) -> bool:
    """Whether a dotted path leads anywhere, to null too."""
    *folders, last = _keys(path)
    found = _reached(document, folders)
    return type(found) is dict and last in found


def metrics_of(document: Document) -> dict[str, Document]:
    """Metrics by name, phases as `phases.compile` and epochs as `epochs.1`, both in seconds."""
    spans = document["phases"].items()
    phases = {f"phases.{name}": {**span, "value": span["seconds"], "unit": "s"} for name, span in spans}
    epochs = {f"epochs.{epoch['index']}": {"value": epoch["seconds"], "unit": "s"} for epoch in document["epochs"]}
    return {**document["metrics"], **phases, **epochs}


def metric_value(metric: Document) -> MetricValue:
    """A metric as a number that can be reckoned with."""
    value, unit = metric["value"], metric["unit"]
    if value and not LEAST <= abs(value) <= MOST:
        return MetricValue(None, unit, f"{value:.0e} is beyond any measurement")
    return MetricValue(value, unit, metric.get("reason"))


def _evaluated(document: Document) -> str:
    """What the evaluations of a run with a target were over."""
    found = document["target"]["evaluations"]
    samples = f"{found[0]['samples']} samples" if found else "no samples"
    return f"{samples} of {'other data' if document['configuration']['evaluation_path'] else 'the training data'}"


def _reached(document: Document, keys: Iterable[str]) -> Any:
    value: Any = document
    for key in keys:
        value = value.get(key) if type(value) is dict else None
    return value


@cache
def _keys(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _plain(value: Any) -> Any:
    """A value that may be a key."""
    return value if type(value) in _SCALARS else json.dumps(value, sort_keys=True)
