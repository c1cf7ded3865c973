"""Checks of the run itself after its first step: a weight without a gradient, and an output that nobody computed."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("task", "check", "said"),
    [
        ("training", "gradients", "the first step had no gradient for last.bias"),
        ("inference", "answers", "the output differs from that of a request by"),
    ],
)
def test_a_run_that_fails_its_own_check_did_not_compute_the_workload(double, task, check, said):
    words = ("resnet50", "--task", task, "--steps", "6", "--warmup-steps", "2", "--batch-size", "3")
    document = double.result(*words)
    assert document["numerics"]["run_checks"] == [{"check": check, "state": "passed", "faults": []}]
    assert document["status"]["state"] == "completed"
    document = double.result(*words, fault=check)
    assert (document["status"]["state"], document["status"]["exit_code"]) == ("numerics_mismatch", 5)
    assert said in document["status"]["message"] and document["numerics"]["state"] == "failed"
    assert len(document["numerics"]["run_checks"][0]["faults"]) == 1
    assert document["metrics"]["throughput"]["value"] > 0, "what was measured is kept"
