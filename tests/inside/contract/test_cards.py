from __future__ import annotations

import copy
import hashlib
import json

import jsonschema
import pytest
from program import ROOT

from entrypoints.contract import cards, reference

SCHEMA = json.loads((ROOT / "schemas" / "card-1.0.json").read_text("utf-8"))
FILES = sorted((ROOT / "entrypoints" / "workloads").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cards_are_valid_and_named_like_their_files(path):
    card = json.loads(path.read_text("utf-8"))
    jsonschema.Draft202012Validator(SCHEMA).validate(card)
    assert card["name"] == path.stem
    for kind, by_task in card["defaults"].items():  # an engine that serves decides by itself, on every device
        assert set(by_task) == set(card["tasks"]) - ({"serving"} if kind != "any" else set())
        assert all(run["warmup_steps"] < run["steps"] for run in by_task.values())


@pytest.mark.parametrize("card", cards.load().values(), ids=lambda card: card.name)
def test_there_are_counts_for_every_task(card):
    tasks = set(card.tasks) - {"serving"}  # whose requests differ from run to run
    assert all(card.flops_per_unit(task) > 0 or card.problem["unit"] == "bytes" for task in tasks)
    assert {f"{task}_elements_per_unit" for task in tasks} <= set(card.memory)


def test_a_problem_is_trained_or_sampled():
    card = json.loads((ROOT / "entrypoints" / "workloads" / "mcmc.json").read_text("utf-8"))
    for name in ("loss", "optimizer"):
        both = copy.deepcopy(card)
        both["problem"][name] = cards.load()["resnet50"].problem[name]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate(both)
    del card["problem"]["sampler"]
    with pytest.raises(jsonschema.ValidationError, match="is a required property"):
        jsonschema.Draft202012Validator(SCHEMA).validate(card)


def test_a_micro_benchmark_has_nothing_to_train():
    card = json.loads((ROOT / "entrypoints" / "workloads" / "all_reduce.json").read_text("utf-8"))
    for name in ("loss", "optimizer"):
        trained = copy.deepcopy(card)
        trained["problem"][name] = cards.load()["resnet50"].problem[name]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate(trained)


def test_the_identity_is_that_of_the_problem_alone():
    card = cards.load()["resnet50"]
    text = json.dumps(card.problem, sort_keys=True, separators=(",", ":"))
    assert card.identity == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    renamed = card._replace(title="another", defaults={})
    assert renamed.identity == card.identity
    problem = copy.deepcopy(dict(card.problem))
    problem["model"]["downsampling_stride_in"] = "1x1"
    assert card._replace(problem=problem).identity != card.identity


def test_resnet50_is_the_one_of_the_literature():
    problem = cards.load()["resnet50"].problem
    assert problem["parameters"] == 25557032
    assert problem["model"]["layers"] == [3, 4, 6, 3]
    assert problem["optimizer"]["weight_decay"] == 2**-15


def test_a_card_with_an_unknown_key_is_refused():
    card = json.loads(FILES[0].read_text("utf-8"))
    card["problem"]["model"]["colour"] = "green"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(card)


def test_a_reduced_network_is_a_workload_of_its_own():
    card = cards.load()["llama_1b"]
    reduced, stored = reference.reduced_card(card), reference.load(card)
    assert stored is not None and reduced.problem["parameters"] == stored.parameters < card.problem["parameters"] / 100
    assert reduced.identity != card.identity and reduced.title == f"{card.title}, reduced"
    length, lengths = reduced.problem["input"]["length"], reduced.problem["generation"]
    assert lengths["prompt"] + lengths["new"] <= length < card.problem["input"]["length"]
    assert reduced.flops_per_unit("training") == 0, "nobody has counted its operations"
    whole = cards.load()["resnet50"]
    assert reference.reduced_card(whole) is whole


def test_every_workload_belongs_to_a_set():
    sets = {name: card.set for name, card in cards.load().items()}
    assert sorted(set(sets.values())) == ["2026", "micro-benchmarks", "papers"]
    assert list(sets.values()).count("papers") == 24
    assert all(("microbenchmark" in card.tasks) == (card.set == "micro-benchmarks") for card in cards.load().values())
