"""Training on real photographs: the loss falls, evaluations count what is right, and targets are reached or not."""

from __future__ import annotations

import shutil
from statistics import fmean

import photographs
import pytest

torch = pytest.importorskip("torch")

from small_networks import losses_of, smaller  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import BatchPartition, OptimizerRule  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.workloads.pytorch import build, loader  # noqa: E402

CARDS = {name: card for name, card in cards.load().items() if cards.pictures(card.problem)}


@pytest.fixture()
def photos(tmp_path):
    return photographs.write(tmp_path)


# The largest of their families learn as the smaller ones, which take a fifth of the time.
LEARNING = sorted({*CARDS} - {"efficientnet_b4", "resnext101_32x4d"})


@pytest.mark.full
@pytest.mark.parametrize("workload", LEARNING)
def test_the_loss_falls_on_photographs(program, photos, workload):
    document = program.result(
        *(workload, "--data", photos, "--batch-size", 4, "--epochs", 4, "--warmup-steps", 1, "--meter", "none"),
        "--skip-numerics",
    )
    assert document["status"]["state"] == "completed", document["status"]
    losses = document["steps"]["losses"]
    # The last epoch as a whole: with four samples a step, one of them may leap.
    assert len(losses) == 12 and fmean(losses[-3:]) < losses[0], losses


def opened(workload, partition=None):
    card = CARDS[workload]
    model = build.model(card, seed=1)
    rule = OptimizerRule.from_problem(card.problem["optimizer"], 4)
    return model, cpu.open_session(model, rule, "fp32", partition=partition), loader.synthetic_batch(card, 4, seed=1)


def test_an_evaluation_counts_what_is_right():
    model, session, batch = opened("mobilenet_v3_small")
    with torch.no_grad():
        likeliest = model.eval()(batch.inputs)[0].argmax(1)
        labels = torch.cat([likeliest[:2], (likeliest[2:] + 1) % 1000])
        _, loss = model(batch.inputs, labels)
    judged = session.evaluate(session.to_device(batch._replace(targets=labels)))
    assert (judged.samples, judged.right) == (4, 2) and judged.loss == pytest.approx(loss.item(), rel=1e-4)


def test_an_evaluation_without_labels_has_a_loss_alone():
    model, session, batch = opened("image_compression")
    judged = session.evaluate(session.to_device(batch))
    assert (judged.samples, judged.right) == (4, None)
    with torch.no_grad():
        rebuilt, _ = model.eval()(batch.inputs)
    assert judged.loss == pytest.approx(torch.nn.functional.mse_loss(rebuilt, batch.targets).item(), rel=1e-4)


def test_an_evaluation_leaves_training_as_it_was():
    """Weights, statistics of the normalisation and the mode: the next steps are those without an evaluation."""
    losses = []
    for evaluations in (0, 1):
        _, session, batch = opened("mobilenet_v3_small")
        placed = session.to_device(batch)
        session.train(placed)
        for _ in range(evaluations):
            session.evaluate(placed)
        losses.append([session.train(placed).loss() for _ in range(2)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(("target", "reached"), [(6.9, True), (0.0001, False)])
def test_a_target_on_other_photographs_than_those_of_training(program, photos, tmp_path, target, reached):
    """Evaluated every third step, on images of which one is damaged. The first loss is that of guessing, 6.908."""
    others = tmp_path / "others"
    shutil.copytree(photos, others)
    for path in [others / "grey" / "coins.jpg", *sorted((others / "colour").iterdir())[1:]]:
        path.unlink()
    (others / "grey" / "camera.png").write_bytes(b"")
    document = program.result(
        *("mobilenet_v3_small", "--data", photos, "--evaluation-data", others, "--target-loss", target),
        *("--batch-size", 2, "--evaluation-steps", 3, "--steps", 12, "--warmup-steps", 1, "--skip-numerics"),
    )
    assert document["status"]["state"] == "completed", document["status"]
    assert document["configuration"]["evaluation_path"] == str(others)
    assert document["target"]["reached"] is reached, [
        evaluation["loss"] for evaluation in document["target"]["evaluations"]
    ]
    assert {evaluation["samples"] for evaluation in document["target"]["evaluations"]} == {5}
    assert document["data"]["skipped"]["examples"] == ["grey/camera.png"]
    assert (document["metrics"]["time_to_target"]["value"] is None) != reached
    assert document["metrics"]["evaluation_time"]["value"] > 0


def test_micro_batches_learn_what_the_whole_batch_does():
    """By steps as long as the gradient, which Adam's are not, and in a network that normalises nothing over a batch."""
    card = smaller(cards.load()["lstm"])
    rule = OptimizerRule("sgd", 0.5, 0.0, (), None, {"momentum": 0.0, "nesterov": False})
    losses = []
    for partition in (None, BatchPartition(1, accumulation=4)):
        session = cpu.open_session(build.model(card, seed=1), rule, "fp32", partition=partition)
        batch = session.to_device(loader.synthetic_batch(card, 4, seed=1))
        losses.append(losses_of(session, batch, 3))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][2] < losses[0][0]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_an_evaluation_computes_as_much_at_once_as_training(size):
    """A batch that is trained in micro-batches does not fit at once."""
    _, whole, batch = opened("mobilenet_v3_small")
    batch = batch._replace(numbers=range(4))
    _, parted, _ = opened("mobilenet_v3_small", BatchPartition(size, accumulation=4 // size))
    sizes, forward = [], parted.forward

    def counted(placed):
        sizes.append(placed.samples)
        return forward(placed)

    parted.forward = counted
    wanted, actual = whole.evaluate(batch), parted.evaluate(batch)
    assert sum(sizes) == 4 and max(sizes) == size
    assert (actual.samples, actual.right) == (wanted.samples, wanted.right)
    assert actual.loss == pytest.approx(wanted.loss, rel=1e-5)
    assert actual.output == pytest.approx(wanted.output, rel=1e-3, abs=1e-5)
