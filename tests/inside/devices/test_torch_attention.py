"""The kernel of attention is the fastest on the first batch. The CPU, which has only one, stands in for a GPU."""

from __future__ import annotations

import contextlib

import pytest

torch = pytest.importorskip("torch")

from small_networks import losses_of, smaller  # noqa: E402
from test_torch_gpu import RUNTIME  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import BatchPartition, rule_of  # noqa: E402
from entrypoints.devices.pytorch import cuda  # noqa: E402
from entrypoints.devices.pytorch.shared import attention, gpu  # noqa: E402
from entrypoints.workloads.pytorch import build, loader  # noqa: E402
from entrypoints.workloads.pytorch.transformer import SelfAttention  # noqa: E402

CPU, CARD = torch.device("cpu"), smaller(cards.load()["gpt2"])
needs_order = pytest.mark.skipif(not attention.can_choose(), reason="this torch takes no order")


def network():
    return build.without_randomness(build.model(CARD, seed=1)).network  # a CPU's kernel drops nothing


def chosen(seconds, dtype=torch.bfloat16):
    return attention.AttentionChoice(network(), CPU, dtype, seconds)


def order():
    return torch._C._get_sdp_priority_order(), sorted(map(int, torch.nn.attention._cur_sdpa_kernel_backends()))


@needs_order
@pytest.mark.parametrize("training", [True, False])
def test_kernels_are_tried_once_and_leave_no_trace(training):
    calls = []

    def seconds(call):
        call()
        calls.append(call)
        return 0.002

    choice, before, state = chosen(seconds), order(), torch.random.get_rng_state()
    for _ in range(2):
        choice.make(torch.zeros(4, 7, dtype=torch.int64), 2, training)
    assert len(calls) == 1 and choice.said == "flash 2 ms", "a CPU has no other one"
    assert torch.equal(torch.random.get_rng_state(), state) and choice.layer.training
    choice.close()
    assert order() == before


@needs_order
@pytest.mark.parametrize(("workload", "places", "size"), [("dit_xl_2", 24, 72), ("flux_1", 24 + 7, 32)])
def test_kernels_are_tried_on_the_places_and_heads_of_the_network(workload, places, size, monkeypatch):
    card, shapes = smaller(cards.load()[workload]), []
    attend = SelfAttention.attend

    def seen(part, query, *others):
        shapes.append(query.shape)
        return attend(part, query, *others)

    monkeypatch.setattr(SelfAttention, "attend", seen)
    model = build.model(card, seed=1)
    choice = attention.AttentionChoice(model.network, CPU, torch.bfloat16, lambda call: call() or 0.002)
    inputs = loader.synthetic_batch(card, 2, seed=1).inputs
    choice.make(inputs, None, True)
    choice.close()
    assert set(shapes) == {(2, 2, places, size)}
    shapes.clear()
    model(inputs)
    assert (2, 2, places, size) in shapes, "and the network has them"


@needs_order
def test_the_fastest_kernel_comes_first_and_all_others_after_it():
    kinds, before = torch.nn.attention.SDPBackend, order()
    choice = chosen(float)
    choice.take({"flash": 0.003, "cudnn": 0.001})
    first = (kinds.CUDNN_ATTENTION, kinds.FLASH_ATTENTION, kinds.EFFICIENT_ATTENTION, kinds.MATH)
    assert torch._C._get_sdp_priority_order()[:4] == [int(kind) for kind in first]
    assert set(map(int, first)) <= set(order()[1]), "what the fastest cannot compute, another does"
    assert choice.said == "cudnn 1 ms, flash 3 ms"
    choice.close()
    assert order() == before
    choice.take({})
    assert order() == before


@pytest.mark.skipif(torch.__version__ < "2.11", reason="this torch takes none")
@pytest.mark.parametrize("fast", [True, False])
def test_a_kernel_of_another_package_takes_the_place_of_flash(fast, monkeypatch):
    active = []

    class Handle:
        def __init__(self):
            active.append(self)

        def remove(self):
            active.remove(self)

    monkeypatch.setattr(torch.nn.attention._registry, "_FLASH_ATTENTION_IMPLS", {"FA9": Handle, "FA3": lambda: 1 / 0})
    monkeypatch.setattr(attention, "newer_kernels", lambda: ["FA9"])
    seconds = attention.seconds_of_kernels(lambda: None, lambda _: 0.001 if bool(active) is fast else 0.002)
    assert {name: value for name, value in seconds.items() if name != "FA9"} == dict.fromkeys(
        attention.KERNELS, 0.002 if fast else 0.001
    )
    assert not active, "it is tried, and put aside again"
    choice = chosen(float)
    choice.take(seconds)
    assert bool(active) is fast
    choice.close()
    assert not active


@needs_order
def test_what_fails_is_no_choice():
    def seconds(_):
        raise RuntimeError("out of memory")

    choice, before = chosen(seconds), order()
    choice.make(torch.zeros(4, 7, dtype=torch.int64), None, True)
    assert choice.said is None and order() == before


def test_single_precision_has_no_choice():
    choice = chosen(lambda _: pytest.fail("tried"), dtype=None)
    choice.make(torch.zeros(4, 7, dtype=torch.int64), None, True)
    assert choice.said is None


@needs_order
def test_a_result_says_what_was_tried_and_losses_are_the_same(monkeypatch):
    facts = gpu.facts("cpu", "nobody", "none", "package", 1 << 30)
    batch, losses, before = loader.formula_batch(CARD, 4), [], order()
    for amd in (False, True):
        monkeypatch.setattr(cuda, "AMD", amd)
        how = (rule_of(CARD.problem, 4), "bf16", None, BatchPartition(4, accumulation=1), facts, dict)
        model = build.without_randomness(build.model(CARD, 1))
        with contextlib.closing(cuda.CudaSession(RUNTIME, model, *how)) as session:
            losses.append(losses_of(session, batch, 3))
            tried = session.executed().facts["attention_trials"]
            assert tried is None if amd else tried.startswith("flash ")
    assert losses[0] == losses[1] and order() == before
