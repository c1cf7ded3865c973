"""The correctness check of ranks that train together in TensorFlow: right code passes, and each mistake is found."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")

from mutants_tf_ranks import MUTANTS
from training_ranks import probed
from watching import stored_values

from entrypoints.contract import cards
from entrypoints.contract.messages import Probed
from entrypoints.results import numerics

pytestmark = pytest.mark.full
CARDS = cards.load()


def judged(workload, **options):
    card = CARDS[workload]
    expected = stored_values(card).of_run(1).by_ranks("gradient_norm" in card.problem["optimizer"])
    quantities = probed(workload, "ddp", framework="tensorflow", mutants="mutants_tf_ranks", **options)
    messages = [Probed("fp32", name, values) for name, values in quantities.items()]
    return numerics.compare_with_reference(messages, expected, "fp32")


@pytest.mark.parametrize("workload", ["lstm", "image_compression", "resnet50", "gpt2"])
def test_data_parallel_training_passes(workload):
    verdict = judged(workload)
    assert verdict.state == "passed", verdict


@pytest.mark.parametrize(("mutant", "workload"), [(mutant.__name__, workload) for mutant, workload in MUTANTS])
def test_a_mistake_fails(mutant, workload):
    assert judged(workload, mutant=mutant).state == "failed"
