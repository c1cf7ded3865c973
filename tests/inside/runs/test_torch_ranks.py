"""Several ranks on one node: real processes that compute together on shares of the CPU, by gloo."""

from __future__ import annotations

import math
import os

import pytest
from killing import check_killed

torch = pytest.importorskip("torch")

SHORT = ("--batch-size", 4, "--steps", 8, "--warmup-steps", 3, "--threads", 1, "--meter", "none", "--skip-numerics")
TWO = ("--replicas", 2)
needs_meshes = pytest.mark.skipif(torch.__version__ < "2.13", reason="this PyTorch divides no models on a CPU")


def losses(program, *words):
    document = program.result("lstm", *SHORT, *words)
    assert document["status"]["state"] == "completed", document["status"]
    return document["steps"]["losses"]


@pytest.mark.full
@pytest.mark.parametrize(
    "parts", [(), pytest.param(("--micro-batch-size", 1), marks=pytest.mark.full)], ids=["whole", "accumulated"]
)
def test_two_ranks_train_as_one_with_the_same_batch(program, parts):
    alone, together = losses(program), losses(program, *TWO, *parts)
    assert together == pytest.approx(alone, rel=1e-5)


def test_the_result_has_the_units_of_all_ranks(program):
    document = program.result("lstm", "--task", "inference", *SHORT, *TWO)
    described(document)
    device, steps, metrics = document["accelerator"], document["steps"], document["metrics"]
    assert (device["count"], device["ranks"], device["replicas"], device["granularity"]) == (2, 2, 2, "share")
    assert (steps["count"], steps["units"], document["data"]["samples"]) == (8, 32, 4)
    assert metrics["throughput_per_device"]["value"] == pytest.approx(metrics["throughput"]["value"] / 2)
    assert document["configuration"]["strategy"] is None, "they answer, each on its own"


@pytest.mark.full
def test_the_correctness_check_is_made_by_the_ranks_together(program):
    words = ("image_compression", "--batch-size", 4, "--steps", 3, "--warmup-steps", 1, "--threads", 1)
    document = program.result(*words, "--meter", "none", *TWO)
    assert (document["numerics"]["state"], document["configuration"]["strategy"]) == ("passed", "ddp")


@needs_meshes
@pytest.mark.full
@pytest.mark.parametrize(
    ("degrees", "replicas"),
    [
        ({"stages": 2}, 1),
        ({"tensor": 2}, 1),
        ({"tensor": 2}, 2),
        ({"stages": 2}, 2),
    ],
)
def test_ranks_with_parts_of_a_model_make_one_document(program, degrees, replicas):
    """Samples count once, in steps and in evaluations; the loss is there although one stage has it."""
    ((name, parts),) = degrees.items()
    batch, ranks = 2 * replicas, parts * replicas
    words = ("--batch-size", batch, "--micro-batch-size", 1, "--steps", 3, "--warmup-steps", 1, "--threads", 1)
    target = ("--target-loss", 0.01, "--evaluation-steps", 2, "--meter", "none")
    document = program.result("gpt2", *words, *target, f"--{name}", parts, "--replicas", replicas)
    device, given, steps = (document[part] for part in ("accelerator", "configuration", "steps"))
    assert (document["status"]["state"], document["numerics"]["state"]) == ("completed", "passed")
    assert len(document["numerics"]["precisions"][0]["ranks"]) == 3
    assert (device["count"], device["ranks"], device["replicas"], given[name]) == (ranks, ranks, replicas, parts)
    assert math.prod(device["mesh"].values()) == ranks
    assert device["mesh"]["pipeline" if name == "stages" else name] == parts
    assert (steps["count"], steps["units"], document["data"]["samples"]) == (3, 3 * batch, batch)
    assert None not in steps["losses"]
    assert [each["samples"] for each in document["target"]["evaluations"]] == [batch, batch]
    assert [rank["steps"] for rank in document["ranks"]] == [2] * ranks


@needs_meshes
@pytest.mark.full
@pytest.mark.parametrize(("workload", "check"), [("gpt2", "generation"), ("bert_base", "answers")])
def test_a_model_that_is_divided_by_its_heads_answers(program, workload, check):
    words = ("--batch-size", 2, "--steps", 3, "--warmup-steps", 1, "--threads", 1, "--meter", "none", "--tensor", 2)
    document = program.result(workload, "--task", "inference", *words)
    assert (document["numerics"]["state"], document["configuration"]["strategy"]) == ("passed", "tensor")
    assert (document["steps"]["units"], document["accelerator"]["replicas"]) == (6, 1)
    assert [(each["check"], each["state"]) for each in document["numerics"]["run_checks"]] == [(check, "passed")]


def described(document):
    """Look at what is said of each rank."""
    ranks, host = document["ranks"], document["host"]["hostname"]["value"]
    assert [(rank["rank"], rank["host"], rank["steps"]) for rank in ranks] == [(0, host, 5), (1, host, 5)]
    assert max(rank["window"]["value"] for rank in ranks) == pytest.approx(sum(document["steps"]["seconds"][3:]))
    processors = os.sched_getaffinity(0)
    if len(processors) > 1:
        assert len({rank["processors"] for rank in ranks}) == 2, "each has its share"


@pytest.mark.full
def test_ranks_are_left_where_they_were_started_if_the_site_binds_them(program):
    document = program.result("lstm", "--task", "inference", *SHORT, *TWO, "--cpu-bind", "none")
    usable = document["conditions"]["cpu_affinity"]["value"]
    assert [rank["processors"] for rank in document["ranks"]] == [usable, usable]


@pytest.mark.full
def test_ranks_agree_when_the_window_is_long_enough_and_the_target_reached(program):
    words = ("--batch-size", 4, "--warmup-steps", 3, "--threads", 1, "--meter", "none", "--skip-numerics", *TWO)
    timed = program.result("lstm", *words, "--duration", 1.5)
    assert sum(timed["steps"]["seconds"][3:]) >= 1.5 and len({rank["steps"] for rank in timed["ranks"]}) == 1
    aimed = program.result("lstm", *words, "--steps", 40, "--target-loss", 0.5, "--evaluation-steps", 4)
    assert aimed["target"]["reached"] and aimed["target"]["evaluations"][-1]["samples"] == 4
    assert aimed["steps"]["count"] < 40


@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_is_the_first_cause(program, rank):
    check_killed(program.start("lstm", *SHORT[:2], "--steps", 100000, *SHORT[4:], *TWO), rank)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--batch-size", 3), "--batch-size 3: it is no multiple of 1 samples at once times 2 replicas"),
        (("--find-max-batch",), "--find-max-batch with --replicas 2: it searches on one device"),
        (("--rendezvous", "127.0.0.1:7"), "--rendezvous: no launcher has started several tasks"),
        (("--strategy", "pipelined"), "--strategy pipelined: one device has all of the model"),
        (("--task", "inference", "--strategy", "ddp"), "--strategy ddp is for training on several devices"),
    ],
)
def test_what_ranks_cannot_do_is_wrong_usage(program, words, cause):
    code, _, errors = program.run("lstm", *TWO, *words)
    assert code == 2 and cause in errors
