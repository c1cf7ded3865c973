from __future__ import annotations

import pytest

from entrypoints.cli.naming import choose, workload_of_image
from entrypoints.contract.statuses import UsageError

KNOWN = ("bert_large", "resnet50")


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("resnet50-cpu.sif", "resnet50"),
        ("resnet50-cpu_1.2.sif", "resnet50"),
        ("resnet50-foo", "resnet50"),
        ("bert_large-cuda_tf.sif", "bert_large"),
        ("resnet50-cpu-copy.sif", "resnet50"),
        ("cpu.sif", None),
        ("resnet50.sif", None),
        ("-cpu.sif", None),
        ("", None),
    ],
)
def test_what_stands_before_the_first_dash(name, workload):
    assert workload_of_image(name) == workload


@pytest.mark.parametrize(
    ("explicit", "environ", "chosen"),
    [
        ("bert_large", {"APPTAINER_APPNAME": "resnet50", "APPTAINER_NAME": "resnet50-cpu.sif"}, "bert_large"),
        (None, {"APPTAINER_APPNAME": "bert_large", "APPTAINER_NAME": "resnet50-cpu.sif"}, "bert_large"),
        (None, {"SINGULARITY_APPNAME": "bert_large"}, "bert_large"),
        (None, {"SCIF_APPNAME": "bert_large"}, "bert_large"),
        (None, {"APPTAINER_NAME": "resnet50-cpu.sif"}, "resnet50"),
        (None, {"SINGULARITY_NAME": "bert_large-ipu_2.sif"}, "bert_large"),
        (None, {"APPTAINER_APPNAME": "", "APPTAINER_NAME": "resnet50-cpu.sif"}, "resnet50"),
    ],
)
def test_argument_then_app_then_image_name(explicit, environ, chosen):
    assert choose(explicit, environ, KNOWN) == chosen


@pytest.mark.parametrize("environ", [{}, {"APPTAINER_NAME": "cpu.sif"}, {"APPTAINER_NAME": "sha256-0a1b"}])
def test_without_a_name_the_workloads_are_listed(environ):
    with pytest.raises(UsageError, match="bert_large, resnet50"):
        choose(None, environ, KNOWN)


def test_an_unknown_name_brings_the_nearest():
    with pytest.raises(UsageError, match="Did you mean resnet50"):
        choose("resnet5O", {}, KNOWN)
    with pytest.raises(UsageError, match="Known: bert_large, resnet50"):
        choose("x" * 100000, {}, KNOWN)
