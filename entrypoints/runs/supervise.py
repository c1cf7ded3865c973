"""The child processes as seen by the parent: started, read, stopped, and never left behind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator, Sequence

from entrypoints.contract.group import Place
from entrypoints.contract.messages import Ended, Failed, Message, Rendezvous
from entrypoints.planning.configuration import Configuration
from entrypoints.results.outcome import Ending
from entrypoints.runs.protocol import LONGEST_LINE, Protocol
from entrypoints.system import allocator, gpu_software, host
from entrypoints.system.facts import fact

MAIN = Path(__file__).resolve().parent.parent / "main.py"
# Seconds between asking the child to end and killing it: fewer than the ten that container engines give us.
GRACE = 5.0
# Seconds between checks of signals, clocks and messages: waking up for each step would cost more than reading it.
TICK = 0.5
CHUNK = 1 << 16  # bytes read at once
F_SETPIPE_SZ = 1031  # linux/fcntl.h; Python has it from 3.10 on
WIDTH = 1 << 20  # bytes of a pipe that no child fills during a rest; Linux grants it to every user


class Orders:
    """Orders to this process, from signals and the time limit, from now on."""

    def __init__(self, time_limit: float | None) -> None:
        self.signals: list[int] = []
        self.deadline = None if time_limit is None else time.monotonic() + time_limit
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: self.signals.append(received))

    def stop(self) -> str | None:
        """Return the state of statuses.STATUSES that a run has to end with by now; None if it may go on."""
        if self.signals:
            return "interrupted"
        return "time_limit" if self.deadline is not None and time.monotonic() > self.deadline else None

    def rest(self, seconds: float) -> None:
        """Sleep for `seconds`, or until there is an order to stop."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.stop():
            time.sleep(max(0.0, min(TICK, until - time.monotonic())))


class Child:
    """One child, doing one of `child.JOBS`, and its stream of messages.

    The first order to stop asks the child to end. GRACE later, or at a second signal, its whole process group is
    killed. One that `waits` imports its framework, and goes on when it is told to begin.
    """

    def __init__(
        self, configuration: Configuration, orders: Orders, job: str, place: Place, waits: bool = False
    ) -> None:
        self.rank, self.orders, self.limit_mib = place.rank, orders, configuration.memory_limit_mib
        self.stopped_by: str | None = None  # a state of statuses.STATUSES
        self.abandoned = False  # whether it was asked to end since another rank failed
        self.failed = False  # whether it said so, or is gone without a word about its end
        self.killed = False  # by this process
        self.reaped = False
        self.kill_at: float | None = None
        self.reported_end = False
        self.peak_memory_mib: float | None = None  # of the child or of a process it waited for, once it is gone
        self.oom_kills_before = fact(host.oom_kills)["value"]
        self.protocol, self.rest_of_line = Protocol(waits), bytearray()
        self.stream, descriptor = os.pipe()
        self.open, self.full = True, False  # whether more may arrive, and whether more has arrived than was read
        self.rest = TICK if widen_pipe(self.stream) else 0.0
        try:
            self.process = _start(descriptor, configuration.device)
        except OSError:
            os.close(self.stream)
            raise
        finally:
            os.close(descriptor)
        self.alone = place.world == 1
        job = f"waiting {job}" if waits else job
        self.tell({"job": job, "configuration": configuration.as_json(), "place": place})
        if self.alone and not waits:
            self.dismiss()

    def receive(self) -> Iterator[tuple[int, Message]]:
        """Yield the messages that have arrived with the number of the rank, once there is something to read."""
        chunk = os.read(self.stream, CHUNK)
        self.open, self.full = bool(chunk), len(chunk) == CHUNK
        for message in _accepted(self.protocol, complete_lines(self.rest_of_line, chunk)):
            if isinstance(message, (Ended, Failed)):
                # A stop that reached the child's own processes first may have made it fail.
                self.stopped_by = self.stopped_by or self.orders.stop()
                self.reported_end = True
                self.failed = self.failed or isinstance(message, Failed)
                self._kill_after_grace()
            yield self.rank, message
        if len(self.rest_of_line) > LONGEST_LINE:
            self.rest_of_line.clear()
            violation = self.protocol.violation(f"a line of more than {LONGEST_LINE >> 20} MiB")
            if violation:
                self.failed = True
                self._kill()
                yield self.rank, violation

    def silent(self) -> bool:
        """Return whether nothing can arrive any more from a child that has sent nothing for a TICK.

        A grandchild may keep the pipe open; waiting for its end could take forever.
        """
        return self._lost() or (self.gone() and not select.select([self.stream], [], [], 0)[0])

    def oom_killed(self) -> bool:
        """Return whether the kernel's out-of-memory killer was active while the child ran."""
        after = fact(host.oom_kills)["value"]
        return None not in (self.oom_kills_before, after) and after > self.oom_kills_before

    def ending(self) -> Ending:
        """Return how it ended, once there are no more messages."""
        first = next(iter(self.orders.signals), None)
        return Ending(
            returncode=self.process.returncode,
            stopped_by=self.stopped_by or (None if self.reported_end else self.orders.stop()),
            signal=first,
            oom_killed=self.oom_killed(),
            peak_mib=self.peak_memory_mib,
            limit_mib=self.limit_mib,
            # Of the signal itself dies a child that was still starting.
            abandoned=self.abandoned
            and (self.killed or self.process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)),
        )

    def _lost(self) -> bool:
        """Return whether not even a kill has ended the child: a process in a hanging driver waits forever."""
        return self.kill_at is not None and time.monotonic() > self.kill_at + GRACE

    def gone(self) -> bool:
        """Return whether the child has ended. wait4 returns only this child's usage; getrusage mixes it with others."""
        if self.process.returncode is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                killed = os.WIFSIGNALED(status)
                self.process.returncode = -os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)
                self.peak_memory_mib = usage.ru_maxrss / 1024 or None  # KiB
        return self.process.returncode is not None

    def keep_order(self) -> None:
        """Act on signals and the time limit."""
        state = self.orders.stop()
        if state:
            self.stop(state)
        if len(self.orders.signals) > 1 or (self.kill_at is not None and time.monotonic() > self.kill_at):
            self._kill()

    def stop(self, state: str) -> None:
        """Ask the child to end; the first reason counts."""
        if self.stopped_by is None and not self.reported_end:
            self.stopped_by = state
            self._ask_to_end()

    def abandon(self) -> None:
        """Ask the child to end since another rank has failed: what it does then is no cause of anything."""
        if not (self.abandoned or self.reported_end):
            self.abandoned = True
            self._ask_to_end()

    def tell(self, what: Any) -> None:
        """Write a line of JSON to the child's standard input, which it may have closed."""
        if self.process.stdin and not self.process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(json.dumps(what).encode() + b"\n")
                self.process.stdin.flush()

    def begin(self) -> None:
        """Let a child that waits go on."""
        self.tell("begin")
        if self.alone:
            self.dismiss()

    def meet(self, where: Sequence[Rendezvous]) -> None:
        """Tell the child where ranks wait."""
        self.tell(where)

    def dismiss(self) -> None:
        """Let a child that has ended leave the others, for whom it may have waited, by the end of its input."""
        if self.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def _ask_to_end(self) -> None:
        self._kill_after_grace()
        self.dismiss()
        if self.process.returncode is None:  # not through Popen, which would wait for it and lose its peak memory
            os.kill(self.process.pid, signal.SIGTERM)

    def _kill_after_grace(self) -> None:
        self.kill_at = self.kill_at or time.monotonic() + GRACE

    def _kill(self) -> None:
        self.killed = self.killed or self.process.returncode is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Wait for the child within the grace, then kill its process group. Once is enough."""
        if self.reaped:
            return
        self.reaped = True
        self._kill_after_grace()
        while not self.gone() and not self._lost():
            self.keep_order()
            time.sleep(TICK / 10)
        self.failed = self.failed or not self.reported_end
        self._kill()
        self.dismiss()
        os.close(self.stream)


def _accepted(protocol: Protocol, lines: list[bytes]) -> Iterator[Message]:
    for line in lines:
        message = protocol.accept(line)
        if message is not None:
            yield message


def complete_lines(rest: bytearray, chunk: bytes) -> list[bytes]:
    """Return the lines that a chunk completes, and keep what follows them in `rest`.

    A line that a signal cut in two is the last of a child that was about to fail.
    """
    if b"\n" not in chunk:  # so that a line without end costs no more than its length
        rest += chunk
        return []
    first, *lines = chunk.split(b"\n")
    lines.insert(0, bytes(rest) + first)
    rest[:] = lines.pop()
    return lines


def widen_pipe(stream: int) -> bool:
    """Widen the pipe for a rest; return whether it is wide enough."""
    try:
        return fcntl.fcntl(stream, F_SETPIPE_SZ, WIDTH) >= WIDTH
    except OSError:  # not Linux, or this user has too many pipes
        return False


def _start(descriptor: int, device: str) -> subprocess.Popen[bytes]:
    """Start a child that uses a kind of device, in a new session, so that a terminal's Ctrl-C reaches only the parent.

    Its output goes to standard error: standard output belongs to the document.
    """
    environment = gpu_software.for_worker(os.environ) if device == "cuda" else os.environ
    return subprocess.Popen(
        [sys.executable, "-s", "-B", str(MAIN), "--child", str(descriptor), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=sys.stderr.fileno(),
        env=allocator.with_tunables(environment),
        pass_fds=[descriptor],
        start_new_session=True,
    )
