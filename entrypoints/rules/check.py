"""All rules together, over one document."""

from __future__ import annotations

from typing import Any, Mapping

# Importing a module registers its rules.
from entrypoints.rules import (  # noqa: F401
    command,
    correctness,
    counts,
    data,
    energy,
    identity,
    machine,
    memory,
    metrics,
    ranks,
    times,
)
from entrypoints.rules.facts import Facts
from entrypoints.rules.kinds import chains, generation, load, microbenchmark, requests, search, training  # noqa: F401
from entrypoints.rules.rule import RULES, Rule

UNJUDGED = "inconsistent"  # a state that says itself that the numbers contradict each other


def violations(document: Mapping[str, Any], text: str | None = None) -> list[str]:
    """Return what in a document that fits its schema contradicts itself or its card, as `field: what [rule]`.

    `text` is the JSON text that the document was read from; it is written if it is not given.
    """
    if document["status"]["state"] == UNJUDGED:
        return []
    facts = Facts(document, text)
    return [f"{text} [{code}]" for code, rule in RULES.items() for text in _kept(rule, facts)]


def _kept(rule: Rule, facts: Facts) -> list[str]:
    """Return what breaks a rule. Numbers of which a rule makes none, such as 1e308 samples, are no measurement."""
    try:
        return list(rule.check(facts))
    except (ArithmeticError, ValueError) as error:
        return [f"it cannot be checked: {type(error).__name__}: {error}"]
