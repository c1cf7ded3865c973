"""Concurrent execution of a study's runs, limited by their shares of this machine."""

import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum

from sifmark.core.errors import SifmarkError
from sifmark.core.files import is_full
from sifmark.core.locks import LockHeldError, file_lock
from sifmark.engines.progress import ProgressPipe
from sifmark.studies.estimate import Estimates
from sifmark.studies.events import LeftOut, host, log_of_events, note
from sifmark.studies.folder import lock_of
from sifmark.studies.outcomes import RunOutcome
from sifmark.studies.running.execute import Processes, ReadySystem, execute
from sifmark.studies.running.shares import Machine, Share, Shares
from sifmark.studies.states import ended_outcome
from sifmark.studies.study import Cause, PlannedRun, RunState

_TICK = 0.5  # seconds between two looks at what others have released
_Stamp = tuple[int | None, ...]


PipeFor = Callable[[PlannedRun], ProgressPipe | None]


def no_pipe(_planned: PlannedRun) -> None:
    """Return no pipe: progress is not displayed."""


class Waiting(StrEnum):
    """Why no further run was started."""

    NOT = ""
    OWN = "for own runs"
    OTHERS = "for another process that uses this machine"
    RUNS_OF_OTHERS = "for runs that another process does"


@dataclass(frozen=True)
class Ended:
    """A run that has ended, here or in another process that did it in the meantime."""

    planned: PlannedRun
    outcome: RunOutcome
    seconds: float  # 0 if another process did it
    elsewhere: bool = False


@dataclass(frozen=True)
class Broken:
    """A run that failed for a reason that would affect every run."""

    planned: PlannedRun
    error: BaseException


@dataclass
class Progress:
    """How far the runs are."""

    waiting: deque[PlannedRun]
    active: dict[str, PlannedRun] = field(default_factory=dict)  # by key
    elsewhere: list[PlannedRun] = field(default_factory=list)  # that another process does
    left_out: list[PlannedRun] = field(default_factory=list)  # that would not fit into the budget
    ended: list[Ended] = field(default_factory=list)
    reason: Waiting = Waiting.NOT

    @property
    def remaining(self) -> list[PlannedRun]:
        """The runs that have not ended."""
        return [*self.active.values(), *self.waiting, *self.elsewhere]


class StudyRunner:
    """Starts runs in their order, and tells of each that has ended."""

    def __init__(
        self,
        systems: Mapping[str, tuple[ReadySystem, Machine]],
        shares: Shares,
        report: Callable[[Ended, Progress], None],
        watch: Callable[[Progress], None],
        estimates: Estimates,
        budget: float | None = None,
        pipe_for: PipeFor = no_pipe,
    ) -> None:
        """`report` is called with each run that ended, `watch` again and again while runs are in progress.

        `pipe_for` is called with each run that is about to start, for the pipe by which it is to report its progress.
        """
        self._systems, self._shares, self._estimates = systems, shares, estimates
        self._report, self._watch, self._pipe_for = report, watch, pipe_for
        self._budget = budget
        self._until = None if budget is None else time.monotonic() + budget
        self._processes = Processes()
        self._before: dict[str, _Stamp] = {}
        self._events: queue.Queue[Ended | Broken] = queue.Queue()
        self._threads: dict[str, threading.Thread] = {}  # by key

    def do(self, runs: Iterable[PlannedRun]) -> Progress:
        """Do all runs that fit into the budget. Raises SifmarkError or OSError for what ends the study.

        Signals and Ctrl-C stop the runs in progress, which then write their results, before they go on.
        """
        progress = Progress(deque(runs))
        self._before = {planned.key: _stamp(planned) for planned in progress.waiting}
        try:
            while progress.remaining:
                while self._start_next(progress):
                    pass
                self._collect(progress)
        except BaseException as error:
            self._stop(progress, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
            raise
        finally:
            self._shares.leave()
        return progress

    def _start_next(self, progress: Progress) -> bool:
        """Start the next run, or see that it needs none. Return false if that has to wait."""
        if not progress.waiting:
            return False
        planned = progress.waiting[0]
        if not self._fits(planned):
            self._leave_out(progress.waiting.popleft(), progress)
            return True
        if ended := self._done_by_others(planned):
            progress.waiting.popleft()
            self._note(progress, ended)
            return True
        with ExitStack() as locks:
            share = self._share_for(planned, progress)
            if share is None:
                return False
            locks.callback(share.release)
            progress.waiting.popleft()
            try:
                lock = locks.enter_context(file_lock(lock_of(planned), wait=False))
            except LockHeldError:
                progress.elsewhere.append(planned)
                return True
            locks.callback(lock_of(planned).unlink, missing_ok=True)
            if ended := self._done_by_others(planned):
                self._note(progress, ended)
                return True
            work = (planned, share, lock, locks.pop_all(), self._pipe_for(planned))
            self._threads[planned.key] = threading.Thread(target=self._work, args=work, daemon=True)
            progress.active[planned.key] = planned
            self._threads[planned.key].start()
        return True

    def _share_for(self, planned: PlannedRun, progress: Progress) -> Share | None:
        _, machine = self._systems[planned.run.system]
        if len(progress.active) >= machine.jobs or any(
            each.run.system != planned.run.system for each in progress.active.values()
        ):
            progress.reason = Waiting.OWN
            return None
        share = self._shares.take(machine, planned.run.arguments, planned.run.devices)
        progress.reason = Waiting.NOT if share else Waiting.OWN if progress.active else Waiting.OTHERS
        return share

    def _done_by_others(self, planned: PlannedRun) -> Ended | None:
        """Return the end of a run that another process has done since it was planned."""
        outcome = ended_outcome(planned)
        is_new = outcome.state is RunState.DONE or _stamp(planned) != self._before[planned.key]
        if outcome.state is RunState.TO_DO or not is_new:
            return None
        return Ended(planned, outcome, 0.0, elsewhere=True)

    def _leave_out(self, planned: PlannedRun, progress: Progress) -> None:
        """Note that a run is left out, unless there is more to say of it."""
        progress.left_out.append(planned)
        if self._budget is not None and planned.reason.cause in (Cause.NONE, Cause.OVER_BUDGET):
            note(planned, LeftOut(time.time(), host(), self._budget))

    def _fits(self, planned: PlannedRun) -> bool:
        if self._until is None:
            return True
        return time.monotonic() + (self._estimates.seconds(planned.run, planned.seconds) or 0.0) <= self._until

    def _work(self, planned: PlannedRun, share: Share, lock: int, locks: ExitStack, pipe: ProgressPipe | None) -> None:
        """Do a run; a thread calls this."""
        begin = time.monotonic()
        event: Ended | Broken
        try:
            with locks:
                ready, _ = self._systems[planned.run.system]
                outcome = execute(planned, ready, share, [lock], self._processes, pipe)
            event = Ended(planned, outcome, time.monotonic() - begin)
        except BaseException as error:  # it is raised where the study can be stopped
            event = Broken(planned, error)
        self._events.put(event)

    def _collect(self, progress: Progress) -> None:
        """Wait for the end of a run, but not for long; look then for runs that others have ended."""
        try:
            self._take(progress, self._events.get(timeout=_TICK))
        except queue.Empty:
            self._watch(progress)
        if progress.elsewhere and not progress.waiting and not progress.active:
            progress.reason = Waiting.RUNS_OF_OTHERS
            progress.waiting.extend(progress.elsewhere)
            progress.elsewhere.clear()

    def _take(self, progress: Progress, event: Ended | Broken) -> None:
        del progress.active[event.planned.key]
        if isinstance(event, Broken):
            raise as_failure(event.error)
        is_whole = event.outcome.state is RunState.DONE and not event.outcome.reason
        self._estimates.learn(event.planned.run, event.seconds, event.planned.seconds, is_whole=is_whole)
        self._note(progress, event)
        if event.outcome.lacks_device:
            cause = f"this host does not have the device of {event.planned.run.system}"
            remedy = "run the study on a machine that has it; see sifmark doctor"
            raise SifmarkError(cause, remedy, code="device-missing")

    def _note(self, progress: Progress, ended: Ended) -> None:
        progress.ended.append(ended)
        self._report(ended, progress)

    def _stop(self, progress: Progress, order: signal.Signals) -> None:
        """Let the runs in progress end with a result; at another signal, at once."""
        while progress.active:
            try:
                self._processes.stop(order)
                while progress.active:
                    self._drain(progress)
            except (KeyboardInterrupt, SystemExit):
                continue

    def _drain(self, progress: Progress) -> None:
        """Wait for the end of a run, but not for long; forget those whose thread never began."""
        try:
            event = self._events.get(timeout=_TICK)
        except queue.Empty:
            ended = [key for key in progress.active if not self._threads[key].is_alive()]
            if self._events.empty():  # a thread tells its event before it ends
                for key in ended:
                    del progress.active[key]
            return
        del progress.active[event.planned.key]
        if isinstance(event, Ended):
            self._note(progress, event)


def as_failure(error: BaseException) -> BaseException:
    """Return an error of a full disk or a used-up quota as ours, and others as they are."""
    if isinstance(error, OSError) and is_full(error):
        cause = f"{error.filename or 'the results'}: {error.strerror}"
        return SifmarkError(cause, "free space there, then run the study again: it goes on", code="disk-full")
    return error


def _stamp(planned: PlannedRun) -> _Stamp:
    """Return when the files that end a run were written."""
    files = (planned.result, log_of_events(planned.result))
    return tuple(file.stat().st_mtime_ns if file.exists() else None for file in files)
