"""Checks of the run itself in PyTorch: our networks pass them in any precision, and work that is left out does not."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from small_networks import family_of, smaller

torch = pytest.importorskip("torch")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.messages import Message, RunCheck  # noqa: E402
from entrypoints.contract.session import BatchPartition, rule_of  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.devices.pytorch.shared.session import TorchSession  # noqa: E402
from entrypoints.worker import run_checks  # noqa: E402
from entrypoints.worker.generation import Generation  # noqa: E402
from entrypoints.worker.loop import Loop  # noqa: E402
from entrypoints.worker.sampling_loop import SamplingLoop  # noqa: E402
from entrypoints.workloads.pytorch import build, loader, transformer  # noqa: E402
from entrypoints.workloads.pytorch.lstm import LastState  # noqa: E402
from entrypoints.workloads.pytorch.samplers import HamiltonianMonteCarlo  # noqa: E402

CARDS = cards.load()
TEXT = (
    "bert_base",
    "bert_large_pretraining_128",
    "gpt2",
    "gpt_800m",
    "gpt_117m",
    "llama_1b",
    "llama_8b_lora",
    "gpt_oss_20b",
)
LATENTS = ("dit_xl_2", "flux_1")


def card_of(workload):
    card = CARDS[workload]
    return smaller(card) if card.family in ("transformer", "decoder", "diffusion", "lstm") else card


def opened(card, batch=4, precision="fp32", partition=None, compiled=None):
    cpu.prepare(precision, 1)
    return cpu.open_session(build.model(card, 1), rule_of(card.problem, batch), precision, compiled, partition)


def trained(workload, batch=4, precision="fp32", partition=None, compiled=None):
    """What the checks find after a step of training, by name."""
    card = card_of(workload)
    session = opened(card, batch, precision, partition, compiled)
    sent: list[Message] = []
    placed = session.to_device(loader.synthetic_batch(card, batch, seed=1))
    loop = Loop(session, "training", itertools.repeat(placed), sent.append, card, precision)
    loop.advance()
    loop.check_steps()
    return faults(sent)


def faults(sent):
    return {message.name: message.faults for message in sent if isinstance(message, RunCheck)}


@pytest.mark.parametrize(
    "workload", [*TEXT, *LATENTS, "lstm", "deep_voice_3", "image_compression", "mobilenet_v3_small"]
)
@pytest.mark.parametrize("batch", [1, 4])
def test_a_step_of_ours_passes(workload, batch):
    faults = trained(workload, batch)
    dropout = ["dropout"] if "dropout" in CARDS[workload].problem["model"] else []
    assert faults == {name: [] for name in ("gradients", "samples", *dropout)}


@pytest.mark.parametrize("workload", ["bert_base", "gpt2", "image_compression"])
def test_a_step_of_ours_passes_in_half_precision(workload):
    faults = trained(workload, precision="bf16")
    assert all(each == [] for each in faults.values()) and "gradients" in faults


def test_a_block_that_skips_samples_may_have_skipped_a_small_batch():
    """In efficientnet_b0 with seed 1 and one sample, a whole block has no gradient."""
    assert sorted(trained("efficientnet_b0", batch=1)) == ["dropout", "samples"]


def heads(kept):
    """Attention in which only the first heads are computed."""
    attend = transformer.SelfAttention.attend

    def cut(self, query, key, value, attention_mask):
        few = attend(self, query[:, :kept], key[:, :kept], value[:, :kept], attention_mask)
        return torch.cat([few, torch.zeros_like(value[:, kept:])], 1)

    return mock.patch.object(transformer.SelfAttention, "attend", cut)


def feed_forward(kept):
    """A feed-forward network of which only the first units are computed."""

    def cut(self, x):
        wide = torch.nn.functional.linear(x, self.widen.weight[:kept], self.widen.bias[:kept])
        return torch.nn.functional.linear(self.activation(wide), self.narrow.weight[:, :kept], self.narrow.bias)

    return mock.patch.object(transformer.Block, "feed_forward", cut)


def blocks(kept):
    """A network of which only the first blocks are computed, with a cache and without."""
    forward = transformer.Block.forward

    def cut(self, x, *others):
        return x if self.skipped else forward(self, x, *others)

    def begin(self, model, *parts, original=transformer.Transformer.__init__):
        original(self, model, *parts)
        for number, block in enumerate(self.blocks):
            block.skipped = number >= kept

    return mock.patch.multiple(transformer.Block, forward=cut), mock.patch.object(
        transformer.Transformer, "__init__", begin
    )


@pytest.mark.parametrize(
    ("mistakes", "said"),
    [
        ([heads(3)], "75 % of the units of blocks.0.attention.query_key_value.weight"),
        ([feed_forward(100)], "78 % of the units of blocks.0.widen.weight"),
        (blocks(1), "0 % of the units of blocks.1.attention.query_key_value.weight"),
    ],
)
@pytest.mark.parametrize("workload", ["gpt2", "bert_base"])
def test_a_head_a_unit_or_a_block_that_is_left_out_has_no_gradient(workload, mistakes, said):
    with contexts(mistakes):
        faults = trained(workload)
    assert f"the first step had a gradient for only {said}" in faults["gradients"]
    assert faults["samples"] == [] and faults["gradients"]


def contexts(entered):
    stack = contextlib.ExitStack()
    for each in entered:
        stack.enter_context(each)
    return stack


def test_cells_of_an_lstm_that_are_left_out_have_no_gradient():
    def cut(self, series):
        states, _ = self.memory(series)
        return self.output(torch.cat([states[:, -1, :18], torch.zeros_like(states[:, -1, 18:])], -1))

    with mock.patch.object(LastState, "forward", cut):
        assert trained("lstm")["gradients"] == [
            "the first step had a gradient for only 75 % of the units of output.weight"
        ]


def test_a_gradient_that_is_not_finite_is_a_fault():
    backward = TorchSession.forward_backward

    def spoilt(self, batch):
        loss = backward(self, batch)
        self.model.network.output.bias.grad[0] = math.nan
        return loss

    with mock.patch.object(TorchSession, "forward_backward", spoilt):
        assert trained("lstm")["gradients"] == ["the first step had no finite gradient for output.bias"]


def first_micro_batch(self, batch, original=TorchSession.micro_batches):
    return original(self, batch)[:1]


def four_samples(self, inputs, targets=None, original=build.Objective.forward):
    return original(self, inputs[:4], None if targets is None else targets[:4])


@pytest.mark.parametrize(
    ("mistake", "passed"),
    [
        (mock.patch.object(TorchSession, "micro_batches", first_micro_batch), 1),
        (mock.patch.object(build.Objective, "forward", four_samples), 4),
    ],
)
def test_all_samples_of_a_step_pass_through_the_network(mistake, passed):
    partition = BatchPartition(1, accumulation=8) if passed == 1 else None
    assert trained("lstm", 8, partition=partition)["samples"] == []
    with mistake:
        faults = trained("lstm", 8, partition=partition)
    assert faults["samples"] == [f"{passed} of the 8 samples of the first step passed through the network"]


def never(self, model, original=transformer.Block.__init__):
    original(self, {**model, "dropout": 0.0})


def half(self, model, original=transformer.InputEmbedding.__init__):
    original(self, {**model, "dropout": 0.5})


def not_applied(self, x, attention_mask, cache=None):
    x = self.attention_normalisation(x + self.attention(x, attention_mask))
    return self.feed_forward_normalisation(x + self.feed_forward(x))


def attention_without(self, query, key, value, attention_mask, original=transformer.SelfAttention.attend):
    self.dropout.eval()
    training, self.training = self.training, False
    attended = original(self, query, key, value, attention_mask)
    self.training = training
    return attended


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("where", "name", "mistake", "faults"),
    [
        (transformer.Block, "__init__", never, ["blocks.0.attention.dropout", "blocks.0.dropout"]),
        (transformer.InputEmbedding, "__init__", half, ["embedding.dropout"]),
        (transformer.Block, "forward", not_applied, ["blocks.0.dropout"]),
        (transformer.SelfAttention, "attend", attention_without, ["blocks.0.attention.dropout"]),
    ],
)
def test_each_dropout_is_applied_and_drops_what_the_card_says(where, name, mistake, faults, fused):
    with mock.patch.object(transformer, "FUSED", fused and transformer.FUSED):
        assert trained("bert_base")["dropout"] == []
        with mock.patch.object(where, name, mistake):
            said = trained("bert_base")["dropout"]
    assert {each.partition(" ")[0] for each in said} == {*faults, *(each.replace("0", "1") for each in faults)}


def test_a_compiled_step_shows_its_gradients_and_the_fractions_of_its_dropouts(monkeypatch):
    if not hasattr(torch, "compile"):
        pytest.skip("this torch compiles nothing")
    monkeypatch.setenv("CXX", sys.executable)  # a compiler has to be here, which is not called
    monkeypatch.setattr(torch, "compile", lambda model, mode: model)
    assert trained("bert_base", compiled="default") == {"gradients": [], "dropout": []}
    with mock.patch.object(transformer.Block, "__init__", never):
        assert len(trained("bert_base", compiled="default")["dropout"]) == 4


def test_a_network_without_any_dropout_is_not_the_card_s():
    with mock.patch.object(torch.nn, "Dropout", lambda _: torch.nn.Identity()):
        model = build.model(CARDS["mobilenet_v3_small"], 1)
    with mock.patch.object(build, "model", lambda *_: model):
        assert trained("mobilenet_v3_small")["dropout"] == ["the network has no dropout"]


def inferred(workload, batch=3, precision="fp32"):
    """What the checks find after a batch of inference, by name."""
    card = card_of(workload)
    session = opened(card, batch, precision)
    sent: list[Message] = []
    placed = session.to_device(loader.synthetic_batch(card, batch, seed=1))
    loop = Loop(session, "inference", itertools.repeat(placed), sent.append, card, precision)
    loop.advance()
    loop.check_steps()
    return faults(sent)


@pytest.mark.parametrize(
    ("workload", "precision"),
    [("bert_base", "fp32"), ("bert_base", "bf16"), ("lstm", "fp32"), ("mobilenet_v3_small", "fp32")],
)
def test_a_batch_of_ours_has_the_output_of_a_request(workload, precision):
    """That there is a check at all shows that the session hands its output out."""
    assert inferred(workload, precision=precision) == {"answers": []}


@pytest.mark.parametrize(("precision", "passes"), [("fp32", False), ("bf16", True)])
def test_rounding_in_half_precision_adds_up(precision, passes):
    """A BERT of 24 layers deviates by 1 % in bf16 if another kernel computes its attention."""

    def rounded(self, batch, original=TorchSession.infer):
        report = original(self, batch)
        return report._replace(output=lambda: 1.02 * report.output())

    with mock.patch.object(TorchSession, "infer", rounded):
        assert (inferred("bert_base", precision=precision)["answers"] == []) is passes


def without_computing(self, batch, original=TorchSession.infer):
    report = original(self, batch)
    return report._replace(output=lambda: 0 * report.output())


def by_one_block(self, batch, original=TorchSession.infer):
    network = self.inference_model().network
    every, network.blocks = network.blocks, network.blocks[:1]
    report = original(self, batch)
    network.blocks = every
    return report


def of_one_sample(self, batch, original=TorchSession.infer):
    report = original(self, batch._replace(inputs=batch.inputs[:1].expand_as(batch.inputs)))
    return report._replace(samples=batch.samples)


@pytest.mark.parametrize(
    ("workload", "mistake"),
    [
        ("bert_base", without_computing),
        ("bert_base", by_one_block),
        ("lstm", without_computing),
        ("lstm", of_one_sample),
        ("mobilenet_v3_small", without_computing),
    ],
)
def test_a_batch_that_is_answered_with_less_work_has_another_output(workload, mistake):
    with mock.patch.object(TorchSession, "infer", mistake):
        (said,) = inferred(workload)["answers"]
    assert said.startswith("the output differs from that of a request by ")


def generated(workload="gpt2", batch=3, precision="fp32", new=12):
    """What the check finds after a batch of texts."""
    card = smaller(CARDS[workload])
    deep = {**card.problem["model"], "layers": 6}
    count = sum(each.numel() for each in family_of(card).network(deep).parameters())
    card = card._replace(problem={**card.problem, "model": deep, "parameters": count})
    session = opened(card, precision=precision)
    sent: list[Message] = []
    batches = itertools.repeat(loader.synthetic_batch(card, batch, seed=1))
    generation = Generation(session, batches, {"prompt": 9, "new": new}, precision, sent.append)
    generation.advance()
    generation.check_steps()
    return faults(sent)["generation"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("workload", ["gpt2", "gpt_800m", "llama_8b", "gpt_oss_20b"])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_text_of_ours_is_continued_as_the_whole_network_continues_it(workload, precision, batch):
    assert generated(workload, batch, precision) == []


def one_block_alone(self, text, original=transformer.Transformer.decode_step):
    every, self.blocks = self.blocks, self.blocks[:1]
    state = original(self, text)
    self.blocks = every
    return state


def end_of_the_prompt(self, tokens, new, original=transformer.Transformer.prefill):
    return original(self, tokens[:, -3:], new)


def same_text_for_all(self, text, original=transformer.Transformer.decode_step):
    state = original(self, text)
    return state._replace(token=state.token[:1].expand_as(state.token))


def nothing_from_the_fourth_token(self, text, original=transformer.Transformer.decode_step):
    return text if text.caches[0].filled > 12 else original(self, text)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("decode_step", one_block_alone),
        ("prefill", end_of_the_prompt),
        ("decode_step", same_text_for_all),
        ("decode_step", nothing_from_the_fourth_token),
    ],
)
def test_a_text_that_is_continued_with_less_work_is_another(name, mistake, precision):
    with mock.patch.object(transformer.Transformer, name, mistake):
        (said,) = generated(precision=precision)
    assert said.endswith("of 12 new tokens are not the likeliest ones")


def test_trajectories_are_whole():
    def short(self, *given, original=HamiltonianMonteCarlo.trajectory):
        whole, self.rule = self.rule, dataclasses.replace(self.rule, leapfrog_steps=min(20, self.rule.leapfrog_steps))
        end = original(self, *given)
        self.rule = whole
        return end

    assert sampled() == []
    with mock.patch.object(HamiltonianMonteCarlo, "trajectory", short):
        assert sampled() == ["3 transitions evaluated the gradient 61 times, and not 91 times"]


def sampled():
    card = CARDS["mcmc"]
    card = card._replace(problem={**card.problem, "sampler": {**card.problem["sampler"], "leapfrog_steps": 30}})
    session = opened(card)
    sent: list[Message] = []
    batch = loader.synthetic_batch(card, 4, seed=1)
    configuration: Any = SimpleNamespace(steps=3, warmup_steps=1, duration_seconds=None)
    SamplingLoop(session, batch, 4, card, sent.append).run(configuration)
    return faults(sent)["trajectory"]


def test_what_is_checked_leaves_a_step_as_it_was():
    """No hook stays in the network, and inference after the checks is inference."""
    card = card_of("bert_base")
    session = opened(card)
    batch = loader.synthetic_batch(card, 4, seed=1)
    session.train(batch)
    assert run_checks.dropout(session.observed(), card) == []
    assert not any(layer._forward_hooks for layer in session.model.modules())
    first, second = (session.infer_request(batch).output for _ in range(2))
    assert (first == second).all()
