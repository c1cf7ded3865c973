"""The only module that starts processes: argv lists, drained pipes, a log, a time limit, TERM before KILL."""

import contextlib
import functools
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sifmark.core.environment import tool_environment
from sifmark.core.errors import SifmarkError
from sifmark.core.signals import postponed_signals

TERMINATION_GRACE = 10.0  # seconds between TERM and KILL
TAIL = 20  # lines of a failed command that its error quotes
_OF_SIGNALS = 128  # and the number of a signal: the exit code of what it ended
# Commands of ours that others start show a CI system nothing.
_NO_CI = dict.fromkeys(("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS", "GITLAB_CI"), "")

_SET_UP = ("apptainer", "docker")  # programs with a script in ci/setup

LineHandler = Callable[[str], None]
_Handlers = tuple[LineHandler | None, ...]
_running: set[subprocess.Popen[str]] = set()  # commands that some thread waits for
_stopping = threading.Event()  # the program ends: commands that are started from now on are stopped at once


@dataclass(frozen=True)
class CompletedCommand:
    """A command that has ended. `output` is its stdout, `tail` the last lines of stdout and then stderr."""

    argv: tuple[str, ...]
    exit_code: int
    output: str
    tail: tuple[str, ...]
    seconds: float


class CommandError(SifmarkError):
    """A command that could not start, ran out of time or ended with a non-zero exit code."""


class PipeReader(threading.Thread):
    """Reads one pipe of a command to its end, so that a command with much output never blocks on a full pipe.

    Each line goes to `lines` and to the handlers. `failure` is the first error of a handler, such as a log on a full
    disk; after it the pipe is still read to its end. After more than `most` characters, nothing is kept any more, and
    `stop` is called.
    """

    def __init__(
        self,
        pipe: IO[str] | None,
        *handlers: LineHandler | None,
        most: int = -1,
        stop: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self.failure: OSError | None = None
        self.is_too_long = False
        self._pipe, self._most, self._stop = pipe, most, stop
        self._handlers = [handler for handler in handlers if handler is not None]
        self.start()

    def run(self) -> None:
        """Read the pipe; the thread calls this."""
        if self._pipe is None:
            return
        count = 0
        with self._pipe:
            while line := self._pipe.readline(self._most + 1 or -1):
                count += len(line)
                if self._most < 0 or count <= self._most:
                    self.lines.append(line.rstrip("\n"))
                    self._handle(self.lines[-1])
                elif not self.is_too_long and self._stop:
                    self.is_too_long = True
                    self._stop()

    def _handle(self, line: str) -> None:
        if self.failure is not None:
            return
        try:
            for handler in self._handlers:
                handler(line)
        except OSError as error:
            self.failure = error


def run_sifmark(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    watch_errors: LineHandler | None = None,
    check: bool = True,
) -> CompletedCommand:
    """Run a sifmark command in a new process, as `run` does. It writes nothing for CI systems: its caller does."""
    # -P: a folder called sifmark where the user works is not this package.
    argv = [sys.executable, "-P", "-m", "sifmark", *arguments]
    return run(argv, watch_errors=watch_errors, check=check, environment={**_NO_CI, **environment})


def run_foreground(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command that has this process's terminal, and return its exit code as `exit_code_of` does.

    Signals for this process go to the command, which decides when to end: `foreground`. Raises CommandError if it
    cannot start.
    """
    with foreground(argv, environment) as process:
        process.wait()
    return exit_code_of(process)


@contextlib.contextmanager
def foreground(
    argv: Sequence[str], environment: Mapping[str, str], piped: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in the foreground, whose stdout or stderr may be pipes. It has to end before the block does.

    Signals for this process go to the command meanwhile. One that does not end it, as it comes when it has just ended,
    is an order to this process afterwards: nothing else is to be started. Raises CommandError if it cannot start.
    """
    process: subprocess.Popen[bytes] | None = None
    received: list[int] = []
    with contextlib.ExitStack() as handlers:

        def pass_on(number: int, _frame: object) -> None:
            received.append(number)
            if process is not None and number != signal.SIGINT:  # which a terminal sends to the command too
                process.send_signal(number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handlers.callback(signal.signal, number, signal.signal(number, pass_on))
        try:
            pipes: dict[str, Any] = dict.fromkeys(piped, subprocess.PIPE)
            process = subprocess.Popen(argv, env={**os.environ, **environment}, **pipes)
        except OSError as error:
            raise start_failure(argv[0], error) from error
        for early in tuple(received):  # while it was being started
            pass_on(early, None)
        yield process
    if received and exit_code_of(process) < _OF_SIGNALS:
        signal.raise_signal(received[0])


def start_failure(program: str, error: OSError) -> CommandError:
    """Return the error for a program that the operating system did not start."""
    if isinstance(error, FileNotFoundError) and "/" not in program:
        cause = f"{program} is not in PATH"
    else:
        cause = f"cannot start {program}: {error.strerror}"
    name = Path(program).name
    remedy = f"install it: ci/setup/{name}" if name in _SET_UP else "install it; `sifmark doctor` checks this host"
    return CommandError(cause, remedy, code="program-missing")


def exit_code_of(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a command that has ended: 128 and its number for a signal."""
    code = process.returncode
    return _OF_SIGNALS - code if code < 0 else code


def start_apart(
    argv: Sequence[str], log: IO[bytes], environment: Mapping[str, str], descriptors: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a command in a new session without waiting for it. All its output goes to `log`.

    It has the descriptors, and its stdin is a pipe that ends with this process. Raises CommandError if it cannot start.
    """
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            pass_fds=tuple(descriptors),
            start_new_session=True,
        )
    except OSError as error:
        raise start_failure(argv[0], error) from error


def run(
    argv: Sequence[str | Path],
    *,
    log: Path | None = None,
    watch: LineHandler | None = None,
    watch_output: LineHandler | None = None,
    watch_errors: LineHandler | None = None,
    time_limit: float | None = None,
    check: bool = True,
    remedy: str = "",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    most: int = -1,
) -> CompletedCommand:
    """Run a command to its end, in a folder if one is given, and return what it left.

    Its lines are written to `log` and passed to `watch`, those of stdout also to `watch_output`, those of stderr to
    `watch_errors`. `time_limit` is in seconds; `environment` is added to the user's; `most` is how many characters it
    may print, for one that is not trusted. Raises CommandError, with `remedy`, for a non-zero exit code unless `check`
    is false; and always for a command that cannot start, does not end in time, or prints too much.
    """
    words = tuple(map(str, argv))
    with _open_log(log) as write_line:
        write_line(f"+ {shlex.join(words)}")
        started = time.monotonic()
        with contextlib.ExitStack() as cleanup:
            handlers = (write_line, watch, watch_output), (write_line, watch, watch_errors)
            process, output, errors = _launch(cleanup, words, environment or {}, folder, *handlers, most)
            if not _ends_within(process, time_limit):
                raise _timed_out(words, time_limit)
        _raise_failure(output, errors)
        if output.is_too_long or errors.is_too_long:
            cause = f"{words[0]} was stopped, it printed more than {most} characters: {shlex.join(words)}"
            raise CommandError(cause, remedy, code="command-failed")
        seconds = time.monotonic() - started
        write_line(f"= exit code {process.returncode} after {seconds:.1f} s")
    tail = (*output.lines[-TAIL:], *errors.lines[-TAIL:])[-TAIL:]
    completed = CompletedCommand(words, process.returncode, "\n".join(output.lines), tail, seconds)
    if check and completed.exit_code != 0:
        raise CommandError(describe_failure(completed, log), remedy, code="command-failed")
    return completed


def describe_failure(command: CompletedCommand, log: Path | None) -> str:
    """Return the exit code, the command, its last lines, and the path of the log."""
    lines = [f"exit code {command.exit_code} from: {shlex.join(command.argv)}"]
    lines += [f"  | {line}" for line in command.tail]
    if log is not None:
        lines.append(f"  log: {log}")
    return "\n".join(lines)


def stop_process(process: subprocess.Popen[str]) -> None:
    """Stop a command and every process that it started: TERM and a grace period while it runs, then KILL."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TERMINATION_GRACE)
        # A process that it left running holds its pipes open; their readers would wait for it.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def stop_running_commands() -> None:
    """Send TERM to all commands that other threads wait for, and to those started later: this program ends."""
    _stopping.set()
    for process in tuple(_running):
        _terminate(process)


@contextlib.contextmanager
def thread_pool(size: int) -> Iterator[ThreadPoolExecutor]:
    """Run work in `size` threads; work that has not begun is dropped if the block fails.

    If a signal or Ctrl-C ends the program, the commands of the threads are stopped: the pool would wait for them.
    """
    with ThreadPoolExecutor(size) as pool:
        try:
            yield pool
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            if not isinstance(error, Exception):
                stop_running_commands()
            raise


def _launch(
    cleanup: contextlib.ExitStack,
    words: tuple[str, ...],
    environment: Mapping[str, str],
    folder: Path | None,
    output_handlers: _Handlers,
    error_handlers: _Handlers,
    most: int,
) -> tuple[subprocess.Popen[str], PipeReader, PipeReader]:
    """Start a command and the readers of its pipes. `cleanup` stops it; no signal can come in between."""
    with postponed_signals():
        process = _start(words, environment, folder)
        cleanup.callback(_running.discard, process)
        _running.add(process)
        if _stopping.is_set():
            _terminate(process)
        stop = functools.partial(_kill, process)
        output = PipeReader(process.stdout, *output_handlers, most=most, stop=stop)
        errors = PipeReader(process.stderr, *error_handlers, most=most, stop=stop)
        cleanup.callback(_stop_and_join, process, output, errors)
    return process, output, errors


def _start(words: tuple[str, ...], environment: Mapping[str, str], folder: Path | None) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=tool_environment(**environment),
            cwd=folder,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise start_failure(words[0], error) from error


def _ends_within(process: subprocess.Popen[str], time_limit: float | None) -> bool:
    """Wait for a command, at most `time_limit` seconds. A thread waits: Popen.wait with a limit polls every 50 ms."""
    waiter = threading.Thread(target=process.wait, daemon=True)
    waiter.start()
    waiter.join(time_limit)
    return not waiter.is_alive()


def _timed_out(words: tuple[str, ...], time_limit: float | None) -> CommandError:
    return CommandError(
        f"{words[0]} did not finish within {time_limit:g} s: {shlex.join(words)}",
        "the log shows how far it came; raise time_limit in the settings if the machine is slow",
        code="command-failed",
    )


def _terminate(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _stop_and_join(process: subprocess.Popen[str], *readers: PipeReader) -> None:
    stop_process(process)
    for reader in readers:
        reader.join()


def _raise_failure(*readers: PipeReader) -> None:
    """Raise the first error with which a log or another handler of lines failed."""
    for reader in readers:
        if reader.failure is not None:
            raise reader.failure


@contextlib.contextmanager
def _open_log(log: Path | None) -> Iterator[LineHandler]:
    """Return what writes a line to the log, from any thread."""
    if log is None:
        yield _ignore
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    lock = threading.Lock()
    with log.open("a", encoding="utf-8", buffering=1) as stream:

        def write_line(line: str) -> None:
            with lock:
                stream.write(f"{line}\n")

        yield write_line


def _ignore(_line: str) -> None:
    pass
