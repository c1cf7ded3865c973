"""What Slurm says of the runs of a study: a job is theirs only by its ID, its name and its cluster."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from sifmark.core.console import warn
from sifmark.core.errors import SifmarkError
from sifmark.studies.events import user
from sifmark.studies.slurm.queue import Scheduler, scheduler, tasks_of
from sifmark.studies.slurm.script import job_name
from sifmark.studies.states import Answer, Evidence, TaskStatus, job_of

_Tasks = dict[str, dict[str, list[TaskStatus]]]  # by cluster, and by the name of their job


def with_answers(evidence: Sequence[Evidence], *, strict: bool = False) -> list[Evidence]:
    """Return what is known of runs with what Slurm says of their jobs.

    Without Slurm, or if it does not answer, they have that as the answer; with `strict` SifmarkError is raised.
    """
    asked = [each for each in evidence if each.asks]
    try:
        here = scheduler()
        tasks = _tasks(asked, here)
    except SifmarkError as error:
        if strict:
            raise
        if error.code == "program-missing":
            return [_as(each, Answer.ABSENT) for each in evidence]
        warn(f"states of jobs are read from the logs of runs alone: {error.cause}")
        return [_as(each, Answer.SILENT) for each in evidence]
    return [_answered(each, here, tasks) if each.asks else each for each in evidence]


def _as(evidence: Evidence, answer: Answer) -> Evidence:
    return replace(evidence, answer=answer) if evidence.asks else evidence


def _tasks(evidence: Iterable[Evidence], here: Scheduler) -> _Tasks:
    """Return the tasks of runs on this cluster, and on those of the others that can be asked from here."""
    arrays = defaultdict[str, set[tuple[str, str]]](set)
    for each in evidence:
        arrays[_cluster(each) or here.cluster].add((job_name(each.array), job_of(each.log).partition("_")[0]))
    found: _Tasks = {here.cluster: _by_name(tasks_of(arrays.pop(here.cluster, ())))}
    for cluster, members in arrays.items():
        with suppress(SifmarkError):  # the folder was copied from another site
            found[cluster] = _by_name(tasks_of(members, cluster))
    return found


def _by_name(tasks: Iterable[TaskStatus]) -> dict[str, list[TaskStatus]]:
    found = defaultdict[str, list[TaskStatus]](list)
    for task in tasks:
        found[task.name].append(task)
    return found


def _cluster(evidence: Evidence) -> str:
    event = evidence.log.last or evidence.log.submitted
    return event.cluster if event else ""


def _answered(evidence: Evidence, here: Scheduler, tasks: _Tasks) -> Evidence:
    cluster, submitted = _cluster(evidence) or here.cluster, evidence.log.submitted
    if cluster not in tasks:
        return replace(evidence, answer=Answer.ABSENT)
    named = tasks[cluster].get(job_name(evidence.array), ())
    task = _own(evidence, [task for task in named if task.cluster == cluster])
    of_another = submitted is not None and submitted.user != user()
    if task is None and here.hides_jobs and of_another:
        return replace(evidence, answer=Answer.HIDDEN)
    return replace(evidence, answer=Answer.KNOWN, task=task)


def _own(evidence: Evidence, tasks: Iterable[TaskStatus]) -> TaskStatus | None:
    """Return the task of a run among those of its job's name; also of a job whose ID was not noted any more."""
    if job := job_of(evidence.log):
        return next((task for task in tasks if task.task == job), None)
    index = evidence.log.submitted.index if evidence.log.submitted else 0
    return next((task for task in tasks if task.task.endswith(f"_{index}")), None)
