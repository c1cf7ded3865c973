"""Launches: what a launcher started together, as one of its tasks sees it in the environment.

Each variable is named in the launcher's own manual; facts/distributed.md of this project's sources has them together.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from typing import Iterator, Mapping, NamedTuple

from entrypoints.contract.group import LOOPBACK

# A name, or several that differ in a number.
LISTED = re.compile(r"([^,\[\]]*)(?:\[([\d,-]+)\])?([^,\[\]]*),?")
FIRST_PORT, PORTS = 20_000, 12_000  # below the ports that Linux gives to clients, from 32768 on


class Launcher(NamedTuple):
    """A launcher, by its variables: the number of a task, of all tasks, of a task on its node, and of all on it.

    The IDs of what it started together come last; Hydra has none, so that all of a user's steps are one.
    """

    name: str
    task: str
    tasks: str
    local_task: str
    local_tasks: str | None
    step: tuple[str, ...]


POPRUN = "poprun"  # Graphcore's, which starts its instances by Open MPI
LOCAL_REPLICAS = "POPDIST_LOCAL_REPLICAS"  # of an instance
# It comes before Open MPI. Slurm comes last: others start their tasks within its steps.
LAUNCHERS = (
    Launcher(
        POPRUN,
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "POPDIST_LOCAL_INSTANCE_INDEX",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE",),
    ),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE",),
    ),
    Launcher("PALS", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", ("PALS_APID",)),
    Launcher("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", None, ("FLUX_JOB_ID",)),
    Launcher("Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ()),
    Launcher(
        "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_PORT")
    ),
    Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", None, ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)


class Launch(NamedTuple):
    """A launch as one of its tasks sees it. The first one waits at a port of `head`, if the launcher names its host.

    Tasks of one host need no port.
    """

    launcher: str
    task: int
    tasks: int
    local_task: int
    step: tuple[str, ...]  # what the launcher calls it
    head: str | None
    port: int | None
    nodes: tuple[str, ...] = ()  # of the step, if the launcher names them

    @property
    def node(self) -> str:
        """This task's node, by the launcher's name for it."""
        return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def launcher_of(environment: Mapping[str, str]) -> Launcher | None:
    """Return the launcher that started this process; None if none did."""
    return next((each for each in LAUNCHERS if {each.local_task, *each.step} <= environment.keys()), None)


def launch_of(environment: Mapping[str, str]) -> Launch | None:
    """Return the launch that this process is a task of; None if it was started alone.

    Raises ValueError, naming the variable, if one of them is missing or no number.
    """
    launcher = launcher_of(environment)
    if launcher is None:
        return None
    head, step = _head(launcher, environment), tuple(environment[name] for name in launcher.step)
    return Launch(
        launcher=launcher.name,
        task=_number(environment, launcher.task),
        tasks=_number(environment, launcher.tasks),
        local_task=_number(environment, launcher.local_task),
        step=step,
        head=head,
        port=None if head == LOOPBACK else _port(launcher.name, step),
        nodes=hosts(environment.get("SLURM_STEP_NODELIST", "")) if launcher.name == "Slurm" else (),
    )


def _port(launcher: str, step: tuple[str, ...]) -> int:
    """Return the port of a step: another one for each, so that two of a node do not collide."""
    digest = hashlib.sha256(repr((launcher, step)).encode()).digest()
    return FIRST_PORT + int.from_bytes(digest[:4], "big") % PORTS


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ValueError(f"{name}={text!r} is no number")
    return int(text)


def _head(launcher: Launcher, environment: Mapping[str, str]) -> str | None:
    local_tasks = launcher.local_tasks and environment.get(launcher.local_tasks)
    if local_tasks and local_tasks == environment.get(launcher.tasks):
        return LOOPBACK
    if launcher.name == "Slurm":
        hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or ""
        first = LOOPBACK if environment.get("SLURM_STEP_NUM_NODES") == "1" else first_host(hosts)
        # In a batch script srun runs on the first node, whose name need not resolve.
        return first if first and resolves(first) else environment.get("SLURM_LAUNCH_NODE_IPADDR")
    # Others start their first task on the first node of a job of Slurm's.
    return environment.get("MASTER_ADDR") or first_host(environment.get("SLURM_JOB_NODELIST", ""))


def resolves(host: str) -> bool:
    """Return whether a host's name has an address here."""
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False


def first_host(listed: str) -> str | None:
    """Return the first of Slurm's list of hosts; None if it names none."""
    return next(iter(hosts(listed)), None)


def hosts(listed: str) -> tuple[str, ...]:
    """Return the hosts of Slurm's list, such as node[003-005,9]-int,other.

    Images have no scontrol, which writes lists out.
    """
    return tuple(
        f"{before}{number}{after}"
        for before, numbers, after in LISTED.findall(listed)
        for number in (_numbers(numbers) if numbers else [""])
        if before or number
    )


def _numbers(ranges: str) -> Iterator[str]:
    """Yield the numbers of ranges as they are written, such as 003, 004, 005 and 9 for 003-005,9."""
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        for number in range(int(low), int(high or low) + 1):
            yield f"{number:0{len(low)}}"
