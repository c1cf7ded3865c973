"""Slurm's commands sbatch, squeue and sacct, and their parsed output."""

import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.process import CompletedCommand, run
from sifmark.studies.states import TaskStatus

TIME_LIMIT = 120.0  # seconds that a busy controller may take to answer
# Of squeue, with their widths: it cuts what is longer.
_COLUMNS = {
    "JobArrayID": 40, "State": 20, "Reason": 80, "NodeList": 200, "exit_code": 12, "Cluster": 60, "Name": 400,
}  # fmt: skip
_FIELDS = ("JobID", "State", "ExitCode", "NodeList", "Cluster", "JobName")  # of sacct
# What sbatch says, in lower case, and what to do about it.
_REMEDIES = {
    "invalid partition": "see the partitions with `sinfo`; set partition in [slurm] of sifmark.toml, "
    "or in the slurm table of the system",
    "invalid account": "see yours with `sacctmgr show associations user=$USER`; set account in [slurm] of sifmark.toml",
    "invalid qos": "see yours with `sacctmgr show associations user=$USER`; set qos in [slurm] of sifmark.toml",
    "invalid generic resource": "see what nodes have with `sinfo --format='%P %G'`; correct gpus_per_node or gres",
    "invalid feature": "see the features of nodes with `sinfo --format='%P %f'`; correct constraint",
    "invalid job array": "see `scontrol show config | grep MaxArraySize`; set max_array_size below it",
    "node configuration": "see what nodes have with `sinfo --Node --long`; correct mem, cpus_per_task, gpus_per_node "
    "or constraint, or choose another partition",
    "memory": "see the memory of nodes with `sinfo --Node --long`; correct mem",
    "node count": "see `sinfo`; choose another partition, or fewer nodes with --only",
    "submit": "too many jobs wait; start the same command again later: what waits is not submitted twice",
    "policy": "the site limits jobs; see `sacctmgr show qos`; start the same command again later: "
    "what waits is not submitted twice",
    "time limit": "see the limits with `sinfo --format='%P %l'`; set time, or choose another partition",
    "contact": "is the controller up? `scontrol ping` says so; start the same command again later",
}


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The cluster of this host."""

    cluster: str  # its name
    hides_jobs: bool  # those of other users


def require_slurm() -> None:
    """Raise SifmarkError where Slurm's commands are not installed."""
    missing = [name for name in ("sbatch", "squeue") if shutil.which(name) is None]
    if missing:
        cause = f"this host has no {' and no '.join(missing)}"
        remedy = "run this on a login node of the cluster; on this machine alone: sifmark study.run STUDY --on here"
        raise SifmarkError(cause, remedy, code="program-missing")


def submit(script: Path, dependencies: Sequence[str] = ()) -> tuple[str, str]:
    """Submit a script and return the job's ID, and its cluster if that is another one than this host's.

    Raises SifmarkError with Slurm's own words if it is refused.
    """
    argv = ["sbatch", "--parsable"]
    if dependencies:
        argv.append(f"--dependency=afterany:{':'.join(dependencies)}")
    done = run([*argv, script], check=False, time_limit=TIME_LIMIT)
    identifier = done.output.strip().splitlines()[-1:] or [""]
    job, _, cluster = identifier[0].partition(";")
    if done.exit_code or not job.isdigit():
        raise _refused(done)
    return job, cluster


def scheduler() -> Scheduler:
    """Return the cluster of this host. Raises SifmarkError without Slurm, or if its controller does not answer."""
    require_slurm()
    text = _asked(["scontrol", "show", "config"])
    found = dict(re.findall(r"^(ClusterName|PrivateData)\s*=\s*(.*?)\s*$", text, re.MULTILINE))
    return Scheduler(found.get("ClusterName", ""), "jobs" in found.get("PrivateData", "").split(","))


def tasks_of(arrays: Iterable[tuple[str, str]], cluster: str = "") -> list[TaskStatus]:
    """Return the array tasks of these job names and IDs, of all users, that a cluster knows: this one, or a named one.

    Those of the last minutes are among them, where accounts are kept all. An ID is empty if it is not known. Raises
    SifmarkError if the controller does not answer.
    """
    listed = list(arrays)
    if not listed:
        return []
    place = [f"--clusters={cluster}"] if cluster else []
    columns = ",".join(f"{name}:{width}" for name, width in _COLUMNS.items())
    names = ",".join(sorted({name for name, _ in listed}))
    argv = ["squeue", *place, "--noheader", "--array", "--states=all", f"--name={names}", f"--Format={columns}"]
    queued = [_queued(line) for line in _asked(argv).splitlines() if line.strip()]
    known = {task.task for task in queued}
    ended = _accounted({job for _, job in listed if job}, place)
    return [*queued, *(task for task in ended if task.task not in known)]


def _asked(argv: Sequence[str]) -> str:
    done = run(argv, check=False, time_limit=TIME_LIMIT)
    if done.exit_code:
        raise _refused(done)
    return done.output


def _queued(line: str) -> TaskStatus:
    cells, start = {}, 0
    for name, width in _COLUMNS.items():
        cells[name] = line[start : start + width].strip()
        start += width
    reason = "" if cells["Reason"] == "None" else cells["Reason"]
    code = int(cells["exit_code"]) >> 8 if cells["exit_code"].isdigit() else None  # as wait has it
    return TaskStatus(
        cells["JobArrayID"], cells["Name"], cells["Cluster"], cells["State"], reason, cells["NodeList"], code
    )


def _accounted(jobs: Iterable[str], place: Sequence[str]) -> list[TaskStatus]:
    """Return array tasks as sacct has them; nothing where Slurm keeps no accounts."""
    wanted = ",".join(sorted(jobs))
    if not wanted or shutil.which("sacct") is None:
        return []
    argv = ["sacct", *place, "--noheader", "--parsable2", "--allocations", "--array", f"--jobs={wanted}"]
    done = run([*argv, f"--format={','.join(_FIELDS)}"], check=False, time_limit=TIME_LIMIT)
    return [] if done.exit_code else [_account(line) for line in done.output.splitlines()]


def _account(line: str) -> TaskStatus:
    key, state, code, nodes, cluster, name = (line.split("|", 5) + [""] * 6)[:6]
    number = code.partition(":")[0]
    exit_code = int(number) if number.isdigit() else None
    return TaskStatus(key, name, cluster, state.partition(" ")[0], "", nodes, exit_code)  # CANCELLED by 1000


def is_refusal(error: SifmarkError) -> bool:
    """Return whether Slurm refused a job: it then has none."""
    return error.code == "job-refused"


def _refused(done: CompletedCommand) -> SifmarkError:
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in done.tail if line.strip()]
    text = "; ".join(dict.fromkeys(lines)) or f"exit code {done.exit_code} without a word"
    remedy = next((remedy for words, remedy in _REMEDIES.items() if words in text.lower()), "see `sbatch --help`")
    return UsageError(f"{done.argv[0]}: {text}", remedy, code="job-refused")
