"""Submitting the runs of a plan that are to be done, in job arrays; never one that waits or runs already."""

import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

from sifmark.core.console import warn
from sifmark.core.errors import SifmarkError
from sifmark.core.files import write_text
from sifmark.core.locks import file_lock
from sifmark.core.settings import Settings
from sifmark.studies.folder import put_away
from sifmark.studies.index import entry_for
from sifmark.studies.schedulers.dialects.rendering import SLURM, script_of
from sifmark.studies.schedulers.images import started_image
from sifmark.studies.schedulers.jobs import JobArray, arrays_of, element_of
from sifmark.studies.schedulers.options import job_options
from sifmark.studies.schedulers.preflight import require_paths, require_room
from sifmark.studies.schedulers.queue import is_refusal, require_slurm, submit
from sifmark.studies.schedulers.records import Submission, jobs_folder, submission_path, write_submission
from sifmark.studies.schedulers.states import TIMEOUT, JobState, active_jobs, job_states
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
        arrays = list(_arrays(_left(plan, states), plan, settings, SLURM, _at_least(states)))
        return tuple(_submit_all(arrays, states))


def render_runs(plan: StudyPlan, settings: Settings, scheduler: str = SLURM) -> tuple[SubmittedArray, ...]:
    """Return the arrays of a plan's runs that are to be done, with the scripts for a scheduler. Nothing is written.

    Raises SifmarkError where an image or data are missing.
    """
    runs = [planned for planned in _with_images(plan) if planned.state is RunState.TO_DO]
    arrays = _arrays(runs, plan, settings, scheduler, {})
    return tuple(SubmittedArray(array, script_of(array, scheduler)) for array in arrays)


def _with_images(plan: StudyPlan) -> Iterator[PlannedRun]:
    """Yield the runs on systems whose image is here; if none is, all, so that the images are asked for."""
    missing = [name for name, image in plan.images.items() if not image]
    if len(missing) == len(plan.images):
        missing = []
    for name in missing:
        warn(f"the image of system {name} is not here, and so its runs are left out")
    yield from (planned for planned in plan.runs if planned.run.system not in missing)


def _left(plan: StudyPlan, states: Mapping[str, JobState]) -> list[PlannedRun]:
    """Return the runs to do that nobody has submitted or done since the plan was made."""
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
    runs: list[PlannedRun], plan: StudyPlan, settings: Settings, scheduler: str, at_least: Mapping[str, float]
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
            scheduler=scheduler,
            shape=shape,
            options=options[shape.system],
            image=images[shape.system],
            folder=folder,
            work=Path.cwd(),
            elements=tuple(map(element_of, members)),
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
    script = script_of(array, array.scheduler)
    record = Submission(
        name=array.name,
        scheduler=array.scheduler,
        system=array.shape.system,
        seconds=array.shape.seconds,
        submitted=time.time(),
        host=socket.gethostname(),
    )
    for folder in (array.records, array.logs, *{element.result.parent for element in array.elements}):
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
