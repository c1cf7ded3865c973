"""What a launcher says of its tasks in the environment, by facts/distributed.md and the launchers' manuals."""

from __future__ import annotations

import pytest

from entrypoints.runs.launch import FIRST_PORT, PORTS, first_host, hosts, launch_of

SLURM = {
    "SLURM_JOB_ID": "41",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "8",  # of the job, whose step may be smaller
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_NODELIST": "gpu[001-004]",
    "SLURM_STEP_NODELIST": "gpu[003-004]",
    "SLURM_STEP_NUM_NODES": "2",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-1",
}
TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "gpu003",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """Names that have an address, without asking for it."""
    monkeypatch.setattr("entrypoints.runs.launch.resolves", lambda host: host.startswith(("gpu", "127.")))


@pytest.mark.parametrize(
    ("environment", "launch"),
    [
        ({}, None),
        ({"RANK": "1"}, None),
        (SLURM, ("Slurm", 3, 4, "gpu003")),
        ({**SLURM, "SLURM_STEP_NUM_NODES": "1"}, ("Slurm", 3, 4, "127.0.0.1")),
        (
            {**SLURM, "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7"},
            ("Slurm", 3, 4, "10.0.0.7"),
        ),
        (OPEN_MPI, ("Open MPI", 1, 2, "127.0.0.1")),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "4"}, ("Open MPI", 1, 4, None)),
        (
            {"PALS_RANKID": "2", "PMI_SIZE": "4", "PALS_LOCAL_RANKID": "0", "PALS_LOCAL_SIZE": "2", "PALS_APID": "7d"},
            ("PALS", 2, 4, None),
        ),
        (
            {"FLUX_TASK_RANK": "2", "FLUX_JOB_SIZE": "4", "FLUX_TASK_LOCAL_ID": "0", "FLUX_JOB_ID": "f23"},
            ("Flux", 2, 4, None),
        ),
        (
            {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"},
            ("Hydra", 0, 2, "127.0.0.1"),
        ),
        (TORCHRUN, ("torchrun", 5, 8, "gpu003")),
        (
            {**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "4", "SLURM_JOB_NODELIST": "gpu[003-004]"},
            ("Open MPI", 1, 4, "gpu003"),
        ),
        # A launcher within a job of another one: the inner one started this process.
        ({**SLURM, **OPEN_MPI}, ("Open MPI", 1, 2, "127.0.0.1")),
        ({**SLURM, **TORCHRUN}, ("torchrun", 5, 8, "gpu003")),
    ],
)
def test_a_task_knows_its_place(environment, launch):
    of_a_task = launch_of(environment)
    assert (of_a_task and (*of_a_task[:3], of_a_task.head)) == launch
    assert of_a_task is None or (of_a_task.port is None) == (of_a_task.head == "127.0.0.1"), "no port on one host"


@pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"])
@pytest.mark.parametrize("text", ["", "two", "-1", "1.5"])
def test_what_is_no_number_is_named(name, text):
    with pytest.raises(ValueError, match=f"{name}='{text}' is no number"):
        launch_of({**SLURM, name: text})


@pytest.mark.parametrize(
    ("listed", "first"),
    [
        ("", None),
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("node[03,07-09],other", "node03"),
        ("node[0001-0010]-int", "node0001-int"),
        ("rack1-node[5]", "rack1-node5"),
    ],
)
def test_the_first_of_a_list_of_hosts(listed, first):
    assert first_host(listed) == first


@pytest.mark.parametrize(
    ("listed", "each"),
    [
        ("n[1-3]", ("n1", "n2", "n3")),
        ("rack[08-10,2]-int,login", ("rack08-int", "rack09-int", "rack10-int", "rack2-int", "login")),
    ],
)
def test_a_list_of_hosts_written_out(listed, each):
    assert hosts(listed) == each


def port_of(**changes):
    launch = launch_of({**SLURM, **changes})
    assert launch is not None
    return launch.port


def test_each_step_has_a_port_of_its_own():
    ports = {port_of(SLURM_STEP_ID=str(step)) for step in range(50)}
    assert len(ports) > 45 and min(ports) >= FIRST_PORT and max(ports) < FIRST_PORT + PORTS
    assert port_of() == port_of(SLURM_PROCID="0", SLURM_LOCALID="0")
