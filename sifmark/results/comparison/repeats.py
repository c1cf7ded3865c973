"""Repeats: results that differ in nothing that matters, as one row of a comparison."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sifmark.results.comparison.intervals import Mean, Ratio
from sifmark.results.comparison.observation import Observation


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

    def missing_reason(self, metric: str) -> str | None:
        """Return why a repeat has no value, or None if all have one."""
        numbers = (observation.numbers.get(metric) for observation in self.observations)
        return next((number.reason for number in numbers if number is not None and number.reason), None)

    @property
    def unsteady(self) -> list[str]:
        """The files of the repeats that were not steady."""
        return [observation.file for observation in self.observations if observation.unsteady]

    @property
    def hosts(self) -> set[str | None]:
        """The hosts of the repeats."""
        return {observation.host for observation in self.observations}

    @property
    def disturbed(self) -> list[str]:
        """The files of the repeats from which other work on the host kept processors."""
        return [observation.file for observation in self.observations if observation.disturbed]

    @property
    def stalled(self) -> list[str]:
        """The files of the repeats that something stopped for a time."""
        return [observation.file for observation in self.observations if observation.stalled]

    @property
    def throttled(self) -> list[str]:
        """The files of results whose devices heat or hardware slowed down."""
        return [observation.file for observation in self.observations if observation.throttled]


def varying_fields(rows: Sequence[RepeatGroup]) -> list[str]:
    """Return the fields in which rows differ, by name."""
    values: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        for name, value in row.fields.items():
            values[name].append(value)
    return sorted(name for name, column in values.items() if len(set(column)) > 1 or len(column) < len(rows))
