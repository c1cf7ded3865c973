"""The image with TensorFlow, built and used as its users do."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from images.sites import Site, answer, assert_all_answered, make_site
from inside.packed import grey_png

from sifmark.images import workloads_of


@pytest.fixture(scope="module")
def tensorflow() -> Iterator[Site]:
    """A site with the images of cpu_tf."""
    folder = Path(tempfile.mkdtemp(prefix="sifmark-test-"))
    site = make_site(folder)
    site.inv("build", "cpu_tf")
    yield site
    shutil.rmtree(folder, ignore_errors=True)


def test_it_lists_what_its_framework_has(apptainer, tensorflow: Site) -> None:
    listed = apptainer("run", tensorflow.dist / "cpu_tf.sif", "--list").stdout.splitlines()[1:]
    assert [line.split()[0] for line in listed] == list(workloads_of("cpu_tf"))
    refused = apptainer("run", tensorflow.dist / "cpu_tf.sif", "mobilenet_v3_small", "--smoke", check=False)
    assert (refused.returncode, refused.stdout) == (2, "")


@pytest.mark.parametrize("task", ["training", "inference", "sampling"])
def test_every_workload_answers(apptainer, tensorflow: Site, task: str) -> None:
    words = ("--all", "--task", task, "--smoke", "--memory-limit", "4096")
    done = apptainer("run", tensorflow.dist / "cpu_tf.sif", *words, check=False)
    assert_all_answered([json.loads(line) for line in done.stdout.splitlines()], "cpu_tf", task)


def test_records_of_prepare_data_are_read(apptainer, tensorflow: Site) -> None:
    for number in range(8):
        place = tensorflow.folder / "images" / f"class{number % 2}" / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(grey_png(28, 28, 8, 30 * number))
    tensorflow.inv("prepare-data", "images", "prepared", "--format", "records", "--samples-per-file", "4")
    image, data = tensorflow.dist / "image_compression-cpu_tf.sif", tensorflow.folder / "prepared"
    result = answer(apptainer("run", "--bind", data, image, "--smoke", "--data", data))
    assert result["status"]["state"] == "completed"
    assert (result["data"]["source"], result["data"]["samples"], result["data"]["classes"]) == ("records", 8, 2)
    assert result["data"]["skipped"]["count"] == 0


def test_a_smoke_run_answers(apptainer, tensorflow: Site) -> None:
    result = answer(apptainer("run", tensorflow.dist / "image_compression-cpu_tf.sif", "--smoke"))
    assert result["workload"]["name"] == "image_compression"
    assert result["configuration"]["framework"] == "tensorflow"
    assert result["provenance"]["image"]["recipe"] == "cpu_tf"
    assert result["provenance"]["stand_in"] is True
    assert result["provenance"]["software"]["framework_version"] == "2.21.0"
