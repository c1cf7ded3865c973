"""The image with TensorFlow, built and used as its users do."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from images.sites import Command, Site, answer, assert_all_answered, make_site
from inside.support.packed import grey_png

from sifmark.recipes.names import cards, workloads_of


@pytest.fixture(scope="module")
def tensorflow() -> Iterator[Site]:
    """A site with the images of cpu_tf."""
    folder = Path(tempfile.mkdtemp(prefix="sifmark-test-"))
    site = make_site(folder)
    site.inv("build", "cpu_tf")
    yield site
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.matrix("apptainer", recipe="cpu_tf")
def test_it_lists_what_its_framework_has(apptainer: Command, tensorflow: Site) -> None:
    listed = apptainer("run", tensorflow.dist / "cpu_tf.sif", "--list").stdout.splitlines()[1:]
    assert [line.split()[0] for line in listed] == list(workloads_of("cpu_tf"))
    refused = apptainer("run", tensorflow.dist / "cpu_tf.sif", "mobilenet_v3_small", "--smoke", check=False)
    assert (refused.returncode, refused.stdout) == (2, "")


# One of each domain: the stage `tf_new` runs the others with the same TensorFlow.
TASKS = [(name, task) for name in ("resnet50", "bert_base", "lstm") for task in cards()[name]["tasks"]]


@pytest.mark.matrix("apptainer", recipe="cpu_tf")
@pytest.mark.parametrize(("workload", "task"), TASKS)
def test_a_workload_answers(apptainer: Command, tensorflow: Site, workload: str, task: str) -> None:
    words = ("--smoke", "--steps", "2", "--task", task)
    result = answer(apptainer("run", tensorflow.dist / f"{workload}-cpu_tf.sif", *words))
    assert result["status"]["state"] == "completed"
    assert (result["workload"]["name"], result["workload"]["task"]) == (workload, task)


def test_all_of_a_task_answer(apptainer: Command, tensorflow: Site) -> None:
    done = apptainer("run", tensorflow.dist / "cpu_tf.sif", "--all", "--task", "sampling", "--smoke")
    assert_all_answered([answer(done)], "cpu_tf", "sampling")


def test_records_of_prepare_data_are_read(apptainer: Command, tensorflow: Site) -> None:
    for number in range(8):
        place = tensorflow.folder / "images" / f"class{number % 2}" / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(grey_png(28, 28, 8, 30 * number))
    tensorflow.inv("data.prepare", "images", "prepared", "--format", "records", "--samples-per-file", "4")
    image, data = tensorflow.dist / "image_compression-cpu_tf.sif", tensorflow.folder / "prepared"
    result = answer(apptainer("run", "--bind", data, image, "--smoke", "--data", data))
    assert result["status"]["state"] == "completed"
    assert (result["data"]["source"], result["data"]["samples"], result["data"]["classes"]) == ("records", 8, 2)
    assert result["data"]["skipped"]["count"] == 0


def test_a_smoke_run_answers(apptainer: Command, tensorflow: Site) -> None:
    result = answer(apptainer("run", tensorflow.dist / "image_compression-cpu_tf.sif", "--smoke"))
    assert result["workload"]["name"] == "image_compression"
    assert result["configuration"]["framework"] == "tensorflow"
    assert result["provenance"]["image"]["recipe"] == "cpu_tf"
    assert result["provenance"]["stand_in"] is True
    assert result["provenance"]["software"]["framework_version"] == "2.21.0"
