"""Networks over text and series against their cards, and against networks that are not ours with the same weights."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
written = pytest.importorskip("written", reason="torchvision is not here")

from probing import distinct  # noqa: E402
from small_networks import family_of, learnt, losses_of, smaller  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import Batch, OptimizerRule  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.workloads.pytorch import build, loader, transformer  # noqa: E402

CARDS = {
    name: card
    for name, card in cards.load().items()
    if not (cards.pictures(card.problem) or cards.tabular(card.problem) or "microbenchmark" in card.tasks)
}
TEXT = {name: card for name, card in CARDS.items() if card.family in ("transformer", "decoder")}
MIXTURES = ("olmoe_1b_7b", "qwen3_30b_a3b", "gpt_oss_20b")
LLAMAS = ("llama_1b", "llama_8b", "llama2_70b_lora")  # tied and not, which differ in how far positions are stretched
RULE = OptimizerRule.from_problem(TEXT["gpt2"].problem["optimizer"], 4)


@pytest.fixture(params=CARDS)
def card(request):
    return CARDS[request.param]


def with_weights_of(network, card):
    reference = written.plain(written.network_of(card)[0])
    state = network.state_dict()
    with torch.no_grad():
        for parameter, name in zip(reference.parameters(), distinct(network)):
            parameter.copy_(state[name])
    assert len(list(reference.parameters())) == len(distinct(network))
    return reference


def as_doubles(values):
    if isinstance(values, tuple):
        return tuple(map(as_doubles, values))
    return values.double() if values.is_floating_point() else values


def inputs_of(batch):
    return batch.inputs if isinstance(batch.inputs, tuple) else (batch.inputs,)


def test_the_number_of_parameters_is_the_card_s(card):
    """Counted without memory for them, since some would fill a rack."""
    with without_initialising():
        network = family_of(card).network(card.problem["model"])
    assert sum(parameter.numel() for parameter in network.parameters()) == card.problem["parameters"]


def without_initialising():
    """Tensors of the network have sizes alone."""
    if torch.__version__ < "2":
        pytest.skip("torch makes networks without memory from 2.0 on")
    return torch.device("meta")


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("training", [False, True])
def test_outputs_and_gradients_are_the_reference_s(card, training, fused, monkeypatch):
    if fused and not transformer.FUSED:
        pytest.skip("this torch has no such operation")
    monkeypatch.setattr(transformer, "FUSED", fused)
    card = smaller(card)
    ours = build.without_randomness(build.model(card, seed=3)).double().train(training)
    reference = with_weights_of(ours.network, card).double()
    batch = loader.formula_batch(card, 3)
    inputs = as_doubles(inputs_of(batch))
    output = ours.network(*inputs)
    loss = ours.loss_of(output, as_doubles(batch.targets))
    expected = reference(*inputs)
    for actual, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (output, expected))):
        torch.testing.assert_close(actual, other, rtol=1e-6, atol=1e-7)
    loss.backward()
    rule = card.problem["loss"]
    written.LOSSES[rule["name"]](expected, as_doubles(batch.targets), rule).backward()
    named = dict(ours.network.named_parameters())
    for name, other in zip(distinct(ours.network), reference.parameters()):
        torch.testing.assert_close(named[name].grad, other.grad, rtol=1e-5, atol=1e-8, msg=name)


def test_twenty_steps_lose_what_written_out_updates_lose(card):
    card = smaller(card)
    ours = build.without_randomness(build.model(card, seed=3)).double()
    reference = with_weights_of(ours.network, card).double()
    batch = loader.formula_batch(card, 3)
    batch = batch._replace(inputs=as_doubles(batch.inputs), targets=as_doubles(batch.targets))
    rule = OptimizerRule.from_problem(card.problem["optimizer"], 3)
    session = cpu.open_session(ours, rule, "fp32")
    losses = losses_of(session, batch, 20)
    settings = {**card.problem["optimizer"], "learning_rate": rule.learning_rate}
    update, expected = written.UPDATES[rule.name](reference, settings), []
    for _ in range(20):
        reference.zero_grad()
        loss = written.LOSSES[card.problem["loss"]["name"]](
            reference(*inputs_of(batch)), batch.targets, card.problem["loss"]
        )
        loss.backward()
        update()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, rel=1e-6) and losses[-1] < losses[0]


@pytest.mark.parametrize("card", TEXT.values(), ids=TEXT)
def test_operations_are_those_that_are_counted(card, monkeypatch):
    """By the formula that the card's were reckoned with, on the small network."""
    monkeypatch.setattr(transformer, "FUSED", False)  # not all that torch does at once is counted
    counter = pytest.importorskip("torch.utils.flop_counter", reason="torch counts operations from 2.1 on")
    small = smaller(card)
    network = build.model(small, seed=3).requires_grad_(False)  # its hooks want a gradient of every other output
    batch = loader.formula_batch(small, 2)
    with torch.no_grad(), counter.FlopCounterMode(display=False) as counted:
        network(batch.inputs)
    assert counted.get_total_flops() == 2 * forward_operations(small.problem)
    assert card.flops["forward_per_unit"] == forward_operations(card.problem)
    assert card.flops_per_unit("training") == training_operations(card.problem)


@pytest.mark.parametrize("workload", ["gpt2", "llama_1b", "llama_8b_lora", "olmoe_1b_7b", "gpt_oss_20b"])
def test_operations_of_training_are_those_that_are_counted(workload, monkeypatch):
    monkeypatch.setattr(transformer, "FUSED", False)
    counter = pytest.importorskip("torch.utils.flop_counter", reason="torch counts operations from 2.1 on")
    card = smaller(TEXT[workload])
    objective, batch = build.model(card, seed=3).train(), loader.formula_batch(card, 2)
    with counter.FlopCounterMode(display=False) as counted:
        objective(batch.inputs, batch.targets)[1].backward()
    assert counted.get_total_flops() == 2 * training_operations(card.problem)


def training_operations(problem):
    """Three times forward, without the gradients of weights that are not trained, and of what comes before those."""
    model, length, forward = problem["model"], problem["input"]["length"], forward_operations(problem)
    if "adapter" not in model:
        return 3 * forward
    heads, kv_heads, size = cards.head_sizes(model)
    attention = model["layers"] * 4 * length**2 * heads * size
    frozen = forward_operations({**problem, "model": {**model, "adapter": {"rank": 0}}}) - attention
    first = 2 * length * model["width"] * ((heads + 2 * kv_heads) * size + model["adapter"]["rank"])
    return 3 * forward - frozen - first


@pytest.mark.parametrize("workload", [name for name, card in TEXT.items() if "generation" in card.problem])
def test_operations_of_a_generated_text_are_those_that_are_counted(workload, monkeypatch):
    monkeypatch.setattr(transformer, "FUSED", False)
    counter = pytest.importorskip("torch.utils.flop_counter", reason="torch counts operations from 2.1 on")
    card = smaller(TEXT[workload])
    network = build.model(card, seed=3).requires_grad_(False).network.eval()
    prompt, new = 7, 6
    with torch.no_grad(), counter.FlopCounterMode(display=False) as counted:
        text = network.prefill(torch.zeros(2, prompt, dtype=torch.int64), new)
        for _ in range(new - 1):
            text = network.decode_step(text)
    assert counted.get_total_flops() == 2 * generation_operations(card.problem["model"], prompt, new)
    assert TEXT[workload].flops_per_unit("inference") == generation_operations(
        TEXT[workload].problem["model"], **TEXT[workload].problem["generation"]
    )


def generation_operations(model, prompt, new):
    """The prompt at once, then every new token but the last over all before it; the head for the newest alone."""
    operations = new * 2 * model["width"] * model["vocabulary"]
    for window in cards.attention_windows(model):
        operations += block_operations(model, prompt, prompt)
        for place in range(prompt + 1, prompt + new):
            operations += block_operations(model, 1, min(place, window or place))
    return operations


def block_operations(model, places, attended):
    """Two for each multiplication of a block's matrix products, attention of each place over all that are seen."""
    width, matrices = model["width"], 3 if model["architecture"] == "decoder" else 2
    experts = model.get("experts", {"per_token": 1, "count": 0})
    heads, kv_heads, size = cards.head_sizes(model)
    projections = 2 * width * heads * size + 2 * width * kv_heads * size  # of queries and outputs, of keys and values
    adapters = model.get("adapter", {"rank": 0})["rank"] * 2 * (width + (heads + kv_heads) * size)
    feed = experts["per_token"] * matrices * width * model["feed_forward"] + width * experts["count"]
    return 2 * places * (projections + adapters + feed + 2 * attended * heads * size)


def forward_operations(problem):
    """Two for each multiplication of a matrix product, attention over all pairs of places."""
    model, length = problem["model"], problem["input"]["length"]
    width, words = model["width"], model["vocabulary"]
    masked = problem["input"].get("masked", 0)
    head = {
        "next_token": length * width * words,
        "span": length * width * 2,
        "pretraining": masked * (width**2 + width * words) + width**2 + 2 * width,
    }[model["head"]["kind"]]
    return model["layers"] * block_operations(model, length, length) + 2 * head


@pytest.mark.parametrize("workload", ["gpt2", "bert_base"])
def test_a_place_sees_what_it_may(workload):
    """GPT nothing that follows; BERT everything but padding."""
    card = smaller(TEXT[workload])
    network = build.without_randomness(build.model(card, seed=3)).network.eval()
    tokens = torch.randint(1, 97, (1, 20), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[0, 12] = 1 + tokens[0, 12] % 95
    segments: tuple[Any, ...] = () if workload == "gpt2" else (torch.zeros_like(tokens),)
    with torch.no_grad():
        moved = (network(tokens, *segments) - network(changed, *segments)).abs().amax(dim=(0, 2))
        assert (moved > 0).tolist() == ([False] * 12 + [True] * 8 if workload == "gpt2" else [True] * 20)
        if workload == "bert_base":
            tokens[0, 15:], longer = 0, tokens.clone()
            longer[0, 15:] = 0
            short = network(tokens[:, :15], segments[0][:, :15])
            torch.testing.assert_close(network(longer, *segments)[:, :15], short, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "workload", ["gpt2", "gpt_117m", "bert_base", "bert_large_pretraining_128", *LLAMAS, *MIXTURES]
)
def test_outputs_are_those_of_transformers(workload):
    pytest.importorskip("transformers")
    import of_transformers

    card = learnt(smaller(TEXT[workload]))
    # Both make tables of rotary positions in single precision.
    near = {"rtol": 1e-4, "atol": 1e-5} if card.family == "decoder" else {"rtol": 1e-7, "atol": 1e-8}
    ours = build.without_randomness(build.model(card, seed=3)).double().eval()
    reference = of_transformers.Network(card).double().eval()
    if "adapter" in card.problem["model"]:
        build.load_probe_weights(ours)  # at the start they add nothing
    reference.take(ours.network.state_dict(), card.problem["model"].get("adapter"))
    batch = loader.formula_batch(card, 3)
    with torch.no_grad():
        output, expected = ours(batch.inputs)[0], reference(*inputs_of(batch))
    for actual, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (output, expected))):
        torch.testing.assert_close(actual, other, **near)


@pytest.mark.parametrize("workload", ["gpt2", "gpt_117m", "gpt_800m", "llama_1b", "qwen3_30b_a3b", "gpt_oss_20b"])
@pytest.mark.parametrize("fused", [True, False])
def test_what_is_kept_of_a_text_changes_nothing(workload, fused, monkeypatch):
    """Token by token the text is that of the whole network, applied to all of it again and again."""
    if fused and not transformer.FUSED:
        pytest.skip("this torch has no such operation")
    monkeypatch.setattr(transformer, "FUSED", fused)
    card = smaller(TEXT[workload])
    model = build.model(card, seed=3)
    build.load_probe_weights(model)  # as it is initialised it only repeats itself
    session = cpu.open_session(model.double(), RULE, "fp32")
    text = loader.formula_batch(card, 3).inputs[:, :7]
    state, made = session.begin(Batch(text, None), 6), []
    for _ in range(5):
        made.append(state.token)
        state = session.next_state(state)
    made.append(state.token)
    network = session.model.network.eval()
    with torch.no_grad():
        for token in made:
            assert torch.equal(network(text)[:, -1:].argmax(-1), token)
            text = torch.cat([text, token], 1)
    assert len(set(text[:, 7:].flatten().tolist())) > 3
