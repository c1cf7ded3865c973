"""The energy of runs and jobs: how much, in which time, and what of the machine it covers; or why it is unknown."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from typing import Any

UNKNOWN_SCOPE = "not said"
Document = dict[str, Any]


@dataclass(frozen=True)
class MeasuredEnergy:
    """Joules over some seconds, or None with the reason."""

    joules: float | None
    seconds: float | None
    covers: str  # such as `4 x board`, or `the nodes of the job`
    reason: str = ""

    @property
    def watts(self) -> float | None:
        """The mean power, which can be compared where times differ."""
        return None if self.joules is None or not self.seconds else self.joules / self.seconds


@dataclass(frozen=True)
class MeteredRun:
    """A run: when and where it was, and the energy of its timed window by the meter of its result."""

    file: str
    label: str
    started: float  # seconds since 1970
    finished: float
    hosts: frozenset[str]
    own: MeasuredEnergy

    def overlaps(self, other: "MeteredRun") -> bool:
        """Return whether another run was in progress at the same time."""
        return self.started < other.finished and other.started < self.finished


@dataclass(frozen=True)
class EnergyRow:
    """A run, or the runs of a job, with the energy of the whole by another source."""

    name: str
    runs: tuple[MeteredRun, ...]
    own: MeasuredEnergy
    whole: MeasuredEnergy

    @property
    def energy_ratio(self) -> float | None:
        """The energy of the whole over that of the timed windows: what else took energy, in time and in parts."""
        return _ratio(self.whole.joules, self.own.joules)

    @property
    def power_ratio(self) -> float | None:
        """The mean power of the whole over that in the timed windows: what else took energy at the same time."""
        return _ratio(self.whole.watts, self.own.watts)


def metered_run(file: str, document: Document) -> MeteredRun:
    """Return a valid result as a run with its energy."""
    workload, ranks = document["workload"], document.get("ranks") or ()
    hosts = {document["host"]["hostname"]["value"], *(rank.get("host") for rank in ranks)} - {None}
    started, finished = (datetime.fromisoformat(document[name]).timestamp() for name in ("started", "finished"))
    label = f"{workload['name']} {workload['task']}, batch {document['configuration']['batch_size']}"
    return MeteredRun(file, label, started, finished, frozenset(hosts), _own(document))


def total(runs: Iterable[MeteredRun]) -> MeasuredEnergy:
    """Return the energy of the timed windows of several runs; None if that of one is unknown.

    Runs side by side have no time in all: their mean power is not their energy over the sum of their windows.
    """
    parts = list(runs)
    covers = ", ".join(sorted({run.own.covers for run in parts})) or UNKNOWN_SCOPE
    if not parts:
        return MeasuredEnergy(None, None, covers, "no result of a run within the job")
    if bad := next((run for run in parts if run.own.joules is None), None):
        return MeasuredEnergy(None, None, covers, f"{bad.file}: {bad.own.reason}")
    joules = sum(run.own.joules or 0.0 for run in parts)
    side_by_side = any(first.overlaps(second) for first, second in combinations(parts, 2))
    return MeasuredEnergy(joules, None if side_by_side else sum(run.own.seconds or 0.0 for run in parts), covers)


def _own(document: Document) -> MeasuredEnergy:
    metric, power = document["metrics"].get("energy"), document["power"]
    devices = len(power.get("devices", ()))
    covers = f"{devices} x {power['scope']}" if "scope" in power else "nothing: no meter"
    if metric is None or metric["value"] is None:
        reason = power.get("reason") or (metric or {}).get("reason") or "the result has no energy"
        return MeasuredEnergy(None, None, covers, reason)
    return MeasuredEnergy(metric["value"], _window(document["phases"]), covers)


def _window(phases: Mapping[str, Any]) -> float | None:
    seconds: float | None = phases["steady"]["seconds"]
    return seconds


def _ratio(value: float | None, reference: float | None) -> float | None:
    return None if value is None or not reference else value / reference
