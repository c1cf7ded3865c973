"""Whether the tasks that a launcher starts can be the ranks of one run: launcher, memory that they share, network."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sifmark.core.checks import Check, Status
from sifmark.core.files import human_size
from sifmark.core.paths import import_shared
from sifmark.core.settings import Settings
from sifmark.doctor.network import check_network
from sifmark.doctor.reach import Meeting, check_reach

PROC = Path("/proc")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - it is looked at, and no file is written there
LEAST_SHARED = 1 << 30  # bytes: Docker's own default of 64 MiB ends data workers and ranks
CLEANING = ("APPTAINER_CLEANENV", "SINGULARITY_CLEANENV")
_STEP = re.compile(r"/job_(\d+)/step_")  # of Slurm's control groups
_START_AGAIN = "start it by the launcher, without --cleanenv and without env -i"


def check_launch(_settings: Settings) -> Iterator[Check]:
    """Check what ranks need: of this node, and if a launcher has started this process, of its launch."""
    environment = os.environ
    yield from check_launcher(environment)
    yield from check_clean_environment(environment)
    yield from check_shared_memory()
    yield from check_network(environment)
    if (launch := _launch_of(environment)) is not None and launch.tasks > 1:
        yield from check_reach(Meeting(launch.task, launch.tasks, launch.head, launch.port))


def launch_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a task finds the others of its launch; none if no launcher started this process."""
    launcher = import_shared("runs.launch").launcher_of(environment)
    if launcher is None:
        return {}
    names = (launcher.task, launcher.tasks, launcher.local_task, launcher.local_tasks, *launcher.step)
    return {name: environment[name] for name in filter(None, names) if name in environment}


def check_launcher(environment: Mapping[str, str]) -> Iterator[Check]:
    """Say which launcher started this process as which of its tasks."""
    job = environment.get("SLURM_JOB_ID")
    variables = ", ".join(f"{name}={value}" for name, value in launch_variables(environment).items())
    try:
        launch = import_shared("runs.launch").launch_of(environment)
    except ValueError as error:
        remedy = f"{_START_AGAIN}; or unset these variables: {variables}"
        yield Check("launcher", Status.FAILED, str(error), remedy)
        return
    if launch is not None:
        detail = f"{launch.launcher}: task {launch.task} of {launch.tasks}, {launch.local_task} on its node"
        yield Check("launcher", Status.PASSED, f"{detail} ({variables})")
    elif job is not None:
        remedy = "needed only for several ranks: srun --ntasks-per-node=1 sifmark doctor"
        yield Check("launcher", Status.WARNING, f"none: in job {job} of Slurm, but in none of its steps", remedy)
    else:
        yield Check("launcher", Status.PASSED, "none: this process was started alone")


def check_clean_environment(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check whether something hides the launcher's variables: then each task believes that it is alone."""
    variables = launch_variables(environment)
    if cleaning := next((name for name in CLEANING if environment.get(name, "").lower() in ("1", "true", "yes")), None):
        hidden = f": {', '.join(variables)}" if variables else ""
        detail = f"{cleaning} hides the variables of launchers from images{hidden}"
        yield Check("environment", Status.WARNING, detail, f"needed only for several ranks: unset {cleaning}")
    if not variables and "SLURM_JOB_ID" not in environment and (job := _job_around()):
        detail = f"in job {job} of Slurm, but without its variables: each task believes that it is alone"
        yield Check("environment", Status.WARNING, detail, _START_AGAIN)


def check_shared_memory() -> Iterator[Check]:
    """Check the size of the memory by which ranks and data workers of a node exchange data."""
    name = str(SHARED_MEMORY)
    remedy = "in Docker: --shm-size=8g or --ipc=host; elsewhere: mount -o remount,size=8G /dev/shm"
    try:
        figures = os.statvfs(SHARED_MEMORY)
    except OSError as error:
        yield Check(name, Status.WARNING, f"{error.strerror}", remedy)
        return
    size, free = figures.f_frsize * figures.f_blocks, figures.f_frsize * figures.f_bavail
    detail = f"{human_size(size)}, of which {human_size(free)} are free"
    if free < LEAST_SHARED:
        yield Check(name, Status.WARNING, f"{detail}: ranks and data workers may need more", remedy)
    else:
        yield Check(name, Status.PASSED, detail)


def _launch_of(environment: Mapping[str, str]) -> Any:
    """Return the launch that this process is a task of; None for one alone, or with variables that contradict it."""
    with suppress(ValueError):
        return import_shared("runs.launch").launch_of(environment)
    return None


def _job_around() -> str | None:
    """Return Slurm's job that this process is in, by its control group or by the environment of what started it."""
    with suppress(OSError):
        if match := _STEP.search((PROC / "self" / "cgroup").read_text()):
            return match[1]
    process = os.getppid()
    while process > 1:
        with suppress(OSError):  # another user's
            variables = (PROC / str(process) / "environ").read_bytes().split(b"\0")
            if job := next((each for each in variables if each.startswith(b"SLURM_JOB_ID=")), None):
                return job.partition(b"=")[2].decode()
        process = _parent(process)
    return None


def _parent(process: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        # The name, in brackets, may have blanks and brackets: proc_pid_stat(5).
        return int((PROC / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
    return 0
