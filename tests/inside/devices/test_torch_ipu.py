"""The IPU's session through the stand-in of PopTorch: no IPU is here, and none was when it was written."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from program import IMAGE, ROOT, Program, lay

torch = pytest.importorskip("torch")

STAND_INS = ROOT / "tests" / "inside" / "support" / "stand_ins"
sys.path.insert(0, str(STAND_INS))  # before the session is imported, which wants PopTorch

import poptorch  # noqa: E402
from small_networks import SMALL, smaller  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.cards import generates  # noqa: E402
from entrypoints.contract.session import BatchPartition, IpuMemory, rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.pytorch import cpu, ipu  # noqa: E402
from entrypoints.devices.pytorch.graphcore import steps  # noqa: E402
from entrypoints.devices.pytorch.graphcore.optimizer import optimizer  # noqa: E402
from entrypoints.devices.pytorch.graphcore.options import RECOMPUTE_ALL, TIED  # noqa: E402
from entrypoints.devices.pytorch.strategies import ipu_stages  # noqa: E402
from entrypoints.planning import arguments  # noqa: E402
from entrypoints.planning.resolve import resolve  # noqa: E402
from entrypoints.worker import memory_estimate  # noqa: E402
from entrypoints.workloads.pytorch import build, loader, transformer  # noqa: E402

CARDS = cards.load()
BATCH = 4
QUICK = "image_compression"


def opened(device, workload, partition, precision="fp32"):
    torch.manual_seed(0)
    card = smaller(CARDS[workload]) if CARDS[workload].family in SMALL else CARDS[workload]
    device.prepare(precision, 2)
    session = device.open_session(
        build.model(card, seed=1), rule_of(card.problem, BATCH), precision, partition=partition
    )
    return session, loader.synthetic_batch(card, BATCH, seed=1)


def losses(device, workload, partition, steps=3):
    session, batch = opened(device, workload, partition)
    placed = session.to_device(batch)
    values = [session.train(placed).loss() for _ in range(steps)]
    session.close()
    return values


@pytest.mark.parametrize(
    "workload",
    [QUICK, "lstm", "gpt2", "bert_base", pytest.param("resnet50", marks=pytest.mark.full)],
)
def test_replicas_and_accumulation_lose_what_the_cpu_loses(workload):
    """Four micro-batches of one sample, on two replicas or on one processor. Convolutions are of another layout there:
    what they round grows with each step."""
    expected = losses(cpu, workload, BatchPartition(1, accumulation=4))
    actual = losses(ipu, workload, BatchPartition(1, accumulation=2, replicas=2))
    assert actual == pytest.approx(expected, rel=0.02 if workload == "resnet50" else 2e-3)
    assert actual[0] == pytest.approx(expected[0], rel=1e-5)


def test_a_call_of_several_iterations_makes_as_many_updates():
    """Two batches in one call, or in two."""
    alone, batch = opened(ipu, QUICK, BatchPartition(1, accumulation=2))
    halves = [batch._replace(inputs=batch.inputs[at : at + 2], targets=batch.targets[at : at + 2]) for at in (0, 2)]
    together, _ = opened(ipu, QUICK, BatchPartition(1, accumulation=2, device_iterations=2))
    reports = [alone.train(half) for half in halves]
    report = together.train(batch)
    assert (report.samples, report.updates) == (BATCH, 2)
    assert report.loss() == pytest.approx(sum(report.loss() for report in reports) / 2)
    weights, expected = together.weights(), alone.weights()
    assert all(weights[name] == pytest.approx(expected[name], abs=1e-6) for name in expected)
    alone.close()
    together.close()


@pytest.mark.parametrize(
    ("workload", "strategy"),
    [
        ("gpt2", "sharded"),
        ("bert_base", "pipelined"),
        (QUICK, "pipelined"),
        pytest.param(QUICK, "sharded", marks=pytest.mark.full),
        (QUICK, "phased"),
    ],
)
def test_stages_compute_the_same(workload, strategy):
    expected = losses(ipu, workload, BatchPartition(1, accumulation=4), steps=2)
    assert losses(ipu, workload, BatchPartition(1, 4, stages=2, strategy=strategy), steps=2) == pytest.approx(expected)


def test_a_head_with_the_embedding_s_weights_is_on_its_ipu(monkeypatch):
    """CARAML's case. Where only layers are marked, PopTorch refuses it: the last IPU has no such weights."""
    partition = BatchPartition(1, 4, stages=2, strategy="pipelined")
    session, batch = opened(ipu, "gpt_117m", partition)
    with pytest.raises(RunError, match="a pipeline of 3 stages is not filled by 4 micro-batches, but by 5"):
        session.train(batch)
    session.close()
    session, batch = opened(ipu, "gpt_117m", partition._replace(strategy="sharded"))
    session.train(batch)
    assert [*dict.fromkeys(poptorch.RUNNING)] == [("stage0", 0), ("stage1", 1), ("head", 0)]
    assert "head and embedding on the first IPU" in session.facts.execution
    assert session.training._options._Popart.value("setPatterns", None) == TIED
    session.close()
    monkeypatch.setattr(ipu_stages, "tied_head", lambda _: None)
    session, batch = opened(ipu, "gpt_117m", partition)
    with pytest.raises(RunError, match="All pipeline stages using this tensor should be on the same graph") as raised:
        session.train(batch)
    assert raised.value.state == "compile_failure"
    session.close()


def test_a_pipeline_with_a_head_on_the_first_ipu_computes_the_same():
    """Of the smallest batch that fills it: five micro-batches, in two iterations of a call."""
    values = []
    for partition in (
        BatchPartition(1, 5, device_iterations=2),
        BatchPartition(1, 5, device_iterations=2, stages=2, strategy="pipelined"),
    ):
        session, _ = opened(ipu, "gpt_117m", partition)
        batch = loader.synthetic_batch(smaller(CARDS["gpt_117m"]), 10, seed=1)
        report = session.train(batch)
        assert report.updates == 2
        values.append(report.loss())
        if partition.stages > 1:
            assert len(poptorch.KEPT) == 2, "the output of each block is kept for backward"
        session.close()
    assert values[0] == pytest.approx(values[1])


@pytest.mark.parametrize(
    ("layers", "width", "embedded", "published"),
    [
        (12, 768, 50257 + 1024, [0, 4, 4, 4]),  # GPT-2; in CARAML at 59cba3e, too
        (24, 1024, 50257 + 1024, [0, 3, 3, 3, 3, 4, 4, 4]),  # medium
        (36, 1280, 50257 + 512, [1, 5, 5, 5, 5, 5, 5, 5]),  # large, of 512 tokens
        (36, 1280, 50257 + 1024, [0, *[2] * 9, *[3] * 6]),  # large; there one with 2 is the last
        (12, 768, 30522 + 514, [0, 4, 4, 4]),  # BERT
        (24, 1024, 30522 + 514, [3, 7, 7, 7]),  # large
    ],
)
def test_models_are_cut_as_graphcore_cuts_them(layers, width, embedded, published):
    """By `layers_per_ipu` of training in https://github.com/graphcore/examples at 3cc8f81."""
    first = embedded * width / (12 * width**2 + 13 * width)
    assert ipu_stages.divided_blocks(layers, len(published), first, 0.0) == published


@pytest.mark.parametrize(("tied", "cuts"), [(True, [0, 4, 8]), (False, [0, 6, "head"])])
def test_a_head_with_the_embedding_s_weights_weighs_on_the_first_stage_alone(tied, cuts):
    """Of a network of GPT-2's shape, a sixteenth as wide: 5.4 blocks have as many weights as its embedding."""
    model = {**CARDS["gpt_117m"].problem["model"], "width": 48, "heads": 4, "feed_forward": 192, "vocabulary": 3190}
    model = {**model, "positions": {**model["positions"], "most": 16}, "head": {**model["head"], "tied": tied}}
    network = transformer.network(model)
    begun = ipu_stages.beginnings(network, 4)
    assert begun == [network.head if cut == "head" else network.blocks[cut] for cut in cuts]


def test_a_head_with_weights_of_its_own_weighs_on_the_last_stage():
    """And may be all of it."""
    assert ipu_stages.divided_blocks(12, 4, 5.4, 5.4) == [0, 6, 6, 0]
    assert ipu_stages.divided_blocks(12, 2, 5.4, 5.4) == [6, 6]
    assert ipu_stages.divided_blocks(12, 3, 1.0, 2.0) == [4, 5, 3]
    session, batch = opened(ipu, "gpt2", BatchPartition(1, 4, stages=2, strategy="sharded"))
    session.train(batch)
    assert [*dict.fromkeys(poptorch.RUNNING)] == [("stage0", 0), ("stage1", 1)]
    session.close()


def test_the_loss_of_many_tokens_is_that_of_pieces(monkeypatch):
    """The last piece is shorter."""
    expected = losses(ipu, "gpt2", BatchPartition(1, accumulation=4), steps=2)
    monkeypatch.setattr(steps, "PIECE", 7)
    assert losses(ipu, "gpt2", BatchPartition(1, accumulation=4), steps=2) == pytest.approx(expected)


def test_what_is_asked_of_the_memory_is_passed_on():
    memory = IpuMemory([0.1, 0.2], None, True, True)
    session, batch = opened(ipu, "bert_base", BatchPartition(1, 2, 2, stages=2, strategy="sharded", memory=memory))
    session.train(batch)
    options = session.training._options
    assert options.value("setAvailableMemoryProportion", None) == {"IPU0": 0.1, "IPU1": 0.2}
    place = options.TensorLocations.value("setOptimizerLocation", None)
    assert place.value("useOnChipStorage", None) is False
    assert place.value("useReplicatedTensorSharding", None) is True, "replicas share them"
    assert options._Popart.values["set"] == {"key": "autoRecomputation", "value": RECOMPUTE_ALL}
    assert len(poptorch.KEPT) == 2
    session.infer(batch)
    assert not poptorch.KEPT and "setOptimizerLocation" not in session.inference._options.TensorLocations.values
    assert "available memory proportion 0.1 0.2, optimizer states off chip" in session.facts.execution
    session.close()


def test_tiles_for_input_and_output_work_while_others_compute():
    partition = BatchPartition(1, 2, device_iterations=2, memory=IpuMemory(io_tiles=64))
    session, batch = opened(ipu, QUICK, partition)
    session.train(batch)
    assert session.training._options.TensorLocations.value("numIOTiles", None) == 64
    assert isinstance(session.training._options.strategy, poptorch.ShardedExecution)
    assert set(poptorch.OVERLAPPED) == {"input OverlapDeviceIterationLoop", "output OverlapDeviceIterationLoop"}
    session.close()


def test_a_pipeline_that_is_not_filled_is_refused_by_poptorch():
    with pytest.raises(RunError) as raised:
        losses(ipu, QUICK, BatchPartition(2, accumulation=2, stages=2, strategy="pipelined"))
    assert raised.value.state == "compile_failure" and "pipeline of 2 stages" in raised.value.message


def test_phases_come_one_after_the_other_on_one_ipu(monkeypatch):
    monkeypatch.setattr(poptorch.FLEET, "count", 1)
    session, batch = opened(ipu, QUICK, BatchPartition(1, 4, stages=2, strategy="phased"))
    assert session.facts.devices == 1
    session.train(batch)
    assert list(poptorch.FLEET.held.values()) == [1]
    session.close()


def test_ipus_that_others_hold_are_named(monkeypatch):
    """They count as available, and are not to be had."""
    monkeypatch.setattr(poptorch.FLEET, "busy", 16)
    session, batch = opened(ipu, QUICK, BatchPartition(BATCH))
    with pytest.raises(RunError, match="Failed to acquire 1 IPU") as raised:
        session.train(batch)
    assert raised.value.state == "no_device"
    session.close()


def test_hardware_that_fails_is_no_failure_to_compile(monkeypatch):
    session, batch = opened(ipu, QUICK, BatchPartition(BATCH))
    session.train(batch)

    def broken(_):
        raise poptorch.UnrecoverableError("link error")

    monkeypatch.setattr(session.training, "_train", broken)
    with pytest.raises(poptorch.UnrecoverableError):
        session.train(batch)
    session.close()


def test_processes_of_mpirun_each_have_a_run(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    session, batch = opened(ipu, QUICK, BatchPartition(BATCH))
    assert session.train(batch).updates == 1
    session.close()


def test_chance_is_the_run_s():
    session, batch = opened(ipu, QUICK, BatchPartition(BATCH))
    session.train(batch)
    assert session.training._options.value("randomSeed", None) == 1
    session.close()


def test_what_changes_how_poptorch_compiles_is_told(monkeypatch):
    monkeypatch.setenv("POPTORCH_CACHE_DIR", "/cache")
    session, _ = opened(ipu, QUICK, BatchPartition(BATCH))
    assert session.facts.execution.endswith(", POPTORCH_CACHE_DIR is set, no executables in it")
    session.close()


def test_executables_of_an_earlier_run_are_told(monkeypatch, tmp_path):
    """Then nothing is compiled, so that compile times are not alike."""
    (tmp_path / "model.popef").write_bytes(b"")
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path))
    session, _ = opened(ipu, QUICK, BatchPartition(BATCH))
    assert session.facts.execution.endswith(", some executables in it")
    session.close()


def test_more_stages_than_the_model_has_parts():
    with pytest.raises(RunError, match="can be cut into") as raised:
        opened(ipu, "lstm", BatchPartition(1, 4, stages=4, strategy="sharded"))
    assert raised.value.state == "unsupported"


def test_inference_and_training_take_turns_with_the_ipus(monkeypatch):
    """There is one IPU. What training learns is what inference then applies, and training goes on where it was."""
    monkeypatch.setattr(poptorch.FLEET, "count", 1)
    session, batch = opened(ipu, QUICK, BatchPartition(2, accumulation=2))
    reference, _ = opened(cpu, QUICK, BatchPartition(2, accumulation=2))
    for candidate in (session, reference):
        candidate.losses = [
            candidate.evaluate(batch).loss,
            candidate.train(batch).loss(),
            candidate.evaluate(batch).loss,
            candidate.train(batch).loss(),
        ]
    assert session.losses == pytest.approx(reference.losses, rel=1e-3)
    weights, expected = session.weights(), reference.weights()
    # Of the mean: where a gradient is next to nothing, Adam's step is as long, and rounding says which way it goes.
    apart = {name: abs(weights[name] - expected[name]).mean() for name in expected}
    assert max(apart.values()) < 2e-5, "a hundredth of what two steps change"
    assert all(abs(weights[name] - expected[name]).max() < 4e-3 for name in expected), "two steps, each the other way"
    session.close()
    assert poptorch.FLEET.held == {}


def test_a_last_batch_that_is_smaller_is_judged_by_its_own_samples():
    session, batch = opened(ipu, QUICK, BatchPartition(2, device_iterations=2))
    whole = session.evaluate(batch)
    few = batch._replace(inputs=batch.inputs[:1], targets=batch.targets[:1])
    judged = session.evaluate(few)
    reference, _ = opened(cpu, QUICK, None)
    assert (whole.samples, judged.samples) == (BATCH, 1)
    assert judged.loss == pytest.approx(reference.evaluate(few).loss, rel=1e-4)


def test_to_load_training_again_is_no_part_of_its_next_step():
    session, batch = opened(ipu, QUICK, BatchPartition(2, accumulation=2))
    session.train(batch)
    session.evaluate(batch)
    assert not session.training.isAttachedToDevice()
    session.mark()
    assert session.training.isAttachedToDevice()
    session.close()


def test_a_first_batch_without_what_does_not_read_is_followed_by_a_whole_one():
    session, batch = opened(ipu, QUICK, BatchPartition(1, accumulation=4))
    few = batch._replace(inputs=batch.inputs[:1], targets=batch.targets[:1])
    assert [session.evaluate(part).samples for part in (few, batch)] == [1, BATCH]
    session.close()


@pytest.mark.parametrize("count", [1, 3])
def test_a_first_batch_that_is_smaller_than_what_is_asked_for(count):
    """Of fewer samples than one call has, and of no multiple of what the replicas take together."""
    session, batch = opened(ipu, QUICK, BatchPartition(1, accumulation=2, replicas=2))
    few = batch._replace(inputs=batch.inputs[:count], targets=batch.targets[:count])
    reference, _ = opened(cpu, QUICK, None)
    judged = session.evaluate(few)
    assert judged.samples == count
    assert judged.loss == pytest.approx(reference.evaluate(few).loss, rel=1e-4)
    session.close()


def test_a_request_has_the_executor_s_times():
    session, batch = opened(ipu, QUICK, BatchPartition(BATCH))
    answer = session.infer_request(batch)
    assert (answer.transfer, answer.compute, answer.retrieval) == (0.001, 0.01, 0.002)
    assert answer.output.shape == (BATCH, 1, 28, 28)


def test_half_precision_is_asked_for_in_all_its_parts():
    session, batch = opened(ipu, "lstm", BatchPartition(1, accumulation=4), "fp16")
    loss = session.train(batch).loss()
    expected, _ = opened(cpu, "lstm", BatchPartition(1, accumulation=4))
    assert loss == pytest.approx(expected.train(batch).loss(), rel=5e-3)
    precision = session.training._options.Precision
    assert precision.value("setPartialsType", None) is torch.float16
    assert precision.value("enableStochasticRounding", None) is True
    assert all(weight.dtype == torch.float16 for weight in session.model.parameters())
    assert session.weights()["output.weight"].dtype == "float32"


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_precision_that_an_ipu_has_not(precision):
    with pytest.raises(RunError, match="it can do fp32, fp16") as raised:
        ipu.prepare(precision, 1)
    assert raised.value.state == "unsupported"


@pytest.mark.parametrize("workload", ["mcmc", "bert_large_pretraining_128"])
def test_what_poptorch_cannot_do_is_refused_by_name(workload):
    card = CARDS[workload]
    with pytest.raises(RunError) as raised:
        session = ipu.open_session(torch.nn.Identity(), rule_of(card.problem, 4), "fp32")
        optimizer(torch.nn.Linear(1, 1), session.rule, False)
    assert raised.value.state == "unsupported"


def test_no_ipu_is_told(monkeypatch):
    monkeypatch.setattr(poptorch.FLEET, "count", 0)
    with pytest.raises(RunError) as raised:
        ipu.prepare("fp32", 1)
    assert raised.value.state == "no_device"


def test_too_few_ipus_are_told(monkeypatch):
    monkeypatch.setattr(poptorch.FLEET, "count", 2)
    with pytest.raises(RunError, match="4 IPUs are wanted") as raised:
        opened(ipu, QUICK, BatchPartition(1, 1, replicas=2, stages=2, strategy="sharded"))
    assert raised.value.state == "no_device"


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """An image of recipe ipu, as far as the program can tell."""
    tree = tmp_path_factory.mktemp("image") / "sifmark"
    return lay(tree, **{**IMAGE, "recipe": "ipu", "framework": "pytorch", "device": "ipu"})


@pytest.mark.parametrize("sdk", ["3.4", *(pytest.param(sdk, marks=pytest.mark.full) for sdk in ("3.1", "3.3"))])
def test_a_result_says_that_it_is_simulated_and_how_the_batch_was_divided(image, tmp_path, sdk):
    document = Program(image, tmp_path).result(
        *(QUICK, "--batch-size", 12, "--micro-batch-size", 2, "--replicas", 2, "--stages", 2, "--steps", 3),
        *("--warmup-steps", 1, "--skip-numerics", "--precision", "fp16", "--device-iterations", 2),
        *("--memory-proportion", "0.15,0.25", "--activation-checkpointing", "--offload"),
        PYTHONPATH=str(STAND_INS),
        POPTORCH_STAND_IN_SDK=sdk,
    )
    assert document["status"]["state"] == "completed", document["status"]
    assert document["provenance"]["simulated"] is True
    configuration = document["configuration"]
    assert (configuration["micro_batch_size"], configuration["gradient_accumulation"], configuration["replicas"]) == (
        2,
        3,
        2,
    )
    assert (configuration["stages"], configuration["strategy"], configuration["device_iterations"]) == (
        2,
        "pipelined",
        2,
    )
    assert (configuration["precision_kind"], configuration["memory_proportion"]) == ("pure", [0.15, 0.25])
    assert (document["accelerator"]["count"], document["accelerator"]["replicas"]) == (4, 2)
    assert document["accelerator"]["execution"].startswith(f"compiled by PopTorch {sdk}")
    assert document["steps"]["updates"] == 6 and document["steps"]["units"] == 72


LIMIT = 1700  # MiB; the old PyTorch may die of a signal where an allocation fails, so little is tried near it


def due(card, task):
    """How a smoke run has to end: PopTorch's LAMB clips nothing, and no text grows on an IPU. A model may be too large
    for the limit; one that needs a quarter of it at the least is not."""
    if (task == "training" and card.problem["optimizer"]["name"] == "lamb") or generates(card.problem, task):
        return ("unsupported", "out_of_memory")
    words = [card.name, "--smoke", "--task", task, "--precision", "fp32"]
    small = memory_estimate.estimate(card, resolve(arguments.parse(words), card, None)).total < LIMIT / 4
    return ("completed",) if small else ("completed", "out_of_memory")


@pytest.mark.full
@pytest.mark.skipif(torch.__version__ >= "2.1", reason="PopTorch 3.4, the last, has torch 2.0; one PyTorch will do")
def test_every_workload_that_makes_sense_answers(image, tmp_path):
    """With the stand-in, all that PopTorch can do."""
    for task in ("training", "inference"):
        _, output, errors = Program(image, tmp_path).run(
            *("--all", "--smoke", "--task", task, "--precision", "fp32", "--memory-limit", LIMIT),
            PYTHONPATH=str(STAND_INS),
        )
        states = {result["workload"]["name"]: result["status"] for result in map(json.loads, output.splitlines())}
        odd = {name: status for name, status in states.items() if status["state"] not in due(CARDS[name], task)}
        assert not odd, (odd, errors[-3000:])
        assert {"resnet50", "lstm", "bert_base"} <= set(states)


OVER_THE_STAND_IN = """
import json, sys
import torch, poptorch
for line in json.load(sys.stdin):
    try:
        exec(line)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print()
"""
LINES = [
    ("poptorch.Options().deviceIterations(4).replicationFactor(2)", "", "3.3"),
    ("poptorch.Options().deviceIterations(iterations=4)", "TypeError: missing a required argument", "3.3"),
    ("poptorch.Options().deviceIterations('4')", "TypeError: poptorch.Options.deviceIterations", "3.3"),
    ("poptorch.Options().enableTurbo()", "AttributeError: PopTorch 3.3 has no", "3.3"),
    ("poptorch.Options().updatableNamedBuffers([])", "", "3.3"),
    ("poptorch.Options().updatableNamedBuffers([])", "AttributeError: PopTorch 3.1 has no", "3.1"),
    ("poptorch.Options().Precision.autocastEnabled(True)", "AttributeError: PopTorch 3.4 has no", "3.4"),
    (
        "o = poptorch.Options(); poptorch.DataLoader(o, [1]); o.deviceIterations(2)",
        "AttributeError: poptorch.Options.deviceIterations: the options are frozen",
        "3.3",
    ),
    (
        "poptorch.optim.SGD(torch.nn.Linear(1, 1).parameters(), 0.1)",
        "TypeError: poptorch.optim.SGD: positions",
        "3.3",
    ),
    (
        "poptorch.optim.AdamW(torch.nn.Linear(1, 1).parameters(), lr=0.1, gradient_norm=1)",
        "TypeError: got an unexpected keyword argument",
        "3.3",
    ),
    ("poptorch.turbo()", "AttributeError: PopTorch 3.3 has no poptorch.turbo", "3.3"),
    ("poptorch.inferenceModel(torch.nn.Identity().eval(), optimizer=None)", "TypeError: got an unexpected", "3.3"),
]


@pytest.mark.parametrize("sdk", ["3.1", "3.3", "3.4"])
def test_the_stand_in_refuses_what_a_version_lacks(sdk):
    lines, expected = zip(*((line, said) for line, said, version in LINES if version == sdk))
    environment = {**os.environ, "PYTHONPATH": str(STAND_INS), "POPTORCH_STAND_IN_SDK": sdk}
    argv, text = [sys.executable, "-c", OVER_THE_STAND_IN], json.dumps(lines)
    done = subprocess.run(argv, env=environment, input=text, stdout=subprocess.PIPE, text=True, check=True)
    for line, answer, said in zip(lines, done.stdout.splitlines(), expected, strict=True):
        assert answer.startswith(said) and bool(answer) == bool(said), line


def test_a_poptorch_for_another_pytorch_is_named_with_both_versions(tmp_path):
    """Its import asserts the version that it was built for, as the fact file has it."""
    info = tmp_path / "poptorch-3.3.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: poptorch\nVersion: 3.3.0\n")
    (tmp_path / "poptorch.py").write_text("assert False, 'Using torch 2.0 with poptorch for 1.13'\n")
    message = """
from entrypoints.contract.statuses import RunError
try:
    import entrypoints.devices.pytorch.ipu
except RunError as error:
    print(error.state, error.message)
"""
    paths = os.pathsep.join(map(str, (tmp_path, ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", message], env=environment, stdout=subprocess.PIPE, check=True)
    said = done.stdout.decode()
    assert said.startswith("unsupported PopTorch 3.3.0 is built for another PyTorch than ")
    assert torch.__version__.split("+")[0] in said and "for 1.13" in said
