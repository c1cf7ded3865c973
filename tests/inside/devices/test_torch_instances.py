"""Replicas over instances, through the stand-ins of PopTorch, popdist and poprun: no IPU is here."""

from __future__ import annotations

import contextlib
import os

import pytest
from program import IMAGE, ROOT, Program, checked, lay

pytest.importorskip("torch")

STAND_INS = ROOT / "tests" / "inside" / "support" / "stand_ins"
RUN = ("image_compression", "--batch-size", 8, "--micro-batch-size", 1, "--steps", 4, "--warmup-steps", 1)
FOUR = ("--replicas", 4, "--precision", "fp32", "--threads", 1, "--meter", "none")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    tree = tmp_path_factory.mktemp("image") / "sifmark"
    return lay(tree, **{**IMAGE, "recipe": "ipu", "framework": "pytorch", "device": "ipu"})


def poprun(index, instances=2, replicas=4):
    """What poprun tells an instance, by facts/distributed.md."""
    return {
        "PYTHONPATH": str(STAND_INS),
        "OMPI_COMM_WORLD_RANK": str(index),
        "OMPI_COMM_WORLD_SIZE": str(instances),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(index),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(instances),
        "PMIX_NAMESPACE": f"prterun-{os.getpid()}",
        "POPDIST_LOCAL_INSTANCE_INDEX": str(index),
        "POPDIST_LOCAL_REPLICAS": str(replicas // instances),
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "POPDIST_REPLICA_INDEX_OFFSET": str(index * replicas // instances),
    }


def launched(image, folder, words):
    """The document of the first of two instances, and the exit codes and outputs of both."""
    with contextlib.ExitStack() as stack:
        tasks = []
        for index in (0, 1):
            (folder / str(index)).mkdir()
            program = Program(image, folder / str(index))
            tasks.append(program.start(*words, **poprun(index)))
            stack.callback(tasks[-1].kill)
        outputs = [task.communicate(timeout=240) for task in tasks]
    return outputs[0][0], [task.returncode for task in tasks], outputs


@pytest.mark.full
@pytest.mark.parametrize("words", [("--skip-numerics",), ()])
def test_instances_train_as_one_process_with_all_replicas(image, tmp_path, words):
    alone = Program(image, tmp_path).result(*RUN, *FOUR, "--skip-numerics", PYTHONPATH=str(STAND_INS))
    text, codes, outputs = launched(image, tmp_path, (*RUN, *FOUR, *words))
    assert codes == [0, 0], outputs
    assert outputs[1][0] == "", "the first one writes the document"
    document = checked(text)
    assert document["steps"]["losses"] == pytest.approx(alone["steps"]["losses"], rel=1e-3)
    device, given = document["accelerator"], document["configuration"]
    assert (device["count"], device["ranks"], device["replicas"], given["instances"]) == (4, 2, 4, 2)
    assert ", 2 instances by popdist" in device["execution"] and document["transport"] is None
    assert (given["gradient_accumulation"], document["steps"]["units"]) == (2, 32)
    assert document["numerics"]["state"] == ("not_run" if words else "passed")


@pytest.mark.parametrize(
    ("words", "instances", "cause"),
    [
        (("--replicas", 4), 3, "--replicas 4: poprun has started 3 instances, which cannot share them equally"),
        (("--replicas", 8), 2, "--replicas 8: poprun has --num-replicas 4"),
        (
            ("--replicas", 4, "--task", "inference", "--concurrency", 2, "--batch-size", 4),
            2,
            "--concurrency with poprun",
        ),
    ],
)
def test_what_instances_cannot_do_is_wrong_usage(image, tmp_path, words, instances, cause):
    code, _, errors = Program(image, tmp_path).run("image_compression", *words, **poprun(0, instances))
    assert code == 2 and cause in errors
