"""Which results cannot be compared, and the field that shows it."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.results.catalogue import column_of, fields
from sifmark.results.comparison.observation import NETWORK, ComparisonGroup, Observation

NUMERICS = "numerics.state"
SCOPE = "power.scope"
_RULES = {each.path: each.compare for each in fields() if each.compare}
# A result with such a value is no measurement of its workload, whatever it is compared with.
EXCLUSIONS = {path: rule for path, rule in _RULES.items() if not rule.same}
# Results with different values here measure different things.
MUST_MATCH = {path: rule for path, rule in _RULES.items() if rule.same and path not in (SCOPE, NETWORK)}
FIELDS = (*EXCLUSIONS, *MUST_MATCH, SCOPE)
DECISIVE = (*FIELDS, NETWORK)  # all that a user may allow to differ, besides units
_SHARED = "within the host"  # of ranks on one node, where scaling begins: it may be compared with each network
_POWER_UNITS = {"J", "W", "Wh"}


@dataclass(frozen=True)
class Excluded:
    """A result that is left out, and the fields that are the reason."""

    result: Observation
    fields: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Why, in words: `status.state out_of_memory: a run that did not complete ...`."""
        values = self.result.fields
        return "; ".join(
            f"{column_of(name)} {format_value(values[name])}: {EXCLUSIONS[name].why}" for name in self.fields
        )


@dataclass(frozen=True)
class Incompatibility:
    """A field that keeps the results of a group from being compared, unless the user allows it."""

    group: ComparisonGroup
    field: str
    why: str
    counts: dict[str, int]  # results by value
    examples: dict[str, str]  # a file by value, that of the odd one first

    @property
    def difference(self) -> str:
        """What differs, and why that counts: `power.scope differs (board: 3, package: 2): ...`."""
        counts = ", ".join(f"{value}: {count}" for value, count in self.counts.items())
        return f"{column_of(self.field)} differs ({counts}): {self.why}"

    @property
    def example(self) -> str:
        """The file that shows it best: with a value that excludes it, or with the rarest."""
        return next(iter(self.examples.values()))


def exclusion_fields(observation: Observation) -> tuple[str, ...]:
    """Return the fields that make a result no measurement of its workload."""
    return tuple(field for field, rule in EXCLUSIONS.items() if rule.excludes(observation.fields.get(field)))


def incompatibilities(
    group: ComparisonGroup, observations: Sequence[Observation], metrics: Collection[str]
) -> Iterator[Incompatibility]:
    """Yield everything that keeps the results of one group from being compared by these metrics."""
    for field, rule in EXCLUSIONS.items():
        values = _values(observations, field)
        if excluding := [value for value in values if rule.excludes(value)]:
            yield _incompatibility(group, field, rule.why, observations, values, excluding[0])
    for field, rule in MUST_MATCH.items():
        values = [_decisive(field, value) for value in _values(observations, field)]
        yield from _conflicts(group, field, rule.why, observations, values)
    networked = [each for each in observations if each.fields.get(NETWORK) not in (None, _SHARED)]
    yield from _conflicts(group, NETWORK, _RULES[NETWORK].why, networked, _values(networked, NETWORK))
    for metric in metrics:
        measured = [observation for observation in observations if _has_value(observation, metric)]
        units = [observation.numbers[metric].unit for observation in measured]
        yield from _conflicts(group, unit_field(metric), "the units differ", measured, units)
    powered = [observation for observation in observations if any(_of_power(observation, name) for name in metrics)]
    yield from _conflicts(group, SCOPE, _RULES[SCOPE].why, powered, _values(powered, SCOPE))


def unit_field(metric: str) -> str:
    """Return the field that holds the unit of a metric."""
    return f"metrics.{metric}.unit"


def format_value(value: Any) -> str:
    """Return a field's value as text for people."""
    return "unknown" if value is None else value if isinstance(value, str) else str(value).lower()


def _conflicts(
    group: ComparisonGroup, field: str, why: str, observations: Sequence[Observation], values: Sequence[Any]
) -> Iterator[Incompatibility]:
    """Yield an incompatibility if the values differ; null differs from nothing."""
    counts = Counter(value for value in values if value is not None)
    if len(counts) > 1:
        rarest = min(counts, key=lambda value: counts[value])
        yield _incompatibility(group, field, why, observations, values, rarest)


def _incompatibility(
    group: ComparisonGroup,
    field: str,
    why: str,
    observations: Sequence[Observation],
    values: Sequence[Any],
    odd_one: Any,
) -> Incompatibility:
    counts = dict(Counter(map(format_value, values)))
    first = {value: observations[values.index(value)].file for value in (odd_one, *values)}
    return Incompatibility(group, field, why, counts, {format_value(value): file for value, file in first.items()})


def _values(observations: Sequence[Observation], field: str) -> list[Any]:
    return [observation.fields.get(field) for observation in observations]


def _has_value(observation: Observation, metric: str) -> bool:
    number = observation.numbers.get(metric)
    return number is not None and number.value is not None


def _of_power(observation: Observation, metric: str) -> bool:
    """Return whether the result has this metric and its unit shows that a meter had a part in it."""
    return _has_value(observation, metric) and bool(_POWER_UNITS & set(observation.numbers[metric].unit.split("/")))


def _decisive(field: str, value: Any) -> Any:
    """Return the part of a value that must be the same."""
    if field == "schema_version":
        return value.partition(".")[0]
    if field == "accelerator.granularity" and value == "share":
        return "node"  # cores of a node: their number is `configuration.threads`
    return value
