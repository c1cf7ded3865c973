"""What several ranks reported, as one run."""

from __future__ import annotations

from typing import Any

import pytest

from entrypoints.contract.messages import Step
from entrypoints.contract.session import DeviceFacts
from entrypoints.results.ranks import combined

FACTS = DeviceFacts("cuda", "nobody", "none", 1, "package", 1024.0, 1, 1, "eager", False, "GPU-1")


def reported(seconds, loss, tokens):
    return [FACTS, Step(seconds, 0.0, 4, 1, loss, None, None, tokens, 3)]


def together(ranks, **options):
    """The device and the step of a run."""
    messages: Any = combined(ranks, **options)
    return messages


def test_replicas_have_different_samples():
    facts, step = together([reported(1.0, 2.0, 10), reported(2.0, 4.0, 20)])
    assert (facts.devices, facts.ranks, facts.replicas, facts.identifier) == (2, 2, 2, None)
    assert (step.units, step.tokens, step.padding, step.loss) == (8, 30, 6, 3.0)


def test_stages_of_a_replica_have_the_same_samples():
    facts, step = together([reported(1.0, 2.0, 10), reported(2.0, 2.0, 10)], firsts=[0])
    assert (facts.devices, facts.ranks, facts.replicas) == (2, 2, 1)
    assert (step.units, step.tokens, step.padding, step.loss) == (4, 10, 3, 2.0)


@pytest.mark.parametrize(("losses", "firsts"), [((2.0, 4.0, 2.0, 4.0), [0, 1]), ((2.0, 2.0, 4.0, 4.0), [0, 2])])
def test_parts_of_two_replicas_count_each_replica_once(losses, firsts):
    """Stages are far from each other, and ranks that divide a block next to each other."""
    facts, step = together([reported(1.0, loss, int(loss) * 5) for loss in losses], firsts=firsts)
    assert (facts.ranks, facts.replicas, step.units, step.tokens, step.loss) == (4, 2, 8, 30, 3.0)
