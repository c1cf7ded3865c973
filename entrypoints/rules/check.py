"""All rules together, over one document."""

from __future__ import annotations

from itertools import islice
from typing import Any, Iterable, Mapping

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
    sizes,
    times,
)
from entrypoints.rules.facts import Facts
from entrypoints.rules.kinds import chains, generation, load, microbenchmark, requests, search, serving, training  # noqa: F401
from entrypoints.rules.rule import RULES, Rule

UNJUDGED = "inconsistent"  # a state that says itself that the numbers contradict each other
OF_SIZES = RULES["sizes-are-possible"]
MOST = 20  # sentences about what breaks one rule
LONGEST_CAUSE = 200  # characters of what an exception says


def violations(document: Mapping[str, Any], text: str | None = None) -> list[str]:
    """Return what in a document that fits its schema contradicts itself or its card, as `field: what [rule]`.

    `text` is the JSON text that the document was read from; it is written if it is not given.
    """
    beyond = sizes_beyond(document, text)
    if beyond or document["status"]["state"] == UNJUDGED:
        return beyond
    return _broken(Facts(document, text), (each for each in RULES.values() if each is not OF_SIZES))


def sizes_beyond(document: Mapping[str, Any], text: str | None = None) -> list[str]:
    """Return what in such a document is of a size that no result has, whatever its state."""
    return _broken(Facts(document, text), [OF_SIZES])


def _broken(facts: Facts, rules: Iterable[Rule]) -> list[str]:
    return [f"{text} [{rule.code}]" for rule in rules for text in _kept(rule, facts)]


def _kept(rule: Rule, facts: Facts) -> list[str]:
    """Return what breaks a rule. A document of which a rule makes nothing, whatever it raises, breaks it."""
    try:
        return list(islice(rule.check(facts), MOST))
    except Exception as error:
        return [f"it cannot be checked: {type(error).__name__}: {error}"[:LONGEST_CAUSE]]
