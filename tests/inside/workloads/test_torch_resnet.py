"""The network against the paper's numbers and against torchvision's, with the same weights."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import OptimizerRule  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.workloads.pytorch import build, optimizers, resnet  # noqa: E402

CARD = cards.load()["resnet50"]
RULE = OptimizerRule.from_problem(CARD.problem["optimizer"], 64)


@pytest.fixture(scope="module")
def model():
    return build.model(CARD, seed=3)


def test_another_number_is_refused():
    problem = copy.deepcopy(dict(CARD.problem))
    problem["model"]["layers"] = [3, 4, 5, 3]
    with pytest.raises(RunError, match="its card says 25557032"):
        build.model(CARD._replace(problem=problem), seed=0)


def test_the_3x3_convolution_halves_the_resolution(model):
    strides = {
        name: module.stride[0]
        for name, module in model.network.named_modules()
        if isinstance(module, torch.nn.Conv2d) and module.stride != (1, 1)
    }
    halving = {f"layer{stage}.0.{part}": 2 for stage in (2, 3, 4) for part in ("conv2", "downsample.0")}
    assert strides == {"conv1": 2, **halving}


def test_the_loss_is_smoothed_cross_entropy(model):
    logits = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    loss = build.LOSSES["cross_entropy"]({"label_smoothing": 0.1})(logits, torch.tensor([0]))
    logs = torch.log_softmax(logits[0], 0)
    expected = -(0.925 * logs[0] + 0.025 * (logs[1] + logs[2] + logs[3]))  # a tenth spread over four classes
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert model(torch.zeros(1, 3, 224, 224))[1] is None


def test_weights_begin_as_the_card_says(model):
    weight = model.network.layer4[2].conv2.weight
    assert weight.std().item() == pytest.approx((2 / (9 * 512)) ** 0.5, rel=0.01)
    assert torch.equal(model.network.layer1[0].bn3.weight, torch.ones(256))
    assert model.network.fc.weight.abs().max().item() <= 2048**-0.5
    assert model.network.bn1.eps == 1e-5 and model.network.bn1.momentum == 0.1


def test_a_seed_gives_the_same_weights():
    first, same, other = (build.model(CARD, seed).network.fc.weight for seed in (5, 5, 6))
    assert torch.equal(first, same) and not torch.equal(first, other)


def test_weight_decay_spares_the_normalisation_alone(model):
    decayed, exempt = optimizers.parameter_groups(model, RULE)
    assert decayed["weight_decay"] == 2**-15 and exempt["weight_decay"] == 0
    assert sum(parameter.numel() for parameter in exempt["params"]) == 53120  # 26,560 channels, scale and shift
    assert len(decayed["params"]) + len(exempt["params"]) == len(list(model.parameters()))


def test_the_learning_rate_grows_with_the_batch():
    assert RULE.learning_rate == 0.064
    assert OptimizerRule.from_problem(CARD.problem["optimizer"], 512).learning_rate == 0.512


def test_the_downsampling_block_keeps_what_v1_throws_away():
    block = resnet.Bottleneck(8, 4, 2, CARD.problem["model"])
    assert block(torch.zeros(1, 8, 10, 10)).shape == (1, 16, 5, 5)
