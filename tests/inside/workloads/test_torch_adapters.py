"""LoRA: what is trained, and what stays as it is without gradients and states."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from small_networks import losses_of, smaller  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.workloads.pytorch import build, layers, loader  # noqa: E402

CARD = smaller(cards.load()["llama_8b_lora"])
BATCH = loader.formula_batch(CARD, 3)


def trained(precision="fp32", steps=3, change=lambda model: model):
    """A session after some steps, their losses, and the weights before."""
    model = build.model(CARD, seed=3)
    before = {name: weight.clone() for name, weight in model.network.state_dict().items()}
    session = cpu.open_session(change(model), rule_of(CARD.problem, 3), precision)
    return session, losses_of(session, BATCH, steps), before


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_adapters_are_trained_and_nothing_else(precision):
    session, losses, before = trained(precision)
    after = session.weights()
    changed = {name for name, weight in after.items() if not torch.equal(torch.from_numpy(weight), before[name])}
    adapters = {name for name in before if name.rpartition(".")[0].endswith((".down", ".up"))}
    rounded = {name for name in before if before[name].dim() > 1} - {"embedding.tokens.weight"}  # kept in bf16
    assert len(adapters) == 2 * 2 * CARD.problem["model"]["layers"]
    assert changed == (adapters if precision == "fp32" else adapters | rounded) and losses[-1] < losses[0]
    held = dict(session.model.network.named_parameters())
    assert {name for name, weight in held.items() if weight.grad is not None} == adapters
    assert sum(len(group["params"]) for group in session.optimizer.param_groups) == len(adapters)
    assert len(session.optimizer.state) == len(adapters)
    kinds = {name: weight.dtype for name, weight in held.items() if name not in adapters and weight.dim() > 1}
    half = torch.bfloat16 if precision == "bf16" else torch.float32
    assert {kind for name, kind in kinds.items() if name != "embedding.tokens.weight"} == {half}
    for name in rounded - adapters if precision == "bf16" else ():
        assert torch.equal(torch.from_numpy(after[name]), before[name].bfloat16().float()), name


def test_recomputed_blocks_lose_the_same():
    assert trained()[1] == pytest.approx(trained(change=build.recomputed)[1], rel=1e-6)


def test_a_head_that_is_not_trained_gets_no_gradient_from_a_loss_in_parts():
    """And the same loss and gradients come out as of all logits at once."""
    model = build.without_randomness(build.model(CARD, seed=3)).train()
    build.load_probe_weights(model)
    model.double()
    gradients = []
    for change in (lambda model: model, build.with_chunked_loss):
        model.zero_grad()
        loss = change(model)(BATCH.inputs, BATCH.targets)[1]
        loss.backward()
        gradients.append([loss, *(weight.grad for weight in model.parameters() if weight.requires_grad)])
    assert model.network.head.decoder.weight.grad is None
    for whole, parts in zip(*gradients):
        torch.testing.assert_close(whole, parts, rtol=1e-9, atol=1e-12)


def test_nothing_computes_the_gradient_of_a_head_that_is_not_trained(monkeypatch):
    made, operation = [], layers.as_one_operation

    def noted(*given):
        made.append(operation(*given))
        return made[-1]

    monkeypatch.setattr(layers, "as_one_operation", noted)
    model = build.with_chunked_loss(build.model(CARD, seed=3)).train()
    model(BATCH.inputs, BATCH.targets)
    assert [by_weight.numel() for _, _, by_weight in made] == [0]


def test_weights_that_are_made_later_stay_as_they_are_too():
    made = build.deferred_model(CARD, 3)
    made.fill(made, torch.device("cpu"))
    expected = dict(build.model(CARD, 3).network.named_parameters())
    for name, weight in made.network.named_parameters():
        assert torch.equal(weight, expected[name]) and weight.requires_grad == expected[name].requires_grad, name


def test_more_that_is_trained_is_refused(monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "requires_grad_", lambda module, wanted=True: module)
    with pytest.raises(RunError, match="parameters, its card says"):
        build.model(CARD, seed=0)
