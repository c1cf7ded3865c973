"""What a session says of how it ran a model: by PyTorch's own counts, after it ran."""

from __future__ import annotations

import shutil
import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from small_networks import smaller  # noqa: E402
from torch import nn  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.messages import decode, encode  # noqa: E402
from entrypoints.contract.session import rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.pytorch import cpu, cuda  # noqa: E402
from entrypoints.devices.pytorch.shared import backends, compiling  # noqa: E402
from entrypoints.workloads.pytorch import build, loader  # noqa: E402

CARD = cards.load()["image_compression"]
COMPILES = hasattr(torch, "compile") and shutil.which("g++")
needs_compiler = pytest.mark.skipif(not COMPILES, reason="nothing to compile with")


def opened(card, compiled=None, precision="fp32"):
    return cpu.open_session(build.model(card, 1), rule_of(card.problem, 4), precision, compiled)


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """PyTorch with nothing compiled, and with an empty cache on disk."""
    if COMPILES:
        from torch._dynamo.utils import counters

        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        torch._dynamo.reset()
        counters.clear()
    yield
    if COMPILES:
        torch._dynamo.reset()
        counters.clear()


class Stub:
    """A network of one layer, in which TorchDynamo breaks its graph, or not."""

    def __init__(self, breaks):
        self.breaks = breaks

    def __call__(self, inputs):
        if self.breaks:
            torch._dynamo.graph_break()
        return inputs * 2


@needs_compiler
@pytest.mark.usefixtures("fresh")
def test_a_compiled_step_says_what_was_captured(monkeypatch):
    """By TorchDynamo; to generate code for it would take a minute."""
    compile_model = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, mode: compile_model(model, backend="eager"))
    session = opened(CARD, "default")
    assert session.facts.execution.startswith("compiled by TorchInductor (default), channels_last")
    batch = session.to_device(loader.synthetic_batch(CARD, 4, seed=1))
    for _ in range(2):
        session.train(batch)
    executed = session.executed()
    assert decode(encode(executed)) == executed
    facts = executed.facts
    assert (facts["graphs"], facts["graph_breaks"], facts["recompilations"]) == (1, 0, 0)
    assert (facts["cuda_graphs"], facts["cuda_graphs_skipped"]) == (None, None), "none were asked for"
    assert facts["matmul_precision"] == "fp32" and facts["autotuning"] == "none" and facts["attention"] is None
    session.train(session.to_device(loader.synthetic_batch(CARD, 3, seed=1)))
    assert session.executed().facts["recompilations"] >= 1, "of another size"


@needs_compiler
def test_a_model_of_its_own_weights_is_frozen_and_no_other(monkeypatch):
    """At its first call, from whatever thread; code is not generated here."""
    from torch._inductor import config

    calls: list[bool] = []

    class Compiled(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model, self.network = model, model.network

        def forward(self, *arguments):
            calls.append(config.freezing)
            return self.model(*arguments)

    monkeypatch.setattr(torch, "compile", lambda model, mode: Compiled(model))
    session = opened(CARD, "default")
    batch = session.to_device(loader.synthetic_batch(CARD, 4, seed=1))
    for _ in range(2):
        session.infer(batch)
    assert calls == [True, False] and not config.freezing
    assert isinstance(session.inference_model(), compiling.Frozen) and session.inference_model().network
    session.train(batch)
    session.infer(batch)
    assert calls == [True, False, False, False], "each evaluation during training would compile again"
    assert session.executed().facts["frozen"] == 1
    lstm = cards.load()["lstm"]
    session = opened(lstm, "default")
    session.infer(session.to_device(loader.synthetic_batch(lstm, 2, seed=1)))
    assert not calls[-1] and session.executed().facts["frozen"] == 0, "training changes these weights in place"


@pytest.mark.full
@needs_compiler
@pytest.mark.usefixtures("fresh")
def test_a_compiled_model_is_evaluated_after_every_update(monkeypatch):
    """By one captured graph, and not until TorchDynamo gives up compiling again. Code is not generated here."""
    compile_model = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, mode: compile_model(model, backend="eager"))
    session = opened(CARD, "default")
    batch = session.to_device(loader.synthetic_batch(CARD, 4, seed=1))
    for _ in range(4):
        session.train(batch)
        losses = [session.evaluate(batch).loss for _ in range(2)]
        assert losses[0] == losses[1]
    assert session.executed().facts["graphs"] == 2, "of training, and of evaluation"


@needs_compiler
@pytest.mark.full  # it generates code
@pytest.mark.usefixtures("fresh")
def test_frozen_models_compute_the_same_after_an_update():
    session, reference = opened(CARD, "default"), opened(CARD)
    batch = session.to_device(loader.synthetic_batch(CARD, 4, seed=1))
    for _ in range(2):
        expected = reference.infer(batch).output()
        assert session.infer(batch).output() == pytest.approx(expected, rel=1e-4, abs=1e-5)
        reference.train(batch)
        session.model.load_state_dict(reference.model.state_dict())
        session.inference.forget()  # as training does
    assert session.executed().facts["frozen"] == 2


@needs_compiler
@pytest.mark.full  # it generates code, which takes half a minute on a busy machine
@pytest.mark.usefixtures("fresh")
def test_code_from_a_cache_is_warm():
    from torch._dynamo.utils import counters

    states = []
    for _ in range(2):
        torch._dynamo.reset()
        counters.clear()
        torch.compile(Stub(breaks=False))(torch.ones(2))
        states.append(compiling.counted(False)["cache"])
    assert states in (["cold", "warm"], [None, None])  # the latter before torch 2.4


@needs_compiler
@pytest.mark.usefixtures("fresh")
def test_graph_breaks_are_counted():
    torch.compile(Stub(breaks=False), backend="eager")(torch.ones(2))
    assert compiling.counted(False)["graph_breaks"] == 0
    torch.compile(Stub(breaks=True), backend="eager")(torch.ones(2))
    counts = compiling.counted(False)
    assert counts["graph_breaks"] >= 1
    assert compiling.described("default", False, counts) == "compiled by TorchInductor (default), with graph breaks"


def node(*children):
    """A recorded graph, as Inductor's trees have them: what follows it by the function that was called."""
    return SimpleNamespace(children={number: [child] for number, child in enumerate(children)})


@pytest.mark.parametrize(
    ("roots", "recorded", "words"),
    [
        ({0: [node(node())], 1: [node(), node()]}, 4, ", replayed as CUDA graphs"),
        ({}, 0, ", CUDA graphs asked for and not recorded"),
        (None, 0, ", CUDA graphs asked for and not recorded"),
    ],
)
def test_cuda_graphs_are_those_that_inductor_recorded(monkeypatch, roots, recorded, words):
    """A stand-in of Inductor's manager of graphs, of which a machine without GPU has none."""
    manager = None if roots is None else SimpleNamespace(roots=roots)
    trees = SimpleNamespace(get_manager=lambda device, create_if_none_exists: manager)
    monkeypatch.setitem(sys.modules, "torch._inductor", SimpleNamespace(cudagraph_trees=trees))
    monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", trees)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert compiling.recorded_graphs() == recorded
    counts = {"graphs": 1, "graph_breaks": 0, "cuda_graphs": recorded}
    assert compiling.described("reduce-overhead", True, counts) == f"compiled by TorchInductor (reduce-overhead){words}"
    skipped = {**counts, "cuda_graphs_skipped": 1}
    assert compiling.described("reduce-overhead", True, skipped).endswith("some parts without CUDA graphs")


@pytest.mark.parametrize(("hits", "misses", "state"), [(0, 0, None), (0, 3, "cold"), (3, 0, "warm"), (1, 2, "mixed")])
def test_a_cache_is_cold_or_warm(hits, misses, state):
    assert compiling.cache_state(hits, misses) == state


@pytest.mark.parametrize("task", ["train", "infer"])
def test_the_kernels_of_attention_are_those_that_the_model_takes(task):
    card = smaller(cards.load()["gpt2"])
    session = opened(card)
    batch = session.to_device(loader.synthetic_batch(card, 2, seed=1))
    getattr(session, task)(batch)
    state = torch.random.get_rng_state()
    fused = hasattr(torch.nn.functional, "scaled_dot_product_attention")
    assert session.executed().facts["attention"] in (("flash", "math") if fused else ("math", None))
    assert torch.equal(torch.random.get_rng_state(), state) and session.attention.sample is None
    assert session.executed().facts["attention"] == session.attention.taken
    assert session.model.training == (task == "train")


def test_what_is_written_out_is_called_math(monkeypatch):
    from entrypoints.workloads.pytorch import transformer

    monkeypatch.setattr(transformer, "FUSED", False)
    session = opened(smaller(cards.load()["gpt2"]))
    session.infer(session.to_device(loader.synthetic_batch(smaller(cards.load()["gpt2"]), 2, seed=1)))
    expected = "math" if backends.TorchDispatchMode else None
    assert session.executed().facts["attention"] == expected


def test_a_failed_look_is_a_fact_less(monkeypatch):
    def full(*_):
        raise RuntimeError("out of memory")

    session = opened(smaller(cards.load()["gpt2"]))
    session.infer(session.to_device(loader.synthetic_batch(smaller(cards.load()["gpt2"]), 2, seed=1)))
    monkeypatch.setattr("entrypoints.devices.pytorch.shared.backends.attention_kernels", full)
    assert session.executed().facts["attention"] is None


def test_the_arithmetic_of_products_is_that_of_the_run(monkeypatch):
    products = SimpleNamespace(allow_tf32=True, allow_bf16_reduced_precision_reduction=True)
    assert backends.matmul_precision("cpu", None) == "fp32"
    monkeypatch.setattr(torch.backends.cuda, "matmul", products)
    assert backends.matmul_precision("cuda", None) == "tf32"
    assert backends.matmul_precision("cpu", torch.bfloat16) == "bfloat16 with sums in fp32"
    assert backends.matmul_precision("cuda", torch.bfloat16) == "bfloat16 with sums that may be bfloat16"


def test_allocator_and_autotuning_are_those_of_the_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native", raising=False)
    monkeypatch.setattr(torch.cuda, "tunable", SimpleNamespace(is_enabled=lambda: True), raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert backends.allocator("cuda") == "native; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert backends.allocator("cpu") is None
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        assert backends.autotuning("cuda", "max-autotune") == "cudnn.benchmark, TunableOp, TorchInductor"
    assert backends.autotuning("cpu", "default") == "none"


def test_a_gpu_that_cannot_compile_says_what_is_missing(monkeypatch):
    """The same is asked before a default is chosen: device_defaults."""
    monkeypatch.setattr(torch, "compile", lambda model: model, raising=False)
    asked = {(9, 0): None, (6, 1): "Triton compiles for newer ones"}
    monkeypatch.setattr(compiling, "obstacle_to_triton", asked.get)
    compiling.require_triton((9, 0))
    with pytest.raises(RunError) as raised:
        compiling.require_triton((6, 1))
    assert (raised.value.state, raised.value.message) == (
        "unsupported",
        "--compile: Triton compiles for newer ones. Leave it out, or take an image that has it",
    )


@pytest.mark.parametrize(
    ("version", "cudnn", "amd", "precision", "said"),
    [
        ("2.2.2", 90000, False, "bf16", None),
        ("2.2.2", 90000, False, "fp16", ""),
        ("2.9.1", 91400, False, "bf16", "by PyTorch's own cells"),
        ("2.10.0", 91200, False, "bf16", "by PyTorch's own cells"),
        ("2.10.0", 91300, False, "bf16", ""),
        ("2.3.0", 0, True, "bf16", ""),
    ],
)
def test_an_lstm_in_bf16_is_refused_or_said_to_be_slow(monkeypatch, version, cudnn, amd, precision, said):
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))
    monkeypatch.setattr(cuda, "AMD", amd)
    model = build.model(cards.load()["lstm"], 1)
    if said is None:
        with pytest.raises(RunError, match="computes no LSTM in bf16 on GPUs") as raised:
            cuda.note_on_lstm(model, precision, cudnn)
        assert raised.value.state == "unsupported"
        return
    assert said in (cuda.note_on_lstm(model, precision, cudnn) or "")
    assert bool(cuda.note_on_lstm(model, precision, cudnn)) == bool(said)
    assert cuda.note_on_lstm(build.model(CARD, 1), precision, cudnn) is None
