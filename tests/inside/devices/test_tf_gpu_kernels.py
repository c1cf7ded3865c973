"""What TensorFlow does on GPUs alone: grouped convolutions, LSTM by cuDNN, half precision, several updates in a call.

No GPU is here: the host stands in for one, XLA computes grouped convolutions, and `cudnn_stand_in` reads the row of
parameters as the libraries' manuals describe it.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

tf = pytest.importorskip("tensorflow")
np = pytest.importorskip("numpy")

from joining import joined  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import BatchPartition, DeviceFacts, rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.tensorflow import cuda  # noqa: E402
from entrypoints.devices.tensorflow.shared import session as shared  # noqa: E402
from entrypoints.workloads.tensorflow import build, layers, loader, lstm  # noqa: E402
from entrypoints.workloads.tensorflow.optimizers import PATIENCE, LossScale  # noqa: E402

CARDS = cards.load()
FACTS = DeviceFacts("cuda", "NVIDIA", "stand-in", 1, "package", None, 1, 1, "", True)
HAS_HALF = "bfloat16" in cuda.types_of("CudnnRNN")


@pytest.fixture(autouse=True)
def _memory(monkeypatch):
    """TensorFlow counts none on a CPU."""
    monkeypatch.setattr(tf.config.experimental, "reset_memory_stats", lambda device: None)


def smaller(workload):
    """A card with a small network of its family, whose parameters are counted."""
    card = CARDS[workload]
    small = {
        "transformer": {"layers": 2, "width": 64, "heads": 4, "feed_forward": 128, "vocabulary": 97},
        "lstm": {"features": 5, "hidden": 24},
    }.get(card.family, {})
    problem = {**card.problem, "model": {**card.problem["model"], **small}}
    shorter = {"length": 24, "masked": 5, "shape": [24, 5]} if small else {}
    problem["input"] = {key: shorter.get(key, value) for key, value in card.problem["input"].items()}
    family = __import__(f"entrypoints.workloads.tensorflow.{card.family}", fromlist=["network"])
    problem["parameters"] = sum(
        int(np.prod(each.shape)) for each in family.network(problem["model"]).trainable_variables
    )
    return card._replace(problem=problem)


def session(card, precision="fp32", compiled=False, iterations=1, samples=4, **own):
    model = build.without_randomness(build.model(card, seed=1))
    cuda.adapt(model, precision, compiled)
    partition = BatchPartition(samples, device_iterations=iterations)
    rule = dataclasses.replace(rule_of(card.problem, samples), **own)
    dtype = cuda.HALF.get(precision)
    return cuda.GpuSession(model, rule, compiled, FACTS, "/device:CPU:0", partition, None, dtype)


def with_gradients(layer, x, compiled):
    """The output of a layer, and the gradients of its weights and input."""

    @tf.function(autograph=False, jit_compile=compiled)
    def computed():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, True) if isinstance(layer, layers.Convolution) else layer(x)
            loss = tf.reduce_sum(y * tf.cos(tf.cast(tf.range(y.shape[-1]), y.dtype)))
        return [y, *tape.gradient(loss, [x, *layer.trainable_variables])]

    return [part.numpy() for part in computed()]


@pytest.mark.parametrize("stride", [1, 2])
def test_groups_are_convolved_together_as_one_by_one(stride):
    layer = layers.convolution(16, 32, 3, stride, groups=4, bias=True)
    x = tf.random.stateless_normal([2, 9, 9, 16], [1, 2])
    one_by_one = with_gradients(layer, x, compiled=False)
    layer.groups_together = True
    for ours, theirs in zip(with_gradients(layer, x, compiled=True), one_by_one):  # XLA has their gradients on a CPU
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def cudnn_stand_in(order, calls):
    """An LSTM layer as cuDNN (or MIOpen, by another order) has it: all matrices, then all biases, gate by gate."""

    def rnn(*, input, input_h, input_c, params, rnn_mode, is_training):  # noqa: A002 - TensorFlow's names
        assert rnn_mode == "lstm" and is_training
        calls.append(order)
        (_, _, features), hidden = input.shape, input_h.shape[-1]
        sizes = [hidden * features] * 4 + [hidden * hidden] * 4 + [hidden] * 8
        parts = tf.split(params, sizes)
        inward = [tf.reshape(part, [hidden, features]) for part in parts[:4]]
        onward = [tf.reshape(part, [hidden, hidden]) for part in parts[4:8]]
        biases = [first + second for first, second in zip(parts[8:12], parts[12:])]
        state, cell, outputs = input_h[0], input_c[0], []
        for x in tf.unstack(input):
            gates = [
                tf.matmul(x, w, transpose_b=True) + tf.matmul(state, r, transpose_b=True) + b
                for w, r, b in zip(inward, onward, biases)
            ]
            by_name = dict(zip(order, gates))
            new = tf.sigmoid(by_name["input"]) * tf.tanh(by_name["cell"])
            cell = tf.sigmoid(by_name["forget"]) * cell + new
            state = tf.sigmoid(by_name["output"]) * tf.tanh(cell)
            outputs.append(state)
        return SimpleNamespace(output=tf.stack(outputs))

    return rnn


@pytest.mark.parametrize(
    ("library", "order"),
    [
        (lstm.CUDNN, ("input", "forget", "cell", "output")),
        (lstm.MIOPEN, ("input", "forget", "output", "cell")),
    ],
)
def test_the_library_gets_the_lstm_s_weights_in_its_order(monkeypatch, library, order):
    calls: list[int] = []
    monkeypatch.setattr(tf.raw_ops, "CudnnRNN", cudnn_stand_in(order, calls))
    memory = lstm.Lstm(features=5, hidden=8, layers=2)
    series = tf.random.stateless_normal([7, 3, 5], [3, 4])
    step_by_step = with_gradients(memory, series, compiled=False)
    assert not calls
    memory.library = library
    for ours, theirs in zip(with_gradients(memory, series, compiled=False), step_by_step):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert len(calls) == 2  # one for each layer


def test_layers_are_told_what_the_gpu_has():
    network = build.model(CARDS["lstm"], seed=1)
    assert cuda.adapt(network, "fp32", compiled=True) == "" and network.network.memory.library is None
    assert cuda.adapt(network, "fp32", compiled=False) == ", LSTM by cuDNN"
    assert network.network.memory.library == lstm.CUDNN
    grouped = SimpleNamespace(submodules=[layers.convolution(8, 8, 3, groups=2), layers.convolution(8, 8, 3)])
    assert cuda.adapt(grouped, "fp32", compiled=True) == ", groups convolved together"
    assert [layer.groups_together for layer in grouped.submodules] == [True, False]


def one_convolution_per_layer(card):
    model = build.model(card, seed=1)
    cuda.adapt(model, "fp32", compiled=False)
    graph = tf.function(model.network, autograph=False).get_concrete_function(tf.zeros([1, 64, 64, 3]), training=False)
    return sum(operation.type == "Conv2D" for operation in graph.graph.get_operations())


@pytest.mark.full
def test_resnext_has_an_operation_for_each_of_its_convolutions():
    convolutions = one_convolution_per_layer(CARDS["resnext101_32x4d"])
    assert convolutions == 104  # one by one, the groups of 33 layers of 3x3 would make them 1,127


HALF = ["image_compression", "bert_base", "gpt_117m", "lstm"]


@pytest.mark.skipif(not HAS_HALF, reason="a CPU has no half precision of all layers in this TensorFlow")
@pytest.mark.parametrize("precision", ["fp16", pytest.param("bf16", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "workload", [pytest.param(name, marks=[pytest.mark.full] * (name != HALF[0])) for name in HALF]
)
def test_half_precision_trains_as_single_precision_does(monkeypatch, workload, precision):
    monkeypatch.setattr(tf.raw_ops, "CudnnRNN", cudnn_stand_in(("input", "forget", "cell", "output"), []))
    card = smaller(workload)
    batch = loader.synthetic_batch(card, 4, seed=3)
    half, single = session(card, precision), session(card)
    reports = [[each.train(batch) for _ in range(3)] for each in (half, single)]
    losses = [[report.loss() for report in each] for each in reports]
    assert losses[0] == pytest.approx(losses[1], rel=0.03) and losses[0] != losses[1]
    assert [report.done_updates for report in reports[0]] == [1, 1, 1]
    assert {variable.dtype for variable in half.model.trainable_variables} == {tf.float32}
    computing = {layer.dtype for layer in half.model.submodules if isinstance(layer, layers.Layer)}
    assert computing == {cuda.HALF[precision]}
    output = half.infer(batch).output()
    first = output[0] if isinstance(output, tuple) else output
    assert first.dtype == np.float32 and np.isfinite(first).all()


@pytest.mark.skipif(not HAS_HALF, reason="this TensorFlow has no LSTM in bf16")
@pytest.mark.full
def test_texts_go_on_in_half_precision():
    card = smaller("gpt2")
    ours = session(card, "bf16")
    batch = loader.synthetic_batch(card, 2, seed=3)
    state = ours.begin(batch, 3)
    assert {part.dtype for pair in state.kept for part in pair} == {tf.bfloat16}
    assert ours.next_state(ours.next_state(state)).token.shape == (2, 1)


def small_lstm():
    card = smaller("lstm")
    return card, [loader.synthetic_batch(card, 4, seed) for seed in range(3)]


MOMENTUM = {"name": "sgd", "settings": {"momentum": 0.9, "nesterov": False}, "learning_rate": 0.1}


@pytest.fixture()
def _own_lstm(monkeypatch):
    """Without a library, step by step: a CPU has that in fp16 too."""
    monkeypatch.setattr(lstm, "CUDNN", None)


@pytest.mark.usefixtures("_own_lstm")
@pytest.mark.parametrize("rule", [MOMENTUM, pytest.param({}, marks=pytest.mark.full)], ids=["sgd", "adam"])
def test_an_overflow_in_the_first_step_changes_no_weight_and_no_moment(monkeypatch, rule):
    """It is not counted as an update, and the scale falls until gradients are finite."""
    monkeypatch.setattr(shared, "FIRST_SCALE", 2.0**20)
    card, batches = small_lstm()
    ours = session(card, "fp16", **rule)
    before = {name: weight.copy() for name, weight in ours.weights().items()}
    report = ours.train(batches[0])
    assert (report.updates, report.done_updates) == (1, 0) and np.isfinite(report.loss())
    assert all(np.array_equal(weight, before[name]) for name, weight in ours.weights().items())
    states = [variable for variable in ours.optimizer.variables if not variable.trainable]
    assert states and not any(np.any(variable.numpy()) for variable in states)
    assert ours.scale.factor.numpy() == 2.0**19 and ours.gradients() is None
    done = [ours.train(batches[0]).done_updates for _ in range(8)]
    assert done == sorted(done) and 0 < sum(done) < 8
    single = session(card, **rule)
    for _ in range(sum(done)):
        single.train(batches[0])
    for name, weight in single.weights().items():  # scaled and unscaled gradients are alike
        np.testing.assert_allclose(ours.weights()[name], weight, atol=0.02)


@pytest.mark.usefixtures("_own_lstm")
def test_of_several_updates_in_a_call_the_skipped_ones_are_not_counted():
    card, batches = small_lstm()
    together, apart = (session(card, "fp16", iterations=iterations) for iterations in (3, 1))
    for scale in (together.scale, apart.scale):
        scale.factor.assign(2.0**17)
    report = together.train(joined(batches))
    done = [apart.train(batch).done_updates for batch in batches]
    assert (report.updates, report.done_updates) == (3, sum(done)) and 0 < sum(done) < 3
    assert together.scale.factor.numpy() == apart.scale.factor.numpy()


def test_the_scale_rises_after_many_updates_without_an_overflow():
    scale, done = LossScale(4.0), ["began"]
    assert tf.int32 not in {variable.dtype for variable in scale.variables}, "a GPU has no such variables"
    scale.done.assign(PATIENCE - 2)
    for gradient in (1.0, 1.0, 1.0, float("nan"), 1.0):
        skipped = scale.update(lambda: done.append("updated"), [tf.constant([gradient, 8.0])])
        done.append(f"skipped {int(skipped)}, scale {float(scale.factor)}, after {int(scale.done)}")
    assert done == [
        "began",
        *("updated", "skipped 0, scale 4.0, after 1999"),
        *("updated", "skipped 0, scale 8.0, after 0"),
        *("updated", "skipped 0, scale 8.0, after 1"),
        "skipped 1, scale 4.0, after 0",
        *("updated", "skipped 0, scale 4.0, after 1"),
    ]
    assert [each.numpy().tolist() for each in scale.unscaled([tf.constant([6.0])])] == [[1.5]]


def test_gelu_and_its_gradient_are_finite_in_fp16():
    x = tf.constant([-60.0, -1.0, 0.5, 60.0], tf.float16)  # whose cubes are larger than the largest number
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layers.ACTIVATIONS["gelu_tanh"](x)
    assert y.dtype == tf.float16
    np.testing.assert_allclose(y, [0, -0.1588, 0.3457, 60], atol=1e-3)
    np.testing.assert_allclose(tape.gradient(y, x), [0, -0.0830, 0.8673, 1], atol=2e-3)


def casts_of_weights(graph):
    """The casts of what is read from a variable."""
    operations = graph.get_concrete_function(tf.zeros([4, 24, 5])).graph.get_operations()
    return [each for each in operations if each.type == "Cast" and each.inputs[0].op.type == "ReadVariableOp"]


@pytest.mark.usefixtures("_own_lstm")
def test_inference_casts_no_weight_at_every_call():
    """It computes the same as if it did, and with what training has made of the weights."""
    card, batches = small_lstm()
    ours = session(card, "fp16")
    at_every_call = tf.function(lambda inputs: ours.model(inputs)[0], autograph=False)
    before = ours.infer(batches[0]).output()
    np.testing.assert_array_equal(before, at_every_call(batches[0].inputs))
    assert casts_of_weights(at_every_call) and not casts_of_weights(ours.forward)
    assert not ours.halved.model.trainable_variables
    ours.train(batches[0])
    after = ours.infer(batches[0]).output()
    assert not np.array_equal(after, before)
    np.testing.assert_array_equal(after, at_every_call(batches[0].inputs))
    loss_at_every_call = tf.function(lambda *batch: ours.model(*batch)[1], autograph=False)
    assert ours.evaluate(batches[0]).loss == float(loss_at_every_call(*batches[0][:2]))


def test_half_weights_share_what_layers_share():
    """A head with the weights of the embedding has them still; normalisations are those of training."""
    model = build.model(smaller("gpt_117m"), seed=1)
    layers.compute_in(model, tf.float16)
    halved = build.HalfWeights.of(model, tf.float16)
    network = halved.model.network
    assert network.head.decoder.weight is network.embedding.tokens.weight
    assert network.head.decoder.weight.dtype == tf.float16
    assert network.head.normalisation.weight is model.network.head.normalisation.weight
    assert len(halved.pairs) == len({id(half) for half, _ in halved.pairs})


def test_no_chain_is_sampled_in_half_precision(monkeypatch):
    monkeypatch.setattr(cuda, "details", dict)
    card = CARDS["mcmc"]
    for precision in cuda.HALF:
        with pytest.raises(RunError, match=f"{precision}: chains are sampled in single precision"):
            cuda.open_session(build.model(card, 1), rule_of(card.problem, 4), precision)


@pytest.mark.parametrize(
    ("capability", "able"), [((7, 0), ("fp32", "fp16")), ((9, 0), ("fp32", "tf32", "bf16", "fp16"))]
)
def test_every_gpu_of_nvidia_has_fp16(monkeypatch, capability, able):
    assert "float16" in cuda.types_of("CudnnRNN")
    monkeypatch.setattr(cuda, "types_of", lambda _: ["float16", "bfloat16"])
    assert cuda.precisions({"compute_capability": capability}) == able
    monkeypatch.setattr(cuda, "types_of", lambda _: ["float16"])
    assert cuda.precisions({"compute_capability": capability}) == tuple(name for name in able if name != "bf16")
    monkeypatch.setattr(cuda, "AMD", True)
    assert cuda.precisions({"compute_capability": capability}) == ("fp32",)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.full)])
def test_several_updates_in_a_call_are_those_of_as_many_calls(compiled):
    card = smaller("lstm")
    together, apart = session(card, "fp32", True, 3), session(card, "fp32", True)
    if not compiled:
        for each in (together, apart):
            each.step = tf.function(each._steps, autograph=False)
    batches = [loader.synthetic_batch(card, 4, seed) for seed in range(6)]

    reports = [together.train(joined(batches[start : start + 3])) for start in (0, 3)]
    losses = [apart.train(batch).loss() for batch in batches]
    assert [(report.samples, report.updates) for report in reports] == [(12, 3)] * 2
    assert [report.loss() for report in reports] == pytest.approx([np.mean(losses[:3]), np.mean(losses[3:])], rel=1e-5)
    for name, weight in apart.weights().items():
        np.testing.assert_allclose(together.weights()[name], weight, rtol=1e-5, atol=1e-6)
    assert together.observed().samples == 12 and together.gradients() == pytest.approx(apart.gradients())


def test_the_host_is_asked_once_for_several_updates(monkeypatch):
    """The number of times it waits follows from the calls, and not from the updates."""
    card, waits = smaller("lstm"), []

    def wait_for(_, result):
        waits.append(result)
        return result

    monkeypatch.setattr(cuda.GpuSession, "wait_for", wait_for)
    monkeypatch.setattr(tf.raw_ops, "CudnnRNN", cudnn_stand_in(("input", "forget", "cell", "output"), []))
    session(card, iterations=8, samples=2).train(loader.synthetic_batch(card, 16, seed=1))
    assert len(waits) == 1
