"""The correctness check in the parent: a separate child computes, so that none of it remains in the run."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import Sequence

from entrypoints.contract import reference
from entrypoints.contract.cards import Card, routing
from entrypoints.contract.messages import Message
from entrypoints.contract.reference import Reference
from entrypoints.planning.configuration import Configuration
from entrypoints.results import numerics
from entrypoints.results.numerics import Numerics
from entrypoints.results.outcome import Outcome, with_numerics
from entrypoints.runs.group import NOBODY_ELSE, Beat, Team, converse, ended, quiet
from entrypoints.runs.progress import Progress
from entrypoints.runs.supervise import Orders
from entrypoints.system.console import status
from entrypoints.system.feed import opened_feed


def check(card: Card, resolved: Configuration, orders: Orders) -> Outcome:
    """Run only the correctness check."""
    outcome, probed = probe(card, reference.load(card), resolved, orders)
    judged = with_numerics(outcome, probed)
    return judged if judged.exit_code else judged._replace(message=f"correctness {probed}")


def check_before_runs(card: Card, resolved: Configuration, orders: Orders, team: Team = NOBODY_ELSE) -> Numerics:
    """Run the correctness check before runs that ask for it, with notes on standard error."""
    if not resolved.probe_numerics:
        return _skipped(resolved)
    stored = reference.load(card)
    if stored is None and not resolved.serving:
        return numerics.compare_with_reference([], None, resolved.precision)
    status(f"{resolved.workload} on {resolved.device}: checking correctness")
    with opened_feed(os.environ) as feed:
        progress = Progress(resolved, card.problem["unit"], sys.stderr, feed, phase="check")
        began = time.monotonic()
        _, probed = probe(card, stored, resolved, orders, team, progress.beat)
        how = None if resolved.serving else routing(reference.probed_card(card, stored).problem)
        probed = replace(probed, seconds=round(time.monotonic() - began, 6), routing=how)
        progress.end()
    status(f"{resolved.workload} on {resolved.device}: correctness {probed}")
    return probed


def not_made(resolved: Configuration, outcome: Outcome) -> Numerics:
    """Return the check of a run that ended before it."""
    return numerics.not_run(_cut(outcome)) if resolved.probe_numerics else _skipped(resolved)


def _skipped(resolved: Configuration) -> Numerics:
    return numerics.not_run(f"the check was skipped ({'--smoke' if resolved.smoke else '--skip-numerics'})")


def _cut(outcome: Outcome) -> str:
    return f"{numerics.cut_by(outcome.state)}: {outcome.message}"


def probe(
    card: Card,
    stored: Reference | None,
    resolved: Configuration,
    orders: Orders,
    team: Team = NOBODY_ELSE,
    beat: Beat = quiet,
) -> tuple[Outcome, Numerics]:
    """Run the correctness check, and return how it ended and its result. `beat` is called again and again meanwhile."""
    outcome, messages = computed(resolved, orders, team, beat)
    return outcome, compared(card, stored, resolved, outcome, messages)


def computed(
    resolved: Configuration, orders: Orders, team: Team = NOBODY_ELSE, beat: Beat = quiet
) -> tuple[Outcome, Sequence[Message]]:
    """Compute the quantities of the correctness check in a child; return how it ended, and its messages."""
    ranks = converse(resolved, orders, team.assign("probe", resolved), "probe", team=team, beat=beat)
    return ended(ranks), ranks[0].messages


def compared(
    card: Card, stored: Reference | None, resolved: Configuration, outcome: Outcome, messages: Sequence[Message]
) -> Numerics:
    """Compare what a correctness check has computed with the stored values for its device."""
    cut = None if outcome.state == "completed" else _cut(outcome)
    if resolved.serving:
        of_engines = reference.OF_ENGINES.on(resolved.device)
        return numerics.compare_with_reference(messages, of_engines, resolved.precision, cut)
    expected = stored and stored.on(resolved.device).of_run(resolved.gradient_accumulation).in_float8()
    if expected and resolved.trained_together:
        expected = expected.by_ranks("gradient_norm" in card.problem["optimizer"])
    return numerics.compare_with_reference(messages, expected, resolved.precision, cut)
