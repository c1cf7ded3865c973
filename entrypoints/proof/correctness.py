"""The correctness of workloads on a device: in each precision, with the deviation of every quantity."""

from __future__ import annotations

from typing import Dict, Iterator, Mapping, Sequence

from entrypoints.contract import reference
from entrypoints.contract.cards import Card
from entrypoints.contract.messages import Message, Probed
from entrypoints.contract.reference import Reference
from entrypoints.planning.configuration import Configuration
from entrypoints.proof.finding import FAILED, HELD, NOT_PROVABLE, NOT_RUN, Finding
from entrypoints.results import numerics
from entrypoints.results.json_values import finite
from entrypoints.results.numerics import Numerics, deviation
from entrypoints.results.outcome import Outcome
from entrypoints.runs.numerics_check import compared, computed
from entrypoints.runs.supervise import Orders

CLAIM = "correctness"
STATES = {numerics.PASSED: HELD, numerics.FAILED: FAILED}  # otherwise not provable
Deviations = Dict[str, Dict[str, object]]  # by precision and quantity; null if it has no number


def examine(card: Card, resolved: Configuration, orders: Orders) -> tuple[Sequence[Finding], Deviations]:
    """Compute the correctness check of a workload in a precision; return what it shows, and all deviations."""
    stored = reference.load(card)
    outcome, messages = computed(resolved, orders)
    checked = compared(card, stored, resolved, outcome, messages)
    return list(_findings(card.name, resolved.precision, outcome, checked)), deviations(messages, stored)


def deviations(messages: Sequence[Message], stored: Reference | None) -> Deviations:
    """Return how far each quantity is from its stored value, relative in the L2 norm."""
    measured: Deviations = {}
    for message in messages:
        if isinstance(message, Probed) and stored and message.quantity in stored.values:
            far = finite(deviation(message.values, stored.values[message.quantity]))
            measured.setdefault(message.precision, {})[message.quantity] = far
    return measured


def _findings(name: str, precision: str, outcome: Outcome, checked: Numerics) -> Iterator[Finding]:
    for result in checked.precisions:
        state = STATES.get(result.state, NOT_PROVABLE)
        yield Finding(CLAIM, f"{name} {result.precision}", state, result.reason or str(result.worst))
    if any(result.precision == precision for result in checked.precisions):
        return
    ends: Mapping[str, str] = {
        "completed": NOT_PROVABLE,
        "unsupported": NOT_PROVABLE,
        "time_limit": NOT_RUN,
        "interrupted": NOT_RUN,
    }
    text = f"{outcome.state}: {outcome.message}" if outcome.exit_code else str(checked)
    yield Finding(CLAIM, f"{name} {precision}", ends.get(outcome.state, FAILED), text)
