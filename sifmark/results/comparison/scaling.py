"""Scaling: how throughput follows the number of devices."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sifmark.results.comparison.intervals import ratio
from sifmark.results.comparison.repeats import RepeatGroup, Scaling

THROUGHPUT = "throughput"
DEVICES = "accelerator.count"
BATCH = "configuration.batch_size"
STEPS = "configuration.steps"
EPOCHS = "configuration.epochs"
# These follow the number of devices, as do the steps of a run whose length is given in epochs.
_WITH_DEVICES = {DEVICES, BATCH, "accelerator.ranks", "accelerator.replicas", "configuration.steps_per_epoch"}


def set_scaling(rows: Sequence[RepeatGroup]) -> None:
    """Give rows their efficiency within each series that differs only in the number of devices."""
    for kind, members in _series(rows):
        counts = [row.fields[DEVICES] for row in members]
        if len(counts) > 1 and len(set(counts)) == len(counts):
            first = min(members, key=lambda row: row.fields[DEVICES])
            for row in members:
                if row is not first:
                    row.scaling = _scaling(kind, row, first)


def _series(rows: Sequence[RepeatGroup]) -> list[tuple[str, list[RepeatGroup]]]:
    """Return rows that differ in the number of devices and in what follows from it, by the kind of scaling."""
    series: dict[Any, list[RepeatGroup]] = defaultdict(list)
    for row in rows:
        devices, batch = row.fields.get(DEVICES), row.fields.get(BATCH)
        if isinstance(devices, int) and isinstance(batch, int):
            follows = _WITH_DEVICES | ({STEPS} if row.fields.get(EPOCHS) is not None else set())
            rest = frozenset(item for item in row.fields.items() if item[0] not in follows)
            series["strong", row.side, rest, batch].append(row)
            series["weak", row.side, rest, batch / devices].append(row)
    return [(kind, members) for (kind, *_), members in series.items()]


def _scaling(kind: str, row: RepeatGroup, first: RepeatGroup) -> Scaling:
    speedup = ratio(row.values(THROUGHPUT), first.values(THROUGHPUT))
    return Scaling(kind, first.fields[DEVICES], speedup.over(row.fields[DEVICES] / first.fields[DEVICES]))
