"""Cards whose networks and inputs are small: what tests compare does not hang on the size."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from entrypoints.contract.session import Batch, StepReport

SMALL: dict[str, dict[str, Any]] = {
    "transformer": {"layers": 2, "width": 64, "heads": 4, "feed_forward": 128, "vocabulary": 97},
    "decoder": {
        "layers": 2,
        "width": 64,
        "heads": 4,
        "kv_heads": 2,
        "head_size": 16,
        "feed_forward": 112,
        "vocabulary": 97,
    },
    "vit": {"image": 48, "layers": 2, "heads": 4, "width": 64, "feed_forward": 112, "classes": 17},
    "lstm": {"features": 5, "hidden": 24},
    "diffusion": {"heads": 2, "feed_forward": 112},
    "deep_voice_3": {
        "vocabulary": 31,
        "character_width": 24,
        "speakers": 5,
        "speaker_width": 4,
        "mel_bands": 6,
        "linear_bins": 9,
        "encoder": {"channels": 16, "blocks": 2},
        "decoder": {"prenet": [20], "channels": 24, "blocks": 3},
        "attention": {"width": 12, "after_blocks": [1, 3]},
        "converter": {"channels": 24, "blocks": 2},
    },
}
# Rows and columns differ, and a head of DiT has its size of 72, which kernels do not like.
OF_DIFFUSION: dict[str, dict[str, Any]] = {
    "dit": {
        "latents": [4, 8, 12],
        "layers": 2,
        "width": 144,
        "condition": {"kind": "class", "classes": 10, "dropped": 0.1},
    },
    "flux": {
        "latents": [4, 8, 12],
        "double_layers": 2,
        "single_layers": 2,
        "width": 64,
        "positions": {"kind": "rotary_axes", "axes": [8, 12, 12]},
        "condition": {"kind": "text", "text_length": 7, "text_width": 24, "vector": 20},
    },
}
EXPERTS = {"count": 8, "per_token": 2}
LIMIT, WINDOW = 0.1, 7  # such that some numbers are beyond this limit, and places outside of this window
SHORTER = {"length": 24, "masked": 5, "characters": 12, "frames": 17, "shape": [24, 5]}  # of series, its shape
ORIGINAL = 64  # places of a context that positions are stretched from


def family_of(card):
    """The module with the networks of a card's family, in PyTorch."""
    return importlib.import_module(f"entrypoints.workloads.pytorch.{card.family}")


def smaller(card):
    """The same card with a small network over fewer tokens, whose parameters are counted."""
    problem = {**card.problem, "model": {**card.problem["model"], **SMALL[card.family]}}
    problem["model"].update(OF_DIFFUSION.get(problem["model"].get("architecture", ""), {}))
    positions = problem["model"].get("positions", {})
    if "scaling" in positions:  # some waves are long in so short a context
        problem["model"]["positions"] = {**positions, "scaling": {**positions["scaling"], "original": ORIGINAL}}
    problem["input"] = {key: SHORTER.get(key, value) for key, value in card.problem["input"].items()}
    if "experts" in problem["model"]:
        limit = {"limit": LIMIT} if "limit" in problem["model"]["experts"] else {}
        problem["model"]["experts"] = {**problem["model"]["experts"], **EXPERTS, **limit}
    if "window" in problem["model"]:
        problem["model"]["window"] = WINDOW
    if "image" in problem["model"]:
        problem["input"]["shape"] = [3, *[problem["model"]["image"]] * 2]
    if "latents" in problem["model"]:
        problem["input"]["shape"] = problem["model"]["latents"]
    parameters = list(family_of(card).network(problem["model"]).parameters())
    problem["parameters"] = sum(p.numel() for p in parameters)
    if "trained" in problem:
        problem["trained"] = sum(p.numel() for p in parameters if p.requires_grad)
    return card._replace(problem=problem)


def learnt(card):
    """The same card with tokens that go to the experts with the highest scores."""
    model = card.problem["model"]
    routed = {**model, "experts": {**model["experts"], "routing": "learnt"}} if "experts" in model else model
    return card._replace(problem={**card.problem, "model": routed})


class Trainable(Protocol):
    """What a session does in training."""

    def train(self, batch: Batch) -> StepReport:
        """Run forward, backward and update."""


def losses_of(session: Trainable, batch: Batch, steps: int) -> list[float]:
    """The loss of each of so many steps of training on one batch."""
    losses = []
    for _ in range(steps):
        report = session.train(batch)
        assert report.loss is not None
        losses.append(report.loss())
    return losses
