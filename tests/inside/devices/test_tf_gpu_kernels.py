"""What TensorFlow does on GPUs alone: grouped convolutions, LSTM by cuDNN, half precision, several updates in a call.

No GPU is here: the host stands in for one, XLA computes grouped convolutions, and `cudnn_stand_in` reads the row of
parameters as the libraries' manuals describe it.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

tf = pytest.importorskip("tensorflow")
np = pytest.importorskip("numpy")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import BatchPartition, DeviceFacts, rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.tensorflow import cuda  # noqa: E402
from entrypoints.workloads.tensorflow import build, layers, loader, lstm  # noqa: E402

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


def session(card, precision="fp32", compiled=False, iterations=1, samples=4):
    model = build.without_randomness(build.model(card, seed=1))
    cuda.adapt(model, precision, compiled)
    partition = BatchPartition(samples, device_iterations=iterations)
    rule = rule_of(card.problem, samples)
    return cuda.GpuSession(model, rule, compiled, FACTS, "/device:CPU:0", partition)


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


@pytest.mark.skipif(not HAS_HALF, reason="this TensorFlow has no LSTM in bf16")
@pytest.mark.parametrize(
    "workload", [pytest.param(name, marks=[pytest.mark.full] * (name != HALF[0])) for name in HALF]
)
def test_half_precision_trains_as_single_precision_does(monkeypatch, workload):
    monkeypatch.setattr(tf.raw_ops, "CudnnRNN", cudnn_stand_in(("input", "forget", "cell", "output"), []))
    card = smaller(workload)
    batch = loader.synthetic_batch(card, 4, seed=3)
    half, single = session(card, "bf16"), session(card)
    losses = [[each.train(batch).loss() for _ in range(3)] for each in (half, single)]
    assert losses[0] == pytest.approx(losses[1], rel=0.03) and losses[0] != losses[1]
    assert {variable.dtype for variable in half.model.trainable_variables} == {tf.float32}
    computing = {layer.dtype for layer in half.model.submodules if isinstance(layer, layers.Layer)}
    assert computing == {tf.bfloat16}
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
    assert ours.iterate(ours.iterate(state)).token.shape == (2, 1)


def test_no_chain_is_sampled_in_half_precision(monkeypatch):
    monkeypatch.setattr(cuda, "details", dict)
    card = CARDS["mcmc"]
    with pytest.raises(RunError, match="sampled in single precision"):
        cuda.open_session(build.model(card, 1), rule_of(card.problem, 4), "bf16")


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.full)])
def test_several_updates_in_a_call_are_those_of_as_many_calls(compiled):
    card = smaller("lstm")
    together, apart = session(card, "fp32", True, 3), session(card, "fp32", True)
    if not compiled:
        for each in (together, apart):
            each.step = tf.function(each._steps, autograph=False)
    batches = [loader.synthetic_batch(card, 4, seed) for seed in range(6)]

    def joined(some):
        return some[0]._replace(
            inputs=tf.concat([each.inputs for each in some], 0), targets=tf.concat([each.targets for each in some], 0)
        )

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
