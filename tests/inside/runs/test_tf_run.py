"""Whole runs in TensorFlow on the real CPU device, in a tree laid out as in an image."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import packed
import pytest
from program import ROOT, Program, lay

tf = pytest.importorskip("tensorflow")
np = pytest.importorskip("numpy")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import OptimizerRule  # noqa: E402
from entrypoints.devices.tensorflow import cpu  # noqa: E402
from entrypoints.workloads.tensorflow import build, loader, transformer  # noqa: E402

CARD = cards.load()["image_compression"]
QUICK = ("--threads", 1, "--meter", "none")
SHALLOW = ("bert_base", "gpt2")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return lay(tmp_path_factory.mktemp("image") / "sifmark", recipe="cpu_tf", framework="tensorflow", device="cpu")


@pytest.fixture()
def program(tree, tmp_path):
    return Program(tree, tmp_path)


@pytest.fixture(scope="module")
def shallow_tree(tmp_path_factory):
    """The same with transformers of two layers: of twelve, XLA and the generation of text take minutes."""
    tree = lay(tmp_path_factory.mktemp("image") / "sifmark", recipe="cpu_tf", framework="tensorflow", device="cpu")
    for name in SHALLOW:
        path = tree / "entrypoints" / "workloads" / f"{name}.json"
        card = json.loads(path.read_text("utf-8"))
        card["problem"]["model"]["layers"] = 2
        weights = transformer.network(card["problem"]["model"]).trainable_variables
        card["problem"]["parameters"] = sum(int(np.prod(weight.shape)) for weight in weights)
        path.write_text(json.dumps(card), "utf-8")
    return tree


def session(batch_size=4):
    rule = OptimizerRule.from_problem(CARD.problem["optimizer"], batch_size)
    return cpu.open_session(build.model(CARD, seed=1), rule, "fp32")


@pytest.mark.parametrize(
    ("workload", "task"),
    [("image_compression", "training"), pytest.param("resnet50", "inference", marks=pytest.mark.full)],
)
def test_a_smoke_run(program, workload, task):
    """One that trains resnet50 is among those of every small workload."""
    document = program.result(workload, "--smoke", "--task", task, *QUICK)
    assert document["status"]["state"] == "completed"
    assert document["accelerator"]["kind"] == "cpu" and document["accelerator"]["granularity"] == "node"
    assert document["configuration"]["framework"] == "tensorflow"
    assert document["provenance"]["software"]["framework_version"] == tf.__version__
    assert document["metrics"]["throughput"]["value"] > 0
    assert document["steps"]["updates"] == (4 if task == "training" else 0)
    assert (document["metrics"]["final_loss"]["value"] is None) == (task == "inference")
    for name in ("peak_allocated_memory", "peak_reserved_memory", "host_device_traffic", "utilisation"):
        assert document["metrics"][name]["value"] is None, "a CPU's is unknown, and not 0"


@pytest.mark.parametrize(
    ("workload", "task"),
    [
        ("image_compression", "training"),
        pytest.param("image_compression", "inference", marks=pytest.mark.full),
        *(pytest.param(name, "training", marks=pytest.mark.full) for name in ("resnet50", "lstm", "bert_base", "gpt2")),
    ],
)
def test_a_compiled_model(request, tmp_path, workload, task):
    shallow = workload in SHALLOW
    tree = request.getfixturevalue("shallow_tree" if shallow else "tree")
    document = Program(tree, tmp_path, cards_of_ours=not shallow).result(
        workload, "--smoke", "--compile", "--task", task, *QUICK
    )
    assert document["status"]["state"] == "completed", document["status"]
    assert (
        "compiled by XLA" in document["accelerator"]["execution"] and document["configuration"]["compile"] == "default"
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("workload", "task", "length", "new"),
    [
        ("gpt2", "training", 128, 0),
        ("gpt2", "inference", 64, 64),
        ("bert_base", "training", 384, 0),
        ("bert_base", "inference", 384, 0),
    ],
)
def test_a_smoke_run_over_text(shallow_tree, tmp_path, workload, task, length, new):
    program = Program(shallow_tree, tmp_path, cards_of_ours=False)
    document = program.result(workload, "--smoke", "--task", task, *QUICK)
    assert document["status"]["state"] == "completed", document["status"]
    metrics = {name: metric["value"] for name, metric in document["metrics"].items()}
    assert metrics["token_throughput"] == pytest.approx(metrics["throughput"] * (new or length))
    assert metrics["padding_fraction"] == 0
    for name in ("prefill_throughput", "decode_throughput"):
        assert (metrics.get(name) is not None) == bool(new), name
    assert metrics.get("time_to_first_token_p50") is None, "a smoke run has too few texts for a median"
    assert (metrics["final_loss"] is None) == (task == "inference")


# Those that a machine of tests has memory and time for; numerics are tested of all. What is over text runs above.
SMALL = [
    (name, task)
    for name, card in cards.load_for("tensorflow").items()
    for task in card.tasks
    if card.problem["parameters"] < 150e6 and name not in ("gpt2", "gpt_117m", "bert_base")
]


@pytest.mark.full
@pytest.mark.parametrize(("workload", "task"), SMALL)
def test_every_small_workload_answers(program, workload, task):
    """As from a built image, but with each TensorFlow that images may hold."""
    document = program.result(workload, "--smoke", "--task", task, *QUICK)
    assert document["status"]["state"] == "completed", document["status"]


@pytest.mark.full
def test_a_check_says_what_it_rests_on(program):
    code, output, errors = program.run("image_compression", "--check")
    assert (code, output) == (0, "")
    assert "correctness passed" in errors


@pytest.mark.parametrize("kind", ["records", pytest.param("folder", marks=pytest.mark.full)])
def test_the_loss_falls_on_files(program, tmp_path, kind):
    """Plain grey images in two classes; one is damaged."""
    pictures = [packed.grey_png(28, 28, 8, 20 * number) for number in range(12)]
    data = tmp_path / "data"
    for label in ("0", "1"):
        (data / label).mkdir(parents=True)
    for number, picture in enumerate([*pictures, b"no image"]):
        (data / str(number % 2) / f"{number:02}.png").write_bytes(picture)
    if kind == "records":
        with tf.io.TFRecordWriter(str(data / "all.tfrecord")) as writer:
            for number, picture in enumerate([*pictures, b"no image"]):
                writer.write(packed.example(picture, number % 2))
        for folder in ("0", "1"):
            shutil.rmtree(str(data / folder))
    words = ("--data", data, "--batch-size", 12, "--epochs", 15, "--warmup-steps", 1, "--skip-numerics", *QUICK)
    document = program.result("image_compression", *words)
    assert document["status"]["state"] == "completed", document["status"]
    assert document["data"]["source"] == kind and document["data"]["samples"] == 13
    assert document["data"]["skipped"]["count"] == 1 and document["metrics"]["decode_rate"]["value"] > 0
    losses = document["steps"]["losses"]
    assert len(losses) == 15 and max(losses[-3:]) < min(losses[:3])


def test_requests_of_two_streams(program):
    document = program.result(
        *("image_compression", "--task", "inference", "--concurrency", 2, "--steps", 16, "--skip-numerics", *QUICK)
    )
    assert document["status"]["state"] == "completed"
    metrics = {name: metric["value"] for name, metric in document["metrics"].items()}
    parts = [metrics[f"latency_{part}_mean"] for part in ("preprocessing", "transfer", "compute", "retrieval", "other")]
    assert all(part > 0 for part in parts) and sum(parts) == pytest.approx(metrics["latency_mean"])


@pytest.mark.full
def test_a_precision_that_is_not_there(program):
    document = program.result("image_compression", "--precision", "bf16", "--skip-numerics", *QUICK)
    assert document["status"]["state"] == "unsupported" and document["status"]["exit_code"] == 3
    assert "fp32" in document["status"]["message"]


@pytest.mark.full
def test_a_limit_below_what_a_batch_needs(program):
    document = program.result("resnet50", "--batch-size", 64, "--memory-limit", 2000, "--skip-numerics", *QUICK)
    assert document["status"]["state"] == "out_of_memory", document["status"]


def test_the_loss_falls_and_the_weights_follow():
    opened = session()
    batch = opened.to_device(loader.synthetic_batch(CARD, 4, seed=1))
    before = opened.weights()
    losses = [opened.train(batch).loss() for _ in range(8)]
    assert losses[-1] < 0.9 * losses[0]
    after = opened.weights()
    assert not any((weight == before[name]).all() for name, weight in after.items())


def test_an_evaluation_counts_what_is_right():
    card = cards.load()["resnet50"]
    model = build.model(card, seed=1)
    opened = cpu.open_session(model, OptimizerRule.from_problem(card.problem["optimizer"], 4), "fp32")
    batch = loader.synthetic_batch(card, 4, seed=1)
    likeliest = opened.infer_request(batch).output.argmax(1)
    labels = [int(likeliest[0]), int(likeliest[1]), *((likeliest[2:] + 1) % 1000)]
    judged = opened.evaluate(batch._replace(targets=tf.constant(labels, tf.int64)))
    _, loss = model(batch.inputs, tf.constant(labels, tf.int64))
    assert loss is not None
    assert (judged.samples, judged.right) == (4, 2) and judged.loss == pytest.approx(float(loss), rel=1e-4)


def test_an_evaluation_without_labels_has_a_loss_alone():
    judged = session().evaluate(loader.synthetic_batch(CARD, 3, seed=1))
    assert (judged.samples, judged.right) == (3, None) and judged.loss > 0


def test_inference_changes_nothing():
    opened = session()
    batch = loader.synthetic_batch(CARD, 3, seed=1)
    state = [variable.numpy() for variable in opened.model.variables]
    report = opened.infer(batch)
    assert (report.samples, report.updates, report.loss) == (3, 0, None)
    answer = opened.infer_request(batch)
    assert answer.output.shape == (3, 28, 28, 1) and answer.compute > 0
    assert all((variable.numpy() == value).all() for variable, value in zip(opened.model.variables, state))


@pytest.mark.parametrize(
    ("threads", "streams", "pool"),
    [
        pytest.param(1, 1, (1, 1), marks=pytest.mark.full),
        pytest.param(1, 3, (3, 1), marks=pytest.mark.full),
        (2, 3, (3, 6)),
    ],
)
def test_threads_are_those_that_were_asked_for(threads, streams, pool):
    """Of a process, before its first tensor; the same again is nothing new."""
    code = f"""
import tensorflow as tf
from entrypoints.devices.tensorflow import cpu
cpu.prepare("fp32", {threads}, {streams})
tf.constant(1) + 1
cpu.prepare("fp32", {threads}, {streams})
threading = tf.config.threading
print(threading.get_inter_op_parallelism_threads(), threading.get_intra_op_parallelism_threads())
print(len(tf.config.get_visible_devices("GPU")))
"""
    ran = subprocess.run([sys.executable, "-B", "-c", code], cwd=str(ROOT), stdout=subprocess.PIPE, check=True)
    assert ran.stdout.split() == [b"%d" % number for number in (*pool, 0)]
