"""The correctness check of ranks that train together: right code passes, and each mistake in a strategy is found."""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch")

from training_ranks import probed  # noqa: E402
from watching import stored_values  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.messages import Probed  # noqa: E402
from entrypoints.results import numerics  # noqa: E402

CARDS = cards.load()
GATE = ("no_synchronisation",)  # names of mistakes
NEW = torch.__version__ >= "2.13"  # it divides models with gloo
MUTANTS = importlib.import_module("mutants_ranks").MUTANTS if NEW else ()  # mistakes are the same in every version
FOUR = ("fsdp shards=2", "ddp stages=2", "fsdp stages=2", "fsdp tensor=2", "pipelined stages=2 tensor=2")  # of ranks


def world_of(strategy):
    return 4 if strategy in FOUR else 2


def judged(workload, strategy, **options):
    card = CARDS[workload]
    expected = stored_values(card).of_run(1).by_ranks("gradient_norm" in card.problem["optimizer"])
    messages = [Probed("fp32", name, values) for name, values in probed(workload, strategy, **options).items()]
    return numerics.compare_with_reference(messages, expected, "fp32")


@pytest.mark.parametrize(
    ("workload", "strategy"),
    [
        ("lstm", "ddp"),
        pytest.param("image_compression", "zero1", marks=pytest.mark.full),
        *([pytest.param("lstm", "fsdp", marks=pytest.mark.full)] if NEW else []),
        *(
            pytest.param(name, strategy, marks=pytest.mark.full)
            for name in ("gpt2", "gpt_117m", "bert_base", "bert_large_pretraining_128")
            for strategy in ("pipelined stages=2", "tensor tensor=2")
            if NEW
        ),
        *(pytest.param("gpt_117m", strategy, marks=pytest.mark.full) for strategy in FOUR if NEW),
        *(
            pytest.param(name, strategy, marks=pytest.mark.full)
            for name in ("gpt2", "bert_large_pretraining_128", "resnet50", "deep_voice_3")
            for strategy in ("ddp", "zero1", *(["fsdp"] if NEW else []))
        ),
    ],
)
def test_right_strategies_pass(workload, strategy):
    verdict = judged(workload, strategy, world=world_of(strategy))
    assert verdict.state == "passed", verdict


@pytest.mark.parametrize(
    ("mutant", "strategy", "workload"),
    [
        pytest.param(mutant, strategy, workload, marks=[pytest.mark.full] * (mutant.__name__ not in GATE))
        for mutant, strategy, workload in MUTANTS
    ],
)
def test_a_mistake_fails(mutant, strategy, workload):
    verdict = judged(workload, strategy, mutant=mutant.__name__, world=world_of(strategy))
    assert verdict.state == "failed"
