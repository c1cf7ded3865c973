"""Training until a target is reached: what is evaluated, when it ends, and what time counts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from entrypoints.contract import cards
from entrypoints.contract.group import Place
from entrypoints.contract.messages import Ended, Evaluated, Phase, Step, decode, encode
from entrypoints.contract.session import Batch, EvaluationResult
from entrypoints.contract.statuses import UsageError
from entrypoints.contract.target import Quality, Target, reached
from entrypoints.planning import arguments
from entrypoints.planning.resolve import resolve
from entrypoints.results import result
from entrypoints.results.measurement import EVALUATED, fold
from entrypoints.results.metrics import energy, throughput, training
from entrypoints.worker.target_pursuit import Evaluation, TargetPursuit

LOSS: Target = {"metric": "loss", "value": 0.5, "evaluation_steps": 2}
ACCURACY: Target = {"metric": "accuracy", "value": 0.75, "evaluation_steps": 2}


def evaluated(loss=1.0, accuracy=None, steps=2, began=0.0, ended=1.0):
    return Evaluated(steps, began, ended, 8, loss, accuracy)


@pytest.mark.parametrize(
    ("goal", "quality", "expected"),
    [
        (LOSS, evaluated(0.5), True),
        (LOSS, evaluated(0.51), False),
        (LOSS, evaluated(math.nan), False),
        (ACCURACY, evaluated(accuracy=0.75), True),
        (ACCURACY, evaluated(accuracy=0.74), False),
        (ACCURACY, evaluated(0.0), False),
    ],
)
def test_when_a_goal_is_reached(goal, quality, expected):
    assert reached(goal, quality) is expected


class Answers:
    """A session that was asked to evaluate."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def evaluate(self, batch):
        return self.answers.pop(0)


def test_loss_and_accuracy_are_means_over_samples_not_over_batches():
    messages: list[Any] = []
    session: Any = Answers(EvaluationResult(6, 1.0, 6), EvaluationResult(2, 5.0, 0))
    pursuit = TargetPursuit(ACCURACY, session, Evaluation(lambda: [Batch(range(2), None)] * 2), messages.append)
    pursuit.evaluate(4)
    (message,) = messages
    assert (message.steps, message.samples, message.loss, message.accuracy) == (4, 8, 2.0, 0.75)
    assert pursuit.reached and pursuit.evaluated_at == 4
    assert decode(encode(message)) == message


def test_without_labels_there_is_no_accuracy():
    messages: list[Any] = []
    session: Any = Answers(EvaluationResult(6, 1.0, None))
    TargetPursuit(LOSS, session, Evaluation(lambda: [Batch(range(2), None)]), messages.append).evaluate(1)
    assert messages[0].accuracy is None


class Ranks:
    """All ranks of a run, seen from one: the others have the same numbers."""

    def __init__(self, world):
        self.place = Place(0, world, 0, world)

    def total(self, numbers):
        return [number * self.place.world for number in numbers]

    def agree(self, numbers):
        return numbers


@pytest.mark.parametrize("ranks_of_a_copy", [1, 2])
def test_ranks_that_share_a_copy_of_the_model_count_its_samples_once(ranks_of_a_copy):
    messages: list[Any] = []
    session: Any = Answers(EvaluationResult(6, 1.0, 3))
    evaluation = Evaluation(lambda: [Batch(range(6), None)], own=True, place=Place(0, 2, 0, 2))
    pursuit = TargetPursuit(ACCURACY, session, evaluation, messages.append)
    group: Any = Ranks(2 * ranks_of_a_copy)
    pursuit.evaluate(1, group)
    assert (messages[0].samples, messages[0].loss, messages[0].accuracy) == (12, 1.0, 0.5)


class Counting:
    """A grader to which every answer is as good as it is long."""

    def __init__(self):
        self.added = []

    def add(self, numbers, output):
        self.added.append((numbers, output))

    def quality(self):
        return Quality(0.25, len(self.added) / 10)


def test_answers_are_graded_anew_in_each_evaluation():
    messages: list[Any] = []
    batches = [Batch(range(2), None, numbers=[0, 1]), Batch(range(2), None, numbers=[2, 3])]
    session: Any = Answers(*[EvaluationResult(2, 1.0, None, "output")] * 4)
    pursuit = TargetPursuit(LOSS, session, Evaluation(lambda: batches, Counting), messages.append)
    for steps in (2, 4):
        pursuit.evaluate(steps)
    assert [(message.exact_match, message.f1) for message in messages] == [(0.25, 0.2)] * 2
    assert decode(encode(messages[0])) == messages[0]
    run = fold(
        [Phase("compile", 0.0), *STEPS, messages[0], *STEPS, messages[1], Ended(9.0)],
        "sequences",
        "training",
        target=LOSS,
    )
    target = result.target(run)
    assert target
    assert [(evaluation["exact_match"], evaluation["f1"]) for evaluation in target["evaluations"]] == [(0.25, 0.2)] * 2


STEPS = [Step(1.0, 0.0, 4, 1, 1.0)] * 2
RUN = fold(
    [
        *(Phase("compile", 0.0), Step(2.0, 0.0, 4, 1, 1.0), Phase("warmup", 2.0), Step(1.0, 0.0, 4, 1, 1.0)),
        *(evaluated(0.9, 0.5, 2, 3.0, 8.0), Phase("steady", 8.0), *STEPS, evaluated(0.4, 0.7, 4, 10.0, 17.0)),
        *(*STEPS, evaluated(0.3, 0.8, 6, 19.0, 20.0), Ended(20.0)),
    ],
    "images",
    "training",
    target=ACCURACY,
)


def test_time_to_target_is_training_time():
    assert training.time_to_target(RUN).value == 7.0
    assert training.evaluation_time(RUN).value == 13.0
    assert throughput.throughput(RUN).value == 4.0  # 16 images in the four seconds of the timed steps


def test_no_phase_has_evaluations_in_it():
    assert RUN.phases == {"compile": 2.0, "warmup": 1.0, "steady": 4.0}


def test_evaluations_leave_no_energy():
    assert energy.energy(RUN).reason == EVALUATED


def test_what_is_told_of_a_target():
    target = result.target(RUN)
    assert target
    assert (target["metric"], target["value"], target["reached"]) == ("accuracy", 0.75, True)
    assert [
        (evaluation["steps"], evaluation["training_seconds"], evaluation["seconds"])
        for evaluation in target["evaluations"]
    ] == [
        (2, 3.0, 5.0),
        (4, 5.0, 7.0),
        (6, 7.0, 1.0),
    ]
    assert result.target(fold([], "images", "training")) is None


def test_a_run_ends_when_its_target_is_reached(double):
    document = double.result("resnet50", "--steps", "40", "--target-loss", "0.1", "--evaluation-steps", "4")
    target = document["target"]
    assert target["reached"] and [evaluation["steps"] for evaluation in target["evaluations"]] == [4, 8, 12]
    assert document["steps"]["count"] == 12
    assert document["status"]["message"] == "the target, loss 0.1, was reached after 12 steps"
    seconds = document["metrics"]["time_to_target"]["value"]
    assert seconds == pytest.approx(sum(document["steps"]["seconds"])) and seconds >= 12 * 0.01
    assert document["metrics"]["evaluation_time"]["value"] >= 3 * 0.01


def test_a_target_that_is_never_reached_is_told_so(double):
    document = double.result("resnet50", "--steps", "9", "--target-accuracy", "0.9", "--evaluation-steps", "4")
    assert document["status"]["state"] == "completed" and document["target"]["reached"] is False
    assert [evaluation["steps"] for evaluation in document["target"]["evaluations"]] == [4, 8, 9]
    assert "was not reached in 9 steps; the best was 0.0" in document["status"]["message"]
    assert document["metrics"]["time_to_target"] == {
        "value": None,
        "unit": "s",
        "reason": "the target was not reached in 9 steps",
    }


def test_a_target_within_the_warm_up_ends_the_run(double):
    words = ("--steps", "40", "--warmup-steps", "20", "--target-loss", "0.6", "--evaluation-steps", "2")
    document = double.result("resnet50", *words)
    assert document["target"]["reached"] and document["steps"]["count"] == 2
    assert document["metrics"]["throughput"]["value"] is None


def resolved(workload, *words):
    return resolve(arguments.parse([workload, *words]), cards.load()[workload], None)


def test_an_epoch_lies_between_two_evaluations():
    words = ("--target-loss", "1", "--steps", "40", "--batch-size", "5", "--samples-per-epoch", "52")
    assert resolved("resnet50", *words).goal["evaluation_steps"] == 10
    assert resolved("resnet50", *words[:4]).goal["evaluation_steps"] == 100


@pytest.mark.parametrize(
    ("workload", "words", "said"),
    [
        ("resnet50", ["--evaluation-steps", "3"], "nothing is evaluated"),
        ("resnet50", ["--target-loss", "1", "--task", "inference"], "trains nothing"),
        ("image_compression", ["--target-accuracy", "0.5"], "has no labels. Use --target-loss"),
        ("resnet50", ["--target-accuracy", "75"], "not a fraction above 0, up to 1"),
        ("resnet50", ["--target-loss", "nan"], "not a number above 0"),
        ("resnet50", ["--target-loss", "1"], "may never be reached. Give --steps"),
        ("resnet50", ["--target-loss", "1", "--target-accuracy", "0.5"], "not allowed with"),
    ],
)
def test_what_cannot_be_a_target(workload, words, said):
    with pytest.raises(UsageError, match=said):
        resolved(workload, *words)
