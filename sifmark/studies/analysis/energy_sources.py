"""Energy of whole jobs and nodes: ConsumedEnergyRaw of Slurm's sacct, and power over time that a PDU recorded.

sacct(1): the energy is a job's only if it had its nodes to itself. A recording is a CSV file with a header: `time` and
`watts`, and `node` if it has several. Readings may be uneven. As for our own meters, energy needs a window of twenty
periods and no gap of more than five; else it is unknown, with the reason.
"""

import csv
import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from pathlib import Path
from statistics import median
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sifmark.core.console import comma_separated
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import read_bounded
from sifmark.core.process import run
from sifmark.studies.analysis.energy import UNKNOWN_SCOPE, EnergyRow, MeasuredEnergy, MeteredRun, total
from sifmark.studies.analysis.node_names import expand

# Seconds since 1970 from 2001 to 2286: a larger number is in milliseconds or finer.
EARLIEST, LATEST = 1e9, 1e10
FORMAT = "JobID,JobName,State,Start,End,ElapsedRaw,NodeList,ConsumedEnergyRaw"
COVERS = "nodes of the job, as Slurm's plugin counts them"
WRITE_IT = f"sacct --parsable2 --format={FORMAT} --jobs=JOBS > FILE"
SLACK = 2.0  # seconds by which clocks of nodes and controller may differ: NTP keeps both, sacct has whole ones
_ENERGY, _ID = "ConsumedEnergyRaw", "JobID"
_JOB = re.compile(r"[0-9]+(?:_[0-9]+)?(?:\+[0-9]+)?")
_NO_VALUES = {0, 2**64 - 1, 2**64 - 2, 2**32 - 1, 2**32 - 2}  # NO_VAL and INFINITE of slurm.h
_EXTERN = "extern"  # the step that lasts as long as the job, on all of its nodes
_LARGEST = 64 << 20  # bytes of a file
_SACCT_LIMIT = 120.0  # seconds
_OFF = "Slurm counted 0 J: its energy accounting (AcctGatherEnergyType) is off, or nodes have no sensor for it"
ALL = ""  # the node of a recording that does not name nodes
FEWEST_PERIODS = 20
MOST_MISSING = 5  # periods between two readings, above which there is a gap
MOST_NAMED = 3  # gaps in a message


def zone_of(name: str) -> tzinfo | None:
    """Return a time zone by its name, such as Europe/Berlin; None for no name. Raises UsageError."""
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        cause = f"there is no time zone {name!r}"
        raise UsageError(cause, "for example UTC or Europe/Berlin", code="invalid-option") from error


def seconds_since_1970(text: str, zone: tzinfo | None) -> float:
    """Return a time: seconds since 1970, or ISO 8601, whose zone is never guessed. Raises ValueError."""
    try:
        number = float(text)
    except ValueError:
        return _from_iso(text, zone)
    if not EARLIEST <= number < LATEST:
        raise ValueError(f"{text} is no number of seconds since 1970")
    return number


def _from_iso(text: str, zone: tzinfo | None) -> float:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no time: write seconds since 1970, or 2026-11-27T12:00:00Z") from None
    if moment.tzinfo is None and zone is None:
        raise ValueError(f"{text!r} has no time zone: name it with --time-zone")
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def energy_rows(
    runs: Sequence[MeteredRun],
    *,
    sacct: str = "",
    job_ids: str = "",
    pdu: str = "",
    covers: str = "",
    time_zone: str = "",
    clock_offset: float = 0.0,
) -> list[EnergyRow]:
    """Return the energies of runs, beside those of at most one other source: a file of `sacct` or of a PDU, or job IDs.

    `covers` is what the PDU measures, `clock_offset` seconds to add to times of the file. Raises UsageError for several
    sources, or one that cannot be read.
    """
    if sum(map(bool, (sacct, job_ids, pdu))) > 1:
        cause = "the energy of the whole is given by several sources"
        raise UsageError(cause, "choose --sacct, --job-ids or --pdu", code="invalid-option")
    zone = zone_of(time_zone)
    if pdu:
        return rows_of_pdu(runs, read_pdu(Path(pdu), zone, clock_offset), covers or UNKNOWN_SCOPE)
    if sacct:
        return rows_of_jobs(runs, read_sacct(Path(sacct), zone), clock_offset)
    if job_ids:
        return rows_of_jobs(runs, ask_sacct(comma_separated(job_ids)), clock_offset)
    nothing = MeasuredEnergy(None, None, UNKNOWN_SCOPE, "no other source was given: --sacct, --job-ids or --pdu")
    return [EnergyRow(run.label, (run,), run.own, nothing) for run in runs]


# Slurm


@dataclass(frozen=True)
class AccountedJob:
    """A job, or a task of a job array."""

    id: str
    start: float | None  # seconds since 1970
    end: float | None
    nodes: frozenset[str]
    energy: MeasuredEnergy


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
    candidates = [[job for job in jobs if _is_within(each, job, offset)] for each in runs]
    rows = []
    for job in jobs:
        own = tuple(each for each, within in zip(runs, candidates, strict=True) if within == [job])
        rows.append(EnergyRow(f"job {job.id}", own, total(own), job.energy))
    for each, within in zip(runs, candidates, strict=True):
        if len(within) != 1:
            names = ", ".join(job.id for job in within)
            reason = f"it may belong to several jobs: {names}" if names else "no job was there then"
            rows.append(EnergyRow(each.label, (each,), each.own, MeasuredEnergy(None, None, COVERS, reason)))
    return rows


def _is_within(each: MeteredRun, job: AccountedJob, offset: float) -> bool:
    if job.start is None or each.started < job.start + offset - SLACK:
        return False
    if job.end is not None and each.finished > job.end + offset + SLACK:
        return False
    return not job.nodes or bool({_short(host) for host in each.hosts} & job.nodes)


def _jobs(source: str, lines: Sequence[str], zone: tzinfo | None) -> list[AccountedJob]:
    reader = csv.DictReader(lines, delimiter="|", quoting=csv.QUOTE_NONE, restval="")
    if missing := [name for name in (_ID, _ENERGY) if name not in (reader.fieldnames or ())]:
        cause = f"{source} has no column {' and '.join(missing)}"
        raise UsageError(cause, f"write it: {WRITE_IT}", code="document-invalid")
    by_job: dict[str, dict[str, Mapping[str, str]]] = {}  # lines by job and step; "" is the job itself
    for record in reader:
        job, _, step = record[_ID].partition(".")
        if job:
            by_job.setdefault(job, {})[step] = record
    if not by_job:
        raise SifmarkError(f"{source} has no job", f"name jobs that exist: {WRITE_IT}", code="document-invalid")
    return [_job(source, name, steps, zone) for name, steps in by_job.items()]


def _job(source: str, name: str, steps: Mapping[str, Mapping[str, str]], zone: tzinfo | None) -> AccountedJob:
    own = steps.get("") or next(iter(steps.values()))
    start, end = (_job_time(source, own.get(column, ""), zone) for column in ("Start", "End"))
    seconds = float(own["ElapsedRaw"]) if own.get("ElapsedRaw", "").isdigit() else None
    if seconds is None and start is not None and end is not None:
        seconds = end - start
    nodes = own.get("NodeList", "")
    hosts = frozenset(expand(nodes)) if nodes and nodes != "None assigned" else frozenset[str]()
    return AccountedJob(name, start, end, hosts, _job_energy(steps, seconds))


def _job_energy(steps: Mapping[str, Mapping[str, str]], seconds: float | None) -> MeasuredEnergy:
    """Return the energy of a job's own line, else of the step that lasts as long.

    Others are not added up: steps overlap, and each has all that its nodes used meanwhile.
    """
    for step, covers in (("", COVERS), (_EXTERN, f"{COVERS} (step {_EXTERN})")):
        text = steps.get(step, {}).get(_ENERGY, "")
        if text.isdigit() and int(text) not in _NO_VALUES:
            return MeasuredEnergy(float(text), seconds, covers)
    zero = any(line.get(_ENERGY) == "0" for line in steps.values())
    return MeasuredEnergy(None, None, COVERS, _OFF if zero else "Slurm has no energy of the job as a whole")


def _job_time(source: str, text: str, zone: tzinfo | None) -> float | None:
    if text in ("", "Unknown", "None"):
        return None
    try:
        return seconds_since_1970(text, zone)
    except ValueError as error:
        remedy = "name the cluster's zone: --time-zone Europe/Berlin"
        raise UsageError(f"{source}: {error}", remedy, code="document-invalid") from error


# Power distribution units


@dataclass(frozen=True)
class PowerSeries:
    """Readings of power, by time."""

    times: tuple[float, ...]  # seconds since 1970, increasing
    watts: tuple[float, ...]

    def energy(self, start: float, end: float, covers: str) -> MeasuredEnergy:
        """Return the energy between two times: trapezoids, cut at the edges."""
        if reason := self._problem(start, end):
            return MeasuredEnergy(None, None, covers, reason)
        first, last = bisect_right(self.times, start), bisect_left(self.times, end)
        inner = list(zip(self.times[first:last], self.watts[first:last], strict=True))
        points = [(start, self._at(start)), *inner, (end, self._at(end))]
        joules = math.fsum((b - a) * (p + q) / 2 for (a, p), (b, q) in pairwise(points))
        return MeasuredEnergy(joules, end - start, covers)

    def _problem(self, start: float, end: float) -> str:
        """Return why the recording does not give the energy between two times."""
        if self.times[0] > start or self.times[-1] < end:
            missing = [f"begins {self.times[0] - start:.3g} s after the run does"] if self.times[0] > start else []
            missing += [f"ends {end - self.times[-1]:.3g} s before the run does"] if self.times[-1] < end else []
            return f"the recording {' and '.join(missing)}"
        period = median(after - before for before, after in pairwise(self.times))
        first, last = bisect_right(self.times, start) - 1, bisect_left(self.times, end) + 1
        if gaps := [(a, b) for a, b in pairwise(self.times[max(0, first) : last]) if b - a > period * MOST_MISSING]:
            named = ", ".join(f"{b - a:.3g} s from {_clock(a)}" for a, b in gaps[:MOST_NAMED])
            return f"{len(gaps)} gaps in the recording, above {MOST_MISSING} periods of {period:.3g} s: {named}"
        if end - start < FEWEST_PERIODS * period:
            return f"the run of {end - start:.3g} s is shorter than {FEWEST_PERIODS} periods of {period:.3g} s"
        return ""

    def _at(self, time: float) -> float:
        """Return the power at a time between two readings."""
        after = max(1, bisect_left(self.times, time))
        (a, b), (p, q) = self.times[after - 1 : after + 1], self.watts[after - 1 : after + 1]
        return p + (q - p) * (time - a) / (b - a)


def read_pdu(path: Path, zone: tzinfo | None, offset: float = 0.0) -> dict[str, PowerSeries]:
    """Return the readings of a file by node; `offset` is added to its times. Raises UsageError naming the line."""
    readings: dict[str, dict[float, float]] = defaultdict(dict)
    remedy = "give a CSV file with time and watts"
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            for node, time, watts in _readings(path, stream, zone):
                readings[node][time + offset] = watts
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: {error}", remedy, code="file-unreadable") from error
    if not readings or any(len(values) < 2 for values in readings.values()):
        raise UsageError(f"{path} has no two readings of a node", remedy, code="document-invalid")
    return {node: PowerSeries(*zip(*sorted(values.items()), strict=True)) for node, values in readings.items()}


def rows_of_pdu(runs: Sequence[MeteredRun], series: Mapping[str, PowerSeries], covers: str) -> list[EnergyRow]:
    """Return a row for each run, with the energy from its beginning to its end: of its nodes, if the file has them."""
    return [EnergyRow(run.label, (run,), run.own, _whole(run, runs, series, covers)) for run in runs]


def _whole(
    run: MeteredRun, runs: Sequence[MeteredRun], series: Mapping[str, PowerSeries], covers: str
) -> MeasuredEnergy:
    others = [each for each in runs if each is not run and run.overlaps(each)]
    if ALL in series:
        if others:
            reason = f"{others[0].file} ran at the same time, and the recording does not say which node used what"
            return MeasuredEnergy(None, None, covers, reason)
        return series[ALL].energy(run.started, run.finished, covers)
    by_short_name = {_short(node): values for node, values in series.items()}
    joules = 0.0
    for host in sorted(run.hosts):
        values = series.get(host) or by_short_name.get(_short(host))
        if values is None:
            return MeasuredEnergy(None, None, covers, f"the recording has no node {host}")
        if shared := next((each for each in others if host in each.hosts), None):
            return MeasuredEnergy(None, None, covers, f"{shared.file} ran on {host} at the same time")
        energy = values.energy(run.started, run.finished, covers)
        if energy.joules is None:
            return energy
        joules += energy.joules
    if not run.hosts:
        return MeasuredEnergy(None, None, covers, "the result does not name its host")
    return MeasuredEnergy(joules, run.finished - run.started, covers)


def _readings(path: Path, stream: Iterable[str], zone: tzinfo | None) -> Iterator[tuple[str, float, float]]:
    reader = csv.DictReader(stream)
    names = {(name or "").strip().lower(): name for name in reader.fieldnames or ()}
    if missing := [name for name in ("time", "watts") if name not in names]:
        has = ", ".join(filter(None, names)) or "none"
        remedy = "the first line names the columns: time,watts or time,node,watts"
        raise UsageError(f"{path} has no column {' and '.join(missing)}; it has {has}", remedy, code="document-invalid")
    for row in reader:
        text = (row[names["watts"]] or "").strip()
        if text.lower() in ("", "nan", "null", "n/a"):
            continue  # a reading that failed: it shows as a gap
        try:
            time, watts = seconds_since_1970((row[names["time"]] or "").strip(), zone), _watts(text)
        except ValueError as error:
            remedy = "correct the line; --time-zone names the zone of times without one"
            raise UsageError(f"{path}:{reader.line_num}: {error}", remedy, code="document-invalid") from error
        yield (row[names["node"]] or "").strip() if "node" in names else ALL, time, watts


def _watts(text: str) -> float:
    try:
        watts = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number of watts") from None
    if not 0 <= watts < 1e9:
        raise ValueError(f"{text} W is no power")
    return watts


def _short(host: str) -> str:
    return host.partition(".")[0]


def _clock(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%dT%H:%M:%SZ}"
