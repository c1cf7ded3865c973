"""Which results are the counterpart of a published figure, and in what they differ from it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sifmark.results.catalogue import Direction, direction_of, metric_of
from sifmark.results.comparison.intervals import mean
from sifmark.studies.published.figures import Device, Figure, Reference
from sifmark.studies.published.measured import FIELD_OF, GRANULARITY, SAMPLES, SIMULATED, MeasuredGroup
from sifmark.studies.study import Scalar

# Conditions that may differ from a figure's: a difference is only marked. All others must not, unless the user allows
# it. No document prints how it compiled; the two sides of a ratio are compiled in the same way.
MARKED = frozenset(("device", "framework", "framework_version", "data", "instances", "epochs", "compile"))
IDENTITY = ("workload", "task")
NOT_COMPARABLE, POWER_SCOPE = "not_comparable", "power_scope"
_OF_EPOCHS = ("epoch", "energy_per_epoch", "training_time")  # beginnings of metrics that grow with an epoch's samples
_EPOCHS = ("epochs", SAMPLES)  # which other metrics do not depend on
_POWER_UNITS = frozenset(("J", "W", "Wh"))  # of a figure, or of a part of it: images/Wh, J/image
BATCHES = ("batch_size", "batch_size_per_replica", "micro_batch_size")
# What a device may choose for its best, alone and between the two sides of a ratio.
_CHOSEN = frozenset((*BATCHES, "replicas", "stages", "strategy"))
# What a ratio's two sides may also differ in if they differ in the first.
_FOLLOWS: Mapping[str, frozenset[str]] = {
    "device": frozenset((GRANULARITY, "framework_version", POWER_SCOPE)),
    "devices": frozenset(("replicas", "nodes", "batch_size", "strategy", "instances")),
    "batch_size": frozenset(("batch_size_per_replica", "micro_batch_size")),
    "batch_size_per_replica": frozenset(("batch_size", "micro_batch_size")),
    "strategy": frozenset(("stages", "replicas", "micro_batch_size", "batch_size_per_replica")),
}
SITE = "site"
Key = tuple[tuple[str, Scalar | None], ...]


@dataclass(frozen=True, slots=True)
class ConditionDifference:
    """A condition in which a result is not what was published. Without `published`, the document does not print it."""

    name: str
    published: tuple[Scalar, ...]
    measured: Scalar | None

    @property
    def text(self) -> str:
        """The difference in words: `precision fp32 (fp16 or bf16)`."""
        printed = " or ".join(map(str, self.published)) or "not printed"
        return f"{self.name} {'none' if self.measured is None else self.measured} ({printed})"


def allowable_names() -> tuple[str, ...]:
    """Return the conditions whose difference is refused unless a user allows it."""
    return tuple(sorted({*FIELD_OF, "batch_size_per_replica", NOT_COMPARABLE} - MARKED - {"workload"}))


def is_candidate(figure: Figure, group: MeasuredGroup) -> bool:
    """Return whether a group is of the same workload and task as a figure."""
    return all(group.conditions[name] in figure.conditions.get(name, ()) for name in IDENTITY)


def differences(figure: Figure, group: MeasuredGroup, devices: Mapping[str, Device]) -> list[ConditionDifference]:
    """Return in what a group differs from the conditions of a figure."""
    skipped = IDENTITY if _grows_with_epochs(figure) else (*IDENTITY, *_EPOCHS)
    skipped = skipped if _is_of_energy(figure) else (*skipped, POWER_SCOPE)
    wanted = {name: values for name, values in figure.conditions.items() if name not in skipped}
    different = [each for name, values in wanted.items() if (each := _difference(name, values, group))]
    names = {devices[str(name)].granularity for name in figure.conditions.get("device", ())}
    if names and group.conditions[GRANULARITY] not in {*names, None}:
        different.append(ConditionDifference(GRANULARITY, tuple(sorted(names)), group.conditions[GRANULARITY]))
    if group.conditions[SIMULATED]:
        different.append(ConditionDifference(SIMULATED, (False,), True))
    if _grows_with_epochs(figure) and figure.reference is None and SAMPLES not in wanted:
        different.append(ConditionDifference(SAMPLES, (), group.conditions[SAMPLES]))
    return different


def not_printed(figure: Figure, group: MeasuredGroup) -> list[ConditionDifference]:
    """Return what matters and is not printed: precision, and the batch size in any of its forms."""
    missing = [] if "precision" in figure.conditions else ["precision"]
    if not any(name in figure.conditions for name in BATCHES):
        missing.append("batch_size")
    return [ConditionDifference(name, (), group.conditions[name]) for name in missing]


def decides(name: str, figure: Figure) -> bool:
    """Return whether a difference in a condition must be allowed by the user."""
    if name == POWER_SCOPE:
        return _is_of_energy(figure)
    return name not in MARKED or _compares_devices(figure, name)


def denominators(reference: Reference, above: MeasuredGroup, groups: Iterable[MeasuredGroup]) -> list[MeasuredGroup]:
    """Return the groups that a ratio's numerator is to be divided by: like it in all that is not said to differ."""
    overridden = set(reference.conditions) | ({"batch_size_per_replica"} if reference.batch_times else set())
    overridden |= _CHOSEN if reference.best else set()
    free = overridden.union(*(_FOLLOWS.get(name, frozenset()) for name in overridden))
    if "devices" in free and "batch_size" in free:
        free -= {"batch_size_per_replica"} - overridden
    return [group for group in groups if _is_denominator(reference, above, group, free)]


def best_of(metric: str | None, groups: Sequence[MeasuredGroup]) -> list[MeasuredGroup]:
    """Return of groups that differ in their batch, or in what it may follow, the best in a metric; all without one."""
    if metric is None:
        return list(groups)
    sign = -1 if direction_of(metric) is Direction.LOWER else 1
    alike: dict[Key, list[MeasuredGroup]] = defaultdict(list)
    for group in groups:
        if mean(group.row.values(metric)).value is not None:
            alike[_apart_from_choice(group)].append(group)
    return [max(each, key=lambda group: sign * (mean(group.row.values(metric)).value or 0)) for each in alike.values()]


def is_within(metric: str | None, above: MeasuredGroup, below: MeasuredGroup) -> bool:
    """Return whether a numerator is not worse in a metric than its denominator."""
    if metric is None:
        return True
    own, other = (mean(group.row.values(metric)).value for group in (above, below))
    if own is None or other is None:
        return False
    return own <= other if direction_of(metric) is Direction.LOWER else own >= other


def _apart_from_choice(group: MeasuredGroup) -> Key:
    """Return what results must have in common for one of them to be the best: also their site."""
    kept = ((name, value) for name, value in group.conditions.items() if name not in {*_CHOSEN, "concurrency"})
    return (*kept, (SITE, group.row.fields.get(SITE)))


def _is_denominator(reference: Reference, above: MeasuredGroup, below: MeasuredGroup, free: set[str]) -> bool:
    if below is above or below.state != above.state:
        return False
    if any(_difference(name, values, below) for name, values in reference.conditions.items()):
        return False
    if reference.batch_times is not None and not _scaled(above, below, reference.batch_times):
        return False
    return all(above.conditions[name] == below.conditions.get(name) for name in above.conditions if name not in free)


def _scaled(above: MeasuredGroup, below: MeasuredGroup, times: float) -> bool:
    batches = [group.conditions.get("batch_size_per_replica") for group in (above, below)]
    return all(isinstance(batch, int) for batch in batches) and batches[1] == float(batches[0] or 0) * times


def _difference(name: str, published: tuple[Scalar, ...], group: MeasuredGroup) -> ConditionDifference | None:
    """Return how a condition of a group differs, or None if it does not."""
    measured = group.conditions.get(name)
    equal = measured in published
    if name == "device":
        equal = bool(set(group.devices) & set(published))
    elif name == "framework_version" and measured is not None:
        equal = any(f"{measured}.".startswith((f"{each}.", f"{each}+")) for each in published)
    elif name == "strategy" and measured is None:
        equal = group.conditions["devices"] == 1 and "ddp" in published  # alone, a device needs none
    elif name == "devices" and measured is None:
        equal = True  # a run that ended before it opened its devices
    return None if equal else ConditionDifference(name, published, measured)


def _grows_with_epochs(figure: Figure) -> bool:
    """Return whether a figure would be larger if an epoch had more samples."""
    metric = "" if figure.state else figure.metric or ""
    return metric.startswith(_OF_EPOCHS) and not metric.endswith("throughput")


def _is_of_energy(figure: Figure) -> bool:
    """Return whether what a meter covers decides about a figure, which may be a ratio of energies."""
    metric = metric_of(figure.metric) if figure.metric else None
    units = (figure.unit, metric.unit if metric else "")
    return any(not _POWER_UNITS.isdisjoint(unit.split("/")) for unit in units)


def _compares_devices(figure: Figure, name: str) -> bool:
    """Return whether a figure is a ratio of two devices, to which others say nothing."""
    return figure.reference is not None and name in figure.reference.conditions
