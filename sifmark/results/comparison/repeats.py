"""Repeats: results that differ in nothing that matters, as one row of a comparison."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sifmark.results.comparison.intervals import Mean, Ratio
from sifmark.results.comparison.observation import Observation, Session
from sifmark.results.marks import Mark


@dataclass(frozen=True)
class Scaling:
    """Throughput, and throughput per device, relative to the row with the fewest devices."""

    kind: str  # strong: the batch stays the same; weak: the batch per replica does
    reference: "RepeatGroup"
    speedup: Ratio
    efficiency: Ratio


@dataclass
class RepeatGroup:
    """A row of a comparison: repeats, with their means and their ratios to a baseline."""

    side: str
    fields: dict[str, Any]
    observations: list[Observation]
    means: dict[str, Mean] = field(default_factory=dict)
    ratios: dict[str, Ratio] = field(default_factory=dict)
    baseline: "RepeatGroup | None" = None
    no_baseline: str | None = None  # the reason, if ratios were asked for
    scalings: list[Scaling] = field(default_factory=list)  # at most a strong one, then a weak one

    def values(self, metric: str) -> list[float]:
        """Return what the repeats measured."""
        numbers = (observation.numbers.get(metric) for observation in self.observations)
        return [number.value for number in numbers if number is not None and number.value is not None]

    def by_session(self, metric: str) -> dict[Session, list[tuple[str, float]]]:
        """Return by session what the repeats measured, each with the time when it started."""
        sessions: dict[Session, list[tuple[str, float]]] = defaultdict(list)
        for each in self.observations:
            number = each.numbers.get(metric)
            if number is not None and number.value is not None:
                sessions[each.session].append((each.started, number.value))
        return sessions

    def missing_reason(self, metric: str) -> str | None:
        """Return why a repeat has no value, or None if all have one."""
        numbers = (observation.numbers.get(metric) for observation in self.observations)
        return next((number.reason for number in numbers if number is not None and number.reason), None)

    def marked(self, mark: Mark) -> list[str]:
        """Return the files of the repeats that have a mark."""
        return [observation.file for observation in self.observations if mark.code in observation.marks]

    @property
    def hosts(self) -> set[str | None]:
        """The hosts of the repeats."""
        return {observation.host for observation in self.observations}


def varying_fields(rows: Sequence[RepeatGroup]) -> list[str]:
    """Return the fields in which rows differ, by name."""
    values: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        for name, value in row.fields.items():
            values[name].append(value)
    return sorted(name for name, column in values.items() if len(set(column)) > 1 or len(column) < len(rows))
