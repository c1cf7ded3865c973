"""The correctness check of an engine: a small network with our formula's weights, before any load.

What is compared are log-probabilities of the first token after a prompt, with those of our own network in single
precision. Texts that are continued would differ from the first rounding that changes a token on.
"""

from __future__ import annotations

import importlib
from typing import Any, Mapping, Sequence

import numpy as np

from entrypoints.contract import reference
from entrypoints.contract.cards import Card
from entrypoints.contract.choices import FP8
from entrypoints.contract.messages import Probed
from entrypoints.contract.reference import FIRST_TOKEN
from entrypoints.data.generated import formula
from entrypoints.planning.configuration import Configuration
from entrypoints.serving import checkpoint
from entrypoints.serving.engine import Engine, EngineSettings
from entrypoints.serving.load import VLLM, Serving
from entrypoints.worker import serving_run

PROMPTS = 6
LENGTH, LONGER = 40, 15  # tokens of the first prompt, and by how many more each further one is longer
ROOM = 128  # tokens of the longest text that the engine is started for


def checked_card(card: Card) -> Card:
    """Return the card of the network that is checked: the small one of the card's own check.

    Of clamped experts the limit stays that of the card: engines know no other.
    """
    own = reference.probed_card(card, reference.load(card))
    model = own.problem["model"]
    if "limit" not in model.get("experts", {}):
        return own
    experts = {**model["experts"], "limit": card.problem["model"]["experts"]["limit"]}
    return own._replace(problem={**own.problem, "model": {**model, "experts": experts}})


def prompts(vocabulary: int) -> list[list[int]]:
    """Return prompts of different lengths, made by the formula."""
    draws = formula.Formula()
    return [
        [int(token) for token in draws.index(f"prompt {number}", (LENGTH + number * LONGER,), vocabulary)]
        for number in range(PROMPTS)
    ]


def expected(card: Card) -> list[np.ndarray]:
    """Return the log-probabilities of every token after each prompt, by our own network."""
    ours = importlib.import_module("entrypoints.workloads.pytorch.first_token")
    model = card.problem["model"]

    def weight_of(name: str) -> np.ndarray:
        weight: np.ndarray = checkpoint.of_ours(name, model, checkpoint.weight)
        return weight

    found: list[np.ndarray] = ours.log_probabilities(card, weight_of, prompts(model["vocabulary"]))
    return found


def deviation(answers: Sequence[Mapping[int, float]], ours: Sequence[np.ndarray], median: bool = False) -> float:
    """Return the largest deviation of a log-probability that an engine gave, or of those of each prompt the median; NaN
    if a prompt has none, or one is NaN.

    The likeliest token has to be ours, but for as much as its log-probability may deviate.
    """
    if len(answers) != len(ours) or not all(answers):
        return float("nan")
    worst = []
    for answer, own in zip(answers, ours):
        values = [abs(value - own[token]) for token, value in answer.items()]
        worst.append(np.max([*values, own.max() - own[max(answer, key=lambda token: answer[token])]]))
    return float(np.median(worst) if median else np.max(worst))


def run(card: Card, configuration: Configuration, serving: Serving, send: Any) -> None:
    """Check the engine in single precision and in the run's, and report how far it deviates.

    Of experts the median prompt counts in half precision, whose rounding sends a token to another one at times: then
    a log-probability deviates by more than 1. vLLM has them in half precision only on CPUs. In FP8 it counts too: the
    largest of six scatters twice as much.
    """
    own = checked_card(card)
    ours = expected(own)
    mixture = "experts" in own.problem["model"]
    half_only = mixture and serving["engine"] == VLLM and configuration.device == "cpu"
    for precision in dict.fromkeys((*([] if half_only else ["fp32"]), configuration.precision)):
        with serving_run.model_folder(own, precision, ROOM) as folder:
            checkpoint.write_formula_weights(folder, own.problem["model"])
            settings = EngineSettings(
                folder=str(folder),
                dummy=False,
                device=configuration.device,
                precision=precision,
                scaling=configuration.fp8_scaling if precision == FP8 else None,
                devices=1,
                longest=ROOM,
                seed=configuration.seed,
            )
            engine = serving_run.load_engine(serving["engine"])
            answers: list[Mapping[int, float]] = []
            serving_run.until_stopped(_ask(engine, settings, answers, own.problem["model"]["vocabulary"]))
        by_median = precision == FP8 or (mixture and precision != "fp32")
        send(Probed(precision, FIRST_TOKEN, [deviation(answers, ours, median=by_median)]))


async def _ask(engine: Engine, settings: EngineSettings, answers: list[Mapping[int, float]], vocabulary: int) -> None:
    try:
        await engine.start(settings)
        answers += [await engine.first_token(each) for each in prompts(vocabulary)]
    finally:
        await engine.close()
