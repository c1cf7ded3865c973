"""What does not compare, and the field that says so."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.results.observation import ComparisonGroup, Observation

NUMERICS = "numerics.state"
# Whatever else it is compared with, a result with such a value is no measurement of its workload.
UNFIT: dict[str, tuple[Callable[[Any], bool], str]] = {
    "status.state": (lambda value: value != "completed", "a run that did not complete has no result to compare"),
    NUMERICS: (lambda value: value == "failed", "the code that ran does not compute what the card says"),
    "configuration.smoke": (lambda value: value is True, "a run of seconds to see that it works is no measurement"),
}
# Results with different values here do not answer the same question.
ALIKE: dict[str, str] = {
    "schema_version": "the numbers of another major version may mean something else",
    "workload.unit": "the units that were counted differ",
    "accelerator.granularity": "one device is not the same piece of hardware",
    "provenance.stand_in": "a stand-in says nothing of the vendor's software",
    "provenance.simulated": "a test double says nothing of a device",
}
SCOPE = "power.scope"
SCOPE_WHY = "the meters did not measure the same part of the machine"
FIELDS = (*UNFIT, *ALIKE, SCOPE)
_POWER_UNITS = {"J", "W", "Wh"}


@dataclass(frozen=True)
class Excluded:
    """A result that is left out, and the fields that say why."""

    result: Observation
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Incompatibility:
    """A field that keeps the results of a group apart; overridden where the user allows it."""

    group: ComparisonGroup
    field: str
    why: str
    counts: dict[str, int]  # results by value
    example: str  # a file


def exclusion_fields(one: Observation) -> tuple[str, ...]:
    """The fields that make a result no measurement of its workload."""
    return tuple(field for field, (is_unfit, _) in UNFIT.items() if is_unfit(one.fields.get(field)))


def incompatibilities(
    group: ComparisonGroup, found: Sequence[Observation], metrics: Collection[str]
) -> Iterator[Incompatibility]:
    """Everything that keeps results of one group from being compared by these metrics."""
    for field, (is_unfit, why) in UNFIT.items():
        values = _values(found, field)
        if unfit := [value for value in values if is_unfit(value)]:
            yield _finding(group, field, why, found, values, unfit[0])
    for field, why in ALIKE.items():
        values = [_major(value) if field == "schema_version" else value for value in _values(found, field)]
        yield from _mixture(group, field, why, found, values)
    for metric in metrics:
        measured = [one for one in found if metric in one.numbers and one.numbers[metric].value is not None]
        units = [one.numbers[metric].unit for one in measured]
        yield from _mixture(group, unit_field(metric), "the units differ", measured, units)
    powered = [one for one in found if any(_of_power(one, metric) for metric in metrics)]
    yield from _mixture(group, SCOPE, SCOPE_WHY, powered, _values(powered, SCOPE))


def unit_field(metric: str) -> str:
    """The field that holds the unit of a metric."""
    return f"metrics.{metric}.unit"


def format_value(value: Any) -> str:
    """A field's value for people."""
    return "unknown" if value is None else value if isinstance(value, str) else str(value).lower()


def _mixture(
    group: ComparisonGroup, field: str, why: str, found: Sequence[Observation], values: Sequence[Any]
) -> Iterator[Incompatibility]:
    known = Counter(value for value in values if value is not None)
    if len(known) > 1:
        rarest = min(known, key=lambda value: known[value])
        yield _finding(group, field, why, found, values, rarest)


def _finding(
    group: ComparisonGroup, field: str, why: str, found: Sequence[Observation], values: Sequence[Any], culprit: Any
) -> Incompatibility:
    return Incompatibility(
        group, field, why, dict(Counter(map(format_value, values))), found[values.index(culprit)].file
    )


def _values(found: Sequence[Observation], field: str) -> list[Any]:
    return [one.fields.get(field) for one in found]


def _of_power(one: Observation, metric: str) -> bool:
    """Whether the result has this metric and a meter had a part in it, which the unit shows."""
    number = one.numbers.get(metric)
    return number is not None and number.value is not None and bool(_POWER_UNITS & set(number.unit.split("/")))


def _major(version: str) -> str:
    return version.partition(".")[0]
