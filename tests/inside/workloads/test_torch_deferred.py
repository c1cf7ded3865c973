"""Weights that are made part by part are those of a model that is built at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from small_networks import smaller  # noqa: E402
from training_ranks import small_card  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import InferenceRule, rule_of  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.workloads.pytorch import build, deferred, loader  # noqa: E402

CARDS = cards.load()
CPU = torch.device("cpu")
LARGEST = 130_000_000  # weights: larger networks have no other layers
SMALL = [name for name, card in CARDS.items() if card.problem.get("parameters", 0) < LARGEST]
AT_ONCE = ("deep_voice_3",)  # its constructor computes constants
available = pytest.mark.skipif(not deferred.AVAILABLE, reason="this PyTorch cannot defer weights")


def equal(one, other):
    """Whether two models have the same weights and buffers, bit by bit."""
    parts = [[*model.named_parameters(), *model.named_buffers()] for model in (one, other)]
    same = all(torch.equal(a, b) and a.dtype == b.dtype for (_, a), (_, b) in zip(*parts))
    return [name for name, _ in parts[0]] == [name for name, _ in parts[1]] and same


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * name.startswith(("bert", "gpt_"))) for name in SMALL]
)
def test_deferred_weights_are_those_of_a_model_built_at_once(name):
    model = build.deferred_model(CARDS[name], 3)
    if deferred.AVAILABLE and name not in AT_ONCE:
        assert all(weight.device.type == "meta" for weight in model.parameters())
    model.fill(model, CPU)
    assert model.deferred is None
    assert equal(model, build.model(CARDS[name], 3))


@available
@pytest.mark.parametrize("name", ["gpt_175b", "llama_70b", "llama2_70b_lora", "flux_1"])
def test_networks_that_no_host_could_build_are_deferred(name):
    card = smaller(CARDS[name])
    model = build.deferred_model(card, 3)
    assert all(weight.device.type == "meta" for weight in model.parameters())
    model.fill(model, CPU)
    assert equal(model, build.model(card, 3))


@available
def test_the_order_of_parts_changes_nothing():
    card = small_card("bert_large_pretraining_128")
    model = build.deferred_model(card, 3)
    for block in reversed(build.find_blocks(model.network)):
        model.fill(block, CPU)
    model.fill(model, CPU)
    assert equal(model, build.model(card, 3))
    assert model.network.head.decoder.weight is model.network.embedding.tokens.weight


@available
def test_weights_of_large_networks_are_drawn_by_name(monkeypatch):
    """By generators of the hardware: other numbers of the same distribution, in any order of parts."""
    monkeypatch.setattr(deferred, "DRAWN_ON_HOST", 0)
    card = small_card("gpt2")
    one, other, another_seed = (build.deferred_model(card, seed) for seed in (3, 3, 4))
    for block in reversed(build.find_blocks(other.network)):
        other.fill(block, CPU)
    for model in (one, other, another_seed):
        model.fill(model, CPU)
    usual = build.model(card, 3)
    assert equal(one, other)
    assert not equal(one, another_seed)
    assert not equal(one, usual)
    for (name, weight), (_, at_once) in zip(one.named_parameters(), usual.named_parameters()):
        deviations = [each.detach().std(unbiased=False).item() for each in (weight, at_once)]
        assert deviations[0] == pytest.approx(deviations[1], rel=0.1), name
    values = {float(weight.detach().flatten()[0]) for weight in one.parameters() if weight.dim() > 1}
    assert len(values) == sum(weight.dim() > 1 for weight in one.parameters())


class Drawn(torch.nn.Module):  # type: ignore[name-defined]
    """A network whose weight is no initialised tensor."""

    def __init__(self, make):
        super().__init__()
        self.weight = torch.nn.Parameter(make())


@available
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4),
        lambda: torch.ones(4),
        lambda: torch.empty(4),
        lambda: torch.empty(4).normal_().add_(torch.ones(4)),
        lambda: torch.nn.init.normal_(torch.empty(8))[:4],
        lambda: torch.empty(4).uniform_().mul_(2).add_(1).normal_().mul_(3).add_(torch.empty(4).normal_()),
    ],
)
def test_what_cannot_be_done_again_is_not_deferred(make):
    assert deferred.deferred(lambda: Drawn(make), 3) is None


@available
def test_operations_after_the_draw_are_done_too():
    def make():
        return Drawn(lambda: torch.empty(100).zero_().uniform_(-1, 1).mul_(2).add_(0.5).clamp_(min=-1.0))

    made = deferred.deferred(make, 3)
    assert made is not None
    model, weights = made
    weights.fill(model, CPU)
    torch.manual_seed(3)
    assert torch.equal(model.weight, make().weight)


def held(session):
    """Bytes of all that a session keeps of its model, in every form."""
    tensors = [*session.model.parameters(), *session.inference_model().parameters()]
    return sum({each.data_ptr(): each.numel() * each.element_size() for each in tensors}.values())


@pytest.mark.parametrize("name", ["gpt2", "bert_base", "resnet50", "lstm"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_model_that_only_answers_answers_as_one_that_is_trained(name, precision):
    card = small_card(name)
    batch = loader.synthetic_batch(card, 2, 0)
    cpu.prepare(precision, 1)
    trained = cpu.open_session(build.model(card, 1), rule_of(card.problem, 2), precision)
    answering = cpu.open_session(build.deferred_model(card, 1), rule_of(card.problem, 2, "inference"), precision)
    sessions: Any = (trained, answering)
    expected, answers = (session.infer(batch).output() for session in sessions)
    for one, other in zip(*(answer if isinstance(answer, tuple) else (answer,) for answer in (expected, answers))):
        assert one.tolist() == other.tolist()
    request: Any = answering.infer_request
    assert request(batch).output is not None
    assert answering.optimizer is None
    assert held(answering) < held(trained) or (precision == "fp32" and held(answering) == held(trained))


def test_half_precision_keeps_half_of_what_it_computes_in():
    card = small_card("gpt2")
    cpu.prepare("bf16", 1)
    session = cpu.open_session(build.deferred_model(card, 1), InferenceRule(), "bf16")
    halved = [
        weight
        for layer in session.model.modules()
        if isinstance(layer, torch.nn.Linear)
        for weight in layer.parameters()
    ]
    assert {weight.dtype for weight in halved} == {torch.bfloat16}
    others = sum(weight.numel() for weight in session.model.parameters()) - sum(map(torch.numel, halved))
    assert held(session) == 2 * sum(map(torch.numel, halved)) + 4 * others


@pytest.mark.skipif(torch.__version__ < "2.13", reason="earlier versions import the compiler for other things")
def test_eager_inference_imports_no_compiler():
    """It takes a second."""
    script = """
import sys
from entrypoints.contract import cards
from entrypoints.contract.session import rule_of
from entrypoints.devices.pytorch import cpu
from entrypoints.workloads.pytorch import build, loader
card = cards.load()["gpt2"]
cpu.prepare("fp32", 1)
session = cpu.open_session(build.deferred_model(card, 1), rule_of(card.problem, 1, "inference"), "fp32")
session.infer(loader.synthetic_batch(card, 1, 0)).output()
session.executed()
assert "torch._dynamo" not in sys.modules
"""
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", script], cwd=root, check=True, env={"PYTHONPATH": str(root), "PATH": ""})
