"""Convolutions fused with what follows them: the same mathematics, and only where that is faster. No GPU is here."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gpu_stand_in  # noqa: E402
from test_torch_gpu import RUNTIME  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import rule_of  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.devices.pytorch.shared import fusing, gpu  # noqa: E402
from entrypoints.workloads.pytorch import build, loader, resnet  # noqa: E402

CARDS = cards.load()



def small(workload):
    """A card of a residual network with a block of each width, and small images."""
    problem = copy.deepcopy(dict(CARDS[workload].problem))
    problem["model"].update(layers=[1, 2], stem_width=8, classes=10)
    if problem["model"]["groups"] > 1:
        problem["model"].update(groups=2, width_per_group=32)
    problem["input"].update(shape=[3, 32, 32])
    problem["parameters"] = sum(weight.numel() for weight in resnet.network(problem["model"]).parameters())
    return CARDS[workload]._replace(problem=problem)


class Library:
    """The operations of cuDNN, as their documentation has them, by those of the CPU. Counts its calls."""

    def __init__(self, refuses=None):
        self.calls, self.refuses = [], refuses
        self.operations = fusing.FusingLibrary("cudnn", self.rectified, self.added)

    def rectified(self, x, weight, bias, stride, padding, dilation, groups):
        assert x.dtype == weight.dtype == bias.dtype, "they are not cast"
        self.calls.append("rectified")
        if self.refuses and self.refuses(weight):
            raise RuntimeError("GET was unable to find an engine to execute this computation")
        with torch.autocast("cpu", enabled=False):
            return torch.relu(torch.conv2d(x, weight, bias, stride, padding, dilation, groups))

    def added(self, x, weight, shortcut, alpha, bias, stride, padding, dilation, groups):
        assert x.dtype == weight.dtype == shortcut.dtype == bias.dtype and alpha == 1.0
        self.calls.append("added")
        with torch.autocast("cpu", enabled=False):
            return torch.relu(torch.conv2d(x, weight, bias, stride, padding, dilation, groups) + shortcut)


def in_turn(*seconds):
    """What says, instead of timing calls, how long they take; each is called once."""

    def timed(call):
        call()
        times.append(times.pop(0))
        return times[-1]

    times = list(seconds)
    return timed


FASTER, SLOWER = (1.0, 2.0), (2.0, 1.0)  # in one operation, and in several


def inference(workload, precision="fp32"):
    """A folded network with running statistics of its own, and images."""
    card = small(workload)
    session = cpu.open_session(build.model(card, 1), rule_of(card.problem, 4), precision)
    batch = session.to_device(loader.synthetic_batch(card, 4, seed=1))
    for _ in range(2):
        session.train(batch)
    return session, batch


@pytest.mark.parametrize(("workload", "precision"), [("resnet50", "fp32"), ("resnext101_32x4d", "bf16")])
def test_fused_and_unfused_networks_compute_the_same(workload, precision):
    session, batch = inference(workload, precision)
    expected = session.infer(batch).output()
    library = Library()
    layers = fusing.fuse(session.cached_inference_model, library.operations, in_turn(*FASTER))
    assert len(layers) == 10 and fusing.described(layers) is None, "nothing was called yet"
    for calls in (20, 30):  # the first call tries each layer, and computes it
        difference = abs(session.infer(batch).output() - expected).max()
        assert difference <= abs(expected).max() * (1e-5 if precision == "fp32" else 0.03)
        assert len(library.calls) == calls and library.calls.count("added") == 3 * calls / 10
    assert fusing.described(layers) == "10 of 10 in one operation with their ReLU, by cudnn"


def test_a_layer_that_is_slower_in_one_operation_stays_as_it_was():
    session, batch = inference("resnet50")
    expected = session.infer(batch).output()
    library = Library()
    layers = fusing.fuse(session.cached_inference_model, library.operations, in_turn(*SLOWER))
    for _ in range(2):
        assert (session.infer(batch).output() == expected).all()
    assert len(library.calls) == 10, "each was tried once"
    assert fusing.described(layers) == "0 of 10 in one operation with their ReLU, by cudnn"


def test_what_the_library_cannot_compute_stays_as_it_was():
    """Such as 7x7 convolutions here."""
    session, batch = inference("resnet50")
    session.infer(batch)
    library = Library(refuses=lambda weight: weight.shape[-1] == 7)
    layers = fusing.fuse(session.cached_inference_model, library.operations, in_turn(*FASTER))
    session.infer(batch)
    assert [layer.fused for layer in layers] == [False] + [True] * 9
    assert str(fusing.described(layers)).startswith("9 of 10")


def test_pytorch_takes_these_arguments():
    """A build for the CPU knows the operations, and their arguments, and says that it has no kernel for them."""
    library = fusing.library("cuda")
    assert library is not None and fusing.library("xpu") is None and fusing.library("cpu") is None
    layer = fusing.FusedConvolution(torch.nn.Conv2d(4, 4, 3, padding=1), library, in_turn(*FASTER))
    x = torch.ones(1, 4, 8, 8)
    with torch.inference_mode():
        for shortcut in (None, x):
            with pytest.raises(NotImplementedError, match="cudnn_convolution"):
                layer.in_one(x, shortcut)
        assert torch.equal(layer.rectified(x), torch.relu(layer(x))) and layer.fused is False


def test_a_call_is_timed_by_its_fastest():
    runtime: Any = gpu_stand_in.Runtime()
    seconds = iter([9.0, 9.0, 3.0, 2.0, 4.0, 2.5, 3.0])
    assert fusing.timing(runtime)(lambda: runtime.queue("call", next(seconds))) == pytest.approx(2.0)
    assert len(runtime.of("event awaited")) == 1


@pytest.mark.parametrize("compiled", [None, "default"])
def test_an_eager_session_fuses_after_every_update_anew(monkeypatch, compiled):
    library, card = Library(), small("resnet50")
    monkeypatch.setattr(fusing, "library", lambda kind: library.operations)
    monkeypatch.setattr(fusing, "timing", lambda runtime: in_turn(*FASTER))
    monkeypatch.setattr(torch, "compile", lambda model, mode: model, raising=False)
    facts = gpu.facts("cpu", "nobody", "none", "package", 1 << 30)
    session = gpu.GpuSession(RUNTIME, build.model(card, 1), rule_of(card.problem, 4), "fp32", compiled, None, facts, dict)
    reference = cpu.open_session(build.model(card, 1), rule_of(card.problem, 4), "fp32")
    batch = session.to_device(loader.synthetic_batch(card, 4, seed=1))
    outputs = []
    for _ in range(2):
        outputs = [each.infer(batch).output() for each in (session, reference)]
        assert outputs[0] == pytest.approx(outputs[1], rel=1e-4, abs=1e-5)
        for each in (session, reference):
            each.train(batch)
    assert len(library.calls) == (0 if compiled else 40) and session.model.network.conv1.weight.requires_grad
    assert session.convolutions() == (None if compiled else "10 of 10 in one operation with their ReLU, by cudnn")
    if not compiled:
        assert session.executed().facts["convolutions"] == session.convolutions()
        assert reference.executed().facts["convolutions"] is None


def test_a_network_that_is_not_folded_stays_as_it_is():
    model = build.model(small("resnet50"), 1)
    assert not fusing.fuse(model, Library().operations, in_turn(*FASTER))
    autoencoder = build.fold_batch_norms(build.model(CARDS["image_compression"], 1))
    assert not fusing.fuse(autoencoder, Library().operations, in_turn(*FASTER))
