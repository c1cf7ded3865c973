"""Rules about training: losses, epochs and targets."""

from __future__ import annotations

import math
from typing import Iterator

from entrypoints.contract.cards import labelled
from entrypoints.results.result import MOST_STEPS
from entrypoints.rules.facts import Document, Facts, is_whole, near
from entrypoints.rules.identity import card_of
from entrypoints.rules.rule import ROUNDING, differ, rule, unequal_metrics

FRACTIONS = ("accuracy", "exact_match", "f1")
PASSAGE = "passage"  # the kind of input whose files have questions and answers
ONE_NAME_A_SAMPLE = ("synthetic", "folder", "idx")
WORDLESS = 0.1  # of the answers


@rule(
    "`final_loss` = the last of `steps.losses` that is a number; only training has losses", "Losses are read.", ROUNDING
)
def final_loss_is_the_last(facts: Facts) -> Iterator[str]:
    """Look for the last loss again."""
    given, losses = facts.metric("final_loss"), facts.steps["losses"]
    if facts.task != "training":
        if given is not None or any(loss is not None for loss in losses or ()):
            yield f"metrics.final_loss: {facts.task} has no loss"
    elif losses is not None:
        expected = next((loss for loss in reversed(losses) if loss is not None), None)
        if (given is None) != (expected is None) or (
            given is not None and expected is not None and not near(given, expected)
        ):
            yield differ("metrics.final_loss", given, expected, "steps.losses")


@rule(
    "epochs are numbered from 1, as many as the steps fill, each the sum of its `steps_per_epoch` steps; "
    "`epoch_time` = the mean of all but the first",
    "An epoch is a pass over the data, and the first contains compilation and warm-up.",
    ROUNDING,
)
def epochs_follow_from_the_steps(facts: Facts) -> Iterator[str]:
    """Add the steps of each epoch up again."""
    size, epochs = int(facts.configuration["steps_per_epoch"] or 0), facts.document["epochs"]
    expected = facts.count // size if size else 0
    if len(epochs) != expected or any(epoch["index"] != number for number, epoch in enumerate(epochs, start=1)):
        yield differ("epochs", len(epochs), expected, "steps.count")
        return
    for number, epoch in enumerate(epochs):
        if epoch["steps"] != size or epoch["units"] != size * facts.per_step:
            yield differ(f"epochs.{number}.steps", epoch["steps"], size, "configuration.steps_per_epoch")
        if facts.seconds is not None:
            seconds = sum(facts.seconds[number * size : (number + 1) * size])
            if not near(epoch["seconds"], seconds):
                yield differ(f"epochs.{number}.seconds", epoch["seconds"], seconds, "steps.seconds")
    later = [epoch["seconds"] for epoch in epochs[1:]]
    mean, given = math.fsum(later) / len(later) if later else None, facts.metric("epoch_time")
    if (given is None) != (mean is None) or (given is not None and mean is not None and not near(given, mean)):
        yield differ("metrics.epoch_time", given, mean, "epochs")


@rule(
    "`target` is `configuration.goal`; evaluations follow each other within the steps, over the same samples; only the "
    "last may reach the target, and `reached` says whether it did; `time_to_target` = the steps before it; "
    "`evaluation_time` = their sum, or more if only the last 1000 are listed",
    "A target is reached by an evaluation.",
    ROUNDING,
)
def targets_are_reached_by_evaluations(facts: Facts) -> Iterator[str]:
    """Judge the evaluations again."""
    target, goal = facts.document["target"], facts.configuration["goal"]
    if (target is None) != (goal is None):
        yield "target: there is one exactly if configuration.goal is given"
        return
    if target is None:
        for name in ("time_to_target", "evaluation_time"):
            if facts.metric(name) is not None:
                yield differ(f"metrics.{name}", facts.metric(name), None, "no target")
        return
    if target["metric"] != goal["metric"] or target["value"] != goal["value"]:
        yield "target: it is another than configuration.goal"
    evaluations = target["evaluations"]
    yield from _evaluations(facts, evaluations)
    reaching = [each for each in evaluations if _reaches(target, each)]
    if target["reached"] != bool(reaching) or (reaching and reaching[0] is not evaluations[-1]):
        yield differ("target.reached", target["reached"], bool(reaching), "target.evaluations")
    seconds = math.fsum(each["seconds"] for each in evaluations) if evaluations else None
    given = facts.metric("evaluation_time")
    if len(evaluations) == MOST_STEPS and given is not None and seconds is not None:
        seconds = max(given, seconds)  # earlier ones are not listed
    expected = {"time_to_target": reaching[0]["training_seconds"] if reaching else None, "evaluation_time": seconds}
    yield from unequal_metrics(facts, expected, "target.evaluations")
    yield from (f"metrics.{name}: it is missing" for name in expected if name not in facts.metrics)


def _evaluations(facts: Facts, evaluations: list[Document]) -> Iterator[str]:
    steps = [each["steps"] for each in evaluations]
    if steps != sorted(set(steps)) or (steps and steps[-1] > facts.count):
        yield f"target.evaluations: {steps} do not follow each other within {facts.count} steps"
        return
    if len({each["samples"] for each in evaluations}) > 1:
        yield "target.evaluations: each has other samples"
    before, limit = 0.0, facts.metric("training_time")
    for number, each in enumerate(evaluations):
        given = each["training_seconds"]
        if facts.seconds is not None:
            seconds = math.fsum(facts.seconds[: int(each["steps"])])
            if not near(given, seconds):
                yield differ(f"target.evaluations.{number}.training_seconds", given, seconds, "steps.seconds")
        elif given < before or (limit is not None and given > limit and not near(given, limit)):
            yield f"target.evaluations.{number}.training_seconds: {given!r} is not from {before!r} to {limit!r}"
        before = given
        for name in FRACTIONS:
            value = each.get(name)
            if value is not None and not 0 <= value <= 1:
                yield f"target.evaluations.{number}.{name}: {value!r} is no fraction"


@rule(
    "evaluations follow every `goal.evaluation_steps` steps and, completed, the last step; a run that ended otherwise "
    "lacks at most one",
    "An evaluation that is left out may be one that reached the target.",
)
def evaluations_follow_when_due(facts: Facts) -> Iterator[str]:
    """Compute the steps after which evaluations were due."""
    target, goal = facts.document["target"], facts.configuration["goal"]
    if target is None or goal is None:
        return
    given, every, count = [each["steps"] for each in target["evaluations"]], goal["evaluation_steps"], facts.count
    whole = count // every
    at_end = whole + (count % every > 0)
    numbers = {at_end} if facts.completed else {max(0, whole - 1), whole, at_end}

    def due(number: int) -> list[int]:
        return [min(each * every, count) for each in range(max(1, number - MOST_STEPS + 1), number + 1)]

    if not any(len(given) == min(number, MOST_STEPS) and given == due(number) for number in numbers):
        yield f"target.evaluations: after {given[:9]} steps, of {count} with one every {every}"


@rule(
    "an evaluation is of all samples: those of a synthetic batch, or, without `configuration.evaluation_path`, of "
    "the data; there is an accuracy only of labels, and a score of answers exactly for passages; an accuracy is of a "
    "whole number of samples; no loss is negative; an answer that matches has all its words",
    "What a workload has no labels for, it cannot be right about.",
    "1e-3 of a sample; `f1` 0.1, since an answer that is only an article has no words",
)
def evaluations_fit_the_workload(facts: Facts) -> Iterator[str]:
    """Compare each evaluation with data and card."""
    target, card = facts.document["target"], card_of(facts)
    if target is None:
        return
    answers = card is not None and card.problem["input"]["kind"] == PASSAGE and _on_disk(facts)
    for number, each in enumerate(target["evaluations"]):
        field, accuracy = f"target.evaluations.{number}", each["accuracy"]
        exact, words = each["exact_match"], each["f1"]
        if not _least_samples(facts) <= each["samples"] <= _most_samples(facts):
            yield f"{field}.samples: {each['samples']!r} are not those of the data"
        if each["loss"] is not None and each["loss"] < 0:
            yield f"{field}.loss: {each['loss']!r} is negative"
        if accuracy is not None and not is_whole(accuracy * each["samples"]):
            yield f"{field}.accuracy: {accuracy!r} of {each['samples']} samples"
        if accuracy is not None and card is not None and not labelled(card.problem):
            yield f"{field}.accuracy: {card.name} has no labels"
        if card is not None and ((exact is None) == answers or (words is None) == answers):
            yield f"{field}.exact_match: {card.name} from {facts.configuration['data']} has answers: {answers}"
        if exact is not None and words is not None and words < exact - WORDLESS:
            yield differ(f"{field}.f1", words, exact, "at least exact_match")


def _on_disk(facts: Facts) -> bool:
    given = facts.configuration
    return bool(given["evaluation_path"] or given["data_path"])


def _most_samples(facts: Facts) -> float:
    samples = facts.document["data"]["samples"]
    return math.inf if facts.configuration["evaluation_path"] or samples is None else float(samples)


def _least_samples(facts: Facts) -> float:
    data = facts.document["data"]
    # Of damaged text a whole batch is left out, with one name.
    if facts.configuration["evaluation_path"] or data["source"] not in ONE_NAME_A_SAMPLE or data["samples"] is None:
        return 1.0
    return float(data["samples"] - data["skipped"]["count"])


def _reaches(target: Document, evaluation: Document) -> bool:
    value = evaluation[target["metric"]]
    if value is None:
        return False
    return bool(value >= target["value"] if target["metric"] == "accuracy" else value <= target["value"])
