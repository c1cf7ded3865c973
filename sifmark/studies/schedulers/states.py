"""What became of each submitted run: Slurm's queue, its accounts if it keeps any, and the records of the elements."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sifmark.core.console import warn
from sifmark.core.errors import SifmarkError
from sifmark.studies.schedulers.clocks import NodeClocks
from sifmark.studies.schedulers.dialects.script import CODE_IMAGE_CHANGED, CODE_LIST_MISSING, WARNING_SECONDS
from sifmark.studies.schedulers.dialects.slurm import job_name
from sifmark.studies.schedulers.options import clock_of
from sifmark.studies.schedulers.queue import ElementStatus, Queue, accounted, ask_queue, require_slurm
from sifmark.studies.schedulers.records import (
    ElementEvent,
    ElementRecord,
    Submission,
    element_record,
    jobs_folder,
    submissions,
)
from sifmark.studies.study import PlannedRun, RunState

_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_ACTIVE = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
# The run itself is not to blame, and it is done again without being asked.
_AGAIN = {"CANCELLED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED"}
INTERRUPTED = "interrupted"  # a state of results
TIMEOUT, OUT_OF_MEMORY = "TIMEOUT", "OUT_OF_MEMORY"
_SAMPLE = 200  # records that are read for the clocks alone
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
    """What became of a run in its last submission.

    DONE means that its job ended well, and the result says the rest. TO_DO has the cause why it is to be done again.
    """

    state: RunState
    cause: str
    job: str = ""  # ID of the element: JOB_INDEX
    system: str = ""
    nodes: str = ""
    limit: int = 0  # seconds that it was given
    seconds: int | None = None  # that its last attempt took


def job_states(results: Path, keys: Collection[str] | None = None, *, strict: bool = False) -> dict[str, JobState]:
    """Return the state of each run of a study's results that was submitted, by key.

    If `keys` are given, such as those of runs without a result, others are left out; only some of their records are
    read, for the clocks. Warns of nodes whose clocks are off. Without Slurm, or if it does not answer, the records of
    elements decide; with `strict` SifmarkError is raised.
    """
    folder = jobs_folder(results)
    last = _last_submissions(folder)
    if not last:
        return {}
    queue = _ask(strict)
    history = _History(folder, NodeClocks(time.time()), asked=queue is not None)
    places = {
        key: (_with_job(submission, queue.jobs if queue else {}), index)
        for key, (submission, index) in _some(last, keys).items()
    }
    elements = _elements(places.values(), queue) if queue else {}
    states = {key: history.state(*place, elements) for key, place in places.items()}
    for warning in history.clocks.warnings():
        warn(warning)
    return states if keys is None else {key: states[key] for key in keys if key in states}


def _some(
    last: Mapping[str, tuple[Submission, int]], keys: Collection[str] | None
) -> dict[str, tuple[Submission, int]]:
    """Return the submissions of some keys, and of a sample of the others."""
    if keys is None:
        return dict(last)
    wanted = frozenset(keys)
    others = [key for key in last if key not in wanted]
    sample = others[:: len(others) // _SAMPLE + 1]
    return {key: last[key] for key in (*keys, *sample) if key in last}


def _elements(places: Iterable[tuple[Submission, int]], queue: Queue) -> dict[str, ElementStatus]:
    """Return what Slurm says of elements: its accounts are asked for those that left the queue."""
    gone = {submission.job for submission, index in places if _element(submission, index) not in queue.elements}
    return {**accounted(filter(None, gone)), **queue.elements}


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
    """Return by key the last submission of a run and the number of its element."""
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
        warn(f"what became of jobs is read from their own records alone: {error.cause}")
        return None


def _with_job(submission: Submission, names: Mapping[str, str]) -> Submission:
    """Return a submission with its job's ID, also if the one who submitted it was killed before that was recorded."""
    return submission if submission.job else replace(submission, job=names.get(job_name(submission.name), ""))


def _element(submission: Submission, index: int) -> str:
    return f"{submission.job}_{index}"


@dataclass
class _History:
    """The records that elements wrote in a folder."""

    folder: Path
    clocks: NodeClocks
    asked: bool  # whether Slurm answered

    def state(self, submission: Submission, index: int, elements: Mapping[str, ElementStatus]) -> JobState:
        """Return the state of an element by what Slurm says of it, or, if it has forgotten it, by its record."""
        element = elements.get(_element(submission, index))
        if element is not None and element.state in _WAITING | _ACTIVE:
            state = RunState.QUEUED if element.state in _WAITING else RunState.RUNNING
            cause = element.reason if state is RunState.QUEUED else ""
            return _job_state(submission, index, state, cause, element.nodes)
        record = element_record(self.folder, submission.name, index)
        self.clocks.note(submission, record, element)
        if element is None:
            return _by_record(submission, index, record, self.asked)
        return _ended(submission, index, record, element)


def _ended(submission: Submission, index: int, record: ElementRecord, element: ElementStatus) -> JobState:
    code = record.last.code if record.last else element.exit_code
    state, cause = _outcome(element.state, element.exit_code if code is None else code, submission, record.seconds)
    if element.state in _AGAIN and element.nodes and element.nodes != "None assigned":
        cause += f" on {element.nodes}"
    return _job_state(submission, index, state, cause, element.nodes, record.seconds)


def _outcome(state: str, code: int | None, submission: Submission, seconds: int | None) -> tuple[RunState, str]:
    """Return what Slurm's word for the end of an element means for its run."""
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


def _by_record(submission: Submission, index: int, record: ElementRecord, asked: bool) -> JobState:
    """Return the state of an element that Slurm does not know, or was not `asked` for."""
    last = record.last
    if last is not None and last.what == "end":
        word = "FAILED" if last.code else "COMPLETED"
        state, cause = _outcome(word, last.code, submission, record.seconds)
    elif not asked:
        state, cause = (RunState.RUNNING if last else RunState.QUEUED), "as far as its record says"
    else:
        state, cause = RunState.TO_DO, _lost(submission, last)
    return _job_state(submission, index, state, cause, last.node if last else "", record.seconds)


def _lost(submission: Submission, last: ElementEvent | None) -> str:
    if not submission.job:
        return "its submission did not come to an end"
    if last is None:
        return f"lost: job {submission.job} is gone and left no trace; does the node see the folder of results?"
    return f"lost: it began on {last.node} and left no end: killed, or the node failed"


def _job_state(
    submission: Submission, index: int, state: RunState, cause: str, nodes: str = "", seconds: int | None = None
) -> JobState:
    job = _element(submission, index) if submission.job else ""
    return JobState(state, cause, job, submission.system, nodes, submission.seconds, seconds)
