"""Slurm's commands sbatch, squeue and sacct, and their parsed output."""

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.process import CompletedCommand, run

TIME_LIMIT = 120.0  # seconds that a busy controller may take to answer
_COLUMNS = ("%i", "%T", "%r", "%N", "%S", "%j")  # of squeue: ID of the task, state, reason, nodes, start, name
_FIELDS = ("JobID", "State", "ExitCode", "NodeList", "Start")  # of sacct
_TIMES = {"SLURM_TIME_FORMAT": "%s"}  # seconds since 1970
# What sbatch says, in lower case, and what to do about it.
_REMEDIES = {
    "invalid partition": "see the partitions with `sinfo`; set partition in [slurm] of sifmark.toml, "
    "or in the slurm table of the system",
    "invalid account": "see yours with `sacctmgr show associations user=$USER`; set account in [slurm] of sifmark.toml",
    "invalid qos": "see yours with `sacctmgr show associations user=$USER`; set qos in [slurm] of sifmark.toml",
    "invalid generic resource": "see what nodes have with `sinfo --format='%P %G'`; correct gpus_per_node or gres",
    "invalid feature": "see the features of nodes with `sinfo --format='%P %f'`; correct constraint",
    "invalid job array": "see `scontrol show config | grep MaxArraySize`; set max_array_size below it",
    "node configuration": "see `sinfo --Node --long`; ask for less with --only, or choose another partition",
    "node count": "see `sinfo`; choose another partition, or fewer nodes with --only",
    "time limit": "see the limits with `sinfo --format='%P %l'`; set time, or choose another partition",
    "submit": "too many jobs wait; start the same command again later: what waits is not submitted twice",
    "policy": "the site limits jobs; see `sacctmgr show qos`; start the same command again later: "
    "what waits is not submitted twice",
    "contact": "is the controller up? `scontrol ping` says so; start the same command again later",
}


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """An array task as Slurm has it."""

    state: str  # in Slurm's words: PENDING, RUNNING, COMPLETED, TIMEOUT ...
    reason: str = ""  # why it waits
    nodes: str = ""
    exit_code: int | None = None
    start: float | None = None  # of its last attempt, by the controller's clock


@dataclass(frozen=True, slots=True)
class Queue:
    """What squeue lists: tasks by `JOB_INDEX`, and the ID of the job of each name."""

    tasks: dict[str, TaskStatus] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)


def require_slurm() -> None:
    """Raise SifmarkError where Slurm's commands are not installed."""
    missing = [name for name in ("sbatch", "squeue") if shutil.which(name) is None]
    if missing:
        cause = f"this host has no {' and no '.join(missing)}"
        remedy = "run this on a login node of the cluster; on this machine alone: sifmark study.run STUDY --on here"
        raise SifmarkError(cause, remedy, code="program-missing")


def submit(script: Path, dependencies: Sequence[str] = ()) -> str:
    """Submit a script and return the job's ID. Raises SifmarkError with Slurm's own words if it is refused."""
    argv = ["sbatch", "--parsable"]
    if dependencies:
        argv.append(f"--dependency=afterany:{':'.join(dependencies)}")
    done = run([*argv, script], check=False, time_limit=TIME_LIMIT)
    identifier = done.output.strip().splitlines()[-1:] or [""]
    job = identifier[0].partition(";")[0]  # with the cluster's name behind it, if there are several
    if done.exit_code or not job.isdigit():
        raise _refused(done)
    return job


def ask_queue() -> "Queue":
    """Return this user's array tasks as squeue has them, those of the last minutes too.

    Raises SifmarkError if the controller does not answer.
    """
    argv = ["squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}"]
    done = run([*argv, f"--format={'|'.join(_COLUMNS)}"], check=False, time_limit=TIME_LIMIT, environment=_TIMES)
    if done.exit_code:
        raise _refused(done)
    queue = Queue()
    for line in done.output.splitlines():
        key, state, reason, nodes, start, name = (line.split("|", 5) + [""] * 6)[:6]
        queue.tasks[key] = TaskStatus(state, "" if reason == "None" else reason, nodes, None, _time(start))
        queue.jobs[name] = key.partition("_")[0]
    return queue


def accounted(jobs: Iterable[str]) -> dict[str, TaskStatus]:
    """Return array tasks by `JOB_INDEX` as sacct has them; nothing where Slurm keeps no accounts."""
    wanted = ",".join(sorted(set(jobs)))
    if not wanted or shutil.which("sacct") is None:
        return {}
    argv = ["sacct", "--noheader", "--parsable2", "--allocations", "--array", f"--jobs={wanted}"]
    done = run([*argv, f"--format={','.join(_FIELDS)}"], check=False, time_limit=TIME_LIMIT, environment=_TIMES)
    return {} if done.exit_code else dict(map(_account, done.output.splitlines()))


def _account(line: str) -> tuple[str, TaskStatus]:
    key, state, code, nodes, start = (line.split("|", 4) + [""] * 5)[:5]
    number = code.partition(":")[0]
    exit_code = int(number) if number.isdigit() else None
    return key, TaskStatus(state.partition(" ")[0], "", nodes, exit_code, _time(start))  # CANCELLED by 1000


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def is_refusal(error: SifmarkError) -> bool:
    """Return whether Slurm refused a job: it then has none."""
    return error.code == "job-refused"


def _refused(done: CompletedCommand) -> SifmarkError:
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in done.tail if line.strip()]
    text = "; ".join(dict.fromkeys(lines)) or f"exit code {done.exit_code} without a word"
    remedy = next((remedy for words, remedy in _REMEDIES.items() if words in text.lower()), "see `sbatch --help`")
    return UsageError(f"{done.argv[0]}: {text}", remedy, code="job-refused")
