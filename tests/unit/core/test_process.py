"""Subprocesses: output, logs, time limits and signals, on real ones."""

import shlex
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from unit.refusals import refused

from sifmark.core import process as process_module
from sifmark.core.process import CommandError, run, run_sifmark
from sifmark.core.signals import unwind_on_signals

PYTHON = sys.executable


def test_output_log_and_lines(tmp_path: Path) -> None:
    lines: list[str] = []
    completed = run([PYTHON, "-c", "print('a b'); print('c')"], log=tmp_path / "logs" / "x.log", watch=lines.append)
    assert completed.output == "a b\nc"
    assert lines == ["a b", "c"]
    log = (tmp_path / "logs" / "x.log").read_text()
    assert log.startswith("+ ")
    assert "a b" in log
    assert "= exit code 0" in log


def test_words_reach_the_command_unchanged() -> None:
    words = ["a b", "$HOME", "`id`", "'", '"', "*", ";", "", "é"]
    assert run([PYTHON, "-c", "import sys; print(sys.argv[1:])", *words]).output == repr(words)


@pytest.mark.parametrize("words", [["yes"], ["cat", "/dev/zero"], ["sh", "-c", "trap '' TERM; exec yes >&2"]])
def test_a_command_that_prints_without_end_is_stopped(words: list[str]) -> None:
    with refused(CommandError, "command-failed", "more than 1000 characters"):
        run(words, check=False, most=1000, time_limit=60)
    assert len(run(["printf", "%1000s", "x"], most=1000).output) == 1000


def test_full_pipes_do_not_block() -> None:
    code = "import sys; sys.stderr.write('x' * 10**6 + '\\n'); sys.stdout.write('y' * 10**6 + '\\n')"
    assert len(run([PYTHON, "-c", code]).output) == 10**6


def test_failure_quotes_the_last_words_and_the_log(tmp_path: Path) -> None:
    with refused(CommandError, "command-failed") as caught:
        run([PYTHON, "-c", "import sys; sys.exit('the disk is on fire')"], log=tmp_path / "l", remedy="call for help")
    assert "exit code 1" in caught.value.cause
    assert "the disk is on fire" in caught.value.cause
    assert str(tmp_path / "l") in caught.value.cause
    assert caught.value.remedy == "call for help"


def test_a_command_that_is_not_there() -> None:
    with refused(CommandError, "program-missing", "no-such-command"):
        run(["no-such-command"])


def test_time_limit_ends_the_command_and_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "TERMINATION_GRACE", 0.2)
    pid_file = tmp_path / "pid"
    deaf = f"trap '' TERM; sleep 600 & echo $! >{shlex.quote(str(pid_file))}; wait"
    with refused(CommandError, "command-failed", "2 s"):
        run(["sh", "-c", deaf], time_limit=2)
    assert ends(int(pid_file.read_text()))


def ends(pid: int) -> bool:
    """Whether a process that was killed goes: at the latest after ten seconds, perhaps to be buried by its parent."""
    status = Path(f"/proc/{pid}/status")
    for _ in range(100):
        if not status.exists() or "State:\tZ" in status.read_text():
            return True
        time.sleep(0.1)
    return False


def test_an_interrupt_ends_the_command() -> None:
    lines: list[str] = []

    def watch(line: str) -> None:
        lines.append(line)
        threading.Timer(0.2, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()

    with pytest.raises(KeyboardInterrupt):
        run([PYTHON, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"], watch=watch)
    assert ends(int(lines[0]))


def test_a_signal_while_a_command_starts_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    start = process_module._start

    def signalled(*arguments: Any) -> Any:
        process = start(*arguments)
        started.append(process.pid)
        signal.raise_signal(signal.SIGTERM)
        return process

    monkeypatch.setattr(process_module, "_start", signalled)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    unwind_on_signals()
    try:
        with pytest.raises(SystemExit) as ended:
            run([PYTHON, "-c", "import time; time.sleep(600)"])
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGHUP, before[1])
    assert ended.value.code == 128 + signal.SIGTERM
    assert ends(started[0])


def test_what_a_command_leaves_running_is_ended_and_not_waited_for() -> None:
    code = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid)"
    assert ends(int(run([PYTHON, "-c", code]).output))


def test_a_log_on_a_full_disk_is_reported_once_the_command_is_done(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        run([PYTHON, "-c", "print('x' * 10000)"], log=Path("/dev/full"))


def test_a_command_of_ours_shows_a_ci_system_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"):
        monkeypatch.setenv(name, str(tmp_path / "summary.md"))
    command = run_sifmark(["verify", "nothing"], {"SIFMARK_DIST": str(tmp_path)}, check=False)
    assert command.exit_code == 2 and not any("::group::" in line for line in command.tail)
    assert not (tmp_path / "summary.md").exists()
