"""Checks of the run itself: each finds what it is about, and nothing else."""

from __future__ import annotations

import pytest

SHORT = ("--steps", "6", "--warmup-steps", "2", "--batch-size", "3")
TRAINING = ["gradients", "samples", "dropout"]


@pytest.mark.parametrize(
    ("workload", "task", "checks", "fault", "said"),
    [
        (
            *("bert_base", "training", TRAINING, "gradients"),
            "the first step had a gradient for only 34 % of the units of last.weight",
        ),
        (
            "bert_base",
            "training",
            TRAINING,
            "samples",
            "2 of the 3 samples of the first step passed through the network",
        ),
        ("bert_base", "training", TRAINING, "dropout", "first.dropout drops 0.0 %, where the card says 10 %"),
        ("bert_base", "inference", ["answers"], "answers", "the output differs from that of a request by 8"),
        ("gpt2", "inference", ["generation"], "generation", "64 of 64 new tokens are not the likeliest ones"),
        (
            *("mcmc", "sampling", ["trajectory"], "trajectory"),
            "6 transitions evaluated the gradient 5995 times, and not 6001 times",
        ),
    ],
)
def test_a_run_that_fails_its_own_check_did_not_compute_the_workload(few, workload, task, checks, fault, said):
    words = (workload, "--task", task, *SHORT)
    document = few.result(*words)
    passed = [{"check": check, "state": "passed", "faults": []} for check in checks]
    assert document["numerics"]["run_checks"] == passed
    assert document["status"]["state"] == "completed"
    document = few.result(*words, fault=fault)
    assert (document["status"]["state"], document["status"]["exit_code"]) == ("numerics_mismatch", 5)
    assert document["status"]["message"] == said and document["numerics"]["state"] == "failed"
    failed = {"check": fault, "state": "failed", "faults": [said]}
    assert document["numerics"]["run_checks"] == [failed if each["check"] == fault else each for each in passed]
    assert document["metrics"]["throughput"]["value"] > 0, "what was measured is kept"


def test_requests_are_not_checked(few):
    assert (
        few.result("resnet50", "--task", "inference", "--concurrency", "2", *SHORT[:4])["numerics"]["run_checks"] == []
    )
