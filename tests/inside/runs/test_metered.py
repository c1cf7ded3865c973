"""Ranks of one step on a node: each device's energy is counted once, however many of them there are."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys

import pytest
from program import ROOT, checked

from entrypoints.runs import metered
from entrypoints.runs.launch import LAUNCHERS

OWN = str(os.getpid())  # these tests may run twice at once on a machine, and claims are the machine's
SLURM = {"SLURM_JOB_ID": OWN, "SLURM_STEP_ID": "0"}
TRAITS = {
    "SLURM_LOCALID": SLURM,
    "OMPI_COMM_WORLD_LOCAL_RANK": {"PMIX_NAMESPACE": "prterun-1"},
    "PALS_LOCAL_RANKID": {"PALS_APID": "7d1c"},
    "FLUX_TASK_LOCAL_ID": {"FLUX_JOB_ID": "f23"},
    "MPI_LOCALRANKID": {},
    "LOCAL_RANK": {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"},
}
COUNTER = """
import sys
from entrypoints.runs.metered import counted_elsewhere
print(counted_elsewhere(*sys.argv[1:2], sys.argv[2:]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    """Whoever runs the tests may be a rank."""
    for launcher in LAUNCHERS:
        for name in (launcher.local_task, *launcher.step):
            monkeypatch.delenv(name, raising=False)


class Rank:
    """A process that wants to count devices, and lives until it is told to end."""

    def __init__(self, source, *devices, **environment):
        self.process = subprocess.Popen(
            [sys.executable, "-c", COUNTER, f"{source} of {OWN}", *devices],
            cwd=str(ROOT),
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        assert self.process.stdout
        self.said = self.process.stdout.readline().strip()

    def __enter__(self):
        return self.said

    def __exit__(self, *_):
        self.process.communicate()


@pytest.mark.parametrize("launcher", sorted(TRAITS))
def test_one_rank_of_a_step_counts_a_device_until_it_ends(launcher):
    def rank(number):
        return Rank("rapl", "package-0", "package-1", **{launcher: number}, **TRAITS[launcher])

    reason = "another rank of this node counts what package-0, package-1 used; this one is {}={}"
    with rank("0") as first:
        assert first == "None"
        for number in ("1", "2"):
            with rank(number) as other:
                assert other == reason.format(launcher, number)
    with rank("1") as later:
        assert later == "None"


@pytest.mark.parametrize(
    "other",
    [
        ("nvml", "GPU-b", {"SLURM_LOCALID": "1", **SLURM}),
        ("dcgm", "GPU-a", {"SLURM_LOCALID": "1", **SLURM}),
        ("nvml", "GPU-a", {"SLURM_LOCALID": "1", **SLURM, "SLURM_STEP_ID": "1"}),
        ("nvml", "GPU-a", {"SLURM_LOCALID": "1", **SLURM, "SLURM_JOB_ID": f"{OWN}8"}),
        ("nvml", "GPU-a", {"SLURM_LOCALID": "0", "SLURM_JOB_ID": OWN}),  # in a batch script, not in a step of srun
        ("nvml", "GPU-a", {}),
    ],
)
def test_other_devices_and_other_steps_are_no_rank_s_business(other):
    source, device, environment = other
    with Rank("nvml", "GPU-a", SLURM_LOCALID="0", **SLURM) as first, Rank(source, device, **environment) as second:
        assert (first, second) == ("None", "None")


def test_a_rank_that_counts_goes_on_doing_so_in_its_next_run(monkeypatch):
    for name, value in {"SLURM_LOCALID": "0", **SLURM, "SLURM_JOB_ID": f"{OWN}9"}.items():
        monkeypatch.setenv(name, value)
    assert [metered.counted_elsewhere("rapl", ["package-0"]) for _ in range(3)] == [None] * 3


def test_where_nobody_can_tell_nothing_is_counted_twice(monkeypatch):
    class Refused(socket.socket):
        def bind(self, address):
            raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", Refused)
    monkeypatch.setenv("MPI_LOCALRANKID", "0")
    assert str(metered.counted_elsewhere("rapl", ["a"])).startswith("Operation not permitted: who counts what a used; ")


def trace(folder, *devices):
    """A file of a constant 50 W by device."""
    samples = [{"at": at / 10, "watts": [50.0] * len(devices)} for at in range(1200)]
    path = folder / f"{'-'.join(devices)}.json"
    path.write_text(
        json.dumps({"scope": "package", "devices": devices, "update_period": 0.1, "samples": samples}), "utf-8"
    )
    return path


@pytest.mark.parametrize(("devices", "counting"), [((("a", "b"), ("a", "b")), 1), ((("a",), ("b",)), 2)])
def test_two_ranks_of_a_node_count_each_device_once(double, tmp_path, devices, counting):
    """Two at once: they share both packages, or each has one of its own."""
    options = ("--duration", "2.5", "--warmup-steps", "2", "--idle-seconds", "1", "--meter-period", "0.1")
    started = [
        double.start(
            "resnet50", *options, "--meter", f"replay:{trace(tmp_path, *packages)}", SLURM_LOCALID=str(rank), **SLURM
        )
        for rank, packages in enumerate(devices)
    ]
    results = [checked(process.communicate()[0]) for process in started]
    counted = [result for result in results if "devices" in result["power"]]
    assert len(counted) == counting
    names = [device["name"] for result in counted for device in result["power"]["devices"]]
    assert sorted(names) == ["a", "b"]
    for result in counted:
        watts, window = 50 * len(result["power"]["devices"]), sum(result["steps"]["seconds"][2:])
        assert result["metrics"]["energy"]["value"] == pytest.approx(watts * window, rel=0.005)
    for result in results:
        if result not in counted:
            assert "another rank of this node counts what a, b used" in result["power"].pop("reason")
            assert not result["power"]
            assert result["status"]["state"] == "completed" and result["metrics"]["energy"]["value"] is None
