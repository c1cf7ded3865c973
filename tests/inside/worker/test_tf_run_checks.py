"""Checks of the run itself in TensorFlow: our networks pass them, and work that is left out does not."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from small_networks import SHORTER, SMALL

tf = pytest.importorskip("tensorflow")
np = pytest.importorskip("numpy")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.messages import Message, RunCheck  # noqa: E402
from entrypoints.contract.session import StepReport, rule_of  # noqa: E402
from entrypoints.devices.tensorflow import cpu  # noqa: E402
from entrypoints.devices.tensorflow.shared.session import TensorFlowSession, to_host  # noqa: E402
from entrypoints.worker.generation import Generation  # noqa: E402
from entrypoints.worker.loop import Loop  # noqa: E402
from entrypoints.worker.sampling_loop import SamplingLoop  # noqa: E402
from entrypoints.workloads.tensorflow import build, loader, transformer  # noqa: E402
from entrypoints.workloads.tensorflow.samplers import HamiltonianMonteCarlo  # noqa: E402

CARDS = cards.load()


def smaller(workload, **changed):
    """The card with a small network over fewer tokens, if its family has one."""
    card = CARDS[workload]
    problem = {**card.problem, "model": {**card.problem["model"], **SMALL.get(card.family, {}), **changed}}
    if card.family in SMALL:
        problem["input"] = {key: SHORTER.get(key, value) for key, value in card.problem["input"].items()}
    family = importlib.import_module(f"entrypoints.workloads.tensorflow.{card.family}")
    weights = family.network(problem["model"]).trainable_variables
    return card._replace(problem={**problem, "parameters": sum(int(np.prod(weight.shape)) for weight in weights)})


def opened(card, batch=4, compiled=False):
    return cpu.open_session(build.model(card, 1), rule_of(card.problem, batch), "fp32", compiled)


def faults(sent):
    return {message.name: message.faults for message in sent if isinstance(message, RunCheck)}


def trained(workload, batch=4, compiled=False):
    """What the checks find after a step of training, by name."""
    card = smaller(workload)
    session = opened(card, batch, compiled)
    sent: list[Message] = []
    loop = Loop(
        session, "training", itertools.repeat(loader.synthetic_batch(card, batch, seed=1)), sent.append, card, "fp32"
    )
    loop.advance()
    loop.check_steps()
    loop.advance()
    return faults(sent)


@pytest.mark.parametrize(
    ("workload", "batch"),
    [
        *[(workload, batch) for workload in ("gpt2", "lstm") for batch in (1, 4)],
        ("image_compression", 2),
        *(
            pytest.param(workload, batch, marks=pytest.mark.full)
            for workload, batch in (
                *[(workload, batch) for workload in ("bert_base", "gpt_800m") for batch in (1, 4)],
                *(("bert_large_pretraining_128", 2), ("resnet50", 2)),
            )
        ),
    ],
)
def test_a_step_of_ours_passes(workload, batch):
    dropout = ["dropout"] if "dropout" in CARDS[workload].problem["model"] else []
    assert trained(workload, batch) == {name: [] for name in ("gradients", "samples", *dropout)}


@pytest.mark.full
def test_a_compiled_step_is_checked_as_well():
    assert trained("bert_base", compiled=True) == {"gradients": [], "samples": [], "dropout": []}


def heads(self, query, key, value, attention_mask, training, original=transformer.SelfAttention.attend):
    few = original(self, query[:, :3], key[:, :3], value[:, :3], attention_mask, training)
    return tf.concat([few, tf.zeros_like(value[:, 3:])], 1)


def feed_forward(self, x, training):
    wide = self.activation(self.widen(x, training))
    return self.narrow(tf.concat([wide[..., :100], tf.zeros_like(wide[..., 100:])], -1), training)


@pytest.mark.parametrize(
    ("where", "name", "mistake", "said"),
    [
        (transformer.SelfAttention, "attend", heads, "75 % of the units of blocks.0.attention.query_key_value.weight"),
        (transformer.Block, "feed_forward", feed_forward, "78 % of the units of blocks.0.widen.weight"),
    ],
)
def test_a_head_or_a_unit_that_is_left_out_has_no_gradient(where, name, mistake, said):
    with mock.patch.object(where, name, mistake):
        faults = trained("bert_base")
    assert f"the first step had a gradient for only {said}" in faults["gradients"]


def test_all_samples_of_a_step_pass_through_the_network():
    def four(self, inputs, targets=None, training=False, original=build.Objective.__call__):
        return original(self, inputs[:4], None if targets is None else targets[:4], training)

    with mock.patch.object(build.Objective, "__call__", four):
        faults = trained("lstm", 8)
    assert faults["samples"] == ["4 of the 8 samples of the first step passed through the network"]


def never(self, p, original=transformer.Dropout.__init__):
    original(self, 0.0)


def not_applied(self, x, attention_mask, training, _=None):
    x = self.attention_normalisation(x + self.attention(x, attention_mask, training), training)
    return self.feed_forward_normalisation(x + self.feed_forward(x, training), training)


@pytest.mark.parametrize(
    ("where", "name", "mistake", "faults"),
    [
        (transformer.Dropout, "__init__", never, {"embedding", "blocks.0", "blocks.0.attention"}),
        (transformer.Block, "__call__", not_applied, {"blocks.0"}),
    ],
)
def test_each_dropout_is_applied_and_drops_what_the_card_says(where, name, mistake, faults):
    with mock.patch.object(where, name, mistake):
        said = trained("bert_base")["dropout"]
    names = {each.replace(".dropout drops 0.0 %, where the card says 10 %", "") for each in said}
    assert names == {*faults, *(each.replace("0", "1") for each in faults)}


def inferred(workload, batch=3, compiled=False):
    """What the checks find after a batch of inference, by name."""
    card = smaller(workload)
    session = opened(card, batch, compiled)
    sent: list[Message] = []
    loop = Loop(
        session, "inference", itertools.repeat(loader.synthetic_batch(card, batch, seed=1)), sent.append, card, "fp32"
    )
    loop.advance()
    loop.check_steps()
    return faults(sent)


@pytest.mark.parametrize("workload", ["bert_base", "lstm"])
def test_a_batch_of_ours_has_the_output_of_a_request(workload):
    """That there is a check at all shows that the session hands its output out."""
    assert inferred(workload) == {"answers": []}


def without_computing(self, batch, original=TensorFlowSession.infer):
    report = original(self, batch)
    return report._replace(output=lambda: tf.nest.map_structure(np.zeros_like, report.output()))


def by_one_block(self, batch):
    """The graph of a whole network is not touched: this one is traced on its own."""
    network = self.model.network
    every, network.blocks = network.blocks, list(network.blocks)[:1]
    output, _ = self.model(batch.inputs)
    network.blocks = every
    return StepReport(batch.samples, updates=0, loss=None, output=lambda: to_host(output))


@pytest.mark.parametrize(
    ("workload", "mistake"),
    [("bert_base", without_computing), ("bert_base", by_one_block), ("lstm", without_computing)],
)
def test_a_batch_that_is_answered_with_less_work_has_another_output(workload, mistake):
    with mock.patch.object(TensorFlowSession, "infer", mistake):
        (said,) = inferred(workload)["answers"]
    assert said.startswith("the output differs from that of a request by ")


def generated(workload):
    """What the check finds after a batch of texts."""
    card = smaller(workload, layers=4)
    sent: list[Message] = []
    batches = itertools.repeat(loader.synthetic_batch(card, 3, seed=1))
    generation = Generation(opened(card), batches, {"prompt": 9, "new": 8}, "fp32", sent.append)
    generation.advance()
    generation.check_steps()
    return faults(sent)["generation"]


@pytest.mark.parametrize("workload", ["gpt2", "gpt_800m"])
def test_a_text_of_ours_is_continued_as_the_whole_network_continues_it(workload):
    assert generated(workload) == []


def test_a_text_that_is_continued_by_one_block_is_another():
    def alone(self, text, original=transformer.Transformer.append):
        state = original(self, text.token, None, [transformer.KVCache(*kept) for kept in text.kept])
        x = self.embedding(text.token, None, False, tf.shape(text.kept[0][0])[2])
        x = next(iter(self.blocks))(x, None, False, transformer.KVCache(*text.kept[0]))
        return state._replace(token=tf.argmax(self.head(x[:, -1:], False), -1))

    with mock.patch.object(transformer.Transformer, "decode_step", alone):
        (said,) = generated("gpt2")
    assert said.endswith("of 8 new tokens are not the likeliest ones")


def sampled(compiled):
    card = CARDS["mcmc"]
    card = card._replace(problem={**card.problem, "sampler": {**card.problem["sampler"], "leapfrog_steps": 30}})
    sent: list[Message] = []
    configuration: Any = SimpleNamespace(steps=3, warmup_steps=1, duration_seconds=None)
    batch = loader.synthetic_batch(card, 4, seed=1)
    SamplingLoop(opened(card, compiled=compiled), batch, 4, card, sent.append).run(configuration)
    return faults(sent)["trajectory"]


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.full)])
def test_trajectories_are_whole(compiled):
    def short(self, *given, original=HamiltonianMonteCarlo.trajectory):
        whole, self.rule = self.rule, dataclasses.replace(self.rule, leapfrog_steps=min(20, self.rule.leapfrog_steps))
        end = original(self, *given)
        self.rule = whole
        return end

    assert sampled(compiled) == []
    with mock.patch.object(HamiltonianMonteCarlo, "trajectory", short):
        assert sampled(compiled) == ["3 transitions evaluated the gradient 61 times, and not 91 times"]
