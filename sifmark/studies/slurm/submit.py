"""Submission of a plan's runs as job arrays, once each, after checks of images, data and disk space."""

import os
import secrets
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sifmark.core.console import counted, warn
from sifmark.core.errors import SifmarkError
from sifmark.core.files import is_full, write_text
from sifmark.core.locks import file_lock
from sifmark.core.settings import Settings
from sifmark.engines.binds import binds_of, read_options
from sifmark.studies.events import Ended, Submitted, host, note, user
from sifmark.studies.evidence import read_evidence
from sifmark.studies.folder import jobs_folder, put_away
from sifmark.studies.slurm.images import started_image
from sifmark.studies.slurm.jobs import ALL_LANES, JobArray, arrays_of, task_of
from sifmark.studies.slurm.options import job_options
from sifmark.studies.slurm.queue import is_refusal, scheduler, submit
from sifmark.studies.slurm.script import script_of
from sifmark.studies.states import CODE_PROGRAM_MISSING, Evidence, status_of
from sifmark.studies.study import Cause, PlannedRun, RunState, StudyPlan, System

_LONGER = 2.0  # a run that ran out of time gets so many times the limit that it had


@dataclass(frozen=True, slots=True)
class SubmittedArray:
    """An array with its script, and the ID of its job; empty if it was only rendered."""

    array: JobArray
    script: str
    job: str = ""


def submit_runs(plan: StudyPlan, settings: Settings, dry_run: bool = False) -> tuple[SubmittedArray, ...]:
    """Submit the runs of a plan that are to be done, and return the arrays; with `dry_run` only render them.

    Of two submissions at once the second one waits, and leaves out what the first one has submitted. Raises
    SifmarkError, before anything is submitted, where an image, data or room for results are missing; and with Slurm's
    own words where it refuses an array: those before it stay submitted.
    """
    if dry_run:
        return render_runs(plan, settings)
    cluster = scheduler().cluster
    folder = jobs_folder(plan.folder.absolute())
    require_room(folder)
    with file_lock(folder / ".submit.lock", waiting="another process submits runs of this study"):
        found = _Jobs(plan.runs, read_evidence(plan.runs, strict=True))
        here = {planned.key for planned in _with_images(plan)}
        left = [planned for planned in found.free() if planned.key in here]
        arrays = list(_arrays(left, plan, settings, found))
        return _submit_all(arrays, left, found, cluster)


def render_runs(plan: StudyPlan, settings: Settings) -> tuple[SubmittedArray, ...]:
    """Return the arrays of a plan's runs that are to be done, with their scripts. Nothing is written.

    Raises SifmarkError where an image or data are missing.
    """
    runs = [planned for planned in _with_images(plan) if planned.state is RunState.TO_DO]
    arrays = _arrays(runs, plan, settings, _Jobs())
    return tuple(SubmittedArray(array, script_of(array)) for array in arrays)


def _with_images(plan: StudyPlan) -> Iterator[PlannedRun]:
    """Yield the runs on systems whose image was found; if none was, all, so that the error names the images."""
    missing = [name for name, image in plan.images.items() if not image]
    if len(missing) == len(plan.images):
        missing = []
    for name in missing:
        warn(f"the image of system {name} is not here, and so its runs are left out")
    yield from (planned for planned in plan.runs if planned.run.system not in missing)


@dataclass(frozen=True, slots=True)
class _Jobs:
    """What is known of the runs of a study while a submission has them for itself."""

    runs: Sequence[PlannedRun] = ()
    evidence: Sequence[Evidence] = ()  # of each run

    def free(self) -> list[PlannedRun]:
        """Return the runs to do that have been neither submitted nor done since the plan was made.

        A result of another run in the place of one is put away: nodes would keep it.
        """
        return [each for each, found in self._pairs if each.state is RunState.TO_DO and _is_free(each, found)]

    @property
    def _pairs(self) -> Iterator[tuple[PlannedRun, Evidence]]:
        return zip(self.runs, self.evidence, strict=True)

    @property
    def at_least(self) -> dict[str, float]:
        """By key the seconds that runs need whose last job ran out of time."""
        return {
            planned.key: each.log.submitted.limit * _LONGER
            for planned, each in self._pairs
            if each.log.submitted and status_of(each).reason.cause == Cause.TIME_LIMIT
        }

    def active(self, system: str) -> dict[int, list[str]]:
        """Return the IDs of a system's jobs that wait or run, by lane."""
        lanes = defaultdict[int, list[str]](list)
        for planned, each in self._pairs:
            submitted, task = each.log.submitted, each.task
            if submitted and task and task.is_active and planned.run.system == system:
                lanes[submitted.lane].append(task.job)
        return {lane: list(dict.fromkeys(jobs)) for lane, jobs in lanes.items()}

    def excluded(self, runs: Collection[PlannedRun]) -> tuple[str, ...]:
        """Return the nodes that could not start the image of runs when they tried last."""
        keys = {planned.key for planned in runs}
        last = (each.log.last for planned, each in self._pairs if planned.key in keys)
        ends = (event for event in last if isinstance(event, Ended) and event.job)
        return tuple(dict.fromkeys(event.host for event in ends if event.code == CODE_PROGRAM_MISSING))


def _is_free(planned: PlannedRun, found: Evidence) -> bool:
    if found.result is not None and found.result.is_of_another:
        put_away(planned.result)
    return status_of(found).state in (RunState.TO_DO, RunState.FAILED)


def _arrays(runs: list[PlannedRun], plan: StudyPlan, settings: Settings, jobs: _Jobs) -> Iterator[JobArray]:
    """Yield the arrays of runs, once image and data of each system are checked."""
    systems = {system.name: system for system in plan.study.systems if _of(system, runs)}
    options = {
        name: job_options(settings.slurm, system.slurm, f"{plan.study.file}: system {name}: slurm")
        for name, system in systems.items()
    }
    for system in systems.values():
        require_paths(system, _of(system, runs))
    images = {
        name: started_image(system, options[name], settings, _of(system, runs)) for name, system in systems.items()
    }
    folder = jobs_folder(plan.folder.absolute())
    stamp = _stamp()
    busy = [name for name in systems if jobs.active(name)]
    for number, array in enumerate(arrays_of(runs, options, jobs.at_least, busy), start=1):
        shape = array.shape
        yield JobArray(
            name=f"{stamp}-{number}-{shape.text}",
            study=plan.study.name,
            shape=shape,
            options=options[shape.system],
            image=images[shape.system],
            folder=folder,
            work=Path.cwd(),
            tasks=tuple(map(task_of, array.runs)),
            limit=array.limit,
            lane=array.lane,
            excluded=jobs.excluded(array.runs),
        )


def _stamp() -> str:
    """Return how the names of arrays of a submission begin: by its time, and so that no other one has the same."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def _of(system: System, runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    return [planned for planned in runs if planned.run.system == system.name]


def _submit_all(
    arrays: Iterable[JobArray], runs: Iterable[PlannedRun], jobs: _Jobs, cluster: str
) -> tuple[SubmittedArray, ...]:
    """Submit arrays. Those of a lane follow each other, and what waits already."""
    by_key = {planned.key: planned for planned in runs}
    before: dict[tuple[str, int], list[str]] = {}
    submitted: list[SubmittedArray] = []
    for array in arrays:
        system = array.shape.system
        if array.excluded:
            warn(f"system {system}: {', '.join(array.excluded)} had no program to start the image: left out")
        active = jobs.active(system) if array.limit is not None else {}
        earlier = before.get((system, array.lane), [*active.get(array.lane, ()), *active.get(ALL_LANES, ())])
        if array.lane == ALL_LANES:
            earlier = [job for lane in active.values() for job in lane]
        try:
            submitted.append(_submit(array, [by_key[task.key] for task in array.tasks], earlier, cluster))
        except SifmarkError as error:
            raise _named(error, submitted) from error
        before[system, array.lane] = [submitted[-1].job]
    return tuple(submitted)


def _named(error: SifmarkError, submitted: Sequence[SubmittedArray]) -> SifmarkError:
    """Return the error of an array with those that were submitted before it."""
    if not submitted:
        return error
    count = counted(sum(len(each.array.tasks) for each in submitted), "run")
    jobs = ", ".join(each.job for each in submitted)
    cause = f"{error.cause}\n{count} had been submitted before, and will be done: job {jobs}"
    return type(error)(cause, error.remedy, code=error.code)


def _submit(array: JobArray, runs: Sequence[PlannedRun], dependencies: Sequence[str], cluster: str) -> SubmittedArray:
    """Write the files of an array and submit it. What is refused leaves no files behind.

    They stay if Slurm does not answer: it may have taken the job, which is then known by its name.
    """
    script = script_of(array)
    for folder in (array.logs, *{task.result.parent for task in array.tasks}):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(array.list, array.lines)
    write_text(array.script, script)
    _note(array, runs, cluster)  # before the job exists, so that none is unknown
    try:
        job, named = submit(array.script, dependencies)
    except SifmarkError as error:
        if is_refusal(error):
            _remove(array)
            for planned in runs:
                note(planned, Ended(time.time(), host(), None, f"not submitted: {error.cause}", cancelled=True))
        raise
    _note(array, runs, named or cluster, job)
    return SubmittedArray(array, script, job)


def _note(array: JobArray, runs: Sequence[PlannedRun], cluster: str, job: str = "") -> None:
    """Note in the logs of runs that they were submitted."""
    now, limit = time.time(), array.shape.seconds
    for index, planned in enumerate(runs, start=1):
        note(planned, Submitted(now, host(), user(), array.name, index, limit, job, cluster, array.lane))


def _remove(array: JobArray) -> None:
    for path in (array.list, array.script):
        path.unlink(missing_ok=True)
    array.logs.rmdir()


ROOM = 256 * 1024  # bytes that are written for a try: some results


def require_room(folder: Path) -> None:
    """Raise SifmarkError unless results can be written below a folder, which is made if need be.

    Bytes are written and removed again: only this shows a quota.
    """
    trial = folder / f".room-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with trial.open("wb") as stream:
                stream.write(bytes(ROOM))
                stream.flush()
                os.fsync(stream.fileno())
        finally:
            trial.unlink(missing_ok=True)
    except OSError as error:
        raise _no_room(folder, error) from error


def _no_room(folder: Path, error: OSError) -> SifmarkError:
    cause = f"results cannot be written to {folder}: {error.strerror}"
    if is_full(error):
        remedy = "make room, see `df -h .` and your quota; or choose another folder with --results"
        return SifmarkError(cause, remedy, code="disk-full")
    return SifmarkError(cause, "choose a folder that you may write to, with --results", code="system-error")


def require_paths(system: System, runs: Iterable[PlannedRun]) -> None:
    """Raise UsageError unless the data of runs and the bind mounts of their system exist.

    Nodes are taken to see the same paths.
    """
    for words in {read_options(planned.run.arguments) for planned in runs}:
        binds_of(words, make_folders=False, asked=system.bind)
