"""Networks over text in TensorFlow: small ones against PyTorch's with the same weights, number by number."""

from __future__ import annotations

import json
import subprocess

import pytest
from program import ROOT

tf = pytest.importorskip("tensorflow")
np = pytest.importorskip("numpy")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import Batch, OptimizerRule  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.tensorflow import cpu  # noqa: E402
from entrypoints.workloads.tensorflow import build, loader, transformer  # noqa: E402

cpu.prepare("fp32", threads=1)  # as other tests of this process do, before the first tensor
TEXT = {name: card for name, card in cards.load_for("tensorflow").items() if card.family == "transformer"}
PYTORCH = ROOT / ".venvs" / "torch_new" / "bin" / "python"
SMALL = {"layers": 2, "width": 64, "heads": 4, "feed_forward": 128, "vocabulary": 97}
# Both heads of BERT, GPT with its output layer tied and not, learnt and rotary positions, AdamW and LAMB.
KINDS = ("bert_base", "bert_large_pretraining_128", "gpt2", "gpt_117m", "gpt_800m")
STEPS, PROMPT, NEW = 5, 7, 6
# Weights move by the whole gradient: Adam moves those that have none, as biases of keys, by signs of rounding errors.
DESCENT = OptimizerRule("sgd", 1.0, 0.0, (), None, {"momentum": 0.0, "nesterov": False})
COMPUTE_IN_PYTORCH = """
import json, sys
import numpy as np
import torch
from entrypoints.contract import cards
from entrypoints.devices.pytorch import cpu
from entrypoints.contract.session import Batch, OptimizerRule
from entrypoints.workloads.pytorch import build, loader
given, told = json.load(sys.stdin), {}
def opened(card, rule=None):
    model = build.without_randomness(build.model(card, 0))
    build.load_probe_weights(model)
    return cpu.open_session(model, rule or OptimizerRule.from_problem(card.problem["optimizer"], 3), "fp32")
for card in (cards.Card(**one) for one in given["cards"]):
    session, batch = opened(card), loader.formula_batch(card, 3)
    answer = session.infer_request(batch).output
    for number, output in enumerate(answer if isinstance(answer, tuple) else (answer,)):
        told[f"{card.name} output {number}"] = output
    told[f"{card.name} losses"] = [session.train(batch).loss() for _ in range(given["steps"])]
    session = opened(card, OptimizerRule(**given["descent"]))
    session.train(batch)
    told.update({f"{card.name} weights {name}": weight for name, weight in session.weights().items()})
    if "generation" in card.problem:
        session = opened(card)
        state = session.begin(Batch(batch.inputs[:, :given["prompt"]], None), given["new"])
        tokens = [state.token]
        for _ in range(given["new"] - 1):
            state = session.next_state(state)
            tokens.append(state.token)
        told[f"{card.name} tokens"] = torch.cat(tokens, 1).numpy()
np.savez(sys.argv[1], **told)
"""


def smaller(card):
    """The same card with a small network over fewer tokens, whose parameters are counted."""
    shorter = {"length": 24, "masked": 5}
    problem = {**card.problem, "model": {**card.problem["model"], **SMALL}}
    problem["input"] = {key: shorter.get(key, value) for key, value in card.problem["input"].items()}
    network = transformer.network(problem["model"])
    problem["parameters"] = sum(int(np.prod(weight.shape)) for weight in network.trainable_variables)
    return card._replace(problem=problem)


def opened(card, rule=None, compiled=False):
    model = build.without_randomness(build.model(card, seed=0))
    build.load_probe_weights(model)
    rule = rule or OptimizerRule.from_problem(card.problem["optimizer"], 3)
    return cpu.open_session(model, rule, "fp32", compiled)


@pytest.fixture(scope="module")
def pytorch(tmp_path_factory):
    """What PyTorch makes of the small cards, by name."""
    if not PYTORCH.exists():
        pytest.skip(f"no PyTorch to compare with: {PYTORCH} is not there (ci/setup/inside makes it)")
    small = [smaller(TEXT[name])._asdict() for name in KINDS]
    given = {"cards": small, "descent": vars(DESCENT), "steps": STEPS, "prompt": PROMPT, "new": NEW}
    file = tmp_path_factory.mktemp("pytorch") / "told.npz"
    subprocess.run(
        [str(PYTORCH), "-B", "-c", COMPUTE_IN_PYTORCH, str(file)],
        cwd=str(ROOT),
        input=json.dumps(given),
        check=True,
        text=True,
    )
    return np.load(str(file))


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(name, marks=[pytest.mark.full] * (name in ("bert_large_pretraining_128", "gpt_117m")))
        for name in KINDS
    ],
)
def test_outputs_losses_and_gradients_are_pytorch_s(workload, pytorch):
    card = smaller(TEXT[workload])
    session, batch = opened(card), loader.formula_batch(card, 3)
    assert batch.padding or workload.startswith("gpt"), "what is done about padding would not show"
    answer = session.infer_request(batch).output
    for number, output in enumerate(answer if isinstance(answer, tuple) else (answer,)):
        assert np.allclose(output, pytorch[f"{workload} output {number}"], rtol=1e-4, atol=1e-5)
    losses = [session.train(batch).loss() for _ in range(STEPS)]
    assert losses == pytest.approx(pytorch[f"{workload} losses"].tolist(), rel=1e-5) and losses[-1] < losses[0]
    session = opened(card, DESCENT)
    session.train(batch)
    expected = {name for name in pytorch.files if name.startswith(f"{workload} weights ")}
    weights = session.weights()
    assert {f"{workload} weights {name}" for name in weights} == expected
    for name, weight in weights.items():
        assert np.allclose(weight, pytorch[f"{workload} weights {name}"], rtol=1e-5, atol=1e-6), name


@pytest.mark.parametrize("workload", [name for name in KINDS if "generation" in TEXT[name].problem])
def test_texts_go_on_as_in_pytorch_and_as_by_the_whole_network(workload, pytorch):
    card = smaller(TEXT[workload])
    session, text = opened(card), loader.formula_batch(card, 3).inputs[:, :PROMPT]
    state = session.begin(Batch(text, None), NEW)
    tokens = [state.token]
    for _ in range(NEW - 1):
        state = session.next_state(state)
        tokens.append(state.token)
    assert np.array_equal(tf.concat(tokens, 1).numpy(), pytorch[f"{workload} tokens"])
    assert len(set(pytorch[f"{workload} tokens"].ravel())) > 3
    for token in tokens:
        whole = session.model.network(text, training=False)
        assert np.array_equal(tf.argmax(whole[:, -1:], -1), token)
        text = tf.concat([text, token], 1)


def test_one_graph_continues_texts_of_any_length():
    session = opened(smaller(TEXT["gpt2"]))
    for samples, length in ((3, PROMPT), (1, 4)):
        text = tf.ones([samples, length], tf.int64)
        state = session.begin(Batch(text, None), 3)
        for made in range(1, 3):
            state = session.next_state(state)
            assert state.token.shape == (samples, 1) and state.kept[0][0].shape[2] == length + made
    assert session.next_token.experimental_get_tracing_count() == 1


@pytest.mark.full
def test_compiled_it_loses_the_same():
    card = smaller(TEXT["bert_base"])
    batch, losses = loader.formula_batch(card, 3), []
    for compiled in (False, True):
        session = opened(card, compiled=compiled)
        losses.append([session.train(batch).loss() for _ in range(2)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_generation_is_not_compiled():
    session = opened(smaller(TEXT["gpt2"]), compiled=True)
    with pytest.raises(RunError, match="--compile") as raised:
        session.begin(Batch(tf.ones([1, 4], tf.int64), None), 3)
    assert raised.value.state == "unsupported"


@pytest.mark.parametrize("workload", ["gpt2", "bert_base"])
def test_weights_begin_as_the_card_says(workload):
    weights = build.weights(build.model(smaller(TEXT[workload]), seed=3))
    residual = 0.02 / (2 if workload == "gpt2" else 1)  # of two blocks 1 / sqrt(4)
    deviations = {"narrow": residual, "project": residual, "widen": 0.02, "query_key_value": 0.02}
    for name, weight in weights.items():
        layer, kind = name.split(".")[-2:]
        if layer in deviations and kind == "weight":
            assert weight.std() == pytest.approx(deviations[layer], rel=0.05), name
        if kind == "bias":
            assert not weight.any(), name
        if layer.endswith("normalisation") and kind == "weight":
            assert (weight == 1).all(), name
    assert weights["embedding.tokens.weight"].std() == pytest.approx(0.02, rel=0.05)


def test_tied_weights_are_one():
    model = build.model(smaller(TEXT["gpt_117m"]), seed=0)
    assert model.network.head.decoder.weight is model.network.embedding.tokens.weight
    assert "head.decoder.weight" not in build.weights(model)
    assert "head.decoder.weight" in build.weights(build.model(smaller(TEXT["gpt2"]), seed=0))


def test_dropout_is_for_training_alone_and_can_be_left_out():
    card = smaller(TEXT["bert_base"])
    model, batch = build.model(card, seed=0), loader.formula_batch(card, 3)

    def loss(training: bool) -> float:
        _, value = model(batch.inputs, batch.targets, training)
        assert value is not None
        return float(value)

    losses = [{loss(training) for _ in range(3)} for training in (False, True)]
    assert [len(each) for each in losses] == [1, 3]
    build.without_randomness(model)
    losses[1] = {loss(True) for _ in range(3)}
    assert losses[1] == losses[0]


def test_tokens_and_padding_are_counted():
    card = smaller(TEXT["bert_base"])
    drawn, full = loader.formula_batch(card, 4), loader.synthetic_batch(card, 4, seed=0)
    tokens, _ = drawn.inputs
    assert (drawn.tokens, drawn.padding) == (np.count_nonzero(tokens), 4 * 24 - np.count_nonzero(tokens))
    assert (full.tokens, full.padding) == (4 * 24, 0)
