"""What `sifmark doctor` makes of a launch: variables of launchers, shared memory and network interfaces."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sifmark.core import paths
from sifmark.core.checks import Check, Status
from sifmark.doctor import launch

SLURM = {
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "3",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
}
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "x",
    "MASTER_PORT": "29500",
}


# Launchers


def test_a_task_of_slurm_is_named_by_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    (check,) = launch.check_launcher(os.environ)
    assert check.status is Status.PASSED and check.detail.startswith("Slurm: task 1 of 2, 0 on its node (")
    for variable in ("SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0", "SLURM_JOB_ID=12"):
        assert variable in check.detail


def test_a_task_of_torchrun_has_the_number_of_those_of_its_node() -> None:
    (check,) = launch.check_launcher(TORCHRUN)
    assert check.detail.startswith("torchrun: task 3 of 4, 1 on its node") and "LOCAL_WORLD_SIZE=2" in check.detail


def test_a_variable_that_is_no_number_is_bad() -> None:
    (check,) = launch.check_launcher({**SLURM, "SLURM_PROCID": "one"})
    assert (check.status, check.detail) == (Status.FAILED, "SLURM_PROCID='one' is no number")
    assert "SLURM_STEP_NUM_TASKS=2" in check.remedy


def test_a_job_outside_of_its_steps_has_no_tasks() -> None:
    (check,) = launch.check_launcher({"SLURM_JOB_ID": "12"})
    assert check.status is Status.WARNING and "srun" in check.remedy
    (alone,) = launch.check_launcher({})
    assert alone == Check("launcher", Status.PASSED, "none: this process was started alone")


def test_a_variable_that_cleans_the_environment_hides_the_launch() -> None:
    (check,) = launch.check_clean_environment({**SLURM, "APPTAINER_CLEANENV": "1"})
    assert check.status is Status.WARNING and "SLURM_PROCID" in check.detail
    assert check.remedy.endswith("unset APPTAINER_CLEANENV")
    assert not list(launch.check_clean_environment({**SLURM, "APPTAINER_CLEANENV": "0"}))


def test_a_job_is_noticed_by_its_control_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_1\n")
    monkeypatch.setattr(launch, "PROC", tmp_path)
    (check,) = launch.check_clean_environment({})
    assert check.status is Status.WARNING and "in job 77 of Slurm" in check.detail and "--cleanenv" in check.remedy
    assert not list(launch.check_clean_environment(SLURM)), "nothing is hidden"


def test_a_job_is_noticed_by_the_environment_of_what_started_this() -> None:
    program = (
        "import os; from sifmark.doctor import launch; print(*(c.detail for c in launch.check_clean_environment({})))"
    )
    command = f"env -i PYTHONPATH={paths.CHECKOUT} {sys.executable} -c '{program}'; true"
    done = subprocess.run(
        ["sh", "-c", command], env={**os.environ, "SLURM_JOB_ID": "78"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("in job 78 of Slurm, but without its variables")


# Memory and network


@pytest.mark.parametrize(("blocks", "status"), [(1 << 14, Status.WARNING), (1 << 24, Status.PASSED)])
def test_little_shared_memory_is_a_warning(monkeypatch: pytest.MonkeyPatch, blocks: int, status: Status) -> None:
    figures = os.statvfs_result((4096, 4096, blocks, blocks, blocks, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: figures)
    (check,) = launch.check_shared_memory()
    assert check.status is status and ("--shm-size" in check.remedy) == (status is Status.WARNING)


def test_no_shared_memory_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launch, "SHARED_MEMORY", tmp_path / "shm")
    (check,) = launch.check_shared_memory()
    assert check.status is Status.WARNING and check.detail == "No such file or directory"


def test_the_interfaces_of_this_host() -> None:
    assert "127.0.0.1" in launch.interfaces()["lo"]


def checks_of(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str], environment: dict[str, str] | None = None
) -> dict[str, Check]:
    existing = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.7", "fe80::1"], "ib0": ["10.1.0.7"]}
    monkeypatch.setattr(launch, "interfaces", lambda: existing)
    monkeypatch.setattr(launch, "own_addresses", lambda: addresses)
    return {check.name: check for check in launch.check_network(environment or {})}


def test_the_name_of_a_host_is_where_gloo_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    check = checks_of(monkeypatch, ["10.1.0.7"])["host name"]
    assert check.status is Status.PASSED and "10.1.0.7 of ib0, where gloo listens" in check.detail
    listed = checks_of(monkeypatch, [])["network interfaces"].detail
    assert listed == "lo 127.0.0.1 ::1; eth0 10.0.0.7 fe80::1; ib0 10.1.0.7"


@pytest.mark.parametrize(
    ("addresses", "detail"),
    [
        ([], "does not resolve"),
        (["127.0.1.1"], "is 127.0.1.1: gloo listens at the loopback"),
        (["10.9.9.9"], "is 10.9.9.9, which no network interface of this host has"),
        (["10.0.0.7", "10.9.9.9"], "is 10.9.9.9, which no network interface of this host has"),
    ],
)
def test_a_name_that_no_other_node_reaches(monkeypatch: pytest.MonkeyPatch, addresses: list[str], detail: str) -> None:
    check = checks_of(monkeypatch, addresses)["host name"]
    assert check.status is Status.WARNING and detail in check.detail
    assert check.remedy.endswith("export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0")


@pytest.mark.parametrize(
    ("variable", "chosen", "interfaces"),
    [
        ("GLOO_SOCKET_IFNAME", "ib0", "ib0"),
        ("GLOO_SOCKET_IFNAME", "ib", None),
        ("NCCL_SOCKET_IFNAME", "ib", "ib0"),
        ("NCCL_SOCKET_IFNAME", "=ib", None),
        ("NCCL_SOCKET_IFNAME", "=eth0,ib0", "eth0, ib0"),
        ("NCCL_SOCKET_IFNAME", "^lo,eth", "ib0"),
        ("NCCL_SOCKET_IFNAME", "hsn", None),
    ],
)
def test_a_variable_names_interfaces_as_its_library_reads_it(
    monkeypatch: pytest.MonkeyPatch, variable: str, chosen: str, interfaces: str | None
) -> None:
    check = checks_of(monkeypatch, [], {variable: chosen})[variable]
    if interfaces:
        assert (check.status, check.detail) == (Status.PASSED, f"{chosen}: {interfaces}")
    else:
        assert check.status is Status.FAILED and "eth0" in check.remedy


def test_a_named_interface_makes_the_host_s_name_irrelevant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "host name" not in checks_of(monkeypatch, [], {"GLOO_SOCKET_IFNAME": "ib0"})
