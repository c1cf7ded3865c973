"""What a rule is: a named check of one result, with its formula, tolerance and reason."""

from __future__ import annotations

from typing import Callable, Iterator, Mapping, NamedTuple

from entrypoints.rules.facts import Facts, near

Check = Callable[[Facts], Iterator[str]]
EXACT = "exact"
ROUNDING = "1e-9 of the number, for sums in another order"


class Rule(NamedTuple):
    """A named check. It yields what contradicts it, field first."""

    code: str
    formula: str
    tolerance: str
    reason: str  # why a result that breaks it is not a measurement
    check: Check


RULES: dict[str, Rule] = {}


def rule(formula: str, reason: str, tolerance: str = EXACT) -> Callable[[Check], Check]:
    """Register a check under its own name, with hyphens, as a rule of every result."""

    def register(check: Check) -> Check:
        code = check.__name__.replace("_", "-")
        RULES[code] = Rule(code, formula, tolerance, reason, check)
        return check

    return register


def differ(field: str, value: float | str | None, expected: float | str | None, why: str) -> str:
    """Return the sentence about a field that has another value than follows from others."""
    return f"{field}: {value!r} where {why} gives {expected!r}"


def unequal_metrics(facts: Facts, expected: Mapping[str, float | None], source: str) -> Iterator[str]:
    """Yield the metrics that differ from what follows from `source`. One that is absent is not compared."""
    for name, value in expected.items():
        entry = facts.metrics.get(name)
        if entry is None:
            continue
        given = entry["value"]
        if given is None or value is None:
            if given is not value:
                yield differ(f"metrics.{name}", given, value, source)
        elif not near(given, value):
            yield differ(f"metrics.{name}", given, value, source)
