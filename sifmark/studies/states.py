"""The state of a run, in one place: from its result, its log, its lock, and the answer of a scheduler."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from sifmark.core.console import counted
from sifmark.results.numbers import format_seconds
from sifmark.studies.events import EVENTS, SUFFIX, Ended, RunLog, Started, Submitted, read_log
from sifmark.studies.folder import last_line, tail, task_log
from sifmark.studies.outcomes import INTERRUPTED, NO_DEVICE, ResultEntry, RunOutcome, outcome_of
from sifmark.studies.slurm.options import clock_of
from sifmark.studies.study import NOTHING, Cause, PlannedRun, Reason, RunState

FAILED = "failed"  # of --retry: whatever the cause
# Exit codes of job scripts that did not start the image; those of images are others.
CODE_NOT_WRITABLE, CODE_IMAGE_REPLACED, CODE_LIST_MISSING, CODE_PROGRAM_MISSING = 6, 65, 66, 127
WARNING_SECONDS = 60  # between a scheduler's signal and the end of a job's time: enough to write what was measured
_SIGTERM, _SIGKILL = 143, 137  # 128 and the number of the signal that ended a program
_NODE_FAILURE = re.compile(r"CANCELLED AT \S+ DUE TO NODE FAILURE")
_MEMORY = re.compile(r"memory limit|oom[-_ ]?kill|out of memory", re.IGNORECASE)

# Of Slurm, which other schedulers' words would be put into.
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_ACTIVE = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
_AGAIN = {
    "CANCELLED": Cause.CANCELLED,
    "REVOKED": Cause.CANCELLED,
    "PREEMPTED": Cause.PREEMPTED,
    "NODE_FAIL": Cause.NODE_FAILED,
    "BOOT_FAIL": Cause.NODE_FAILED,
}
_NOT_STARTED = "JobLaunchFailure"  # a reason: the node could not open the log, for example
_CODES = {
    CODE_NOT_WRITABLE: (Cause.NOT_WRITABLE, "is the disk full, a quota reached, or may nobody write there?"),
    CODE_IMAGE_REPLACED: (Cause.IMAGE_REPLACED, "since the job was submitted"),
    CODE_LIST_MISSING: (Cause.NOT_SEEN, "the node does not see the folder of results"),
    126: (Cause.PROGRAM_MISSING, "the node cannot start what starts the image"),
    CODE_PROGRAM_MISSING: (Cause.PROGRAM_MISSING, "the node does not have what starts the image"),
}


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """An array task as a scheduler has it."""

    task: str  # its ID: JOB_INDEX
    name: str  # of the job
    cluster: str
    state: str  # in Slurm's words: PENDING, RUNNING, COMPLETED, TIMEOUT ...
    reason: str = ""  # why it waits, or did not start
    nodes: str = ""
    exit_code: int | None = None

    @property
    def job(self) -> str:
        """The ID of its array."""
        return self.task.partition("_")[0]

    @property
    def waits(self) -> bool:
        """Whether it has not begun."""
        return self.state in _WAITING

    @property
    def is_active(self) -> bool:
        """Whether it waits or runs."""
        return self.waits or self.state in _ACTIVE


class Answer(Enum):
    """What the scheduler of this host says of the job of a run."""

    NONE = auto()  # nothing was asked: the run has no job
    KNOWN = auto()  # the task, or that it is gone
    HIDDEN = auto()  # it does not show the jobs of other users
    SILENT = auto()  # it does not answer
    ABSENT = auto()  # this host has none, or that of another cluster


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of a run."""

    file: Path  # of the result
    result: ResultEntry | None
    log: RunLog
    locked: bool
    answer: Answer = Answer.NONE
    task: TaskStatus | None = None

    @property
    def array(self) -> str:
        """The name of the job array by which the run was submitted, or last started; empty if there is none."""
        event = self.log.last or self.log.submitted
        return event.array if event else ""

    @property
    def asks(self) -> bool:
        """Whether its scheduler has something to say: it has a job, and no conclusive result."""
        return bool(self.array) and (self.result is None or self.result.state is not RunState.DONE)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run, why, and the task that waits or runs."""

    state: RunState
    reason: Reason = NOTHING
    job: str = ""


def status_of(evidence: Evidence, *, obstacle: str = "", remark: Reason = NOTHING, retry: str = "") -> RunStatus:
    """Return the state of a run. `obstacle` is why it cannot run, `remark` what is to be said of it before it starts.

    A run that failed so that `retry` means it is to do again.
    """
    status = _status(evidence, obstacle, remark)
    if status.state is RunState.FAILED and retry in (FAILED, status.reason.cause):
        return RunStatus(RunState.TO_DO, Reason(Cause.AGAIN, f"after {status.reason}"))
    return status


def _status(evidence: Evidence, obstacle: str, remark: Reason) -> RunStatus:
    result = evidence.result
    if result is not None and result.state is RunState.DONE:
        return RunStatus(RunState.DONE, result.reason)
    if active := _active(evidence):
        return active
    if result is not None and result.state is RunState.FAILED:
        return RunStatus(RunState.FAILED, result.reason)
    lacks_device = result is not None and result.reason.cause == NO_DEVICE
    ended = None if lacks_device else _of_last_attempt(evidence)
    if ended is not None and ended.state is RunState.FAILED:
        return ended
    if obstacle:
        return RunStatus(RunState.CANNOT_RUN, Reason(Cause.IMPOSSIBLE, obstacle))
    reasons = [ended.reason if ended else NOTHING, result.reason if result else NOTHING]
    if result is not None and not (result.reason.cause == INTERRUPTED and evidence.array):
        reasons.reverse()  # what ended its job says more than an interrupted result
    return RunStatus(RunState.TO_DO, next(filter(None, (*reasons, remark)), NOTHING))


def _active(evidence: Evidence) -> RunStatus | None:
    """Return the state of a run that waits or runs; None if it does neither, as far as is known."""
    task, log = evidence.task, evidence.log
    if task is not None and task.is_active:
        if task.waits:
            return RunStatus(RunState.QUEUED, Reason(Cause.JOB, task.reason), task.task)
        return RunStatus(RunState.RUNNING, Reason(Cause.JOB, f"on {task.nodes}" if task.nodes else ""), task.task)
    if evidence.locked:
        return RunStatus(RunState.RUNNING)
    if evidence.answer not in (Answer.SILENT, Answer.HIDDEN):
        return None
    last = log.last
    if isinstance(last, Ended) and not (last.cancelled and evidence.answer is Answer.SILENT):
        return None
    job = job_of(log)
    whose = f"job {job}" if job else "its job"
    unknown = {
        Answer.SILENT: f"{whose}: the scheduler does not answer",
        Answer.HIDDEN: f"{whose} of {log.submitted.user if log.submitted else 'another user'}, which is not shown here",
    }
    state = RunState.RUNNING if isinstance(last, Started) else RunState.QUEUED
    return RunStatus(state, Reason(Cause.SILENT, unknown[evidence.answer]), job)


def _of_last_attempt(evidence: Evidence) -> RunStatus | None:
    """Return what the last attempt came to without a conclusive result; None if there was none."""
    if left_out := evidence.log.left_out:
        budget = f"left out for a budget of {format_seconds(left_out.budget)}"
        return RunStatus(RunState.TO_DO, Reason(Cause.OVER_BUDGET, budget))
    event = evidence.log.last or evidence.log.submitted
    if event is None:
        return None
    if evidence.task is not None:
        return _of_task(evidence, evidence.task)
    if isinstance(event, Ended):
        return _of_end(evidence, event)
    return RunStatus(RunState.TO_DO, _left_behind(evidence, event))


def _of_task(evidence: Evidence, task: TaskStatus) -> RunStatus:
    """Return the state of a run whose task has ended, in the scheduler's words."""
    last = evidence.log.last
    where = f"on {task.nodes}" if task.nodes and task.nodes != "None assigned" else ""
    if task.state == "TIMEOUT":
        return _out_of_time(evidence.log)
    if task.state == "OUT_OF_MEMORY":
        return RunStatus(RunState.FAILED, Reason(Cause.MEMORY_LIMIT, "of its job: ask for more with mem"))
    if task.state in _AGAIN:
        return RunStatus(RunState.TO_DO, Reason(_AGAIN[task.state], where))
    if task.reason == _NOT_STARTED:
        cause = "can the folder of results be seen and written to there?"
        return RunStatus(RunState.TO_DO, Reason(Cause.NOT_STARTED, f"{where}: {cause}".removeprefix(": ")))
    if isinstance(last, Ended):
        return _of_end(evidence, last)
    return _of_end(evidence, Ended(0.0, task.nodes, task.exit_code, job=task.task))


def _of_end(evidence: Evidence, end: Ended) -> RunStatus:
    """Return the state of a run whose last attempt has ended, and which has no conclusive result."""
    code, log = end.code, evidence.log
    if code == 0 and not end.cause:
        return RunStatus(RunState.TO_DO, Reason(Cause.NO_RESULT, "it ended well, and left no valid result"))
    if code == _SIGTERM:
        if not end.cancelled and end.job and _took_its_time(log):
            return _out_of_time(log)
        return RunStatus(RunState.TO_DO, Reason(Cause.CANCELLED, f"on {end.host}"))
    if end.cancelled:
        return RunStatus(RunState.TO_DO, Reason(Cause.CANCELLED, end.cause or f"on {end.host}"))
    printed = _printed(evidence)
    said = end.cause or (last_line(printed) if printed else "")
    if _NODE_FAILURE.search(said):  # srun may end of it before the script is told to
        return RunStatus(RunState.TO_DO, Reason(Cause.NODE_FAILED, f"on {end.host}"))
    if end.job and code in _CODES:
        cause, detail = _CODES[code]
        return RunStatus(RunState.TO_DO, Reason(cause, f"on {end.host}: {said or detail}"))
    if code == _SIGKILL:
        if printed and _MEMORY.search(tail(printed)):
            return RunStatus(RunState.FAILED, Reason(Cause.MEMORY_LIMIT, f"of its job: {said}"))
        said = said or "killed: the memory limit of the job is the most usual cause"
    text = ": ".join(filter(None, ("" if code is None else f"exit code {code}", said)))
    return RunStatus(RunState.FAILED, Reason(Cause.NO_RESULT, text or "see its log"))


def _out_of_time(log: RunLog) -> RunStatus:
    given = f"{clock_of(log.submitted.limit)} did not suffice" if log.submitted else "its time did not suffice"
    return RunStatus(RunState.FAILED, Reason(Cause.TIME_LIMIT, given))


def _took_its_time(log: RunLog) -> bool:
    """Return whether a run lasted until the scheduler's warning before the end of its time, which may come earlier."""
    seconds, submitted = log.seconds, log.submitted
    return submitted is not None and seconds is not None and seconds >= submitted.limit - 2 * WARNING_SECONDS


def _left_behind(evidence: Evidence, event: Started | Submitted) -> Reason:
    """Return the reason of a run that was begun or submitted, and of which nothing else is known."""
    started = event if isinstance(event, Started) else None
    if evidence.answer is Answer.ABSENT:
        ago = format_seconds(max(0.0, time.time() - event.time))
        what = f"started on {started.host}" if started else f"submitted on {event.host}"
        return Reason(Cause.ELSEWHERE, f"job {job_of(evidence.log)} was {what} {ago} ago, and is not known here")
    if started is not None:
        return Reason(Cause.LOST, f"it began on {started.host} and left no end: killed, or the node failed")
    if not (job := job_of(evidence.log)):
        return Reason(Cause.LOST, "its submission did not come to an end")
    return Reason(Cause.LOST, f"job {job} is gone and left no trace; does the node see the folder of results?")


def job_of(log: RunLog) -> str:
    """Return the task of a run, as its log has it."""
    return (log.last.job if log.last else "") or (log.submitted.task if log.submitted else "")


def _printed(evidence: Evidence) -> Path | None:
    """Return the log of what the task of a run printed."""
    submitted = evidence.log.submitted
    if submitted is None:
        return None
    return task_log(evidence.file.parent.parent, submitted.array, submitted.index)


def ended_outcome(planned: PlannedRun) -> RunOutcome:
    """Return the outcome of a run on this machine from its result, and without one from its log."""
    outcome = outcome_of(planned)
    failure = _failure(planned.result) if outcome.state is RunState.TO_DO else None
    return RunOutcome(RunState.FAILED, failure, {}) if failure else outcome


def failures_in(folder: Path) -> dict[str, str]:
    """Return why runs of a system's folder failed without a result, by their keys."""
    results = (folder / f"{path.stem}.json" for path in sorted((folder / EVENTS).glob(f"*{SUFFIX}")))
    failures = {result.stem: _failure(result) for result in results if not result.exists()}
    return {key: reason.detail for key, reason in failures.items() if reason}


def _failure(result: Path) -> Reason | None:
    """Return why the last attempt of a run failed by the log of the run alone; None if it did not."""
    ended = _of_last_attempt(Evidence(result, None, read_log(result), locked=False))
    return ended.reason if ended is not None and ended.state is RunState.FAILED else None


def retried(runs: Sequence[PlannedRun]) -> str:
    """Return in words which runs are to do again on request: `3 runs: 2 crashed, 1 no_result`; nothing without any."""
    again = [each.reason.detail for each in runs if each.reason.cause == Cause.AGAIN]
    kinds = [detail.removeprefix("after ").partition(":")[0] for detail in again]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return f"{counted(len(again), 'run')}: {counts}" if again else ""
