"""States of submitted runs: from squeue, from sacct where it keeps accounts, and from the records of array tasks."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sifmark.core.console import warn
from sifmark.core.errors import SifmarkError
from sifmark.studies.slurm.options import clock_of
from sifmark.studies.slurm.queue import Queue, TaskStatus, accounted, ask_queue, require_slurm
from sifmark.studies.slurm.records import (
    Submission,
    TaskEvent,
    TaskRecord,
    jobs_folder,
    submissions,
    task_record,
)
from sifmark.studies.slurm.script import CODE_IMAGE_CHANGED, CODE_LIST_MISSING, WARNING_SECONDS, job_name
from sifmark.studies.study import PlannedRun, RunState

_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_ACTIVE = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
# The run itself is not to blame, and it is done again without being asked.
_AGAIN = {"CANCELLED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED"}
INTERRUPTED = "interrupted"  # a state of results
TIMEOUT, OUT_OF_MEMORY = "TIMEOUT", "OUT_OF_MEMORY"
_TERMINATED = 143  # 128 and SIGTERM: exit code of an image that a signal stopped
_CODES = {
    2: "wrong usage, see its log",
    6: "its result could not be written: is the disk full, or a quota reached?",
    CODE_IMAGE_CHANGED: "the image was replaced after the job was submitted",
    CODE_LIST_MISSING: "the node does not see the folder of results",
    126: "the node cannot start what starts the image",
    127: "the node does not have what starts the image",
}


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a run in its last submission.

    DONE means that its job ended well, and the result says the rest. TO_DO has the cause why it is to be done again.
    """

    state: RunState
    cause: str
    job: str = ""  # ID of the task: JOB_INDEX
    system: str = ""
    nodes: str = ""
    limit: int = 0  # seconds that it was given
    seconds: int | None = None  # that its last attempt took


def job_states(results: Path, keys: Collection[str] | None = None, *, strict: bool = False) -> dict[str, JobState]:
    """Return the state of each run of a study's results that was submitted, by key.

    If `keys` are given, such as those of runs without a result, others are left out. Without Slurm, or if it does not
    answer, the records of tasks decide; with `strict` SifmarkError is raised.
    """
    folder = jobs_folder(results)
    last = _last_submissions(folder)
    if not last:
        return {}
    queue = _ask(strict)
    wanted = last if keys is None else [key for key in keys if key in last]
    places = {key: (_with_job(last[key][0], queue.jobs if queue else {}), last[key][1]) for key in wanted}
    tasks = _tasks(places.values(), queue) if queue else {}
    return {key: _state(folder, *place, tasks, asked=queue is not None) for key, place in places.items()}


def _tasks(places: Iterable[tuple[Submission, int]], queue: Queue) -> dict[str, TaskStatus]:
    """Return the tasks as Slurm has them: sacct is asked for those that left the queue."""
    gone = {submission.job for submission, index in places if _task_id(submission, index) not in queue.tasks}
    return {**accounted(filter(None, gone)), **queue.tasks}


def merge(runs: Iterable[PlannedRun], states: Mapping[str, JobState], *, retry: bool = False) -> Iterator[PlannedRun]:
    """Yield planned runs with what is known of their jobs. With `retry`, what failed is to be done again."""
    for planned in runs:
        state = states.get(planned.key)
        yield planned if state is None else _merged(planned, state, retry)


def active_jobs(states: Mapping[str, JobState], system: str) -> tuple[str, ...]:
    """Return the IDs of a system's jobs that wait or run."""
    active = (state for state in states.values() if state.state in (RunState.QUEUED, RunState.RUNNING))
    jobs = (state.job.partition("_")[0] for state in active if state.system == system)
    return tuple(dict.fromkeys(filter(None, jobs)))


def _merged(planned: PlannedRun, state: JobState, retry: bool) -> PlannedRun:
    if planned.state in (RunState.DONE, RunState.CANNOT_RUN, RunState.RUNNING):
        return planned
    if state.state is RunState.DONE:  # the result, or its lack, counts
        lacking = planned.state is RunState.TO_DO and not planned.reason
        return replace(planned, reason="its job ended without a valid result") if lacking else planned
    if state.state is RunState.FAILED and (retry or planned.state is RunState.FAILED):
        # What a result says of its failure is more than an exit code.
        better = not planned.reason or state.cause.startswith((TIMEOUT, OUT_OF_MEMORY))
        return replace(planned, reason=state.cause) if better else planned
    interrupted = planned.reason.startswith(INTERRUPTED)  # by what ended its job
    if state.state is RunState.TO_DO and planned.state is RunState.FAILED and not interrupted:
        return planned
    return replace(planned, state=state.state, reason=state.cause)


def _last_submissions(folder: Path) -> dict[str, tuple[Submission, int]]:
    """Return by key the last submission of a run and the number of its task."""
    return {
        key: (submission, index)
        for submission in submissions(folder)
        for index, key in enumerate(submission.keys(folder), start=1)
    }


def _ask(strict: bool) -> Queue | None:
    try:
        require_slurm()
        return ask_queue()
    except SifmarkError as error:
        if strict:
            raise
        warn(f"states of jobs are read from their own records alone: {error.cause}")
        return None


def _with_job(submission: Submission, names: Mapping[str, str]) -> Submission:
    """Return a submission with its job's ID, also if the one who submitted it was killed before that was recorded."""
    return submission if submission.job else replace(submission, job=names.get(job_name(submission.name), ""))


def _task_id(submission: Submission, index: int) -> str:
    return f"{submission.job}_{index}"


def _state(
    folder: Path, submission: Submission, index: int, tasks: Mapping[str, TaskStatus], *, asked: bool
) -> JobState:
    """Return the state of a task from Slurm, or from its record if Slurm has forgotten it or was not `asked`."""
    task = tasks.get(_task_id(submission, index))
    if task is not None and task.state in _WAITING | _ACTIVE:
        state = RunState.QUEUED if task.state in _WAITING else RunState.RUNNING
        return _job_state(submission, index, state, task.reason if state is RunState.QUEUED else "", task.nodes)
    record = task_record(folder, submission.name, index)
    if task is None:
        return _by_record(submission, index, record, asked)
    return _ended(submission, index, record, task)


def _ended(submission: Submission, index: int, record: TaskRecord, task: TaskStatus) -> JobState:
    code = record.last.code if record.last else task.exit_code
    state, cause = _outcome(task.state, task.exit_code if code is None else code, submission, record.seconds)
    if task.state in _AGAIN and task.nodes and task.nodes != "None assigned":
        cause += f" on {task.nodes}"
    return _job_state(submission, index, state, cause, task.nodes, record.seconds)


def _outcome(state: str, code: int | None, submission: Submission, seconds: int | None) -> tuple[RunState, str]:
    """Return the state of a run from Slurm's state of its ended task."""
    if state == "COMPLETED":
        return RunState.DONE, ""
    if state == TIMEOUT or (code == _TERMINATED and _took_its_time(submission, seconds)):
        return RunState.FAILED, f"{TIMEOUT}: {clock_of(submission.seconds)} did not suffice"
    if state in _AGAIN:
        return RunState.TO_DO, state
    if state == "FAILED" and code == _TERMINATED:
        return RunState.TO_DO, "CANCELLED: a signal stopped it"
    if state != "FAILED":
        return RunState.FAILED, state
    return RunState.FAILED, _code_text(code)


def _code_text(code: int | None) -> str:
    if code is None:
        return "FAILED, see its log"
    return f"exit code {code}: {_CODES[code]}" if code in _CODES else f"exit code {code}"


def _took_its_time(submission: Submission, seconds: int | None) -> bool:
    """Return whether a run lasted until Slurm's warning before the end of its time, which may come a minute early."""
    return seconds is not None and seconds >= submission.seconds - 2 * WARNING_SECONDS


def _by_record(submission: Submission, index: int, record: TaskRecord, asked: bool) -> JobState:
    """Return the state of a task that Slurm does not know, or was not `asked` for."""
    last = record.last
    if last is not None and last.what == "end":
        word = "FAILED" if last.code else "COMPLETED"
        state, cause = _outcome(word, last.code, submission, record.seconds)
    elif not asked:
        state, cause = (RunState.RUNNING if last else RunState.QUEUED), "by its record"
    else:
        state, cause = RunState.TO_DO, _lost(submission, last)
    return _job_state(submission, index, state, cause, last.node if last else "", record.seconds)


def _lost(submission: Submission, last: TaskEvent | None) -> str:
    if not submission.job:
        return "its submission did not come to an end"
    if last is None:
        return f"lost: job {submission.job} is gone and left no trace; does the node see the folder of results?"
    return f"lost: it began on {last.node} and left no end: killed, or the node failed"


def _job_state(
    submission: Submission, index: int, state: RunState, cause: str, nodes: str = "", seconds: int | None = None
) -> JobState:
    job = _task_id(submission, index) if submission.job else ""
    return JobState(state, cause, job, submission.system, nodes, submission.seconds, seconds)
