"""What makes training and decoding of texts faster changes nothing: against the plain formulation of each."""

from __future__ import annotations

import collections
import contextlib
import re
import shutil
import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from small_networks import EXPERTS, family_of, losses_of, smaller  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.choices import DEFAULT_MODE  # noqa: E402
from entrypoints.contract.session import Batch, rule_of  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.devices.pytorch.shared import recorded  # noqa: E402
from entrypoints.devices.pytorch.shared.inference import packing  # noqa: E402
from entrypoints.devices.pytorch.shared.inference.generation import ReplayedGeneration, StaticGeneration  # noqa: E402
from entrypoints.workloads.pytorch import build, layers, loader, transformer  # noqa: E402

CARDS = {name: card for name, card in cards.load().items() if card.family in ("transformer", "decoder")}
PROMPT, NEW = 7, 6


def made(workload, precision="fp32", compiled=None):
    """A session with a small network of known weights, and its card."""
    card = smaller(CARDS[workload])
    model = build.without_randomness(build.model(card, seed=3))
    build.load_probe_weights(model)
    return cpu.open_session(model, rule_of(card.problem, 3), precision, compiled), card


def prompts(card):
    return loader.formula_batch(card, 3).inputs[:, :PROMPT]


def generated(source, tokens):
    state, all_tokens = source.prefill(tokens, NEW), []
    for _ in range(NEW - 1):
        all_tokens.append(state.token)
        state = source.decode_step(state)
    return torch.cat([*all_tokens, state.token], 1)


# Decoding


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    "workload", ["gpt2", "gpt_117m", "gpt_800m", "llama_1b", "llama_8b", "olmoe_1b_7b", "gpt_oss_20b"]
)
def test_memory_of_one_shape_changes_no_text(workload, fused, monkeypatch):
    if fused and not transformer.FUSED:
        pytest.skip("this torch has no such operation")
    monkeypatch.setattr(transformer, "FUSED", fused)
    session, card = made(workload)
    network = session.model.network.eval()
    tokens = prompts(card)
    with torch.no_grad():
        plain = generated(network, tokens)
        assert torch.equal(generated(StaticGeneration(network, lambda program: program), tokens), plain)
        whole = network(torch.cat([tokens, plain], 1))[:, PROMPT - 1 : -1]
    assert torch.equal(whole.argmax(-1), plain) and len(set(plain.flatten().tolist())) > 2


class Graph:
    """Calls again what was called while it was recorded; operations run at once here."""

    def __init__(self):
        self.replays = 0
        self.program: Any = None

    def replay(self):
        self.replays += 1
        self.program()


class Runtime:
    """A stand-in for torch.cuda that keeps the graphs that it is given."""

    def __init__(self):
        self.graphs: list[Graph] = []

    def Stream(self):  # noqa: N802 - as in torch.cuda
        return SimpleNamespace(wait_stream=lambda other: None)

    current_stream = Stream

    def CUDAGraph(self):  # noqa: N802 - as in torch.cuda
        self.graphs.append(Graph())
        return self.graphs[-1]

    @contextlib.contextmanager
    def stream(self, _):
        yield

    @contextlib.contextmanager
    def graph(self, graph):
        yield


class RecordedHere(ReplayedGeneration):
    """Recording computes nothing on a GPU."""

    def recorded(self, own, first):
        graph = super().recorded(own, first)
        self.place(own, first)
        graph.program = lambda: self.advance(own)
        return graph


def test_a_recorded_program_is_replayed_once_for_each_token():
    session, card = made("gpt2")
    network = session.model.network.eval()
    runtime, calls = Runtime(), []

    def counted(program):
        def call(*given):
            calls.append(program.__name__)
            return program(*given)

        return call

    generation = RecordedHere(network, counted, runtime)
    tokens = prompts(card)
    with torch.no_grad():
        for text in (tokens, tokens.flip(0)):
            assert torch.equal(generated(generation, text), generated(network, text))
    (graph,) = runtime.graphs
    assert graph.replays == 2 * (NEW - 1)
    assert calls.count("prefill_static") == 2
    assert calls.count("decode_step_static") == recorded.WARM_UP + 1 + graph.replays


def test_texts_of_another_size_are_recorded_anew():
    session, card = made("gpt2")
    network, runtime = session.model.network.eval(), Runtime()
    generation = RecordedHere(network, lambda program: program, runtime)
    tokens = prompts(card)
    with torch.no_grad():
        for text in (tokens, tokens[:2], tokens[:2, 1:]):
            assert torch.equal(generated(generation, text), generated(network, text))
    assert len(runtime.graphs) == 3


class RefusesGraphs(Runtime):
    """A runtime that computes, and fails at the end of each recording."""

    def __init__(self):
        super().__init__()
        self.restored: list[object] = []
        self.set_stream = self.restored.append

    @contextlib.contextmanager
    def graph(self, graph):
        raise RuntimeError("operation not permitted when stream is capturing")
        yield


def test_texts_are_generated_where_no_graph_can_be_recorded(monkeypatch):
    monkeypatch.setattr(recorded, "COUNTS", collections.Counter())
    session, card = made("gpt2")
    network, runtime = session.model.network.eval(), RefusesGraphs()
    generation = ReplayedGeneration(network, lambda program: program, runtime)
    tokens = prompts(card)
    with torch.no_grad():
        with pytest.warns(UserWarning, match="without CUDA graphs: operation not permitted"):
            first = generated(generation, tokens)
        texts = [first, generated(generation, tokens.flip(0))]
        assert torch.equal(texts[0], generated(network, tokens))
        assert torch.equal(texts[1], generated(network, tokens.flip(0)))
    assert len(runtime.restored) == 1 and recorded.COUNTS == {recorded.REFUSED: 1}


@pytest.mark.full
@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch compiles from 2.0 on")
@pytest.mark.parametrize("workload", ["gpt2", "gpt_800m"])
def test_compiled_generation_is_one_program_for_all_tokens(workload):
    from torch._dynamo.utils import counters

    counters.clear()
    texts = []
    for compiled in (None, DEFAULT_MODE):
        session, card = made(workload, compiled=compiled)
        source = SimpleNamespace(
            prefill=lambda tokens, new, session=session: session.begin(Batch(tokens, None), new),
            decode_step=session.next_state,
        )
        texts += [generated(source, prompts(card)) for _ in range(2)]
    assert all(torch.equal(text, texts[0]) for text in texts)
    assert counters["stats"]["unique_graphs"] == 2, "one for prompts, one for each token after them"
    assert not counters["graph_break"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_packed_weights_change_no_text(precision):
    session, card = made("gpt2", precision)
    plain, _ = made("gpt2", precision)
    tokens = prompts(card)
    state = session.begin(Batch(tokens, None), NEW)
    kinds = {type(layer) for layer in session.inference_model().network.modules()}
    able = packing.can_pack(torch.float32 if precision == "fp32" else torch.bfloat16)
    assert (packing.PackedLinear in kinds) == able
    assert not any(isinstance(layer, packing.PackedLinear) for layer in session.model.modules())
    with torch.no_grad(), plain.autocast():
        expected = generated(plain.model.network.eval(), tokens)
    new = [state.token]
    for _ in range(NEW - 1):
        state = session.next_state(state)
        new.append(state.token)
    assert torch.equal(torch.cat(new, 1), expected)


# Half precision


@pytest.mark.parametrize(
    "workload",
    [
        "gpt2",
        "bert_base",
        "gpt_oss_20b",
        pytest.param("resnet50", marks=pytest.mark.full),
        "mobilenet_v3_small",
        "image_compression",
    ],
)
def test_weights_that_are_kept_in_half_precision_compute_what_autocast_computes(workload):
    """Bit by bit: autocast does to them at every call what was done once."""
    card = cards.load()[workload]
    if card.family in ("transformer", "decoder"):
        card = smaller(card)
    model = build.fold_batch_norms(build.without_randomness(build.model(card, seed=3)))
    halved = build.half_weights(model, torch.bfloat16)
    batch = loader.formula_batch(card, 2)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        output, expected = halved(batch.inputs)[0], model(batch.inputs)[0]
    assert torch.equal(output, expected)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert torch.bfloat16 in {weight.dtype for weight in halved.parameters()}


def test_training_goes_on_in_single_precision_after_inference():
    (session, card), (other, _) = made("gpt2", "bf16"), made("gpt2", "bf16")
    batch = loader.formula_batch(card, 3)
    before = session.train(batch).loss()
    assert other.train(batch).loss() == before
    evaluated = session.evaluate(batch).loss
    assert session.train(batch).loss() == other.train(batch).loss() < before
    assert session.evaluate(batch).loss < evaluated
    assert all(weight.dtype == torch.float32 for weight in session.model.parameters())


# Loss over a large vocabulary


@pytest.mark.parametrize("multiple", [1, 64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_loss_in_chunks_and_its_gradients_are_the_plain_ones(dtype, smoothing, multiple, monkeypatch):
    monkeypatch.setattr(layers, "CHUNK_ROWS", 100)
    random = torch.Generator().manual_seed(1)
    rows, weight = (torch.randn(size, 16, generator=random, dtype=dtype) for size in (370, 301))
    labels = torch.randint(0, 301, (370,), generator=random)
    inputs = rows.requires_grad_(), weight.requires_grad_()
    loss = layers.ChunkedLoss.apply(*inputs, labels, smoothing, multiple, dtype, False)
    plain = torch.nn.functional.cross_entropy(rows @ weight.t(), labels, label_smoothing=smoothing)
    near: Any = {"rtol": 1e-12, "atol": 1e-14} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-7}
    torch.testing.assert_close(loss, plain, **near)
    for actual, expected in zip(torch.autograd.grad(3 * loss, inputs), torch.autograd.grad(3 * plain, inputs)):
        torch.testing.assert_close(actual, expected, **near)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_loss_in_chunks_is_as_exact_in_half_precision(dtype):
    if dtype == torch.float16 and torch.__version__ < "2.1":
        pytest.skip("this torch has no such products on a CPU")
    random = torch.Generator().manual_seed(1)
    rows, weight = (torch.randn(size, 32, generator=random) / 4 for size in (300, 1000))
    labels = torch.randint(0, 1000, (300,), generator=random)
    inputs = rows.requires_grad_(), weight.requires_grad_()
    exact = torch.autograd.grad(torch.nn.functional.cross_entropy(rows @ weight.t(), labels), inputs)

    def error(loss):
        gradients = torch.autograd.grad(loss, inputs)
        return [float((each - other).norm() / other.norm()) for each, other in zip(gradients, exact)]

    ours = error(layers.ChunkedLoss.apply(*inputs, labels, 0.0, 64, dtype, False))
    plain = error(torch.nn.functional.cross_entropy((rows.to(dtype) @ weight.to(dtype).t()).float(), labels))
    assert all(mine <= 1.1 * other for mine, other in zip(ours, plain)), (ours, plain)


def test_the_loss_moves_18_bytes_a_logit_where_kernels_cast(monkeypatch):
    """In half precision: 2 for the product, 6 and 6 for softmax and exponentials, 4 for the products with gradients."""
    launches = pytest.importorskip("launches")
    monkeypatch.setattr(layers, "CASTING", ("cpu",))
    rows, weight, labels = torch.randn(300, 4), torch.randn(640, 4), torch.zeros(300, dtype=torch.int64)
    with launches.Traffic(300 * 640) as traffic:
        layers.loss_and_gradients(rows, weight, labels, 0.0, 64, torch.bfloat16)
    assert 4 <= traffic.bytes / (300 * 640) <= 18


@pytest.mark.full
@pytest.mark.skipif(torch.__version__ < "2.6" or not shutil.which("g++"), reason="nothing to compile with")
def test_the_compiled_loss_is_the_same_and_keeps_nothing_wide(monkeypatch, tmp_path):
    """Compiled, each logit in half precision is read twice and written once: 12 bytes with its three products."""
    from torch._inductor.utils import run_and_get_code

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    layers.compiled_differences.cache_clear()
    random = torch.Generator().manual_seed(1)
    rows, weight = (torch.randn(size, 16, generator=random) for size in (64, 301))
    labels = torch.randint(0, 301, (64,), generator=random)
    how = 0.0, 64, torch.bfloat16
    compiled, (code,) = run_and_get_code(layers.loss_and_gradients, rows, weight, labels, *how, True)
    assert re.findall(r"= empty_strided_cpu\(\(64, 320\), .*torch\.(\w+)\)", code) == ["bfloat16"]
    for mine, plain in zip(compiled, layers.loss_and_gradients(rows, weight, labels, *how, False)):
        torch.testing.assert_close(mine, plain, rtol=1e-3, atol=1e-3)


def test_kernels_that_cannot_be_made_are_pytorchs_own(monkeypatch):
    rows, weight, labels = torch.randn(5, 4), torch.randn(7, 4), torch.zeros(5, dtype=torch.int64)
    plain = layers.loss_and_gradients(rows, weight, labels, 0.0, 1, torch.float32)
    monkeypatch.setitem(sys.modules, "torch._inductor", None)  # cannot be imported
    monkeypatch.delattr(torch, "_inductor", raising=False)
    layers.compiled_differences.cache_clear()
    compiled = layers.loss_and_gradients(rows, weight, labels, 0.0, 1, torch.float32, True)
    layers.compiled_differences.cache_clear()
    assert all(torch.equal(mine, other) for mine, other in zip(compiled, plain))


@pytest.mark.parametrize(
    ("kind", "gib", "classes", "rows"),
    [
        ("cpu", None, 50304, 1024),
        ("hpu", None, 50304, 1024),
        ("cuda", 140, 50304, 8192),
        ("cuda", 79, 50304, 4096),
        ("cuda", 16, 50304, 1024),
        ("cuda", 16, 128, 1 << 19),
    ],
)
def test_chunks_of_logits_fit_the_memory_of_the_device(kind, gib, classes, rows, monkeypatch):
    if gib:
        properties = SimpleNamespace(total_memory=gib << 30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert layers.chunk_rows(torch.device(kind), classes) == rows


@pytest.mark.parametrize("workload", ["gpt2", "gpt_117m"])
def test_a_step_loses_the_same_whether_logits_are_made_at_once_or_not(workload):
    losses = []
    for late in (True, False):
        session, card = made(workload)
        for layer in session.model.modules():
            if hasattr(layer, "chunked_loss"):
                assert layer.chunked_loss
                layer.chunked_loss = late
        losses.append(losses_of(session, loader.formula_batch(card, 3), 4))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6) and losses[0][-1] < losses[0][0]


def test_training_returns_the_loss_alone_and_inference_logits():
    session, card = made("gpt2")
    batch = loader.formula_batch(card, 3)
    output, loss = session.model.train()(batch.inputs, batch.targets)
    assert output is None and loss.dim() == 0
    logits, evaluated = session.model.eval()(batch.inputs, batch.targets)
    assert logits.shape == (*batch.inputs.shape, card.problem["model"]["vocabulary"])
    torch.testing.assert_close(evaluated, loss)


KEPT = (
    "gpt2",
    "gpt_117m",
    "llama_1b",
    "llama_8b_lora",
    "olmoe_1b_7b",
    "qwen3_30b_a3b",
    "gpt_oss_20b",
    pytest.param("gpt_800m", marks=pytest.mark.full),
)
GENERATING = [name for name, card in CARDS.items() if "generation" in card.problem]


def numbers_kept(problem, blocks):
    """What backward wants of a sample at least: attention in one operation, dropouts left out, logits never kept."""
    model, places = problem["model"], problem["input"]["length"]
    width, rotary = model["width"], model["positions"]["kind"] == "rotary"
    heads, kv_heads, size = cards.head_sizes(model)
    decoder, adapter = model["architecture"] == "decoder", model.get("adapter")
    if "sinks" in model:
        return places * numbers_kept_of_gpt_oss(model, blocks)
    attention = (2 * heads + 2 * kv_heads) * size  # queries, keys and values, and what is made of them
    if rotary:
        attention += (heads + kv_heads) * size  # turned queries and keys
    if not decoder:
        attention += heads * size * rotary  # what attention makes, in the order of positions
    statistics, inner = (1, 4) if decoder else (2, 2)
    normalised = 4 * width  # inputs and outputs of two normalisations
    if adapter:  # what only serves the gradients of weights that are not trained is not kept
        inner, normalised, attention = 3, 3 * width, attention + 2 * adapter["rank"]
    if "query_key_normalisation" in model:
        attention += normalised_heads(model)
    feed = mixture_kept(model) if "experts" in model else inner * model["feed_forward"]
    # With the statistics of the normalisations, and one of the scores of each head.
    block = feed + normalised + attention + 2 * statistics + heads
    around = 2 * width + statistics + 2  # last normalisation, gradient of its output, its statistics, tokens
    if adapter:
        around -= width + statistics + 2  # the first input and its tokens: they have no gradient
    return places * (blocks * block + around)


def normalised_heads(model):
    """Of queries and keys: what is normalised, unless it is kept as a projection, and statistics."""
    heads, kv_heads, size = cards.head_sizes(model)
    return (heads + kv_heads) * size + 2 if model["query_key_normalisation"] == "whole" else heads + kv_heads


def numbers_kept_of_gpt_oss(model, blocks):
    """For one place. Attention has queries, keys and values longer by 8 numbers, in windows keys and values twice."""
    heads, kv_heads, size = cards.head_sizes(model)
    around = 2 * model["width"] + 1 + 2
    whole = (heads + 2 * kv_heads) * (size + 8) + heads * (size + 8) + heads  # with what comes out, and its scores
    windowed = whole + 2 * kv_heads * (size + 8)
    common = 4 * model["width"] + heads * size + 2 + mixture_kept(model)
    return blocks * common + (blocks + 1) // 2 * windowed + blocks // 2 * whole + around


def mixture_kept(model):
    """Rows of the experts, what they make of them and a weight; scores; and numbers of experts in twice the bytes."""
    experts = model["experts"]
    inner = 7 if "limit" in experts else 4
    row = inner * model["feed_forward"] + 2 * model["width"] + 1
    return experts["per_token"] * (row + 2 * 3) + experts["count"]


@pytest.mark.parametrize("workload", [*GENERATING, "llama_8b_lora", "llama2_70b_lora"])
def test_the_memory_of_the_card_is_what_is_reckoned(workload):
    problem = CARDS[workload].problem
    assert CARDS[workload].memory["training_elements_per_unit"] == numbers_kept(problem, problem["model"]["layers"])


@pytest.mark.skipif(torch.__version__ < "2.1", reason="before, attention is not one operation on a CPU")
@pytest.mark.parametrize("workload", KEPT)
def test_what_is_reckoned_is_what_autograd_keeps(workload):
    problem = CARDS[workload].problem
    model = {**problem["model"], "layers": 2, "vocabulary": 97, "dropout": 0.0}
    if CARDS[workload].family == "decoder":
        model = {**model, "width": 192, "heads": 6, "kv_heads": 2, "head_size": 40, "feed_forward": 352}
        if "experts" in model:
            model["experts"] = {**model["experts"], **EXPERTS}
    network = family_of(CARDS[workload]).network(model)
    objective = build.with_chunked_loss(build.Objective(network, problem["loss"])).train()
    problem = {**problem, "input": {"length": min(1024, problem["input"]["length"])}}
    # An RMSNorm is several operations on a CPU, and keeps what it has divided.
    weights = {weight.data_ptr() for weight in network.parameters()}
    norms = [layer for layer in network.modules() if isinstance(layer, layers.RMSNorm)]
    apart = sum(norm.weight.requires_grad * norm.weight.numel() for norm in norms)
    if model.get("query_key_normalisation") == "heads":
        apart += 2 * (model["heads"] + model["kv_heads"] - 2) * model["head_size"]

    def kept(samples):
        storages = {}

        def keep(tensor):
            if tensor.data_ptr() not in weights:
                storages[tensor.untyped_storage().data_ptr()] = tensor  # kept alive, so that no address comes twice
            return tensor

        tokens = torch.zeros(samples, problem["input"]["length"], dtype=torch.int64)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            objective(tokens, tokens)
        return sum(tensor.untyped_storage().nbytes() for tensor in storages.values()) // 4

    expected = numbers_kept({**problem, "model": model}, 2) + problem["input"]["length"] * apart
    # Blocks of a window have masks and are turned, which is not reckoned.
    assert kept(2) - kept(1) == (pytest.approx(expected, rel=0.1) if "window" in model else expected)


# Masks and rotary tables


def test_a_mask_is_left_out_where_nothing_is_padded(monkeypatch):
    session, card = made("bert_base")
    full, masks = loader.synthetic_batch(card, 3, seed=1), []
    attend = transformer.SelfAttention.attend

    def noted(part, query, key, value, attention_mask):
        masks.append(attention_mask is not None)
        return attend(part, query, key, value, attention_mask)

    monkeypatch.setattr(transformer.SelfAttention, "attend", noted)
    assert full.padding == 0
    loss = session.evaluate(full).loss
    assert masks == [False, False]
    assert session.evaluate(full._replace(padding=None)).loss == pytest.approx(loss, rel=1e-6)
    assert masks[2:] == [True, True]
    session.infer(full)
    session.infer_request(full)
    assert masks[4:] == [False, False, True, True], "requests share the network, and some may have padding"


def test_rotary_tables_are_made_once_for_all_layers(monkeypatch):
    session, card = made("gpt_800m")
    network, calls = session.model.network.eval(), []
    tables = transformer.rotary_tables

    def noted(*given):
        calls.append(given)
        return tables(*given)

    monkeypatch.setattr(transformer, "rotary_tables", noted)
    with torch.no_grad():
        network(prompts(card))
        assert len(calls) == 1
        generated(network, prompts(card))
    assert len(calls) == 1 + NEW
