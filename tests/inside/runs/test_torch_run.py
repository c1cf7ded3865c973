"""Whole runs of the real program on the real CPU device."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import packed
import photographs
import pytest
from processes import child_of, wait_for, wait_until_gone
from program import ROOT, checked
from small_networks import losses_of

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import Batch, OptimizerRule  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.workloads.pytorch import build, loader, optimizers  # noqa: E402

CARD = cards.load()["resnet50"]
OLD = torch.__version__ < "2"  # Debian's 1.13, on OpenBLAS
SMALL = "mobilenet_v3_small"  # the workload of photographs that takes least time


@pytest.mark.parametrize(
    ("workload", "task", "precision"),
    [
        (SMALL, "training", "fp32"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("resnet50", "training", "fp32"),
                ("resnet50", "inference", "fp32"),
                (SMALL, "inference", "bf16"),  # without units for it, the large one takes half a minute
                (SMALL, "training", "bf16"),
            )
        ),
    ],
)
def test_a_smoke_run(program, workload, task, precision):
    document = program.result(workload, "--smoke", "--task", task, "--precision", precision)
    assert document["status"]["state"] == "completed"
    assert document["accelerator"]["kind"] == "cpu" and document["accelerator"]["granularity"] == "node"
    assert document["provenance"]["image"] is None
    assert document["provenance"]["software"]["framework_version"] == torch.__version__
    assert document["metrics"]["throughput"]["value"] > 0
    assert document["steps"]["updates"] == (4 if task == "training" else 0)
    assert (document["metrics"]["final_loss"]["value"] is None) == (task == "inference")
    assert document["metrics"]["peak_process_memory"]["value"] > 200  # the framework alone takes as much
    throughput, flops = document["metrics"]["throughput"]["value"], document["workload"]["flops"]["per_unit"]
    assert document["metrics"]["achieved_flops"]["value"] == pytest.approx(throughput * flops)
    assert flops == cards.load()[workload].flops_per_unit(task)
    for name in ("peak_allocated_memory", "peak_reserved_memory", "host_device_traffic", "utilisation"):
        assert document["metrics"][name]["value"] is None, "a CPU's is unknown, and not 0"
    assert "host" in document["device_conditions"]["reason"]
    assert 0 <= document["conditions_after"]["run_delay"]["value"] < 100


@pytest.mark.full
def test_a_seed_gives_the_same_losses(program):
    words = ("image_compression", "--smoke", "--threads", 1, "--meter", "none", "--seed")
    losses = [program.result(*words, seed)["steps"]["losses"] for seed in (3, 3, 4)]
    assert losses[0][:2] == pytest.approx(losses[1][:2], rel=1e-3)
    assert losses[0][:2] != pytest.approx(losses[2][:2], rel=1e-3)


def test_training_lowers_the_loss_as_a_bare_loop_does():
    """The session against PyTorch written out: same weights, batch and rule, hence the same losses."""
    rule = OptimizerRule.from_problem(CARD.problem["optimizer"], 4)
    batch = loader.synthetic_batch(CARD, 4, seed=1)
    batch = batch._replace(inputs=batch.inputs[..., :96, :96])
    session = cpu.open_session(build.model(CARD, seed=1), rule, "fp32")
    placed = session.to_device(batch)
    ours = losses_of(session, placed, 3)

    model = build.model(CARD, seed=1).train().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(optimizers.parameter_groups(model, rule), lr=0.256 * 4 / 256, momentum=0.875)
    bare = []
    for _ in range(3):
        optimizer.zero_grad()
        _, loss = model(placed.inputs, placed.targets)
        loss.backward()
        optimizer.step()
        bare.append(loss.item())
    assert ours == pytest.approx(bare, rel=1e-3)
    assert ours[2] < ours[0]


def test_inference_changes_nothing_and_needs_no_gradient():
    rule = OptimizerRule.from_problem(CARD.problem["optimizer"], 1)
    session = cpu.open_session(build.model(CARD, seed=1), rule, "fp32")
    before = {name: value.clone() for name, value in session.model.state_dict().items()}
    report = session.infer(Batch(torch.randn(2, 3, 224, 224), None))
    assert (report.samples, report.updates, report.loss) == (2, 0, None)
    assert all(torch.equal(value, before[name]) for name, value in session.model.state_dict().items())


def test_an_answer_is_the_output_of_the_model_and_its_parts_take_time():
    rule = OptimizerRule.from_problem(CARD.problem["optimizer"], 1)
    session = cpu.open_session(build.model(CARD, seed=1), rule, "fp32")
    inputs = torch.randn(2, 3, 224, 224)
    answer = session.infer_request(Batch(inputs, None))
    expected, _ = build.model(CARD, seed=1).eval()(inputs)
    assert torch.allclose(torch.from_numpy(answer.output), expected, rtol=1e-3, atol=1e-4)
    assert answer.compute > 0 and min(answer.transfer, answer.retrieval) >= 0


def test_streams_side_by_side_get_the_answers_of_one():
    rule = OptimizerRule.from_problem(CARD.problem["optimizer"], 1)
    session = cpu.open_session(build.model(CARD, seed=1), rule, "fp32")
    requests = [next(loader.synthetic_requests(CARD, 1, seed))() for seed in range(4)]
    alone = [session.infer_request(request).output for request in requests]
    with ThreadPoolExecutor(len(requests)) as streams:
        together = list(streams.map(session.infer_request, requests))
    for expected, other in zip(alone, together):
        assert np.allclose(expected, other.output, rtol=1e-3, atol=1e-4)
    assert not np.allclose(alone[0], alone[1], rtol=1e-3, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("threads", [1, 3])
def test_a_stream_computes_with_as_many_threads_as_were_asked_for(threads):
    """PyTorch's threads belong to the one that asks; a new one takes all cores where nobody tells it."""
    code = f"""
import sys, threading
from pathlib import Path
import torch
from entrypoints.contract import cards
from entrypoints.devices.pytorch import cpu
from entrypoints.contract.session import Batch, OptimizerRule
from entrypoints.workloads.pytorch import build
card = cards.load()["resnet50"]
cpu.prepare("fp32", {threads})
session = cpu.open_session(build.model(card, 0), OptimizerRule.from_problem(card.problem["optimizer"], 1), "fp32")
batch = session.to_device(Batch(torch.zeros(1, 3, 224, 224), None))  # in order already: the first work is a convolution
tasks = lambda: len(list(Path("/proc/self/task").iterdir()))
before, answered, counted = tasks(), threading.Event(), threading.Event()
def stream():
    session.infer_request(batch)
    answered.set()
    counted.wait()
thread = threading.Thread(target=stream)
thread.start()
answered.wait()
print(tasks() - before)
counted.set()
thread.join()
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=str(ROOT), stdout=subprocess.PIPE, check=True)
    assert int(ran.stdout) == threads


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.full)])
def test_requests_of_two_streams(program, precision):
    document = program.result(
        *(SMALL, "--task", "inference", "--concurrency", 2, "--steps", 16, "--threads", 1, "--meter", "none"),
        *("--precision", precision, "--skip-numerics"),
    )
    assert document["status"]["state"] == "completed"
    metrics = {name: metric["value"] for name, metric in document["metrics"].items()}
    parts = [metrics[f"latency_{part}_mean"] for part in ("preprocessing", "transfer", "compute", "retrieval", "other")]
    assert all(part > 0 for part in parts) and sum(parts) == pytest.approx(metrics["latency_mean"])
    assert document["data"]["samples"] == 1 and metrics["data_wait_fraction"] is None


@pytest.mark.skipif(OLD or not shutil.which("g++"), reason="nothing to compile with")
@pytest.mark.full  # the gate compiles with TensorFlow
@pytest.mark.parametrize("task", ["training", "inference"])
def test_a_compiled_model(program, task):
    words = ("image_compression", "--smoke", "--threads", 1, "--meter", "none", "--task", task)
    eager, compiled = program.result(*words), program.result(*words, "--compile")
    assert compiled["status"]["state"] == "completed", compiled["status"]
    assert compiled["configuration"]["compile"] == "default" and eager["configuration"]["compile"] is None
    assert "compiled by TorchInductor (default)" in compiled["accelerator"]["execution"]
    assert compiled["accelerator"]["compilation"]["graphs"] == 1 and "compilation" not in eager["accelerator"]
    assert compiled["accelerator"]["compilation"]["cache"] in ("cold", "warm", "mixed")
    if task == "training":
        assert compiled["steps"]["losses"][0] == pytest.approx(eager["steps"]["losses"][0], rel=1e-3)


@pytest.mark.full
@pytest.mark.skipif(OLD or not shutil.which("g++"), reason="nothing to compile with")
def test_a_compiled_model_computes_the_same(program):
    code, output, errors = program.run("image_compression", "--check", "--compile")
    assert (code, output) == (0, ""), errors
    assert "correctness passed" in errors


@pytest.mark.full
def test_nothing_to_compile_with(program, tmp_path):
    document = program.result(SMALL, "--smoke", "--compile", PATH=str(tmp_path), CXX="absent")
    assert (document["status"]["state"], document["status"]["exit_code"]) == ("unsupported", 3)
    assert "--compile: PyTorch " in document["status"]["message"]


@pytest.mark.full
@pytest.mark.skipif(OLD, reason="1.13 compiles nothing")
@pytest.mark.parametrize("task", ["training", "inference"])
def test_a_compiler_that_fails(program, tmp_path, task):
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    broken.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CXX": str(broken),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
    }
    document = program.result(
        "image_compression", "--smoke", "--task", task, "--threads", 1, "--compile", **environment
    )
    assert (document["status"]["state"], document["status"]["exit_code"]) == ("compile_failure", 4)


@pytest.mark.full
def test_requests_of_photographs_with_a_damaged_one_among_them(program, tmp_path):
    photos = photographs.write(tmp_path)
    (photos / "colour" / "broken.jpg").write_bytes((photos / "colour" / "coffee.jpg").read_bytes()[:3000])
    document = program.result(
        *(SMALL, "--task", "inference", "--concurrency", 2, "--data", photos, "--batch-size", 3),
        *("--epochs", 2, "--warmup-steps", 2, "--threads", 1, "--meter", "none", "--skip-numerics"),
    )
    assert document["status"]["state"] == "completed"
    assert document["data"]["skipped"] == {"count": 1, "examples": ["colour/broken.jpg"]}
    assert [(epoch["steps"], epoch["units"]) for epoch in document["epochs"]] == [(4, 12), (4, 12)]
    assert document["requests"]["count"] == 6
    assert document["requests"]["parts"]["preprocessing"]["p50"] > 0


@pytest.mark.full
def test_requests_of_which_no_photograph_is_readable(program, tmp_path):
    photos = photographs.write(tmp_path)
    for path in photos.glob("*/*"):
        path.write_bytes(b"")
    document = program.result(
        *(SMALL, "--task", "inference", "--concurrency", 2, "--data", photos, "--steps", 4, "--skip-numerics")
    )
    assert document["status"]["state"] == "data_error" and document["status"]["exit_code"] == 4


def test_the_weights_follow_the_updates():
    rule = OptimizerRule.from_problem(CARD.problem["optimizer"], 4)
    session = cpu.open_session(build.model(CARD, seed=1), rule, "fp32")
    before = {name: weight.copy() for name, weight in session.weights().items()}
    assert sum(weight.size for weight in before.values()) == CARD.problem["parameters"]
    session.train(loader.synthetic_batch(CARD, 4, seed=1))
    assert not any(np.array_equal(weight, before[name]) for name, weight in session.weights().items())


@pytest.mark.full
@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_a_precision_that_a_cpu_has_not(program, precision):
    document = program.result(SMALL, "--precision", precision, *(["--skip-numerics"] if precision == "tf32" else []))
    assert document["status"]["state"] == "unsupported" and document["status"]["exit_code"] == 3
    assert "fp32, bf16" in document["status"]["message"]
    assert document["steps"]["count"] == 0


def test_a_batch_beyond_all_memory(program):
    document = program.result(SMALL, "--batch-size", 10**8, "--skip-numerics")
    assert document["status"]["state"] == "out_of_memory" and document["status"]["exit_code"] == 4
    assert "not tried: at least " in document["status"]["message"]
    assert "nine tenths of free memory " in document["status"]["message"]


@pytest.mark.full
@pytest.mark.skipif(OLD, reason="the search knows nothing of PyTorch, and with 1.13 takes minutes")
def test_the_largest_batch_within_a_limit(program):
    """Here a batch of 3 fits, and one of 4 does not."""
    document = program.result(
        *(SMALL, "--steps", 2, "--threads", 1, "--meter", "none", "--find-max-batch", "--batch-size", 8),
        *("--memory-limit", 512, "--skip-numerics"),
    )
    tried = {trial["batch_size"]: trial["state"] for trial in document["search"]["trials"]}
    largest = document["search"]["largest"]
    assert document["status"]["state"] == "completed", document["status"]
    assert 1 <= largest == document["configuration"]["batch_size"] < 8
    assert tried[largest] == "completed" and tried[largest + 1] == "out_of_memory" == tried[8]
    assert document["search"]["memory_limit_mib"] == 460 and document["configuration"]["memory_limit_mib"] == 512


@pytest.mark.full
def test_a_limit_that_the_framework_alone_exceeds(program):
    document = program.result(SMALL, "--smoke", "--task", "inference", "--memory-limit", 100)
    assert document["status"]["state"] == "out_of_memory", document["status"]
    assert "the framework alone takes " in document["status"]["message"]
    assert "--memory-limit 100 MiB" in document["status"]["message"]


@pytest.mark.parametrize("streams", [pytest.param(1, marks=pytest.mark.full), 3])
def test_products_need_no_memory_later(streams):
    """Where it gets no workspace, OpenBLAS (here that of torch 1.13) would ask for ever, and hold a core.

    Nor does it where one stream begins late, as on a busy host, and finds another's workspace free again.
    """
    code = (
        "import threading, time, torch\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from entrypoints.system import host, memory\n"
        "from entrypoints.devices.pytorch.shared import threads\n"
        "from entrypoints.devices.pytorch import cpu\n"
        "class Barrier(threading.Barrier):\n"
        "    late = True\n"
        "    def wait(self):\n"
        "        if super().wait() == 0 and self.late:\n"
        "            self.late = False\n"
        "            time.sleep(2)\n"
        "threads.Barrier = Barrier\n"
        f"cpu.prepare('fp32', 2, {streams})\n"
        "square, pool = torch.ones(1024, 1024), ThreadPoolExecutor(8)\n"
        f"products = [torch.empty(1024, 1024) for _ in range({streams})]\n"
        "list(pool.map(lambda product: product.fill_(0), products))\n"  # threads with stacks
        "memory.limit_process(int(host.process_status('VmData').split()[0]) // 1024 + 50)\n"
        "list(pool.map(lambda product: torch.mm(square, square, out=product), products))\n"
        "print(*(product.mean().item() for product in products))\n"
        "try: torch.ones(2**25)\n"  # 128 MiB, as a workspace
        "except RuntimeError: print('refused')\n"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=str(ROOT), stdout=subprocess.PIPE, check=True, timeout=300)
    assert done.stdout.decode().split() == ["1024.0"] * streams + ["refused"]


@pytest.mark.full
def test_photographs_with_damaged_ones_among_them(program, tmp_path):
    photos = photographs.write(tmp_path)
    (photos / "colour" / "broken.jpg").write_bytes((photos / "colour" / "coffee.jpg").read_bytes()[:3000])
    document = program.result(
        *(SMALL, "--data", photos, "--batch-size", 3, "--epochs", 2, "--warmup-steps", 2, "--data-workers", 2),
        "--skip-numerics",
    )
    assert document["status"]["state"] == "completed"
    assert document["data"]["samples"] == 13 and document["data"]["classes"] == 2
    assert document["data"]["skipped"] == {"count": 1, "examples": ["colour/broken.jpg"]}
    assert [(epoch["steps"], epoch["units"]) for epoch in document["epochs"]] == [(4, 12), (4, 12)]
    assert 0 <= document["metrics"]["data_wait_fraction"]["value"] < 1


@pytest.mark.full
def test_photographs_of_which_none_is_readable(program, tmp_path):
    photos = photographs.write(tmp_path)
    for path in photos.glob("*/*"):
        path.write_bytes(b"")
    document = program.result(SMALL, "--data", photos, "--batch-size", 2, "--steps", 4, "--skip-numerics")
    assert document["status"]["state"] == "data_error" and document["status"]["exit_code"] == 4


@pytest.mark.full
@pytest.mark.parametrize("workers", [0, 3])
def test_shards_with_a_damaged_one_among_them(program, tmp_path, workers):
    """Two shards; the second breaks off within its last sample, and one image of the first is no image."""
    picture = packed.grey_png(28, 28, 8, 100)
    packed.shards(tmp_path, [8, 6], image=lambda number: b"" if number == 3 else picture)
    content = (tmp_path / "train-000001.tar").read_bytes()
    (tmp_path / "train-000001.tar").write_bytes(content[: 5 * 2048 + 512])
    document = program.result(
        *("image_compression", "--data", tmp_path, "--batch-size", 3, "--epochs", 2, "--warmup-steps", 1),
        *("--data-workers", workers, "--threads", 1, "--meter", "none", "--skip-numerics"),
    )
    assert document["status"]["state"] == "completed"
    assert document["configuration"]["data"] == document["data"]["source"] == "shards"
    assert (document["data"]["samples"], document["data"]["classes"], document["data"]["part"]) == (13, 3, None)
    lost, image = document["data"]["skipped"]["examples"]
    assert image == "train-000000.tar/n0/0003.jpg" and lost.startswith("train-000001.tar (cut short or damaged")
    assert [(epoch["steps"], epoch["units"]) for epoch in document["epochs"]] == [(4, 12), (4, 12)]
    rate, of_all = (document["metrics"][name] for name in ("decode_rate", "decode_rate_of_all_workers"))
    assert rate["unit"] == "images/s" and rate["value"] > 0
    assert of_all["value"] == pytest.approx(max(workers, 1) * rate["value"])


@pytest.mark.full
@pytest.mark.parametrize("task", ["training", pytest.param("inference", marks=pytest.mark.full)])
def test_idx_files_of_the_task(program, tmp_path, task):
    noise = np.random.default_rng(1).integers(256, size=(12, 28, 28)).tolist()
    packed.idx(tmp_path, noise, [0] * 12)
    packed.idx(tmp_path, noise[:8], [0] * 8, prefix="t10k-", packed=True)
    words = ("image_compression", "--smoke", "--task", task, "--data", tmp_path, "--threads", 1, "--meter", "none")
    code, output, errors = program.run(*words)
    document = checked(output)
    wanted = {"training": ("train-images-idx3-ubyte", 12), "inference": ("t10k-images-idx3-ubyte.gz", 8)}[task]
    assert (code, document["data"]["part"], document["data"]["samples"]) == (0, *wanted)
    assert document["data"]["source"] == "idx" and document["metrics"]["decode_rate"]["value"] > 0
    assert "with one class, loss and accuracy mean nothing" in errors


@pytest.mark.full
def test_requests_of_idx_images(program, tmp_path):
    noise = np.random.default_rng(1).integers(256, size=(4, 28, 28)).tolist()
    packed.idx(tmp_path, noise, [0, 1, 2, 3])
    document = program.result(
        *("image_compression", "--task", "inference", "--concurrency", 2, "--data", tmp_path, "--steps", 12),
        *("--threads", 1, "--meter", "none", "--skip-numerics"),
    )
    assert document["status"]["state"] == "completed"
    assert "latency_preprocessing" in document["metrics"]["decode_rate"]["reason"]


@pytest.mark.full
def test_synthetic_data_are_not_decoded(program):
    document = program.result("image_compression", "--smoke", "--threads", 1, "--meter", "none")
    assert document["metrics"]["decode_rate"] == {"value": None, "unit": "images/s", "reason": "nothing was decoded"}


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.full), signal.SIGKILL])
def test_no_process_outlives_the_program(program, tmp_path, number):
    photos = photographs.write(tmp_path)
    process = program.start(
        *(SMALL, "--data", photos, "--batch-size", 2, "--steps", 100000, "--warmup-steps", 1),
        *("--data-workers", 2, "--skip-numerics"),
    )
    wait_for(process, "measuring")
    child = child_of(process)
    workers = [int(pid) for pid in Path(f"/proc/{child}/task/{child}/children").read_text().split()]
    assert len(workers) >= 2
    os.kill(process.pid, number)
    output, _ = process.communicate()
    for pid in (child, *workers):
        wait_until_gone(pid)
    if number == signal.SIGTERM:
        assert checked(output)["status"]["state"] == "interrupted"
        assert checked(output)["steps"]["count"] > 0
    else:
        assert output == ""
