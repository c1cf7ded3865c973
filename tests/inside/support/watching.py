"""The numerics probe watched while it runs: where a number is wrong, nothing need be computed after it."""

from __future__ import annotations

from unittest import mock

from entrypoints.contract import reference
from entrypoints.contract.cards import Card
from entrypoints.results import numerics
from entrypoints.worker import probe


def stored_values(card: Card) -> reference.Reference:
    """The reference of a card that has one."""
    stored = reference.load(card)
    assert stored is not None, f"{card.name} has no reference"
    return stored


class MismatchError(Exception):
    """A quantity that does not match; its text is the quantity's name."""


def first_mismatch(run, rules, stages=(reference.OWN_RULE,)):
    """Run the probe up to the first quantity that does not match. Return its name, or None if all match.

    `run` probes and returns all quantities by name, of `stages` after the updates; `rules` has for each a function of
    its values that says whether they match. A quantity that is missing does not.
    """
    norms, sampled = probe.group_norms, probe.sample_output
    groups = iter(("initialisation", *probe.UPDATES, *stages))
    outputs = iter(("output", "output_after_updates"))

    def judge(name, values):
        if name in rules and not rules[name]([float(value) for value in values]):
            raise MismatchError(name)

    def watched_norms(arrays):
        quantities, of = norms(arrays), next(groups)
        for group, norm in quantities.items():
            judge(f"{of}.{group}", norm)
        return quantities

    def watched_output(output):
        values = sampled(output)
        judge(next(outputs), values)
        return values

    with mock.patch.object(probe, "group_norms", watched_norms), mock.patch.object(
        probe, "sample_output", watched_output
    ):
        try:
            quantities = run()
        except MismatchError as mismatch:
            return str(mismatch)
    return next((name for name, matches in rules.items() if not matches(quantities.get(name, ()))), None)


def within(expected, tolerances):
    """For each quantity a function that says whether values are within the tolerance of those expected."""

    def match(name):
        tolerance = tolerances[name]
        return lambda values: numerics.Deviation(name, numerics.deviation(values, expected[name]), tolerance).share <= 1

    return {name: match(name) for name in tolerances}
