"""The target of a training run, when it is reached, and the scores of an evaluation beside loss and accuracy."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypedDict

from entrypoints.contract.messages import Evaluated


class Target(TypedDict):
    """What `metric` must reach: an accuracy at least, a loss at most."""

    metric: str  # accuracy or loss
    value: float
    evaluation_steps: int  # training steps between two evaluations


class Quality(NamedTuple):
    """Scores of a model's answers besides loss and accuracy; None if there are none."""

    exact_match: float | None = None  # fraction of questions with a human answer
    f1: float | None = None  # of the words of an answer, mean over questions


class AnswerGrader(Protocol):
    """Collects and grades the answers of a model in one evaluation."""

    def add(self, numbers: Any, output: Any) -> None:
        """Add the model's output for the samples of these numbers. Raises RunError (`data_error`) for damaged data."""

    def quality(self) -> Quality:
        """Return the scores of all answers."""


def reached(target: Target, evaluation: Evaluated) -> bool:
    """Return whether an evaluation reached the target; NaN never does."""
    if target["metric"] == "accuracy":
        return evaluation.accuracy is not None and evaluation.accuracy >= target["value"]
    return evaluation.loss <= target["value"]
