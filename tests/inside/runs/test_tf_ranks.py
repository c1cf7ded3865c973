"""Several ranks of TensorFlow on one node: real processes that compute together on shares of the CPU."""

from __future__ import annotations

import os

import pytest
from killing import check_killed
from program import Program, checked, lay

pytest.importorskip("tensorflow")

WINDOW = ("--batch-size", 4, "--warmup-steps", 1, "--threads", 1, "--meter", "none", "--skip-numerics")
SHORT, TWO = (*WINDOW, "--steps", 4), ("--replicas", 2)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return lay(tmp_path_factory.mktemp("image") / "sifmark", recipe="cpu_tf", framework="tensorflow", device="cpu")


@pytest.fixture()
def program(tree, tmp_path):
    return Program(tree, tmp_path)


def completed(program, workload, *words):
    document = program.result(workload, *words)
    assert document["status"]["state"] == "completed", document["status"]
    return document


def test_two_ranks_train_as_one_with_the_same_batch(program):
    alone, together = (completed(program, "lstm", *SHORT, *words) for words in ((), TWO))
    assert together["steps"]["losses"] == pytest.approx(alone["steps"]["losses"], rel=1e-5)
    device, ranks, transport = together["accelerator"], together["ranks"], together["transport"]
    assert (device["count"], device["ranks"], together["configuration"]["strategy"]) == (2, 2, "ddp")
    assert device["execution"].endswith("; ddp by MultiWorkerMirroredStrategy")
    assert (transport["backend"], transport["network"]) == ("ring", "sockets") and transport["all_reduce"][
        "seconds"
    ] > 0
    assert [(rank["rank"], rank["steps"]) for rank in ranks] == [(0, 3), (1, 3)]
    if len(os.sched_getaffinity(0)) > 1:
        assert len({rank["processors"] for rank in ranks}) == 2, "each has its share"


@pytest.mark.full
def test_ranks_of_two_tasks_of_a_launcher_train_together(program):
    """Each hears from its own parent where all others are."""
    step = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": f"of {os.getpid()}", "MASTER_PORT": "1"}
    first, other = (
        program.start("lstm", *SHORT, *TWO, **step, RANK=str(number), LOCAL_RANK=str(number)) for number in (0, 1)
    )
    (output, errors), (nothing, _) = first.communicate(), other.communicate()
    document = checked(output)
    assert (document["status"]["state"], first.returncode, other.returncode, nothing) == ("completed", 0, 0, ""), errors
    assert document["steps"]["losses"] == pytest.approx(completed(program, "lstm", *SHORT)["steps"]["losses"], rel=1e-5)


@pytest.mark.full
def test_a_compiled_model_is_trained_by_ranks(program):
    alone, together = (completed(program, "lstm", *SHORT, "--compile", *words) for words in ((), TWO))
    assert together["steps"]["losses"] == pytest.approx(alone["steps"]["losses"], rel=1e-4)
    assert "compiled by XLA" in together["accelerator"]["execution"]


@pytest.mark.full
def test_copies_answer_on_their_own(program):
    document = completed(program, "lstm", "--task", "inference", *SHORT, *TWO)
    assert (document["steps"]["units"], document["configuration"]["strategy"]) == (16, None)
    assert "ddp" not in document["accelerator"]["execution"]


@pytest.mark.full
def test_the_correctness_check_is_made_by_the_ranks_together(program):
    document = completed(program, "image_compression", *WINDOW[:-1], "--steps", 5, *TWO)
    assert document["numerics"]["state"] == "passed"


@pytest.mark.full
def test_ranks_agree_when_the_window_is_long_enough_and_the_target_reached(program):
    timed = completed(program, "lstm", *WINDOW, "--duration", 1.5, *TWO)
    assert sum(timed["steps"]["seconds"][1:]) >= 1.5 and len({rank["steps"] for rank in timed["ranks"]}) == 1
    aims = ("--steps", 40, "--target-loss", 0.25, "--evaluation-steps", 4)
    aimed = completed(program, "lstm", *WINDOW, *aims, *TWO)
    assert aimed["target"]["reached"] and aimed["target"]["evaluations"][-1]["samples"] == 4
    assert aimed["steps"]["count"] < 40


@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_is_the_first_cause(program, rank):
    check_killed(program.start("lstm", *WINDOW, "--steps", 100000, *TWO), rank)


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["fsdp", "zero1"])
def test_a_strategy_that_tensorflow_lacks_is_unsupported(program, strategy):
    document = program.result("lstm", *SHORT, *TWO, "--strategy", strategy)
    assert document["status"]["state"] == "unsupported"
    assert "MultiWorkerMirroredStrategy keeps a whole model on each device" in document["status"]["message"]
