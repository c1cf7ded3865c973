"""The parts of the TensorFlow networks, their losses and optimizers, against what the card says of them."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
np = pytest.importorskip("numpy")
Trackable: Any = tf.Module

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import OptimizerRule  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.data.generated import formula  # noqa: E402
from entrypoints.workloads.tensorflow import build, layers, optimizers  # noqa: E402

CARDS = cards.load_for("tensorflow")
RESNET, AUTOENCODER = CARDS["resnet50"], CARDS["image_compression"]
COUNTS = {"resnet50": 25557032, "image_compression": 429185, "resnext101_32x4d": 44177704, "lstm": 807169}


@pytest.mark.parametrize("workload", COUNTS)
def test_the_number_of_parameters(workload):
    weights = build.weights(build.model(CARDS[workload], seed=0))
    assert sum(weight.size for weight in weights.values()) == COUNTS[workload]


def test_another_number_is_refused():
    problem = copy.deepcopy(dict(AUTOENCODER.problem))
    problem["model"]["code"] = 31
    with pytest.raises(RunError, match="its card says 429185"):
        build.model(AUTOENCODER._replace(problem=problem), seed=0)


def test_weights_are_named_and_laid_out_as_in_pytorch():
    shapes = {name: weight.shape for name, weight in build.weights(build.model(RESNET, seed=0)).items()}
    assert len(shapes) == 161
    assert shapes["conv1.weight"] == (64, 3, 7, 7) and shapes["fc.weight"] == (1000, 2048)
    assert shapes["layer2.0.downsample.0.weight"] == (512, 256, 1, 1) and shapes["layer4.2.bn3.bias"] == (2048,)
    shapes = {name: weight.shape for name, weight in build.weights(build.model(AUTOENCODER, seed=0)).items()}
    assert shapes["decode.0.weight"] == (32, 64, 7, 7) and shapes["code.bias"] == (32,)


def test_the_formula_reaches_every_variable():
    model = build.model(AUTOENCODER, seed=0)
    build.load_probe_weights(model)
    weights = build.weights(model)
    assert all(np.array_equal(weight, formula.weight(name, weight.shape)) for name, weight in weights.items())
    named = dict(layers.variables(model.network))
    running = "stem.1.running_var"
    assert len(named) > len(weights)
    assert np.array_equal(named[running].numpy(), formula.weight(running, (16,)))


def test_weights_begin_as_the_cards_say():
    weights = build.weights(build.model(RESNET, seed=3))
    assert weights["layer4.2.conv2.weight"].std() == pytest.approx((2 / (9 * 512)) ** 0.5, rel=0.01)
    assert np.array_equal(weights["layer1.0.bn3.weight"], np.ones(256))
    assert 0.99 * 2048**-0.5 < np.abs(weights["fc.weight"]).max() <= 2048**-0.5
    weights = build.weights(build.model(AUTOENCODER, seed=3))
    assert weights["decode.0.weight"].std() == pytest.approx((2 / 32) ** 0.5, rel=0.02)
    assert 0.99 * 3136**-0.5 < np.abs(weights["code.weight"]).max() <= 3136**-0.5  # 64 channels of 7 x 7
    assert 0 < np.abs(weights["code.bias"]).max() <= 3136**-0.5


def test_a_seed_gives_the_same_weights():
    first, same, other = (build.weights(build.model(AUTOENCODER, seed))["code.weight"] for seed in (5, 5, 6))
    assert np.array_equal(first, same) and not np.array_equal(first, other)


def test_running_means_take_up_the_unbiased_variance():
    """N - 1 and not N, which four numbers a channel tell apart."""
    x = np.random.default_rng(0).standard_normal((2, 2, 1, 3)).astype(np.float32)
    layer = layers.BatchNormalisation(3, epsilon=1e-5, momentum=0.1)
    y = layer(tf.constant(x), True).numpy()
    flat = x.reshape(-1, 3)
    assert np.allclose(y, (x - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-5), atol=1e-5)
    assert np.allclose(layer.running_mean.numpy(), 0.1 * flat.mean(0), atol=1e-6)
    assert np.allclose(layer.running_var.numpy(), 0.9 + 0.1 * flat.var(0, ddof=1), atol=1e-6)
    assert not np.allclose(layer.running_var.numpy(), 0.9 + 0.1 * flat.var(0), atol=1e-3)
    before = layer.running_var.numpy()
    y = layer(tf.constant(x), False).numpy()
    expected = (x - layer.running_mean.numpy()) / np.sqrt(layer.running_var.numpy() + 1e-5)
    assert np.allclose(y, expected, atol=1e-5)
    assert np.array_equal(layer.running_var.numpy(), before)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_strided_convolution_pads_alike_on_both_sides(groups):
    x = np.random.default_rng(0).standard_normal((1, 6, 6, 4)).astype(np.float32)
    layer = layers.convolution(4, 8, 3, stride=2, groups=groups)
    weight = layer.weight.numpy()
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    y = layer(tf.constant(x), False).numpy()
    assert y.shape == (1, 3, 3, 8)
    for row, column, channel in ((0, 0, 0), (0, 2, 3), (2, 1, 7)):
        own = channel // (8 // groups)  # the group, and the channels that it reads
        window = padded[
            0, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3, own * 4 // groups : (own + 1) * 4 // groups
        ]
        assert y[0, row, column, channel] == pytest.approx((window * weight[..., channel]).sum(), abs=1e-5)


def test_cross_entropy_is_smoothed():
    loss = build.cross_entropy({"label_smoothing": 0.1})(tf.constant([[2.0, 0.0, 0.0, 0.0]]), tf.constant([0]))
    logs = np.array([2.0, 0, 0, 0]) - math.log(math.exp(2) + 3)
    expected = -(0.925 * logs[0] + 0.025 * logs[1:].sum())  # a tenth spread over four classes
    assert float(loss) == pytest.approx(expected, rel=1e-6)


def test_cross_entropy_is_the_mean_over_all_labels():
    logits = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    labels = np.array([[0, 4, 2], [1, 1, 3]])
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -np.take_along_axis(logs, labels[..., None], -1).mean()
    for smoothing in (0.0, 1e-9):
        loss = build.cross_entropy({"label_smoothing": smoothing})(tf.constant(logits), tf.constant(labels))
        assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_both_ends_of_a_span_count_alike():
    logits, ends = np.zeros((1, 4, 2), np.float32), [[2, 1]]
    logits[0, 2, 0] = 3.0  # where it begins
    begin, end = math.log(math.exp(3) + 3) - 3, math.log(4)
    loss = build.span_cross_entropy({})(tf.constant(logits), tf.constant(ends))
    assert float(loss) == pytest.approx((begin + end) / 2, rel=1e-6)


def test_cross_entropies_add_up():
    outputs = tf.zeros([1, 3, 4]), tf.zeros([1, 2])
    loss = build.sum_of_cross_entropies({})(outputs, (tf.constant([[1, 2, 3]]), tf.constant([0])))
    assert float(loss) == pytest.approx(math.log(4) + math.log(2), rel=1e-6)


def test_layers_are_normalised_over_their_width():
    x = 3 + np.random.default_rng(0).standard_normal((2, 4, 6)).astype(np.float32)
    layer = layers.LayerNormalisation(6, epsilon=0.5)
    layer.weight.assign(np.arange(6))
    layer.bias.assign(np.ones(6))
    scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.5)
    assert np.allclose(layer(tf.constant(x), True), scaled * np.arange(6) + 1, atol=1e-5)


def test_dropout_keeps_the_mean():
    layer, x = layers.Dropout(0.25), tf.ones([100, 100])
    dropped = layer(x, True).numpy()
    assert set(np.unique(dropped)) == {0, np.float32(4 / 3)} and dropped.mean() == pytest.approx(1, abs=0.03)
    assert np.array_equal(layer(x, False), x)


def test_weight_decay_spares_the_normalisation_alone():
    model = build.model(RESNET, seed=0)
    rule = OptimizerRule.from_problem(RESNET.problem["optimizer"], 64)
    decays = optimizers.weight_decays(model, rule)
    exempt = [parameter for parameter, decay in zip(model.trainable_variables, decays) if decay == 0]
    assert set(decays) == {0.0, 2**-15}
    assert sum(int(parameter.shape[0]) for parameter in exempt) == 53120  # 26,560 channels, scale and shift


@pytest.mark.parametrize("exempt", [(), ("bias",), ("embedding",), ("normalisation", "bias", "embedding")])
def test_weight_decay_spares_what_the_rule_names(exempt):
    network = layers.Chain({"embedding": layers.Embedding(4, 3), "normalisation": layers.LayerNormalisation(3, 1e-5)})
    network.linear = layers.linear(3, 5)
    of: dict[str, set[tuple[int, ...]]] = {"bias": {(3,), (5,)}, "embedding": {(4, 3)}, "normalisation": {(3,)}}
    decays = optimizers.weight_decays(network, OptimizerRule("adamw", 0.5, 0.1, exempt, None, {}))
    spared = sorted(
        tuple(parameter.shape) for parameter, decay in zip(network.trainable_variables, decays) if not decay
    )
    scales = 1 if "normalisation" in exempt else 0  # of the normalisation, whose shift is a bias
    assert set(spared) == {shape for name in exempt for shape in of[name]}
    assert spared.count((3,)) == scales + ("bias" in exempt or "normalisation" in exempt)


class Three(Trackable):
    """Three numbers to be moved."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable([1.0, -2.0, 3.0])


def moved(name, gradients, **settings):
    """The numbers after a step along each of the gradients, weight decay 0.1 and learning rate 0.5."""
    model = Three()
    rule = OptimizerRule(name, 0.5, 0.1, (), None, settings)
    optimizer = optimizers.optimizer(model, rule)
    for gradient in gradients:
        optimizer.update([tf.constant(gradient, tf.float32)])
    return model.weight.numpy()


GRADIENTS = np.array([[0.1, -0.2, 1e-9], [0.3, 0.0, 0.0], [-0.1, 0.5, 2.0]])


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd(nesterov):
    weight, velocity = np.array([1.0, -2, 3]), 0
    for gradient in GRADIENTS + 0:
        gradient = gradient + 0.1 * weight
        velocity = 0.9 * velocity + gradient
        weight = weight - 0.5 * (gradient + 0.9 * velocity if nesterov else velocity)
    assert np.allclose(moved("sgd", GRADIENTS, momentum=0.9, nesterov=nesterov), weight, rtol=1e-5)


def test_adam():
    weight, first, second = np.array([1.0, -2, 3]), 0, 0
    for step, gradient in enumerate(GRADIENTS, start=1):
        gradient = gradient + 0.1 * weight
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        root = np.sqrt(second / (1 - 0.999**step))
        weight = weight - 0.5 * first / (1 - 0.9**step) / (root + 1e-8)
    assert np.allclose(moved("adam", GRADIENTS, betas=[0.9, 0.999], epsilon=1e-8), weight, rtol=1e-6)


def test_adamw():
    weight, first, second = np.array([1.0, -2, 3]), 0, 0
    for step, gradient in enumerate(GRADIENTS, start=1):
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        root = np.sqrt(second / (1 - 0.999**step))
        weight = weight - 0.5 * (first / (1 - 0.9**step) / (root + 1e-8) + 0.1 * weight)
    assert np.allclose(moved("adamw", GRADIENTS, betas=[0.9, 0.999], epsilon=1e-8), weight, rtol=1e-6)


@pytest.mark.parametrize("corrected", [False, True])
def test_lamb(corrected):
    weight, first, second = np.array([1.0, -2, 3]), 0, 0
    for number, gradient in enumerate(GRADIENTS, start=1):
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        due = (1 - 0.9**number, 1 - 0.999**number) if corrected else (1, 1)
        step = first / due[0] / (np.sqrt(second / due[1]) + 1e-6) + 0.1 * weight
        weight = weight - 0.5 * step * np.linalg.norm(weight) / np.linalg.norm(step)
    settings = {"betas": [0.9, 0.999], "epsilon": 1e-6, "bias_correction": corrected}
    assert np.allclose(moved("lamb", GRADIENTS, **settings), weight, rtol=1e-5)


def test_lamb_moves_what_is_zero_too():
    model = Three()
    model.weight.assign([0.0, 0.0, 0.0])
    settings = {"betas": [0.9, 0.999], "epsilon": 1e-6, "bias_correction": True}
    optimizers.optimizer(model, OptimizerRule("lamb", 0.5, 0.1, (), None, settings)).update([tf.constant([1.0, -1, 2])])
    assert np.allclose(model.weight, [-0.5, 0.5, -0.5], rtol=1e-5)
