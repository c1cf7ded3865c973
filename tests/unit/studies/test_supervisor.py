"""The process between a study and its run: it passes on orders and exit codes, and leaves nothing behind."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmark.core.process import start_apart
from sifmark.studies.running.supervisor import words_of

Supervised = subprocess.Popen[bytes]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def processes() -> Iterator[list[Supervised]]:
    started: list[Supervised] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        if process.stdin:
            process.stdin.close()


def supervise(processes: list[Supervised], log: Path, script: str, cores: tuple[int, ...] = ()) -> Supervised:
    with log.open("wb") as stream:
        processes.append(start_apart(words_of([sys.executable, "-S", "-c", script], cores), stream, {}))
    return processes[-1]


def wait_for(log: Path, text: str) -> None:
    while text not in log.read_text():
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("script", "code"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("print('well')", 0)],
)
def test_the_exit_code_is_that_of_the_run(processes: list[Supervised], log: Path, script: str, code: int) -> None:
    assert supervise(processes, log, script).wait() == code


def test_what_cannot_start_says_so(processes: list[Supervised], log: Path) -> None:
    with log.open("wb") as stream:
        processes.append(start_apart(words_of(["/nowhere/engine"], ()), stream, {}))
    assert processes[0].wait() == 127
    assert log.read_text() == "cannot start /nowhere/engine: No such file or directory\n"


@pytest.mark.parametrize("how", ["an order", "the end of the study"])
def test_a_run_is_asked_to_end_once(processes: list[Supervised], log: Path, how: str) -> None:
    process = supervise(
        processes,
        log,
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: (print('asked', flush=True), time.sleep(0.3), sys.exit(3)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)",
    )
    wait_for(log, "ready\n")
    if how == "an order":
        process.send_signal(signal.SIGTERM)
    else:
        assert process.stdin
        process.stdin.close()
    assert process.wait() == 3
    assert log.read_text() == "ready\nasked\n"


def test_a_second_order_is_passed_on(processes: list[Supervised], log: Path) -> None:
    process = supervise(
        processes,
        log,
        "import signal, time\n"
        "for number in (2, 15): signal.signal(number, lambda number, _: print('asked by', number, flush=True))\n"
        "print('ready', flush=True)\n"
        "signal.pause(); signal.pause()",
    )
    wait_for(log, "ready\n")
    process.send_signal(signal.SIGINT)
    wait_for(log, "asked")
    process.send_signal(signal.SIGHUP)
    assert process.wait() == 0 and log.read_text() == "ready\nasked by 2\nasked by 15\n"


def test_what_a_run_leaves_behind_is_ended(processes: list[Supervised], log: Path) -> None:
    script = (
        "import subprocess, sys\n"
        "words = [sys.executable, '-S', '-c', 'import time; time.sleep(60)']\n"
        "child = subprocess.Popen(words, start_new_session=True)\n"
        "print(child.pid)"
    )
    assert supervise(processes, log, script).wait() == 0
    assert not Path(f"/proc/{log.read_text().strip()}").exists()


def test_a_run_stays_on_its_processors_and_has_no_input(processes: list[Supervised], log: Path) -> None:
    script = "import os, sys; print(os.sched_getaffinity(0), repr(sys.stdin.read()))"
    assert supervise(processes, log, script, (0,)).wait() == 0
    assert log.read_text() == "{0} ''\n"


def test_a_killed_supervisor_takes_its_run_with_it(processes: list[Supervised], log: Path) -> None:
    process = supervise(processes, log, "import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    wait_for(log, "\n")
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    run = Path(f"/proc/{log.read_text().strip()}/cmdline")
    while run.exists() and run.read_bytes() and time.monotonic() < until:
        time.sleep(0.05)
    assert not run.exists() or not run.read_bytes()  # gone, or a zombie that nobody has waited for yet
