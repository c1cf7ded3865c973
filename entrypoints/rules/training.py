"""Rules about training: losses, epochs, targets, and the search for a batch."""

from __future__ import annotations

import math
from typing import Iterator

from entrypoints.rules.facts import Document, Facts, near
from entrypoints.rules.rule import ROUNDING, differ, rule

FRACTIONS = ("accuracy", "exact_match", "f1")


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
    "`evaluation_time` = their sum",
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
    expected = {
        "time_to_target": reaching[0]["training_seconds"] if reaching else None,
        "evaluation_time": math.fsum(each["seconds"] for each in evaluations) if evaluations else None,
    }
    for name, value in expected.items():
        given = facts.metric(name)
        if (given is None) != (value is None) or (given is not None and value is not None and not near(given, value)):
            yield differ(f"metrics.{name}", given, value, "target.evaluations")


def _evaluations(facts: Facts, evaluations: list[Document]) -> Iterator[str]:
    steps = [each["steps"] for each in evaluations]
    if steps != sorted(set(steps)) or (steps and steps[-1] > facts.count):
        yield f"target.evaluations: {steps} do not follow each other within {facts.count} steps"
        return
    if len({each["samples"] for each in evaluations}) > 1:
        yield "target.evaluations: each has other samples"
    for number, each in enumerate(evaluations):
        if facts.seconds is not None:
            seconds = math.fsum(facts.seconds[: int(each["steps"])])
            if not near(each["training_seconds"], seconds):
                yield differ(
                    f"target.evaluations.{number}.training_seconds", each["training_seconds"], seconds, "steps.seconds"
                )
        for name in FRACTIONS:
            value = each.get(name)
            if value is not None and not 0 <= value <= 1:
                yield f"target.evaluations.{number}.{name}: {value!r} is no fraction"


def _reaches(target: Document, evaluation: Document) -> bool:
    value = evaluation[target["metric"]]
    if value is None:
        return False
    return bool(value >= target["value"] if target["metric"] == "accuracy" else value <= target["value"])


@rule(
    "`search.largest` is the largest batch of a trial that completed, and the batch of a run that completed",
    "The run is at the size found.",
)
def search_found_the_batch(facts: Facts) -> Iterator[str]:
    """Look for the largest trial again."""
    search = facts.document["search"]
    if search is None:
        return
    largest = max((each["batch_size"] for each in search["trials"] if each["state"] == "completed"), default=None)
    if search["largest"] != largest:
        yield differ("search.largest", search["largest"], largest, "search.trials")
    elif facts.completed and facts.configuration["batch_size"] != largest:
        yield differ("configuration.batch_size", facts.configuration["batch_size"], largest, "search.largest")
