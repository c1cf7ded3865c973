"""Scaling loss per step, decomposed into data, compute, communication, slow ranks and uneven steps.

Each part is what a step takes more than it would if devices were added for nothing. Nothing is guessed: a part that
results do not show is None, with the reason and, where there is one, the run that would show it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sifmark.results.comparison.intervals import mean
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.comparison.scaling import BATCH, DEVICES, REPLICAS, STRATEGY, WEAK
from sifmark.results.documents import MetricValue, measured_metrics, metric_value

DATA, COMPUTE, COMMUNICATION, SLOW_RANKS, UNEVEN = PARTS = (
    "data",
    "compute",
    "communication",
    "slow ranks",
    "uneven steps",
)
CAUSES = {
    DATA: "waiting for data",
    COMPUTE: "devices compute less efficiently with their smaller part of the batch",
    COMMUNICATION: "communication that computing does not hide, and waiting for other ranks",
    SLOW_RANKS: "ranks that are slower than the others",
    UNEVEN: "steps that take longer than most: the mean lies above the median",
}
STEP, MEDIAN, WAIT, SLOWEST = "step_time_mean", "step_time_p50", "data_wait_time", "slow_rank_time"
ALL_REDUCE = "gradient_all_reduce"
# Further measures of how busy devices and network are, shown beside the parts.
BANDWIDTH, POWER, USE, SPREAD = EVIDENCE = ("bus_bandwidth", "power_per_device", "utilisation", "rank_spread")
GRADIENT_BYTES = 4  # of a weight: they stay fp32, in half precision too
GIGA = 1e9
_NO_RANKS = "one process computed"
_SYNCHRONOUS = "ranks that train wait for each other in each step, so that their windows are equally long"
Document = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Seconds of a step, or None with the reason."""

    seconds: float | None
    reason: str = ""


@dataclass(frozen=True)
class StepTime:
    """The mean step of a point of a curve, in seconds: what it would take at best, and what the rest is."""

    seconds: float | None
    ideal: float | None
    parts: Mapping[str, Part]
    all_reduce: Part  # of all gradients, if nothing of it were hidden
    evidence: Mapping[str, MetricValue]

    @property
    def lost(self) -> float | None:
        """The time above the ideal, in seconds."""
        return None if self.seconds is None or self.ideal is None else self.seconds - self.ideal

    @property
    def cause(self) -> str:
        """The largest part of the lost time that is known, in words; empty if nothing is lost."""
        if self.lost is None or self.lost <= 0:
            return ""
        values = {name: part.seconds for name, part in self.parts.items() if part.seconds is not None}
        largest = max(values, key=lambda name: values[name], default="")
        rest = self.lost - sum(values.values())
        unknown = [
            name for name, part in self.parts.items() if part.seconds is None and name in (COMPUTE, COMMUNICATION)
        ]
        if unknown and rest > values.get(largest, 0.0):
            return f"{_share(rest, self.lost)} {' or '.join(unknown)}, which these results do not tell apart"
        return f"{_share(values[largest], self.lost)} {CAUSES[largest]}" if largest and values[largest] > 0 else ""


def measure(document: Document) -> dict[str, MetricValue]:
    """Return the numbers of a result that explain its step time, by name."""
    metrics = measured_metrics(document)
    numbers = {name: metric_value(metrics[name]) for name in (STEP, MEDIAN, USE, SPREAD) if name in metrics}
    numbers[WAIT] = _product(metrics, "data_wait_fraction", STEP)
    numbers[SLOWEST] = _slow_rank_time(document)
    numbers[ALL_REDUCE] = _gradient_all_reduce(document)
    numbers[BANDWIDTH] = _bandwidth(document)
    numbers[POWER] = _power_per_device(document)
    return numbers


def explain(row: RepeatGroup, reference: RepeatGroup) -> StepTime:
    """Return where the time of a step goes, relative to the row with the fewest devices."""
    step, first = _value(row, STEP).seconds, _value(reference, STEP).seconds
    work = row.fields[BATCH] / reference.fields[BATCH] * reference.fields[DEVICES] / row.fields[DEVICES]
    ideal = None if first is None else first * work
    parts = {
        DATA: _more(row, reference, work, WAIT),
        COMPUTE: _compute(row, reference, work),
        SLOW_RANKS: _slow_ranks(row),
        UNEVEN: _uneven(row, reference, work),
    }
    parts[COMMUNICATION] = _rest(None if step is None or ideal is None else step - ideal, parts)
    evidence = {name: _evidence(row, name) for name in EVIDENCE}
    return StepTime(step, ideal, {name: parts[name] for name in PARTS}, _value(row, ALL_REDUCE), evidence)


def _rest(lost: float | None, parts: Mapping[str, Part]) -> Part:
    """Return what is left of the lost time: communication, if all that it could be confused with is known."""
    if lost is None:
        return Part(None, "the step time is not known")
    for name in (COMPUTE, DATA):
        if parts[name].seconds is None:
            return Part(None, f"it is unknown, since {name} is")
    return Part(lost - sum(part.seconds or 0.0 for part in parts.values()))


def _compute(row: RepeatGroup, reference: RepeatGroup, work: float) -> Part:
    """Return how much longer the fewest devices compute a batch as small as each device has it here."""
    per_replica = row.fields[BATCH] / row.fields[REPLICAS]
    if reference.fields[BATCH] / reference.fields[REPLICAS] == per_replica:
        return Part(0.0)
    local = next((each.reference for each in row.scalings if each.kind == WEAK), None)
    if local is None or local.fields[DEVICES] != reference.fields[DEVICES]:
        devices = reference.fields[DEVICES]
        batch = per_replica * reference.fields[REPLICAS]
        return Part(None, f"it takes a result on {devices} device{'s' * (devices > 1)} with batch {batch:g}")
    own, first = (_without_waits(each) for each in (local, reference))
    if own is None or first is None:
        return Part(None, "a result has no step time, or no wait for data")
    return Part(own - first * work)


def _without_waits(row: RepeatGroup) -> float | None:
    """Return the median step without its wait for data."""
    step, wait = _value(row, MEDIAN).seconds, _value(row, WAIT).seconds
    return None if step is None or wait is None else step - wait


def _uneven(row: RepeatGroup, reference: RepeatGroup, work: float) -> Part:
    own, first = map(_above_the_median, (row, reference))
    if own is None or first is None:
        return Part(None, "a result has no median of its steps")
    return Part(own - first * work)


def _above_the_median(row: RepeatGroup) -> float | None:
    step, median = _value(row, STEP).seconds, _value(row, MEDIAN).seconds
    return None if step is None or median is None else step - median


def _slow_ranks(row: RepeatGroup) -> Part:
    if row.fields.get(STRATEGY) is not None:
        return Part(None, _SYNCHRONOUS)
    return _value(row, SLOWEST)


def _more(row: RepeatGroup, reference: RepeatGroup, work: float, name: str) -> Part:
    own, first = _value(row, name), _value(reference, name)
    if own.seconds is None or first.seconds is None:
        return own if own.seconds is None else first
    return Part(own.seconds - first.seconds * work)


def _value(row: RepeatGroup, name: str) -> Part:
    """Return the arithmetic mean over repeats, since parts of a time add up."""
    values = row.values(name)
    return Part(fmean(values)) if values else Part(None, row.missing_reason(name) or "the result does not have it")


def _evidence(row: RepeatGroup, name: str) -> MetricValue:
    unit = next((each.numbers[name].unit for each in row.observations if name in each.numbers), "1")
    average = mean(row.values(name), row.missing_reason(name))
    return MetricValue(average.value, unit, average.reason if average.value is None else None)


def _product(metrics: Document, fraction: str, of: str) -> MetricValue:
    parts = [metrics.get(name, {"value": None, "reason": "the result does not have it"}) for name in (fraction, of)]
    reason = next((part["reason"] for part in parts if part["value"] is None), None)
    return MetricValue(None if reason else parts[0]["value"] * parts[1]["value"], "s", reason)


def _slow_rank_time(document: Document) -> MetricValue:
    """Return how much longer a step takes on the slowest rank than in the mean over ranks."""
    if not (ranks := document.get("ranks")):
        return MetricValue(0.0, "s", None)  # nothing waits for a single process
    windows = list(_windows(ranks))
    if len(windows) < len(ranks):
        return MetricValue(None, "s", "a rank has no window")
    return MetricValue((max(windows) - fmean(windows)) / ranks[0]["steps"], "s", None)


def _windows(ranks: list[Document]) -> Iterator[float]:
    for rank in ranks:
        value = rank.get("window", {}).get("value")
        if value is not None and rank.get("steps"):
            yield value


def _gradient_all_reduce(document: Document) -> MetricValue:
    """Return how long all gradients take at the bandwidth that was measured before the run."""
    ranks, given = document["accelerator"].get("ranks", 1), document["configuration"]
    strategy = given["strategy"]
    if strategy != "ddp" or given["stages"] > 1:
        return MetricValue(None, "s", f"traffic of {strategy} is not computed" if strategy else _NO_RANKS)
    bandwidth = _bandwidth(document)
    if not bandwidth.value:
        return MetricValue(None, "s", bandwidth.reason or "the bandwidth is 0")
    size = document["workload"]["parameters"] * GRADIENT_BYTES * 2 * (ranks - 1) / ranks
    return MetricValue(size / (bandwidth.value * GIGA), "s", None)


def _bandwidth(document: Document) -> MetricValue:
    transport = document.get("transport")
    if not transport or "all_reduce" not in transport:
        return MetricValue(None, "GB/s", "no sum over ranks was timed" if document.get("ranks") else _NO_RANKS)
    return metric_value(transport["all_reduce"]["bus_bandwidth"])


def _power_per_device(document: Document) -> MetricValue:
    power, devices = document["metrics"].get("power_mean"), document["power"].get("devices", ())
    if power is None or power["value"] is None or not devices:
        return MetricValue(None, "W", (power or {}).get("reason") or document["power"].get("reason") or "no meter")
    return MetricValue(power["value"] / len(devices), "W", None)


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%} of the lost time:"
