"""The script for minutes with a device, from end to end on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from program import ROOT

torch = pytest.importorskip("torch")
if int(torch.__version__.split(".")[0]) < 2:
    pytest.skip("benchmarks are for a current PyTorch", allow_module_level=True)

FEW = ("defaults-lstm-training", "matmul-*", "kernels-lstm-training")
OF_ALL = {"experiment", "state", "reason", "code", "device", "driver", "versions", "commit", "date", "seconds"}
OF_ALL |= {"command", "settings", "figures", "tables"}


def measured(folder, *words):
    """The results by experiment, and what was printed."""
    script = [sys.executable, "-s", str(ROOT / "benchmarks" / "device.py"), "--device", "cpu"]
    output = ["--output", str(folder), "--minutes", "1000", *words]
    done = subprocess.run([*script, *output], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    results = {path.stem: json.loads(path.read_text()) for path in folder.glob("*/*.json")}
    assert all(set(result) == OF_ALL and result["state"] == "completed" for result in results.values()), done.stdout
    return results, done.stdout


@pytest.mark.full
def test_a_cpu_is_measured_once(tmp_path):
    results, said = measured(tmp_path, "--only", *FEW)
    assert set(results) == {"defaults-lstm-training", "matmul-fp32", "kernels-lstm-training"}, said
    operands, kernels = results["matmul-fp32"]["figures"], results["kernels-lstm-training"]
    ours = results["defaults-lstm-training"]["figures"]
    for name, unit in {"throughput": "sequences/s", "plain": "sequences/s", "over_plain": "1"}.items():
        assert ours[name]["unit"] == unit
        assert 0 < ours[name]["least"] <= ours[name]["value"] <= ours[name]["most"]
    assert ours["throughput"]["least"] / ours["plain"]["most"] == pytest.approx(ours["over_plain"]["least"])
    assert set(operands) == {
        f"{part}_{size}" for part in ("whole", "normal", "normal_over_whole") for size in (256, 512)
    }
    table = kernels["tables"]["kernels"]
    assert any("rnn" in row["kernel"] or "lstm" in row["kernel"] for row in table)
    assert 0.9 < sum(row["share"] for row in table) <= 1.001
    assert kernels["figures"]["in_kernels"]["value"] <= kernels["figures"]["step"]["value"]
    assert measured(tmp_path, "--only", *FEW)[1].count("skipped, it was measured with this code") == 3


@pytest.mark.full
def test_every_experiment_of_a_cpu_has_a_result(tmp_path):
    results, said = measured(tmp_path)
    assert len(results) == 11 and "skipped" not in said
    assert results["check-fp32"]["figures"]["passed"]["value"] == 2
    assert set(results["strategies"]["figures"]) >= {f"step_{name}_over_none" for name in ("ddp", "fsdp", "zero1")}
    assert results["defaults-gpt_117m-inference"]["figures"]["plain"]["unit"] == "tokens/s"
    assert len(results["defaults-mobilenet_v3_small-inference"]["figures"]["over_plain"]) == 5
