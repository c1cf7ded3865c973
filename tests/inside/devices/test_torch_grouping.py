"""Groups of convolutions for inference: the same outputs in fewer groups, where that is faster. No GPU is here."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from test_torch_gpu import RUNTIME  # noqa: E402
from torch import nn  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import InferenceRule, rule_of  # noqa: E402
from entrypoints.devices.pytorch import cuda  # noqa: E402
from entrypoints.devices.pytorch.shared import gpu  # noqa: E402
from entrypoints.devices.pytorch.shared.inference import fusing, grouping  # noqa: E402
from entrypoints.workloads.pytorch import build, loader, resnet  # noqa: E402

CARD = cards.load()["resnext101_32x4d"]
LAYER = {"kernel_size": 3, "padding": 1}


def small():
    """A card of a network whose groups have 4 channels at first, and 32 at last, as in the large one."""
    problem = copy.deepcopy(dict(CARD.problem))
    problem["model"].update(layers=[1, 1, 1, 1], stem_width=64, groups=16, width_per_group=4, classes=10)
    problem["input"].update(shape=[3, 32, 32])
    problem["parameters"] = sum(weight.numel() for weight in resnet.network(problem["model"]).parameters())
    return CARD._replace(problem=problem)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("stride", "bias"), [(1, True), (2, False)])
def test_layers_with_fewer_groups_have_the_same_outputs(memory_format, stride, bias):
    layer = nn.Conv2d(64, 32, groups=16, stride=stride, bias=bias, **LAYER).double().to(memory_format=memory_format)
    x = torch.randn(2, 64, 6, 6, dtype=torch.float64).contiguous(memory_format=memory_format)
    assert grouping.fewer(layer) == [4, 2, 1]
    for groups in grouping.fewer(layer):
        made = grouping.merged(layer, groups)
        assert made.weight.shape == (32, 64 // groups, 3, 3) and made.groups == groups and layer.groups == 16
        assert made.weight.is_contiguous(memory_format=memory_format) and not made.weight.requires_grad
        torch.testing.assert_close(made(x), layer(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("layer", "tried"),
    [
        (nn.Conv2d(256, 256, groups=32, **LAYER), [16, 8, 4]),  # of 8 channels
        (nn.Conv2d(1024, 1024, groups=32, **LAYER), [16]),
        (nn.Conv2d(36, 36, groups=3, **LAYER), []),  # of 12
        (nn.Conv2d(2048, 2048, groups=32, **LAYER), []),  # wide enough
    ],
)
def test_groups_of_so_many_channels_are_tried(layer, tried):
    assert grouping.fewer(layer) == tried


def test_whole_and_depthwise_convolutions_are_left_alone():
    layers = nn.Sequential(
        nn.Conv2d(8, 8, **LAYER), nn.Conv2d(8, 8, groups=8, **LAYER), nn.Conv2d(8, 8, groups=2, **LAYER)
    )
    assert [name for _, name, _ in grouping.grouped(layers)] == ["2"]


def in_turn(*seconds):
    """What says, instead of timing calls, how long they take."""
    left = list(seconds)

    def timed(_, call):
        call()
        return left.pop(0)

    return timed


@pytest.mark.parametrize("amd", [False, True])
def test_the_fastest_groups_of_each_shape_are_taken_once_and_answers_stay(monkeypatch, amd):
    """Four shapes: groups of 4, 8, 16 and 32 channels, with 3, 3, 2 and 1 others to try."""
    card = small()
    batch = loader.synthetic_batch(card, 2, seed=1)
    monkeypatch.setattr(cuda, "AMD", amd)
    monkeypatch.setattr(fusing, "library", lambda _: None)
    monkeypatch.setattr(fusing, "fastest", in_turn(*(4, 1, 2, 3), *(1, 2, 3, 4), *(3, 2, 1), *(2, 1)))
    facts = gpu.facts("cpu", "nobody", "none", "package", 1 << 30)
    model = build.model(card, 1)
    expected = copy.deepcopy(model).eval().network(batch.inputs).detach().numpy()
    how = (rule_of(card.problem, 2, "inference"), "fp32", None, None, facts, dict)
    session: Any = cuda.CudaSession(RUNTIME, model, *how)
    with contextlib.closing(session):
        for _ in range(2):
            assert session.infer(batch).output() == pytest.approx(expected, rel=1e-3, abs=1e-4)
        groups = [layer.groups for layer in session.model.modules() if getattr(layer, "kernel_size", 0) == (3, 3)]
        assert groups == ([16, 16, 16, 16] if amd else [4, 16, 4, 8])
        said = "groups computed together: 16 of 256 channels as 4, 16 of 512 channels as 8, 16 of 64 channels as 4"
        assert session.executed().facts["convolutions"] == (None if amd else said)


def test_models_that_are_trained_keep_their_groups(monkeypatch):
    card = small()
    monkeypatch.setattr(cuda, "AMD", False)
    monkeypatch.setattr(grouping, "merge", lambda *_: pytest.fail("merged"))
    facts = gpu.facts("cpu", "nobody", "none", "package", 1 << 30)
    rule = rule_of(card.problem, 2)
    assert not isinstance(rule, InferenceRule)
    session = cuda.CudaSession(RUNTIME, build.model(card, 1), rule, "fp32", None, None, facts, dict)
    with contextlib.closing(session):
        session.infer(loader.synthetic_batch(card, 2, seed=1))
