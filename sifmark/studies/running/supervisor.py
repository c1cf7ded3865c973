"""The supervisor of a run: a process that ends the run, and all that it started, when the study is gone.

Started as a module with the processors of the run, such as `0,1`, or a dash for all, and the run's argv. Its stdin is
a pipe that the study holds open, and what else it inherited are locks, which are held until the run has ended.
"""

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import NoReturn

from sifmark.core.paths import import_shared

GRACE = 20.0  # seconds for a run to write its result after it was asked to end
_AGAIN = 1.0  # seconds until the kernel is asked again to end it
ALL = "-"  # in place of processors
_STDIN = 0
_NOT_STARTED = 127  # as shells say it
_ORDERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def words_of(argv: Sequence[str], cores: Sequence[int]) -> list[str]:
    """Return the argv of the supervisor of a command that gets these processors, or all."""
    return [sys.executable, "-P", "-m", __name__, ",".join(map(str, cores)) or ALL, *argv]


def main(cores: str, argv: Sequence[str]) -> int:
    """Run a command to its end. Return its exit code: 128 and its number for a signal."""
    death: ModuleType = import_shared("system.parent_death")
    death.adopt_orphans()
    wakes, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(woken)
    for number in (*_ORDERS, signal.SIGCHLD):
        signal.signal(number, _note)
    own = os.getpid()
    child = os.fork()
    if not child:
        _become(cores, argv, own)
    code = _wait(child, wakes)
    death.kill_orphans(set())
    return code


def _note(_number: int, _frame: object) -> None:
    """Do nothing: the number of the signal can be read from the pipe."""


def _wait(child: int, wakes: int) -> int:
    """Wait for a child's end, and pass orders to stop on to it; the end of our stdin is one."""
    watched, kill_at = [_STDIN, wakes], None
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        patience = None if kill_at is None else max(0.0, kill_at - time.monotonic())
        ready = select.select(watched, [], [], patience)[0]
        noted = os.read(wakes, 4096) if wakes in ready else b""
        orders = [number for number in noted if number in _ORDERS]
        if _STDIN in ready:
            watched.remove(_STDIN)
            orders.append(signal.SIGTERM)
        for number in orders:
            # Only to the run itself: its image ends at once when it gets a second one, and so would one in its group.
            _send(os.kill, child, signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
            kill_at = kill_at or time.monotonic() + GRACE
        if kill_at is not None and time.monotonic() > kill_at:
            _send(os.killpg, child, signal.SIGKILL)
            kill_at = time.monotonic() + _AGAIN  # what the kernel holds back ends later


def _send(send: Callable[[int, int], None], process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        send(process, number)


def _become(cores: str, argv: Sequence[str], parent: int) -> NoReturn:
    """Become the command, in a session of its own, that the kernel ends with its supervisor."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (*_ORDERS, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(import_shared("system.parent_death").PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() == parent:
            if cores != ALL:
                os.sched_setaffinity(0, map(int, cores.split(",")))
            os.dup2(os.open(os.devnull, os.O_RDONLY), _STDIN)
            os.execvp(argv[0], list(argv))
    except OSError as error:
        sys.stderr.write(f"cannot start {argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(_NOT_STARTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
