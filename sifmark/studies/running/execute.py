"""Execution of one run: start its supervisor, wait, then check the result and note the end."""

import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.core.files import sha256_bytes
from sifmark.core.process import start_apart
from sifmark.core.settings import Settings
from sifmark.engines import Engine
from sifmark.engines.progress import ProgressPipe
from sifmark.engines.start import CheckedImage, run_options
from sifmark.results.envelope import sign_results
from sifmark.studies.events import Ended, Started, host, note
from sifmark.studies.folder import last_line, log_of, put_away, require_space
from sifmark.studies.outcomes import RunOutcome, outcome_of
from sifmark.studies.running import supervisor
from sifmark.studies.running.shares import Share
from sifmark.studies.states import ended_outcome
from sifmark.studies.study import PlannedRun, System


@dataclass(frozen=True)
class ReadySystem:
    """A system whose image was found and checked."""

    system: System
    image: CheckedImage
    settings: Settings


class Processes:
    """The supervisors of the runs in progress, from the thread that starts one to the one that stops all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.stopping = False
        self._order = signal.SIGTERM

    def add(self, process: subprocess.Popen[bytes]) -> None:
        """Note a process; it is stopped at once if all are to stop."""
        with self._lock:
            self._running.add(process)
            if self.stopping:
                process.send_signal(self._order)

    def remove(self, process: subprocess.Popen[bytes]) -> None:
        """Forget a process that has ended."""
        with self._lock:
            self._running.discard(process)

    def stop(self, order: signal.Signals) -> None:
        """Ask all runs by a signal to end and to write their results; asked again, they end at once."""
        with self._lock:
            self.stopping, self._order = True, order
            for process in self._running:
                process.send_signal(order)


def execute(
    planned: PlannedRun,
    ready: ReadySystem,
    share: Share,
    locks: Sequence[int],
    processes: Processes,
    pipe: ProgressPipe | None = None,
) -> RunOutcome:
    """Do a run, which reports its progress by a pipe, and return its outcome.

    Raises SifmarkError or OSError for errors that would affect every run, such as a full disk or a changed image.
    """
    require_space(planned.result.parent)
    if planned.result.exists():
        put_away(planned.result)
    try:
        argv = run_argv(planned, ready, tuple(share.environment), pipe)
    except UsageError as error:  # such as data that are not here
        return _ended(planned, None, error.cause)
    ready.image.require_unchanged()
    environment = {**ready.image.variables, **share.environment, **(pipe.variables if pipe else {})}
    note(planned, Started(time.time(), host()))
    with _without_leftovers(ready.image.engine, name_of(planned)):
        code = _supervise(argv, share, log_of(planned), environment, locks, processes)
    outcome = outcome_of(planned)
    if outcome.document:
        if ready.settings.results_key is not None:
            sign_results(planned.result, ready.settings.results_key)
        note(planned, Ended(time.time(), host(), code, cancelled=processes.stopping))
        return outcome
    if planned.result.exists():
        put_away(planned.result)
        return _ended(planned, code, str(outcome.reason))
    if processes.stopping:
        note(planned, Ended(time.time(), host(), code, cancelled=True))
        return outcome
    require_space(planned.result.parent)
    return _ended(planned, code, last_line(log_of(planned)) or "it printed nothing")


def _ended(planned: PlannedRun, code: int | None, cause: str) -> RunOutcome:
    """Note the end of a run without a result, and return its outcome."""
    note(planned, Ended(time.time(), host(), code, cause))
    return ended_outcome(planned)


def name_of(planned: PlannedRun) -> str:
    """Return the name of a run among those of its engine: the same one whenever it is done, in the same folder."""
    return f"sifmark-{planned.key}-{sha256_bytes(str(planned.result.absolute()).encode())[7:15]}"


def run_argv(
    planned: PlannedRun, ready: ReadySystem, variables: Sequence[str] = (), pipe: ProgressPipe | None = None
) -> list[str]:
    """Return the argv of a run's image, which gets these variables of its environment, and sees the pipe.

    Raises UsageError for paths that cannot be shown to it.
    """
    image = ready.image
    options = run_options(image.engine, image.address, planned.paths, ready.system.bind, make_folders=False)
    options += image.engine.name_flags(name_of(planned))
    options += [word for name in variables for word in image.engine.env_flags(name)]
    options += pipe.options(image.engine) if pipe else []
    return image.command(planned.arguments, options)


def _supervise(
    argv: list[str],
    share: Share,
    log: Path,
    environment: Mapping[str, str],
    locks: Sequence[int],
    processes: Processes,
) -> int:
    """Run an image to its end by way of a supervisor, which holds the locks as long. Return its exit code."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream:
        words = supervisor.words_of(argv, share.cores)
        process = start_apart(words, stream, environment, (*locks, *share.descriptors))
    processes.add(process)
    try:
        return process.wait()
    finally:
        processes.remove(process)
        if process.stdin is not None:
            process.stdin.close()


@contextmanager
def _without_leftovers(engine: Engine, name: str) -> Iterator[None]:
    """End what a killed study left of a run, and afterwards what a killed supervisor left of it."""
    engine.end_run(name)
    try:
        yield
    finally:
        engine.end_run(name)
