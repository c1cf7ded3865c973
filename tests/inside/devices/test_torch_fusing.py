"""Convolutions fused with what follows them: the same mathematics, and only where that is faster. No GPU is here."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gpu_stand_in  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import rule_of  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.devices.pytorch.shared.inference import fusing  # noqa: E402
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
    """cuDNN's operations with the arguments of PyTorch's signatures, computed by the CPU's. Counts its calls."""

    def __init__(self, monkeypatch, refuses=None):
        self.calls, self.refuses = [], refuses
        monkeypatch.setattr(torch, "cudnn_convolution_relu", self.rectified)
        monkeypatch.setattr(torch, "cudnn_convolution_add_relu", self.added)
        self.operations: Any = fusing.of_gpus("cudnn")
        self.choices: dict[str, bool] = {}

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
    """A session that has trained two steps, so that statistics are of its own; images; and its folded network."""
    card = small(workload)
    session = cpu.open_session(build.model(card, 1), rule_of(card.problem, 4), precision)
    batch = session.to_device(loader.synthetic_batch(card, 4, seed=1))
    for _ in range(2):
        session.train(batch)
    return session, batch, session.strategy.inference_model(session.model)


def answer(session, model, batch):
    with torch.inference_mode(), session.autocast():
        return model(batch.inputs)[0].float()


@pytest.mark.parametrize(("workload", "precision"), [("resnet50", "fp32"), ("resnext101_32x4d", "bf16")])
def test_fused_and_unfused_networks_compute_the_same(monkeypatch, workload, precision):
    session, batch, model = inference(workload, precision)
    expected = answer(session, model, batch)
    library = Library(monkeypatch)
    fusing.fuse(model, library.operations, in_turn(*FASTER), library.choices)
    assert fusing.described("cuda", library.choices) is None, "nothing was called yet"
    for calls in (30, 40):  # the first call tries each layer, and computes it
        difference = (answer(session, model, batch) - expected).abs().max()
        assert difference <= expected.abs().max() * (1e-5 if precision == "fp32" else 0.03)
        assert len(library.calls) == calls and library.calls.count("added") == 3 * calls / 10
    assert fusing.described("cuda", library.choices) == "10 of 10 in one operation with their ReLU, by cudnn"


def test_a_layer_that_is_slower_in_one_operation_stays_as_it_was(monkeypatch):
    session, batch, model = inference("resnet50")
    expected = answer(session, model, batch)
    library = Library(monkeypatch)
    fusing.fuse(model, library.operations, in_turn(*SLOWER), library.choices)
    for _ in range(2):
        assert torch.equal(answer(session, model, batch), expected)
    assert len(library.calls) == 20, "each was tried once"
    assert fusing.described("cuda", library.choices) == "0 of 10 in one operation with their ReLU, by cudnn"


def test_what_the_library_cannot_compute_stays_as_it_was(monkeypatch):
    """Such as 7x7 convolutions here."""
    session, batch, model = inference("resnet50")
    library = Library(monkeypatch, refuses=lambda weight: weight.shape[-1] == 7)
    fusing.fuse(model, library.operations, in_turn(*FASTER), library.choices)
    answer(session, model, batch)
    assert list(library.choices.values()) == [False] + [True] * 9
    assert str(fusing.described("cuda", library.choices)).startswith("9 of 10")


def test_pytorch_takes_these_arguments():
    """A build for the CPU knows cuDNN's and MIOpen's operations, and says that it has no kernel for them."""
    assert fusing.library("xpu") is None
    for name in ("cudnn", "miopen"):
        library = fusing.of_gpus(name)
        if library is None:
            assert name == "miopen", "PyTorch 1.13 has none"
            continue
        layer = fusing.FusedConvolution("", torch.nn.Conv2d(4, 4, 3, padding=1), library, in_turn(*FASTER), {})
        x = torch.ones(1, 4, 8, 8)
        with torch.inference_mode():
            for shortcut in (None, x):
                with pytest.raises(NotImplementedError, match=f"{name}_convolution"):
                    layer.in_one(x, shortcut)
            assert torch.equal(layer.rectified(x), torch.relu(layer(x))) and not layer.choices[""]


def test_a_call_is_timed_by_its_fastest():
    runtime: Any = gpu_stand_in.Runtime()
    seconds = iter([9.0, 9.0, 3.0, 2.0, 4.0, 2.5, 3.0])

    class Clock:
        def mark(self):
            event = runtime.Event(enable_timing=True)
            event.record()
            return event

        def wait(self, mark):
            mark.synchronize()

        def seconds_between(self, earlier, later):
            return earlier.elapsed_time(later) / 1000

    assert fusing.fastest(Clock(), lambda: runtime.queue("call", next(seconds))) == pytest.approx(2.0)
    assert len(runtime.of("event awaited")) == 1


needs_compiler = pytest.mark.skipif(not hasattr(torch, "compile"), reason="this PyTorch compiles nothing")


@pytest.mark.parametrize("compiled", [None, pytest.param("default", marks=needs_compiler)])
def test_an_eager_session_fuses_after_every_update_and_tries_once(monkeypatch, compiled):
    card, library = small("resnet50"), Library(monkeypatch)
    sessions: list[Any] = [cpu.open_session(build.model(card, 1), rule_of(card.problem, 4), "fp32") for _ in range(2)]
    plain, fused = sessions
    fused.compiled = compiled
    batch = fused.to_device(loader.synthetic_batch(card, 4, seed=1))
    monkeypatch.setattr(torch, "compile", lambda model, mode: model, raising=False)
    timed = in_turn(*FASTER)
    monkeypatch.setattr(fusing, "fastest", lambda _, call: timed(call))
    for _ in range(2):
        monkeypatch.setattr(fusing, "library", lambda kind: None)
        expected = plain.infer(batch).output()
        monkeypatch.setattr(fusing, "library", lambda kind: library.operations)
        assert fused.infer(batch).output() == pytest.approx(expected, rel=1e-4, abs=1e-5)
        for session in sessions:
            session.train(batch)
    assert fused.model.network.conv1.weight.requires_grad
    assert len(library.calls) == (0 if compiled else 40)


@pytest.mark.skipif(fusing.library("cpu") is None, reason="this PyTorch does not have oneDNN's fused operations")
@pytest.mark.parametrize(("workload", "precision"), [("resnext101_32x4d", "fp32"), ("resnet50", "bf16")])
def test_the_cpu_fuses_them_by_onednn(workload, precision):
    session, batch, model = inference(workload, precision)
    expected = answer(session, model, batch)
    for size in (4, 3):  # weights were laid out for the first
        part = batch._replace(inputs=batch.inputs[:size])
        difference = abs(torch.from_numpy(session.infer(part).output()) - expected[:size]).max()
        assert difference <= expected.abs().max() * (1e-5 if precision == "fp32" else 0.03)
    said = session.executed().facts["convolutions"]
    assert said == "10 of 10 in one operation with their ReLU, by oneDNN" or precision == "bf16"
    session.train(batch)
    changed = session.infer(batch).output()
    assert changed == pytest.approx(answer(session, session.strategy.inference_model(session.model), batch), abs=0.1)
    assert abs(torch.from_numpy(changed) - expected).max() > 0


def test_a_network_that_is_not_folded_stays_as_it_is(monkeypatch):
    library = Library(monkeypatch)
    for model in (
        build.model(small("resnet50"), 1),
        build.fold_batch_norms(build.model(CARDS["image_compression"], 1)),
    ):
        fusing.fuse(model, library.operations, in_turn(*FASTER), library.choices)
        assert not any(isinstance(layer, fusing.FusedConvolution) for layer in model.modules())
