"""Submission of a plan's runs as job arrays, once each, after checks of images, data and disk space."""

import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

from sifmark.core.console import warn
from sifmark.core.errors import SifmarkError
from sifmark.core.files import is_full, write_text
from sifmark.core.locks import file_lock
from sifmark.core.settings import Settings
from sifmark.engines.binds import binds_of, read_options
from sifmark.studies.folder import put_away
from sifmark.studies.outcomes import entry_for
from sifmark.studies.slurm.images import started_image
from sifmark.studies.slurm.jobs import JobArray, arrays_of, task_of
from sifmark.studies.slurm.options import job_options
from sifmark.studies.slurm.queue import is_refusal, require_slurm, submit
from sifmark.studies.slurm.records import Submission, jobs_folder, submission_path, write_submission
from sifmark.studies.slurm.script import script_of
from sifmark.studies.slurm.states import TIMEOUT, JobState, active_jobs, job_states
from sifmark.studies.study import PlannedRun, RunState, StudyPlan, System

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
    require_slurm()
    folder = jobs_folder(plan.folder.absolute())
    require_room(folder)
    with file_lock(folder / ".submit.lock", waiting="another process submits runs of this study"):
        states = job_states(plan.folder, strict=True)
        arrays = list(_arrays(_left(plan, states), plan, settings, _at_least(states)))
        return tuple(_submit_all(arrays, states))


def render_runs(plan: StudyPlan, settings: Settings) -> tuple[SubmittedArray, ...]:
    """Return the arrays of a plan's runs that are to be done, with their scripts. Nothing is written.

    Raises SifmarkError where an image or data are missing.
    """
    runs = [planned for planned in _with_images(plan) if planned.state is RunState.TO_DO]
    arrays = _arrays(runs, plan, settings, {})
    return tuple(SubmittedArray(array, script_of(array)) for array in arrays)


def _with_images(plan: StudyPlan) -> Iterator[PlannedRun]:
    """Yield the runs on systems whose image was found; if none was, all, so that the error names the images."""
    missing = [name for name, image in plan.images.items() if not image]
    if len(missing) == len(plan.images):
        missing = []
    for name in missing:
        warn(f"the image of system {name} is not here, and so its runs are left out")
    yield from (planned for planned in plan.runs if planned.run.system not in missing)


def _left(plan: StudyPlan, states: Mapping[str, JobState]) -> list[PlannedRun]:
    """Return the runs to do that have not been submitted or done since the plan was made."""
    busy = {key for key, state in states.items() if state.state in (RunState.QUEUED, RunState.RUNNING)}
    wanted = (each for each in _with_images(plan) if each.state is RunState.TO_DO and each.key not in busy)
    return [planned for planned in wanted if not _is_done(planned)]


def _is_done(planned: PlannedRun) -> bool:
    """Return whether a run is done by now. A result of another run in its place is put away: nodes would keep it."""
    entry = entry_for(planned)
    if entry is not None and entry.is_of_another:
        put_away(planned.result)
    return entry is not None and entry.state is RunState.DONE


def _at_least(states: Mapping[str, JobState]) -> dict[str, float]:
    """Return by key the seconds that runs need whose last job ran out of time."""
    return {key: state.limit * _LONGER for key, state in states.items() if state.cause.startswith(TIMEOUT)}


def _arrays(
    runs: list[PlannedRun], plan: StudyPlan, settings: Settings, at_least: Mapping[str, float]
) -> Iterator[JobArray]:
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
    stamp = _stamp(folder)
    for number, (shape, members) in enumerate(arrays_of(runs, options, at_least), start=1):
        yield JobArray(
            name=f"{stamp}-{number}-{shape.text}",
            study=plan.study.name,
            shape=shape,
            options=options[shape.system],
            image=images[shape.system],
            folder=folder,
            work=Path.cwd(),
            tasks=tuple(map(task_of, members)),
        )


def _stamp(folder: Path) -> str:
    """Return the time as the names of arrays begin with it, as no earlier one does: two submissions take a second."""
    text = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    names = chain([text], (f"{text}.{number}" for number in count(2)))
    return next(name for name in names if not any(folder.glob(f"{name}-*")))


def _of(system: System, runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    return [planned for planned in runs if planned.run.system == system.name]


def _submit_all(arrays: list[JobArray], states: Mapping[str, JobState]) -> Iterator[SubmittedArray]:
    """Submit arrays; those of a system with a limit of jobs in flight follow each other, and what waits already."""
    before = {array.shape.system: active_jobs(states, array.shape.system) for array in arrays}
    for array in arrays:
        limited = array.options.max_jobs_in_flight is not None
        submitted = _submit(array, before[array.shape.system] if limited else ())
        before[array.shape.system] = (submitted.job,)
        yield submitted


def _submit(array: JobArray, dependencies: tuple[str, ...]) -> SubmittedArray:
    """Write the files of an array and submit it. What is refused leaves no files behind.

    They stay if Slurm does not answer: it may have taken the job, which is then known by its name.
    """
    script = script_of(array)
    record = Submission(
        name=array.name,
        system=array.shape.system,
        seconds=array.shape.seconds,
        submitted=time.time(),
        host=socket.gethostname(),
    )
    for folder in (array.records, array.logs, *{task.result.parent for task in array.tasks}):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(array.list, array.lines)
    write_text(array.script, script)
    write_submission(array.folder, record)  # before the job exists, so that none is without a record
    try:
        job = submit(array.script, dependencies)
    except SifmarkError as error:
        if is_refusal(error):
            _remove(array)
        raise
    write_submission(array.folder, replace(record, job=job))
    return SubmittedArray(array, script, job)


def _remove(array: JobArray) -> None:
    for path in (array.list, array.script, submission_path(array.folder, array.name)):
        path.unlink(missing_ok=True)
    for folder in (array.records, array.logs):
        folder.rmdir()


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
