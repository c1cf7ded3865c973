"""The energy of jobs in Slurm's accounting: ConsumedEnergyRaw of sacct, asked for or from a file that it wrote.

sacct(1): the value is the job's only if it had its nodes to itself.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import read_bounded
from sifmark.core.process import run
from sifmark.studies.analysis.energy.clock import seconds_since_1970
from sifmark.studies.analysis.energy.measured import EnergyRow, MeasuredEnergy, MeteredRun, total
from sifmark.studies.analysis.node_names import expand

FORMAT = "JobID,JobName,State,Start,End,ElapsedRaw,NodeList,ConsumedEnergyRaw"
COVERS = "nodes of the job, as Slurm's plugin counts them"
WRITE_IT = f"sacct --parsable2 --format={FORMAT} --jobs=JOBS > FILE"
SLACK = (
    2.0  # seconds by which clocks of nodes and of the controller may differ: both are kept by NTP, sacct has whole ones
)
_ENERGY, _ID = "ConsumedEnergyRaw", "JobID"
_JOB = re.compile(r"[0-9]+(?:_[0-9]+)?(?:\+[0-9]+)?")
_NO_VALUES = {2**64 - 1, 2**64 - 2, 2**32 - 1, 2**32 - 2}  # NO_VAL and INFINITE of slurm.h
_EXTERN = "extern"  # the step that lasts as long as the job, on all of its nodes
_LARGEST = 64 << 20  # bytes of a file
_SACCT_LIMIT = 120.0  # seconds
_OFF = "Slurm counted 0 J: its energy accounting (AcctGatherEnergyType) is off, or nodes have no sensor for it"


@dataclass(frozen=True)
class AccountedJob:
    """A job, or an element of an array."""

    id: str
    start: float | None  # seconds since 1970
    end: float | None
    nodes: frozenset[str]
    energy: MeasuredEnergy


@dataclass
class _Lines:
    """The lines of a job: its own, and those of its steps by name."""

    own: Mapping[str, str] = field(default_factory=dict)
    steps: dict[str, Mapping[str, str]] = field(default_factory=dict)


def ask_sacct(jobs: Sequence[str], zone: tzinfo | None = None) -> list[AccountedJob]:
    """Return jobs as Slurm's accounting has them. Raises SifmarkError if there is none, UsageError for no job's id."""
    if bad := next((job for job in jobs if not _JOB.fullmatch(job)), None):
        raise UsageError(f"{bad!r} is no id of a job", "--job-ids 1234,1235_7", code="invalid-option")
    argv = ["sacct", "--parsable2", f"--format={FORMAT}", f"--jobs={','.join(jobs)}"]
    remedy = f"ask where accounting is on, and give its file: {WRITE_IT}; then --sacct FILE"
    done = run(argv, time_limit=_SACCT_LIMIT, environment={"SLURM_TIME_FORMAT": "%s"}, remedy=remedy)
    return _jobs("sacct", done.output.splitlines(), zone)


def read_sacct(path: Path, zone: tzinfo | None) -> list[AccountedJob]:
    """Return the jobs in a file that sacct wrote. Raises UsageError for one that is none."""
    try:
        text = read_bounded(path, _LARGEST).decode()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}", f"write it: {WRITE_IT}", code="file-unreadable") from error
    return _jobs(str(path), text.splitlines(), zone)


def rows_of_jobs(runs: Sequence[MeteredRun], jobs: Sequence[AccountedJob], offset: float = 0.0) -> list[EnergyRow]:
    """Return a row for each job with the runs that were within it, by time and node; then one for each other run.

    `offset` is added to the times of jobs.
    """
    rows, placed = [], set()
    of_runs = {id(each): [job for job in jobs if _is_within(each, job, offset)] for each in runs}
    for job in jobs:
        own = tuple(each for each in runs if of_runs[id(each)] == [job])
        placed |= set(map(id, own))
        rows.append(EnergyRow(f"job {job.id}", own, total(own), job.energy))
    for each in runs:
        if id(each) not in placed:
            names = ", ".join(job.id for job in of_runs[id(each)])
            reason = f"it may belong to several jobs: {names}" if names else "no job was there then"
            rows.append(EnergyRow(each.label, (each,), each.own, MeasuredEnergy(None, None, COVERS, reason)))
    return rows


def _is_within(each: MeteredRun, job: AccountedJob, offset: float) -> bool:
    if job.start is None or each.started < job.start + offset - SLACK:
        return False
    if job.end is not None and each.finished > job.end + offset + SLACK:
        return False
    return not job.nodes or bool({host.partition(".")[0] for host in each.hosts} & job.nodes)


def _jobs(source: str, lines: Sequence[str], zone: tzinfo | None) -> list[AccountedJob]:
    by_job: dict[str, _Lines] = {}
    for record in _records(source, lines):
        job, dot, step = record[_ID].partition(".")
        entry = by_job.setdefault(job, _Lines())
        if dot:
            entry.steps[step] = record
        else:
            entry.own = record
    if not by_job:
        raise SifmarkError(f"{source} has no job", f"name jobs that exist: {WRITE_IT}", code="document-invalid")
    return [_job(source, name, entry, zone) for name, entry in by_job.items()]


def _records(source: str, lines: Sequence[str]) -> Iterator[Mapping[str, str]]:
    reader = csv.DictReader(lines, delimiter="|", quoting=csv.QUOTE_NONE, restval="")
    names = reader.fieldnames or ()
    if missing := [name for name in (_ID, _ENERGY) if name not in names]:
        raise UsageError(
            f"{source} has no column {' and '.join(missing)}", f"write it: {WRITE_IT}", code="document-invalid"
        )
    yield from (row for row in reader if row[_ID])


def _job(source: str, name: str, entry: _Lines, zone: tzinfo | None) -> AccountedJob:
    own = entry.own or next(iter(entry.steps.values()))
    start, end = (_time(source, own.get(column, ""), zone) for column in ("Start", "End"))
    seconds = float(own["ElapsedRaw"]) if own.get("ElapsedRaw", "").isdigit() else None
    if seconds is None and start is not None and end is not None:
        seconds = end - start
    nodes = own.get("NodeList", "")
    hosts = frozenset(expand(nodes)) if nodes and nodes != "None assigned" else frozenset[str]()
    return AccountedJob(name, start, end, hosts, _energy(entry, seconds))


def _energy(entry: _Lines, seconds: float | None) -> MeasuredEnergy:
    """Return the energy of a job's own line, else of the step that lasts as long.

    Others are not added up: steps overlap, and each has all that its nodes used meanwhile.
    """
    texts = [entry.own.get(_ENERGY, ""), entry.steps.get(_EXTERN, {}).get(_ENERGY, "")]
    for text, covers in zip(texts, (COVERS, f"{COVERS} (step {_EXTERN})"), strict=True):
        if (joules := _joules(text)) is not None:
            return MeasuredEnergy(joules, seconds, covers)
    zero = any(text == "0" for text in (*texts, *(step.get(_ENERGY, "") for step in entry.steps.values())))
    return MeasuredEnergy(None, None, COVERS, _OFF if zero else "Slurm has no energy of the job as a whole")


def _joules(text: str) -> float | None:
    value = int(text) if text.isdigit() else 0
    return None if value == 0 or value in _NO_VALUES else float(value)


def _time(source: str, text: str, zone: tzinfo | None) -> float | None:
    if text in ("", "Unknown", "None"):
        return None
    try:
        return seconds_since_1970(text, zone)
    except ValueError as error:
        raise UsageError(
            f"{source}: {error}", "name the cluster's zone: --time-zone Europe/Berlin", code="document-invalid"
        ) from error
