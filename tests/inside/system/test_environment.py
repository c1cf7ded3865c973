"""What of an environment is part of a result: settings of libraries, and nothing that is a secret."""

from __future__ import annotations

import json

import pytest

from entrypoints.system import environment


@pytest.mark.parametrize(
    "name",
    ["OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "LD_PRELOAD", "PYTHONPATH", "CUBLASLT_NUM", "TF_XLA_FLAGS"],
)
def test_what_changes_speed_is_recorded(name):
    assert environment.described({name: "1", "HOME": "/root"})["variables"] == {name: "1"}


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA_API_KEY",
        "TF_TOKEN_app_io",
        "TF_VAR_db",
        "ROCKET_PASSWORD",
        "TORCHSERVE_TOKEN",
        "CUDA_AUTH",
        "HOME",
    ],
)
def test_no_secret_and_no_foreign_variable_is(name):
    assert environment.described({name: "hunter2"})["variables"] == {}


def test_what_is_not_utf8_is_replaced():
    described = environment.described({"OMP_\udcff": "\udcfe", "LD_PRELOAD": "a.so:\udcff.so"})
    assert described["variables"] == {"OMP_\ufffd": "\ufffd", "LD_PRELOAD": "a.so:\ufffd.so"}
    assert described["preloaded"][:2] == ["a.so", "\ufffd.so"]
    json.dumps(described, ensure_ascii=False).encode()


def test_a_long_value_is_cut():
    assert len(environment.described({"OMP_PLACES": "x" * 5000})["variables"]["OMP_PLACES"]) == environment.LONGEST
