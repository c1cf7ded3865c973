"""Mixtures of experts, windows and sinks: routing, products by group, and attention in one operation."""

from __future__ import annotations

from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from small_networks import learnt, smaller  # noqa: E402

from entrypoints.contract import cards, reference  # noqa: E402
from entrypoints.workloads.pytorch import build, decoder, experts, loader, windows  # noqa: E402

CARDS = {name: card for name, card in cards.load().items() if "experts" in card.problem["model"]}
# Rounding in fp32 moved scores by less than 1e-5, on a CPU and on a GPU: it changes no token's experts.
LEAST_MARGIN = 4e-4


def router_of(workload, **changes):
    model = CARDS[workload].problem["model"]
    small = {**model, "width": 16, "experts": {**model["experts"], **changes}}
    router = experts.Router(small)
    for weight in router.parameters():
        torch.nn.init.normal_(weight)
    return router


# Routing


@pytest.mark.parametrize("workload", CARDS)
def test_balanced_experts_have_as_many_tokens_and_weights_of_the_scores(workload):
    router, x = router_of(workload), torch.randn(3, 64, 16, requires_grad=True)
    chosen, weights = router(x, 0)
    counts = torch.bincount(chosen.flatten(), minlength=router.experts)
    assert counts.unique().tolist() == [3 * 64 * router.per_token // router.experts]
    assert all(len(set(each)) == router.per_token for each in chosen.flatten(0, 1).tolist())
    shares = router.scores(x).softmax(-1).gather(-1, chosen)
    expected = shares / shares.sum(-1, keepdim=True) if router.renormalised else shares
    torch.testing.assert_close(weights, expected)
    weights[..., 0].sum().backward()
    assert router.weight.grad.abs().sum() > 0 and x.grad.abs().sum() > 0


def test_new_tokens_of_many_texts_use_all_experts():
    """And not those of one place for all texts, of which a device would read few weights."""
    router = router_of("olmoe_1b_7b")
    chosen, _ = router(torch.randn(8, 1, 16), 100)
    assert torch.bincount(chosen.flatten(), minlength=router.experts).tolist() == [1] * router.experts


def test_the_last_text_has_its_experts_alone_too_at_once_or_token_by_token():
    router, x = router_of("olmoe_1b_7b"), torch.randn(5, 9, 16)
    whole, _ = router(x, 0)
    assert torch.equal(router(x[-1:], 0)[0], whole[-1:])
    for place in (torch.tensor([4]), 4):
        assert torch.equal(router(x[:, 4:5], place)[0], whole[:, 4:5])


def test_learnt_routing_takes_the_highest_scores():
    router = router_of("olmoe_1b_7b", routing="learnt")
    x = torch.randn(2, 5, 16)
    chosen, weights = router(x, 0)
    shares = router.scores(x).softmax(-1)
    assert torch.equal(weights, shares.topk(8)[0]) and torch.equal(shares.gather(-1, chosen), weights)


def test_scores_are_single_precision_under_autocast():
    router = router_of("gpt_oss_20b")
    x = torch.randn(2, 5, 16)
    expected = router.scores(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(router.scores(x), expected)
    assert (router.half().scores(x) - expected).abs().max() < 0.1 and router.scores(x).dtype == torch.float32


@pytest.mark.parametrize("workload", CARDS)
def test_no_token_of_the_correctness_check_is_between_two_experts(workload):
    """Rounding would change experts else, and with them numbers by far more than it changes any other."""
    probing = pytest.importorskip("probing")
    margins, scores = [], experts.Router.scores

    def noted(part, x):
        made = scores(part, x)
        highest = made.detach().topk(part.per_token + 1)[0]
        margins.append(float((highest[..., -2] - highest[..., -1]).min()))
        return made

    stored = reference.load(CARDS[workload])
    assert stored is not None and stored.model["experts"]["routing"] == "learnt"
    with mock.patch.object(experts.Router, "scores", noted):
        probing.probed(workload, "fp32")
    assert margins and min(margins) > LEAST_MARGIN


def test_a_reduced_network_is_routed_as_the_whole_one():
    for card in CARDS.values():
        assert cards.routing(reference.reduced_card(card).problem) == cards.routing(card.problem) == "balanced"
        assert cards.routing(reference.probed_card(card, reference.load(card)).problem) == "learnt"


# Products by group


@pytest.mark.skipif(not experts.GROUPED, reason="this torch has no grouped products")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_grouped_products_are_those_of_a_loop(dtype, bias, monkeypatch):
    layer = experts.GroupedLinear(4, 16, 24, bias)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight)
    counts, rows = torch.tensor([8, 0, 3, 21]), torch.randn(32, 16, dtype=dtype, requires_grad=True)
    gradient, results = torch.randn(32, 24, dtype=dtype), []
    for grouped in (False, True):
        monkeypatch.setattr(experts, "has_grouped_products", lambda *_, grouped=grouped: grouped)
        made = layer(rows, counts)
        results.append([made, *torch.autograd.grad(made, [rows, *layer.parameters()], gradient)])
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 5e-2}
    for mine, other in zip(*results):
        torch.testing.assert_close(mine, other, **near)


@pytest.mark.parametrize("version", [(8, 0), (7, 0)])
def test_grouped_products_are_for_gpus_that_have_them(version, monkeypatch):
    monkeypatch.setattr(experts, "GROUPED", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: version)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    gpu = torch.device("cuda")
    assert experts.has_grouped_products(gpu, torch.bfloat16) == (version == (8, 0))
    assert not experts.has_grouped_products(gpu, torch.float32)
    assert not experts.has_grouped_products(torch.device("cpu"), torch.bfloat16)
    network = decoder.network(smaller(CARDS["olmoe_1b_7b"]).problem["model"])
    assert experts.waits_for_counts(network, gpu, None)
    assert experts.waits_for_counts(network, gpu, torch.bfloat16) == (version == (7, 0))
    assert not experts.waits_for_counts(torch.nn.Linear(1, 1), gpu, None)


def test_gradients_of_copies_are_sums():
    rows = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    order = torch.randperm(10)
    back = torch.empty_like(order).scatter_(0, order, torch.arange(10))
    assert torch.autograd.gradcheck(lambda x: experts.Dispatch.apply(x, order, back, 2), rows)
    assert torch.equal(experts.Dispatch.apply(rows, order, back, 2)[back], rows.repeat_interleave(2, 0))
    copies = torch.randn(10, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: experts.Reordered.apply(x, order, back), copies)


@pytest.mark.parametrize("workload", CARDS)
def test_recomputed_blocks_have_the_same_gradients(workload):
    card = learnt(smaller(CARDS[workload]))
    batch, gradients = loader.formula_batch(card, 3), []
    for change in (lambda model: model, build.recomputed):
        model = change(build.model(card, seed=3)).train()
        model(batch.inputs, batch.targets)[1].backward()
        gradients.append([weight.grad for weight in model.parameters()])
    for whole, again in zip(*gradients):
        assert torch.equal(whole, again)


# Windows and sinks


@pytest.mark.skipif(not windows.AVAILABLE, reason="this torch has no such operation")
@pytest.mark.parametrize(("places", "window"), [(50, 7), (21, 20), (14, 7), (20, 20), (5, 7), (50, None)])
@pytest.mark.parametrize("has_sinks", [True, False])
def test_attention_in_one_operation_is_that_written_out(places, window, has_sinks):
    shapes = ((2, 6, places, 16), (2, 2, places, 16), (2, 2, places, 16))
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    sinks = torch.randn(6, dtype=torch.float64, requires_grad=True) if has_sinks else None
    rule, results = windows.Rule(window, sinks), []
    for attend in (windows.attend, windows.attend_plainly):
        query, key, value = given
        made = attend(query, key, value, rule, None)
        inputs = [*given, sinks] if sinks is not None else given
        results.append([made, *torch.autograd.grad(made.square().sum(), inputs)])
    for mine, other in zip(*results):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("window", [7, None])
def test_the_last_place_sees_what_it_saw_among_all(window):
    query, key, value = (torch.randn(2, heads, 30, 16) for heads in (6, 2, 2))
    rule = windows.Rule(window, torch.randn(6))
    last = windows.attend_plainly(query, key, value, rule, None)[:, :, -1:]
    torch.testing.assert_close(windows.attend_plainly(query[:, :, -1:], key, value, rule, None), last)
    key, value = (torch.nn.functional.pad(each, (0, 0, 0, 9)) for each in (key, value))
    visible = (torch.arange(39) < 30)[None, None, None]
    torch.testing.assert_close(windows.attend_plainly(query[:, :, -1:], key, value, rule, visible), last)


def test_a_place_sees_itself_and_those_of_its_window():
    seen = windows.seen_places(6, 3, torch.device("cpu"))
    assert seen.sum(1).tolist() == [1, 2, 3, 3, 3, 3] and not seen.triu(1).any()


def test_every_other_block_has_a_window():
    network = decoder.network(smaller(CARDS["gpt_oss_20b"]).problem["model"])
    assert [block.attention.window for block in network.blocks] == [7, None]
    assert cards.attention_windows({"layers": 3}) == [None] * 3


def test_a_device_may_choose_its_kernel_for_windows_too():
    attention = pytest.importorskip("entrypoints.devices.pytorch.shared.attention")
    network = decoder.network(smaller(CARDS["gpt_oss_20b"]).problem["model"]).train()
    for block in network.blocks:
        attention.trial(block.attention, 2, 30, False, torch.device("cpu"), torch.float32)()


def test_what_is_known_of_a_step_has_no_dropouts():
    from entrypoints.devices.pytorch.shared.observation import dropped_fractions

    assert dropped_fractions(decoder.network(smaller(CARDS["gpt_oss_20b"]).problem["model"])) == {}
