"""Tolerances of a new device, from the deviations that a proof has measured on it."""

import sys
from typing import Any

import pytest

from sifmark.core.paths import CHECKOUT

sys.path.append(str(CHECKOUT / "benchmarks"))
import numerics

DOCUMENT: dict[str, Any] = {
    "workload": "lstm",
    "tolerances": {"fp32": {"output": 1e-5, "first_update.loss": 1e-3}},
    "devices": {"cuda": {"measured_on": "NVIDIA H200, PyTorch 2.11", "tolerances": {}, "not_provable": {}}},
}


def proof(kind, **deviations):
    software = {"framework": "pytorch", "framework_version": "2.12"}
    return {"device": {"kind": kind, "name": "Some GPU"}, "software": software, "deviations": {"lstm": deviations}}


def test_a_proof_widens_tolerances_and_never_narrows_them():
    merged = numerics._merged(DOCUMENT, proof("cuda", fp32={"output": 1e-4, "first_update.loss": 1e-6, "none": None}))
    assert merged["cuda"]["tolerances"] == {"fp32": {"output": 4e-4}}
    assert merged["cuda"]["measured_on"] == "NVIDIA H200, PyTorch 2.11; Some GPU, pytorch 2.12"
    assert merged["cuda"]["not_provable"] == {}
    again = numerics._merged({**DOCUMENT, "devices": merged}, proof("cuda", fp32={"output": 1e-5}))
    assert again["cuda"]["tolerances"] == {"fp32": {"output": 4e-4}}


def test_a_precision_without_tolerances_proves_nothing_yet():
    merged = numerics._merged(DOCUMENT, proof("xpu", fp16={"output": 1e-3}))
    assert merged["xpu"]["tolerances"] == {"fp16": {"output": 4e-3}}
    assert "mistakes were not measured" in merged["xpu"]["not_provable"]["fp16"]
    assert set(merged) == {"cuda", "xpu"}


def test_a_cpu_has_tolerances_of_its_own():
    with pytest.raises(SystemExit, match="a proof of a CPU"):
        numerics._merged(DOCUMENT, proof("cpu"))
