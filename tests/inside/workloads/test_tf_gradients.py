"""Which weights have no gradient: in double precision, those that layers name, and no other.

Networks with batch normalisation, which TensorFlow has only in single precision, name none here.
"""

from __future__ import annotations

import importlib

import pytest
from small_networks import SHORTER, SMALL

tf = pytest.importorskip("tensorflow")
np = pytest.importorskip("numpy")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.workloads.tensorflow import build, layers, loader  # noqa: E402

CARDS = cards.load_for("tensorflow")
ROUNDING = 1e-12  # of the largest gradient: exact zeros come out as less than 1e-15, and the smallest others as 1e-9
WORKLOADS = ("bert_base", "bert_large_pretraining_128", "gpt2", "gpt_117m", "gpt_800m", "lstm")
NORMALISED_BY_BATCH = ("image_compression", "resnet50")
LEAST = 0.98  # of the numbers of a weight: of the others the gradient is small by chance


def doubled(module, done):
    """The module with weights in double precision; `done` has those that layers share."""
    for name, value in list(vars(module).items()):
        if isinstance(value, tf.Variable):
            if id(value) not in done:
                done[id(value)] = value, tf.Variable(tf.cast(value, tf.float64))
            setattr(module, name, done[id(value)][1])
        elif isinstance(value, tf.Module):
            doubled(value, done)
    return module


def gradients(workload):
    """A network, and its gradients by the identity of weights, of which those at the level of rounding are 0."""
    card = CARDS[workload]
    problem = {**card.problem, "model": {**card.problem["model"], **SMALL[card.family]}}
    problem["input"] = {key: SHORTER.get(key, value) for key, value in problem["input"].items()}
    network = importlib.import_module(f"entrypoints.workloads.tensorflow.{card.family}").network(problem["model"])
    model = doubled(build.Objective(network, problem["loss"]), {})
    layers.compute_in(model, tf.float64)
    batch = loader.synthetic_batch(card._replace(problem=problem), 2, seed=1)
    targets = tf.cast(batch.targets, tf.float64) if workload == "lstm" else batch.targets  # others are labels
    with tf.GradientTape() as tape:
        _, loss = model(batch.inputs, targets, training=True)
    weights = [weight for _, weight in layers.variables(network)]
    computed = [np.array(tf.convert_to_tensor(gradient)) for gradient in tape.gradient(loss, weights)]
    assert {gradient.dtype for gradient in computed} == {np.dtype(np.float64)}
    largest = max(np.abs(gradient).max() for gradient in computed)
    return network, {id(w): np.where(np.abs(g) < ROUNDING * largest, 0.0, g) for w, g in zip(weights, computed)}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_exactly_the_weights_that_layers_name_have_no_gradient(monkeypatch, workload):
    monkeypatch.setattr(tf, "float32", tf.float64)  # the precision of what networks compute in single precision
    network, by_weight = gradients(workload)
    nothing = [id(weight) for weight in build.without_effect(network)]
    assert not any(by_weight[weight].any() for weight in nothing)
    rotary = CARDS[workload].problem["model"].get("positions", {}).get("kind") == "rotary"
    for name, weight, axes in build.units(network):
        gradient = by_weight[id(weight)]
        if name.endswith("query_key_value.bias") and not rotary:
            query, key, value = np.split(gradient, 3)
            assert not key.any(), "what moves the scores of all positions alike has no effect on their softmax"
            gradient = np.concatenate([query, value])
        assert np.mean(gradient.any(0) if axes == (1,) else gradient != 0) >= LEAST, name


@pytest.mark.parametrize("workload", NORMALISED_BY_BATCH)
def test_networks_with_batch_normalisation_name_none(workload):
    family = importlib.import_module(f"entrypoints.workloads.tensorflow.{CARDS[workload].family}")
    assert list(build.without_effect(family.network(CARDS[workload].problem["model"]))) == []


def test_each_kind_of_network_is_meant():
    trains = {card.family for card in CARDS.values() if "training" in card.tasks}
    assert trains == {CARDS[name].family for name in (*WORKLOADS, *NORMALISED_BY_BATCH)}
