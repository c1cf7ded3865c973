"""The one door to subprocesses: argv lists, drained pipes, a log, a time limit, TERM before KILL."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from sifmark.core.environment import tool_environment
from sifmark.core.errors import SifmarkError

TERMINATION_GRACE = 10.0  # seconds between TERM and KILL
TAIL = 20  # lines of a failed command that its error quotes

Watcher = Callable[[str], None]

_living: set[subprocess.Popen[str]] = set()  # commands that some thread waits for
_stopping = threading.Event()  # what is started now is stopped at once: the program ends
_postponed: list[int] | None = None  # signals that came while a command was being started; None: unwind at once


@dataclass(frozen=True)
class CompletedCommand:
    """What a command left behind. `output` is its stdout; `tail` the last lines of both streams."""

    argv: tuple[str, ...]
    exit_code: int
    output: str
    tail: tuple[str, ...]
    seconds: float


class CommandError(SifmarkError):
    """A command that could not start, ran out of time or answered with a non-zero exit code."""


def run(
    argv: Sequence[str | Path],
    *,
    log: Path | None = None,
    watch: Watcher | None = None,
    watch_output: Watcher | None = None,
    watch_errors: Watcher | None = None,
    time_limit: float | None = None,
    check: bool = True,
    remedy: str = "",
    environment: Mapping[str, str] | None = None,
) -> CompletedCommand:
    """Run a command to its end, echo it into `log`, and pass each line to `watch`; lines of stdout also to
    `watch_output`, and lines of stderr to `watch_errors`.

    `time_limit` is in seconds; `environment` is added to the user's. With `check` a failure raises CommandError with
    `remedy`, as do, in any case, a command that cannot start and one that takes too long.
    """
    words = tuple(str(word) for word in argv)
    with _open_log(log) as sink:
        sink(f"+ {shlex.join(words)}")
        started = time.monotonic()
        with contextlib.ExitStack() as cleanup:
            with _signals_postponed():
                process = _start(words, environment or {})
                cleanup.callback(_living.discard, process)
                _living.add(process)
                if _stopping.is_set():
                    os.killpg(process.pid, signal.SIGTERM)
                output = _Drain(process.stdout, sink, watch, watch_output)
                errors = _Drain(process.stderr, sink, watch, watch_errors)
                cleanup.callback(_end, process, output, errors)
            if not _ended(process, time_limit):
                raise CommandError(
                    f"{words[0]} did not finish within {time_limit:g} s: {shlex.join(words)}",
                    "look at the log for where it stood; raise time_limit in the settings if the machine is slow",
                )
        for fault in (output.fault, errors.fault):
            if fault is not None:
                raise fault
        seconds = time.monotonic() - started
        sink(f"= exit code {process.returncode} after {seconds:.1f} s")
    tail = (*output.lines[-TAIL:], *errors.lines[-TAIL:])[-TAIL:]
    finished = CompletedCommand(words, process.returncode, "\n".join(output.lines), tail, seconds)
    if check and finished.exit_code != 0:
        raise CommandError(describe_failure(finished, log), remedy)
    return finished


def _ended(process: subprocess.Popen[str], time_limit: float | None) -> bool:
    """Whether a command ends in time. A thread waits for it: with a limit Popen only looks every 50 ms."""
    waiter = threading.Thread(target=process.wait, daemon=True)
    waiter.start()
    waiter.join(time_limit)
    return not waiter.is_alive()


def unwind_on_signals() -> None:
    """Let SIGTERM and SIGHUP end this process as an exception does: what it started is stopped, drafts are removed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _unwind)


def _unwind(number: int, _frame: FrameType | None) -> None:
    if _postponed is None:
        raise SystemExit(128 + number)
    _postponed.append(number)


@contextlib.contextmanager
def _signals_postponed() -> Iterator[None]:
    """Unwind only at the end of the block: a command that is being started is not yet known to anyone who stops it."""
    global _postponed
    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread alone
        yield
        return
    came: list[int] = []
    _postponed = came
    try:
        yield
    finally:
        _postponed = None
        if came:
            raise SystemExit(128 + came[0])


def stop(process: subprocess.Popen[str]) -> None:
    """End a command and everything it started: TERM and a grace period while it runs itself, then KILL."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TERMINATION_GRACE)
        # What it left running holds its pipes open, and would be waited for.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def stop_running() -> None:
    """End the commands that other threads wait for, which then go on as after any failure. For a program that ends."""
    _stopping.set()
    for process in tuple(_living):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


@contextlib.contextmanager
def thread_pool(size: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for work that is done at the same time. What did not begin is left where the block fails.

    Where a signal or Ctrl-C ends the program, their commands are ended too: it would else wait for them.
    """
    with ThreadPoolExecutor(size) as pool:
        try:
            yield pool
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            if not isinstance(error, Exception):
                stop_running()
            raise


def _end(process: subprocess.Popen[str], *drains: "_Drain") -> None:
    stop(process)
    for drain in drains:
        drain.join()


def describe_failure(finished: CompletedCommand, log: Path | None) -> str:
    """The command, its exit code, its last words, and where the whole log lies."""
    lines = [f"exit code {finished.exit_code} from: {shlex.join(finished.argv)}"]
    lines += [f"  | {line}" for line in finished.tail]
    if log is not None:
        lines.append(f"  log: {log}")
    return "\n".join(lines)


def _start(words: tuple[str, ...], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=tool_environment(**environment),
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(f"cannot start {words[0]}: {error.strerror}", "run `inv doctor`") from error


@contextlib.contextmanager
def _open_log(log: Path | None) -> Iterator[Watcher]:
    if log is None:
        yield _ignore
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    lock = threading.Lock()
    with log.open("a", encoding="utf-8", buffering=1) as stream:

        def sink(line: str) -> None:
            with lock:
                stream.write(f"{line}\n")

        yield sink


def _ignore(_line: str) -> None:
    pass


class _Drain(threading.Thread):
    """Reads one pipe to its end, so that a talkative command never blocks on a full one.

    `fault` is the first failure to pass a line on, such as a log on a full disk; reading goes on all the same.
    """

    def __init__(self, pipe: IO[str] | None, *watchers: Watcher | None) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self.fault: OSError | None = None
        self._pipe = pipe
        self._watchers = [watcher for watcher in watchers if watcher is not None]
        self.start()

    def run(self) -> None:
        if self._pipe is None:
            return
        with self._pipe:
            for line in self._pipe:
                self.lines.append(line.rstrip("\n"))
                self._pass_on(self.lines[-1])

    def _pass_on(self, line: str) -> None:
        if self.fault is not None:
            return
        try:
            for watcher in self._watchers:
                watcher(line)
        except OSError as error:
            self.fault = error


def bytecode_python(version: str) -> str | None:
    """An interpreter of the base's minor version on this host, or None: bytecode is bound to it."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    found = shutil.which(f"python{version}")
    return found if found and _is_program(found) else None


def _is_program(path: str) -> bool:
    """Whether a file is machine code. Version managers have a script for each Python, which may start none."""
    with Path(path).open("rb") as stream:
        return stream.read(4) == b"\x7fELF"
