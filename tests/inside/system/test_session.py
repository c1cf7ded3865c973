"""The session of a run: the boot of its host, and the scheduler's job."""

from __future__ import annotations

import pytest

from entrypoints.system import session

BOOT = "8f6d3c1e-0f3b-4c59-9d0e-6a1f7c2b5d84"


def test_the_boot_is_that_of_the_kernel():
    (first, second) = (session.facts({})["boot"] for _ in range(2))
    assert first == second and session.BOOT_FORM.fullmatch(first["value"])


@pytest.mark.parametrize("content", [None, "", "\n", "00000000", BOOT.upper()])
def test_a_boot_that_cannot_be_told_is_null_with_the_reason(tmp_path, monkeypatch, content):
    file = tmp_path / "boot_id"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(session, "BOOT_ID", file)
    boot = session.facts({})["boot"]
    assert boot["value"] is None and str(file) in boot["reason"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("SLURM_JOB_ID", "4711"), ("PBS_JOBID", "123[4].server"), ("LSB_JOBID", "9"), ("FLUX_JOB_ID", "ƒ2gMRbzyBQP")],
)
def test_a_job_is_that_of_its_scheduler(name, value):
    assert session.facts({name: value, "HOME": "/root"})["job"] == {"value": value}


def test_the_outer_scheduler_counts():
    assert session.facts({"FLUX_JOB_ID": "ƒ1", "SLURM_JOB_ID": "4711"})["job"] == {"value": "4711"}


@pytest.mark.parametrize("environment", [{}, {"SLURM_JOB_ID": ""}, {"PBS_JOBID": "a job"}, {"LSB_JOBID": "1" * 256}])
def test_there_is_a_reason_outside_of_a_job(environment):
    job = session.facts(environment)["job"]
    assert job["value"] is None and job["reason"]
