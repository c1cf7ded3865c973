"""Workload cards: what each workload is, in terms of no particular framework."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping, NamedTuple, Sequence

from entrypoints.contract.choices import SERVING

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "workloads")

PICTURES = ("photographs", "drawings")  # kinds of `problem.input` that are images


class Card(NamedTuple):
    """One `workloads/<name>.json`, as `schemas/card-1.0.json` describes it."""

    schema_version: str
    name: str
    title: str
    family: str
    set: str
    tasks: Sequence[str]
    problem: Mapping[str, Any]
    flops: Mapping[str, Any]
    memory: Mapping[str, Any]
    defaults: Mapping[str, Any]
    sources: Mapping[str, str]

    @property
    def identity(self) -> str:
        """SHA-256 of the problem as JSON with sorted keys and no spaces: equal problems have equal ones."""
        import hashlib  # here: listing the workloads should not import OpenSSL

        text = json.dumps(self.problem, sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def flops_per_unit(self, task: str) -> int:
        """Return the floating-point operations of one unit: forward, in training also backward; for a generated text
        its prompt and every new token; for a sample its trajectory. 0 for a request to an engine, whose length differs
        from run to run."""
        if task == SERVING:
            return 0
        forward = "generation_per_unit" if "generation_per_unit" in self.flops else "forward_per_unit"
        count: int = self.flops[forward if task == "inference" else f"{task}_per_unit"]
        return count

    def defaults_for(self, device: str, task: str) -> Mapping[str, Any]:
        """Return the default configuration on one kind of device; `any` is for kinds and tasks without their own."""
        defaults: Mapping[str, Any] = self.defaults.get(device, {}).get(task) or self.defaults["any"][task]
        return defaults


def load() -> dict[str, Card]:
    """Return every card by name, sorted."""
    cards = (_read(os.path.join(FOLDER, name)) for name in sorted(os.listdir(FOLDER)) if name.endswith(".json"))
    return {card.name: card for card in cards}


def load_for(framework: str) -> dict[str, Card]:
    """Return the cards that a framework can run: those whose family has a module in it."""
    families = set(os.listdir(os.path.join(FOLDER, framework)))
    return {name: card for name, card in load().items() if f"{card.family}.py" in families}


def _read(path: str) -> Card:
    with open(path, encoding="utf-8") as stream:
        return Card(**json.load(stream))


def pictures(problem: Mapping[str, Any]) -> bool:
    """Return whether samples are images, which files hold encoded."""
    return problem["input"]["kind"] in PICTURES


def tokenised(problem: Mapping[str, Any]) -> bool:
    """Return whether samples are rows of positions that hold tokens or padding."""
    return problem["input"]["kind"] in ("text", "passage", "masked_text")


def generates(problem: Mapping[str, Any], task: str) -> bool:
    """Return whether the task generates texts token by token."""
    return task == "inference" and "generation" in problem


def causal(problem: Mapping[str, Any]) -> bool:
    """Return whether attention is to earlier places only, so that of each pair of places one sees the other."""
    return bool(problem.get("model", {}).get("attention") == "causal")


class HeadSizes(NamedTuple):
    """Heads of queries, heads of keys and values, and the numbers of each head, of a network with attention."""

    heads: int
    kv_heads: int
    size: int


def head_sizes(model: Mapping[str, Any]) -> HeadSizes:
    """Return the heads of a card's `problem.model`: unless it says otherwise, they have its width together, and each
    query has a key of its own."""
    heads = model["heads"]
    return HeadSizes(heads, model.get("kv_heads", heads), model.get("head_size", model["width"] // heads))


def attention_windows(model: Mapping[str, Any]) -> Sequence[int | None]:
    """Return by block of a card's `problem.model` how many places one sees, itself included; None: all before.

    Of alternating windows, those are the first, third and every other block.
    """
    window = model.get("window")
    return [window if number % 2 == 0 else None for number in range(model["layers"])]


def routing(problem: Mapping[str, Any]) -> str | None:
    """Return how tokens get to the experts of a mixture; None for a network without experts."""
    experts = problem["model"].get("experts")
    return experts["routing"] if experts else None


def trained_parameters(problem: Mapping[str, Any]) -> int:
    """Return the number of parameters that are trained: all, unless the card says so."""
    return int(problem.get("trained", problem["parameters"]))


def tabular(problem: Mapping[str, Any]) -> bool:
    """Return whether samples are drawn for a table of observations, which one file holds."""
    return problem["input"]["kind"] == "table"


def labelled(problem: Mapping[str, Any]) -> bool:
    """Return whether each sample has a label, so that there is an accuracy."""
    return "classes" in problem["model"]


def reconstructs(problem: Mapping[str, Any]) -> bool:
    """Return whether the input is its own target, so that there are no labels."""
    return problem["loss"].get("target") == "input"
