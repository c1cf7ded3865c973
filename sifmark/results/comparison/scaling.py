"""Scaling: how throughput follows the number of devices, by strategy, relative to the run on the fewest devices."""

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sifmark.results.comparison.intervals import Ratio, ratio
from sifmark.results.comparison.observation import ENVIRONMENT, NETWORK, NODES
from sifmark.results.comparison.repeats import RepeatGroup, Scaling, varying_fields

THROUGHPUT = "throughput"
STRONG, WEAK = "strong", "weak"
DEVICES = "accelerator.count"
REPLICAS = "accelerator.replicas"
BATCH = "configuration.batch_size"
STEPS = "configuration.steps"
STRATEGY = "configuration.strategy"
EPOCHS = "configuration.epochs"
STAGES = "configuration.stages"
TENSOR = "configuration.tensor"
THREADS = "configuration.threads"
EXECUTION = "accelerator.execution"
# How devices divide a batch, which is a choice: of several references, the one that divides it equally counts.
_DIVISION = {STAGES, TENSOR, "configuration.gradient_accumulation", "configuration.device_iterations"}
# These follow the number of devices, as do the steps of a run whose length is given in epochs.
_WITH_DEVICES = {
    *(DEVICES, REPLICAS, BATCH, STRATEGY, NODES, NETWORK),
    *("accelerator.ranks", "accelerator.granularity", "configuration.data_workers", "configuration.steps_per_epoch"),
    *_DIVISION,
}
# What only ranks have: the grid that they form, and what launchers and sites set for them. How many threads a run has,
# `configuration.threads` says.
_OF_RANKS = (
    "accelerator.mesh.",
    *(ENVIRONMENT + prefix for prefix in ("NCCL_", "RCCL_", "TORCH_NCCL_", "OMP_NUM_THREADS")),
)


def set_scaling(rows: Sequence[RepeatGroup]) -> None:
    """Give each row its scaling, strong and weak, relative to the row with the fewest devices.

    Strategies are kept apart. A run on one device has none, and is the reference of each.
    """
    for kind, members in _series(rows):
        for row in members:
            candidates = [each for each in members if _same_strategy(each, row)]
            fewest = min(each.fields[DEVICES] for each in candidates)
            if row.fields[DEVICES] > fewest:
                first = [each for each in candidates if each.fields[DEVICES] == fewest]
                row.scalings += _scalings(kind, row, _equally_divided(first, row))


def follows_devices(name: str) -> bool:
    """Return whether a field may differ between rows that differ in the number of devices."""
    return name in _WITH_DEVICES or name.startswith(_OF_RANKS)


def _series(rows: Sequence[RepeatGroup]) -> list[tuple[str, list[RepeatGroup]]]:
    """Return rows that differ in the number of devices and in what follows from it; strong series first."""
    series: dict[Any, list[RepeatGroup]] = defaultdict(list)
    for row in rows:
        devices, batch = row.fields.get(DEVICES), row.fields.get(BATCH)
        if isinstance(devices, int) and isinstance(batch, int):
            rest = frozenset(_of_each_device(item, row) for item in row.fields.items() if not _follows(item[0], row))
            series[STRONG, row.side, rest, batch].append(row)
            series[WEAK, row.side, rest, batch / row.fields[REPLICAS]].append(row)
    return sorted(((kind, members) for (kind, *_), members in series.items()), key=itemgetter(0))


def _follows(name: str, row: RepeatGroup) -> bool:
    if name == STEPS:
        return row.fields.get(EPOCHS) is not None
    # Ranks share the threads of a node. Those of a CPU are the device itself.
    return follows_devices(name) or (name == THREADS and row.fields["accelerator.kind"] != "cpu")


def _of_each_device(item: tuple[str, Any], row: RepeatGroup) -> tuple[str, Any]:
    """Return a field without what it says of several devices: `execution` names what computes a strategy."""
    name, value = item
    if name != EXECUTION or not isinstance(value, str):
        return item
    of_strategy = f"{row.fields.get(STRATEGY)} by "
    return name, "; ".join(part for part in value.split("; ") if not part.startswith(of_strategy))


def _same_strategy(candidate: RepeatGroup, row: RepeatGroup) -> bool:
    strategy = candidate.fields.get(STRATEGY)
    return strategy == row.fields.get(STRATEGY) or (strategy is None and candidate.fields[DEVICES] == 1)


def _equally_divided(rows: list[RepeatGroup], row: RepeatGroup) -> list[RepeatGroup]:
    """Return the rows that divide the batch as another does, or all if none does."""
    names = _DIVISION - {STAGES}
    return [each for each in rows if all(each.fields.get(name) == row.fields.get(name) for name in names)] or rows


def _scalings(kind: str, row: RepeatGroup, references: list[RepeatGroup]) -> list[Scaling]:
    first = references[0]
    if kind == WEAK and first.fields[BATCH] == row.fields[BATCH]:
        return []  # it is strong scaling: more devices share a replica
    if len(references) > 1:
        differing = ", ".join(varying_fields(references))
        unknown = Ratio(None, reason=f"several results have the fewest devices, and differ in {differing}")
        return [Scaling(kind, first, unknown, unknown)]
    speedup = ratio(row.values(THROUGHPUT), first.values(THROUGHPUT))
    return [Scaling(kind, first, speedup, speedup.over(row.fields[DEVICES] / first.fields[DEVICES]))]
