"""Jobs of Slurm, on a cluster of two nodes that are both this machine: the script that users copy."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from images.sites import Site, call, make_site, set_up

from sifmark.core import paths

SCRIPT = paths.ROOT / "ci" / "pipelines" / "slurm.sh"
SBATCH = ("sbatch", "--wait", "--parsable")
# In place of sifmark: a run says where it is and what it is given, and checks of results pass.
STAND_IN = """#!/bin/sh
[ "$1" = run ] || exit 0
shift
echo "task $SLURM_PROCID of $SLURM_STEP_NUM_TASKS on $SLURMD_NODENAME: $*"
"""


@pytest.fixture(scope="module")
def cluster() -> dict[str, str]:
    """The variable by which Slurm's commands find the cluster."""
    return {"SLURM_CONF": set_up("slurm", "Slurm")}


@pytest.fixture
def clone(tmp_path: Path, cluster: dict[str, str]) -> Site:
    """A folder like a clone, from which jobs are submitted."""
    for name in ("tasks.py", ".venv"):
        (tmp_path / name).symlink_to(paths.CHECKOUT / name)
    return make_site(tmp_path).using(**cluster)


@pytest.fixture
def bare(tmp_path: Path, cluster: dict[str, str]) -> Site:
    """The same with a stand-in of sifmark, which says what it is given."""
    program = tmp_path / ".venv" / "bin" / "sifmark"
    program.parent.mkdir(parents=True)
    program.write_text(STAND_IN)
    program.chmod(0o755)
    return make_site(tmp_path).using(**cluster)


def do(site: Site, *words: object) -> subprocess.CompletedProcess[str]:
    return call(list(map(str, words)), check=False, cwd=site.folder, env=site.environment)


def log_of(site: Site, done: subprocess.CompletedProcess[str]) -> str:
    return (site.folder / f"sifmark-{done.stdout.strip().split()[-1]}.log").read_text()


# Nodes and tasks


@pytest.mark.parametrize("words", [(), ("--nodes", 2), ("--nodes=2", "--tasks-per-node=1")], ids=str)
def test_a_job_of_two_nodes_starts_one_task_on_each(bare: Site, words: tuple[object, ...]) -> None:
    done = do(bare, *SBATCH, "--nodes=2", SCRIPT, "lstm-cpu", *words, "--strategy", "ddp", "--replicas", 8)
    log = log_of(bare, done)
    assert done.returncode == 0, log
    given = "lstm-cpu -- --strategy ddp --replicas 8 --site sifmark --output results/"
    assert sorted(log.splitlines()) == [f"task 0 of 2 on n1: {given}", f"task 1 of 2 on n2: {given}"]


def test_several_tasks_share_a_node(bare: Site) -> None:
    site = bare.using(SLURM_OVERCOMMIT="1")  # a node has one processor here
    done = do(site, *SBATCH, "--nodes=2", SCRIPT, "lstm-cpu", "--tasks-per-node", 2, "--replicas", 4)
    lines = log_of(site, done).splitlines()
    assert done.returncode == 0, lines
    assert sorted(line.partition(":")[0] for line in lines) == [
        *("task 0 of 4 on n1", "task 1 of 4 on n1", "task 2 of 4 on n2", "task 3 of 4 on n2")
    ]


def test_a_step_may_take_fewer_nodes_than_its_job_has(bare: Site) -> None:
    done = do(bare, *SBATCH, "--nodes=2", SCRIPT, "lstm-cpu", "--nodes", 1)
    assert [line.partition(":")[0] for line in log_of(bare, done).splitlines()] == ["task 0 of 1 on n1"]


def test_nodes_after_the_script_come_too_late_for_sbatch(bare: Site) -> None:
    words = ("lstm-cpu", "--nodes", 2, "--strategy", "ddp", "--replicas", 8)
    done = do(bare, *SBATCH, SCRIPT, *words)
    assert done.returncode == 2
    assert log_of(bare, done).splitlines() == [
        "error: --nodes 2: this job has 1",
        "remedy: sbatch takes it before the script: "
        "sbatch --nodes=2 ci/pipelines/slurm.sh lstm-cpu --nodes 2 --strategy ddp --replicas 8",
    ]


def test_outside_a_job_the_script_submits_itself(bare: Site) -> None:
    site = bare.using(SBATCH_WAIT="1")
    done = do(site, SCRIPT, "lstm-cpu", "--nodes", 2, "--replicas", 8)
    assert done.returncode == 0, done.stderr
    given = "lstm-cpu -- --replicas 8 --site sifmark --output results/"
    lines = sorted(log_of(site, done).splitlines())
    assert lines == [f"task 0 of 2 on n1: {given}", f"task 1 of 2 on n2: {given}"]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("lstm-cpu", "--nodes", "two"), "error: --nodes two is not a number above 0"),
        (("lstm-cpu", "--tasks-per-node=0"), "error: --tasks-per-node 0 is not a number above 0"),
        (("lstm-cpu", "--nodes"), "error: --nodes  is not a number above 0"),
        ((), "which image?"),
    ],
    ids=str,
)
def test_wrong_usage_is_said_before_a_job_waits(bare: Site, words: tuple[object, ...], cause: str) -> None:
    done = do(bare, SCRIPT, *words)
    assert done.returncode != 0 and cause in done.stderr


# Real runs


@pytest.mark.full
def test_a_job_leaves_results(clone: Site, built: Site) -> None:
    site = clone.using(SIFMARK_DIST=str(built.dist))
    done = do(site, *SBATCH, SCRIPT, "image_compression-cpu", "--smoke", "--repeat", 2)
    log = log_of(site, done)
    assert done.returncode == 0, log
    results = results_in(site.folder / "results")
    assert [result["status"]["state"] for result in results] == ["completed"] * 2
    assert {result["site"] for result in results} == {"sifmark"}
    assert results[0]["host"]["cores"]["value"] == os.cpu_count()
    assert "2 valid" in log and log.count("verified") >= 2 * 5


@pytest.mark.full
def test_two_nodes_leave_one_result(clone: Site, built: Site) -> None:
    site = clone.using(SIFMARK_DIST=str(built.dist))
    ranks = ("--strategy", "ddp", "--replicas", 2, "--batch-size", 8)
    done = do(site, *SBATCH, "--nodes=2", SCRIPT, "lstm-cpu", *ranks, "--steps", 4, "--meter", "none")
    assert done.returncode == 0, log_of(site, done)
    (result,) = results_in(site.folder / "results")
    assert result["status"]["state"] == "completed"
    assert (result["accelerator"]["count"], result["configuration"]["strategy"]) == (2, "ddp")


@pytest.mark.full
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_whose_time_is_up_keeps_what_it_measured(clone: Site, built: Site, nodes: int) -> None:
    site = clone.using(SIFMARK_DIST=str(built.dist), SIFMARK_RESULTS="cut")
    ranks = ("--strategy", "ddp", "--replicas", nodes) if nodes > 1 else ()
    words = ("lstm-cpu", *ranks, "--batch-size", 2, "--steps", 10_000, "--skip-numerics")
    done = do(site, "sbatch", "--parsable", f"--nodes={nodes}", SCRIPT, *words)
    job = done.stdout.strip()
    log = site.folder / f"sifmark-{job}.log"
    wait_for(lambda: log.exists() and "measuring" in log.read_text())
    do(site, "scancel", "--signal=TERM", job)  # as --signal does before the end
    wait_for(lambda: not do(site, "squeue", "--noheader", "--job", job).stdout)
    (result,) = results_in(site.folder / "cut")
    assert result["status"]["state"] == "interrupted" and result["steps"]["count"] > 0
    assert "1 valid" in log.read_text()
    shown = do(site, "scontrol", "show", "job", job).stdout
    assert re.findall("ExitCode=([0-9:]+)", shown) == ["143:0"]


# The doctor


def doctors(site: Site, *words: object, ends: int = 0, **environment: str) -> list[dict[str, dict[str, str]]]:
    """What the doctor says in each task of a step on both nodes, by the name of the check."""
    step = ("srun", "--nodes=2", "--ntasks-per-node=1", "--output=doctor-%t.json", "--error=doctor-%t.err")
    doctor = (".venv/bin/sifmark", "doctor", "--format", "json", *words)
    done = do(site.using(**environment), *step, *doctor)
    assert done.returncode == ends, done.stderr
    answers = [json.loads((site.folder / f"doctor-{task}.json").read_text()) for task in range(2)]
    return [{check["name"]: check for check in answer} for answer in answers]


def test_each_task_of_a_step_checks_its_own_node(clone: Site) -> None:
    for task, checks in enumerate(doctors(clone)):
        assert f"Slurm: task {task} of 2, 0 on its node (SLURM_PROCID={task}" in checks["launcher"]["detail"]
        assert "lo 127.0.0.1" in checks["network interfaces"]["detail"] and "devices" in checks


def test_an_interface_that_a_node_does_not_have_is_named(clone: Site) -> None:
    for checks in doctors(clone, ends=1, GLOO_SOCKET_IFNAME="none9"):
        assert checks["GLOO_SOCKET_IFNAME"]["status"] == "failed" and checks["GLOO_SOCKET_IFNAME"]["remedy"]


def test_ranks_listen_at_the_interface_that_is_named(clone: Site) -> None:
    for checks in doctors(clone, GLOO_SOCKET_IFNAME="lo"):
        assert checks["GLOO_SOCKET_IFNAME"]["status"] == "passed" and "host name" not in checks


def test_a_job_that_hides_its_variables_is_noticed(clone: Site) -> None:
    names = ("PATH", "HOME", "PYTHONPATH", *(name for name in clone.environment if name.startswith("SIFMARK_")))
    kept = " ".join(f'{name}="${name}"' for name in names if name in clone.environment)
    # A shell around it keeps the variables, as the starter of a container does.
    script = f"env -i {kept} .venv/bin/sifmark doctor --format json; true"
    done = do(clone, "srun", "--nodes=1", "--ntasks=1", "sh", "-c", script)
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert "of Slurm, but without its variables" in checks["environment"]["detail"]
    assert "--cleanenv" in checks["environment"]["remedy"]


def test_a_batch_script_is_no_step(clone: Site) -> None:
    done = do(clone, *SBATCH, "--output=sifmark-%j.log", "--wrap", ".venv/bin/sifmark doctor")
    assert "in job " in (log := log_of(clone, done)) and "but in none of its steps" in log
    assert "remedy: needed only for several ranks: srun --ntasks-per-node=1 sifmark doctor" in log


@pytest.mark.full
@pytest.mark.parametrize("cleaned", [False, True])
def test_an_image_that_does_not_see_its_launch_is_named(clone: Site, built: Site, cleaned: bool) -> None:
    site = clone.using(SIFMARK_DIST=str(built.dist), **({"APPTAINER_CLEANENV": "1"} if cleaned else {}))
    for checks in doctors(site, "--image", "cpu"):
        assert checks["launcher"]["status"] == ("warning" if cleaned else "passed")
        assert "SLURM_PROCID" in checks["launcher"]["detail"]


def results_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.glob("*.json")]


def wait_for(happens: Callable[[], bool]) -> None:
    while not happens():  # a test that waits for ever is stopped by whoever runs the tests
        time.sleep(0.5)
