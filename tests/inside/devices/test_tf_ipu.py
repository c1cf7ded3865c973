"""IPUs in TensorFlow: the session makes no call that Graphcore's sources do not have, and steps as the CPU's does.

What stands in for Graphcore's package runs steps on the host; its calls are those of `stand_ins/ipu_strategy.json`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from gcipuinfo_stand_in import Inventory

tf = pytest.importorskip("tensorflow")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.tensorflow import cpu  # noqa: E402
from entrypoints.workloads.tensorflow import build, loader  # noqa: E402

FACTS = json.loads((Path(__file__).parent.parent / "support" / "stand_ins" / "ipu_strategy.json").read_text("utf-8"))[
    "names"
]
MODULE = "entrypoints.devices.tensorflow.ipu"
GONE = "Target configuration failed: model disabled and no hardware IPU found."
SHORT = "[Poplar][Compile engine] graph_memory_allocation_error: x"
FUNCTIONS = type(tf.function(lambda: None))


class IPUConfig:
    """Settings that are known by name, and take values of their own type alone."""

    available = True
    auto_select_ipus: int

    def __setattr__(self, name, value):
        if f"ipu.config.IPUConfig.{name}" not in FACTS:
            raise ValueError(f"'{name}' is not a valid attribute")
        if not isinstance(value, (int, list, tuple)) or isinstance(value, bool):
            raise TypeError(f"{name}: {type(value).__name__}")
        super().__setattr__(name, value)

    def configure_ipu_system(self, device="cpu"):
        assert self.auto_select_ipus == 1 and device == "cpu"
        if not self.available:
            raise tf.errors.InvalidArgumentError(None, None, GONE)


class IPUStrategy:
    """Runs graphs on the host. What it refuses, Graphcore's refuses."""

    entered, fault = 0, None

    def __init__(
        self,
        ipu_device="/device:IPU:0",
        cpu_device="/device:CPU:0",
        enable_dataset_iterators=True,
        enable_keras_extensions=True,
    ):
        assert not enable_keras_extensions

    @contextlib.contextmanager
    def _entered(self):
        type(self).entered += 1
        yield

    def scope(self):
        return self._entered()

    def run(self, fn, args=(), kwargs=None, options=None):
        assert self.entered == 1, "variables were made outside of its scope"
        if not isinstance(fn, FUNCTIONS):
            raise ValueError("IPUStrategy.run(fn, ...) requires fn to be a tf.function")
        if self.fault is not None:
            raise self.fault
        sent = [tensor for tensor in tf.nest.flatten(args) if tensor is not None]
        for tensor in sent:
            if tensor.dtype in (tf.float64, tf.int64):
                raise TypeError(f"{tensor.dtype} is not supported on an IPU")
        return fn(*args)


@pytest.fixture()
def ipu(monkeypatch):
    """The device's module over the stand-in."""
    monkeypatch.setattr(IPUStrategy, "entered", 0)
    monkeypatch.setattr(IPUStrategy, "fault", None)
    package = SimpleNamespace(
        SIMULATED=True,
        config=SimpleNamespace(IPUConfig=IPUConfig),
        ipu_strategy=SimpleNamespace(IPUStrategy=IPUStrategy),
    )
    monkeypatch.setattr(importlib.import_module("tensorflow.python"), "ipu", package, raising=False)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE, None)


def sessions(ipu, name):
    """That of IPUs and that of the CPU, over models of the same seed."""
    card = cards.load()[name]
    ipu.strategy()
    rule = rule_of(card.problem, 4)
    ours = ipu.open_session(build.model(card, seed=1), rule, "fp32")
    return card, ours, cpu.open_session(build.model(card, seed=1), rule, "fp32")


@pytest.mark.parametrize("own", [IPUConfig, IPUStrategy])
def test_the_stand_in_has_the_signatures_of_the_sources(own):
    (name,) = [name for name in FACTS if name.endswith(f".{own.__name__}")]
    methods = {fact: getattr(own, fact.rpartition(".")[2], None) for fact in FACTS if fact.startswith(f"{name}.")}
    for fact, made in {name: own, **methods}.items():
        assert "signature" not in FACTS[fact] or str(inspect.signature(made)) == FACTS[fact]["signature"]


@pytest.mark.parametrize("workload", ["lstm", pytest.param("image_compression", marks=pytest.mark.full)])
def test_it_learns_what_the_cpu_learns(ipu, workload):
    card, ours, theirs = sessions(ipu, workload)
    batch = loader.synthetic_batch(card, 4, seed=3)
    judged = [session.evaluate(batch) for session in (ours, theirs)]
    assert judged[0].loss == pytest.approx(judged[1].loss, rel=1e-3) and judged[0].samples == 4
    losses = [[session.train(session.to_device(batch)).loss() for _ in range(3)] for session in (ours, theirs)]
    # What XLA rounds otherwise grows with each step, most where three of them take the loss down by more than half. A
    # step that was left out would be a third of that.
    first = losses[1][0]
    assert losses[0][0] == pytest.approx(first, rel=1e-4) and losses[0][-1] < losses[0][0]
    apart = {"rel": 2e-2, "abs": 0.1 * (first - min(losses[1]))}
    assert losses[0] == pytest.approx(losses[1], **apart)
    # What was rounded otherwise grows once more through averages of normalisations: that it was learnt is to be seen.
    assert ours.evaluate(batch).loss != pytest.approx(judged[0].loss, rel=1e-3)
    assert ours.infer(ours.to_device(batch)).samples == 4
    answer = ours.infer_request(batch)
    assert min(answer.transfer, answer.compute, answer.retrieval) >= 0
    assert ours.facts.simulated and "Poplar under IPUStrategy" in ours.facts.execution
    ours.close()


def test_executables_of_an_earlier_run_are_told(ipu, monkeypatch, tmp_path):
    """Then nothing may be compiled, so that compile times are not alike."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path}")
    assert ipu.kept_executables() == ", --executable_cache_path is set, no executables in it"
    (tmp_path / "a.poplar_exec").write_bytes(b"")
    assert ipu.kept_executables() == ", --executable_cache_path is set, some executables in it"
    monkeypatch.delenv("TF_POPLAR_FLAGS")
    assert ipu.kept_executables() == ""


def test_a_model_of_an_ipu_is_no_ipu(ipu, monkeypatch):
    monkeypatch.setattr(ipu.ipu, "SIMULATED", False)
    monkeypatch.setattr(ipu.gcipuinfo, "gcipuinfo", Inventory([[{"clock": "1850MHz"}]]))
    _, ours, _ = sessions(ipu, "lstm")
    assert (ours.facts.simulated, ours.facts.name) == (False, "Bow")
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--max_compilation_threads=40 --use_ipu_model")
    _, ours, _ = sessions(ipu, "lstm")
    assert (ours.facts.simulated, ours.facts.name) == (True, None)


def test_without_an_ipu_its_reason_is_told(ipu, monkeypatch):
    monkeypatch.setattr(IPUConfig, "available", False)
    with pytest.raises(RunError, match="no hardware IPU found") as raised:
        ipu.strategy()
    assert raised.value.state == "no_device"


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        (tf.errors.InternalError(None, None, SHORT), "out_of_memory"),
        (tf.errors.InternalError(None, None, "[Poplar][Compile engine] poplar_error: x"), "compile_failure"),
    ],
)
def test_what_poplar_refuses_is_a_result(ipu, monkeypatch, fault, state):
    card, ours, _ = sessions(ipu, "image_compression")
    monkeypatch.setattr(IPUStrategy, "fault", fault)
    with pytest.raises(RunError) as raised:
        ours.train(ours.to_device(loader.synthetic_batch(card, 4, seed=3)))
    assert raised.value.state == state


def test_what_is_not_known_of_ipus_is_refused(ipu):
    card_list = cards.load()
    with pytest.raises(RunError, match="no sampler runs there"):
        ipu.open_session(build.model(card_list["mcmc"], 1), rule_of(card_list["mcmc"].problem, 1), "fp32")
    with pytest.raises(RunError, match="Leave it out"):
        ipu.open_session(None, rule_of(card_list["lstm"].problem, 1), "fp32", True)
    with pytest.raises(RunError, match="--precision bf16 on ipu"):
        ipu.prepare("bf16", 1)
    _, ours, _ = sessions(ipu, "lstm")
    with pytest.raises(RunError, match="texts are not continued"):
        ours.begin(None, 1)
