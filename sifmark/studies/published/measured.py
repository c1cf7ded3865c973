"""The results of a user as groups of repeats, under the names of conditions that published figures have."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sifmark.results.comparison.collection import load_observations
from sifmark.results.comparison.compare import repeat_groups
from sifmark.results.comparison.compatibility import EXCLUSIONS, FIELDS, SCOPE, Excluded, exclusion_fields
from sifmark.results.comparison.observation import NODES, ComparisonGroup, Observation, observe
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.documents import Document, metric_value, metrics_of
from sifmark.studies.published.figures import OUT_OF_MEMORY, Device
from sifmark.studies.study import Scalar

STATE, COMPLETED = "status.state", "completed"
WORKLOAD, NAME, COUNT = "workload.name", "accelerator.name", "accelerator.count"
GRANULARITY, SIMULATED, SAMPLES = "granularity", "simulated", "samples_per_epoch"
DATA_SAMPLES = "data.samples"  # of data that have an end, an epoch unless the user chose a shorter one
# Fields of results by the name of a condition.
FIELD_OF = {
    "workload": WORKLOAD,
    "devices": COUNT,
    "nodes": NODES,
    "precision": "configuration.precision",
    "compile": "configuration.compile",
    "batch_size": "configuration.batch_size",
    "micro_batch_size": "configuration.micro_batch_size",
    "replicas": "configuration.replicas",
    "instances": "configuration.instances",
    "stages": "configuration.stages",
    "strategy": "configuration.strategy",
    "concurrency": "configuration.concurrency",
    "epochs": "configuration.epochs",
    SAMPLES: f"configuration.{SAMPLES}",
    "framework": "configuration.framework",
    "framework_version": "provenance.software.framework_version",
    "power_scope": SCOPE,
    GRANULARITY: "accelerator.granularity",
    SIMULATED: "provenance.simulated",
}
_DEFAULTS: Mapping[str, Scalar] = {"instances": 1, "nodes": 1, SIMULATED: False}  # of results that lack the field
_SHARE, _NODE = "share", "node"


@dataclass(frozen=True)
class MeasuredGroup:
    """Repeats of one configuration that all completed, or that all ran out of memory."""

    row: RepeatGroup
    state: str
    conditions: Mapping[str, Scalar | None]  # None where the result does not say
    devices: tuple[str, ...]  # of the published study: those that the device may be


@dataclass(frozen=True)
class MeasuredResults:
    """The groups, and what was left out."""

    groups: tuple[MeasuredGroup, ...]
    excluded: tuple[Excluded, ...]
    invalid: tuple[str, ...]
    unsigned: tuple[str, ...]
    duplicates: int


def load_measured(
    paths: Iterable[str],
    metrics: Collection[str],
    devices: Mapping[str, Device],
    allowed: frozenset[str],
    trusted_keys: Sequence[str] | None = None,
) -> MeasuredResults:
    """Return the results at some paths as groups. Raises UsageError for a path without results."""
    query = Query(metrics=tuple(metrics), more_fields=(*FIELD_OF.values(), DATA_SAMPLES), allowed=allowed)
    collection = load_observations(paths, query, trusted_keys=trusted_keys)
    members: dict[tuple[str, ComparisonGroup], list[Observation]] = defaultdict(list)
    excluded = []
    for observation in collection.observations:
        reasons = tuple(name for name in exclusion_fields(observation) if name not in allowed)
        state = OUT_OF_MEMORY if observation.fields.get(STATE) == OUT_OF_MEMORY else COMPLETED
        if set(reasons) - ({STATE} if state == OUT_OF_MEMORY else set()):
            excluded.append(Excluded(observation, reasons))
        else:
            members[state, observation.group].append(observation)
    groups = [
        measured_group(row, state, devices)
        for (state, _), observations in members.items()
        for row in repeat_groups(observations, query)
    ]
    invalid, unsigned = tuple(collection.invalid), tuple(collection.unsigned)
    return MeasuredResults(tuple(groups), tuple(excluded), invalid, unsigned, collection.duplicates)


def exclusion_names() -> tuple[str, ...]:
    """Return the fields that exclude results, which a user may allow."""
    return tuple(EXCLUSIONS)


def observe_repeats(documents: Sequence[Document]) -> RepeatGroup:
    """Return valid results of one configuration, whatever excludes them, with all of their metrics."""
    names = (*FIELDS, *FIELD_OF.values(), DATA_SAMPLES)
    observations = [
        observe(each, "", "", names, {name: metric_value(metric) for name, metric in metrics_of(each).items()})
        for each in documents
    ]
    return RepeatGroup("", observations[0].fields, observations)


def measured_group(row: RepeatGroup, state: str, devices: Mapping[str, Device]) -> MeasuredGroup:
    """Return repeats under the names of conditions, and which of the devices of a study theirs may be."""
    group, fields = row.observations[0].group, row.fields
    values: dict[str, Scalar | None] = {name: fields.get(path) for name, path in FIELD_OF.items()}
    for name, default in _DEFAULTS.items():
        values[name] = default if values[name] is None else values[name]
    if values[GRANULARITY] == _SHARE:
        values[GRANULARITY] = _NODE  # cores of a node
    batch, replicas = values["batch_size"], values["replicas"]
    if isinstance(batch, int) and isinstance(replicas, int):
        values["batch_size_per_replica"] = batch // replicas
    values["task"] = group.task
    values["data"] = "synthetic" if group.source == "synthetic" else "real"
    if values[SAMPLES] is None and values["data"] == "real":
        values[SAMPLES] = fields.get(DATA_SAMPLES)
    accelerator: str | None = fields.get(NAME)
    values["device"] = accelerator
    return MeasuredGroup(row, state, values, devices_like(accelerator, values[GRANULARITY], devices))


def devices_like(name: str | None, granularity: Scalar | None, devices: Mapping[str, Device]) -> tuple[str, ...]:
    """Return the devices of a study that an accelerator may be: by name, and by what counts as one."""
    alike = [each for each in devices.values() if name and re.search(each.pattern, name, re.IGNORECASE)]
    same = [each.name for each in alike if each.granularity == granularity]
    return tuple(same or [each.name for each in alike])
