"""What others use of this host before a run: its processors, and the devices that an image is for. Linux."""

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sifmark.core.checks import Check, Status
from sifmark.core.console import printable, status, step, warn
from sifmark.core.errors import BusyError, SifmarkError, UsageError
from sifmark.core.paths import import_shared
from sifmark.core.process import run
from sifmark.core.settings import Settings
from sifmark.recipes.hardware import Hardware, Question, all_hardware

PROC = Path("/proc")
SAMPLE = 0.5  # seconds between two looks at what processors do
LOOK_EVERY = 2.0  # seconds between two samples while others are waited for
IDLE_LOOKS = 2  # in a row until a host is idle: other work has pauses
PROCESSORS_OF_OTHERS = 0.25  # that are no load: a process with a core of its own delays every step of a run
SHARE_OF_OTHERS = 0.05  # of the processors, where that is less
_LISTED = 3
_SHARE_LISTED = 0.02  # of a processor; a process that uses less is not named
_PATIENCE = 20.0  # seconds for the vendor's program; without a persistent driver it takes some
_TICK = os.sysconf("SC_CLK_TCK")  # per second: the unit of times in /proc
_BUSY = (0, 1, 2, 5, 6)  # of the times of a processor: user, nice, system, interrupts, soft ones; proc_stat(5)


@dataclass(frozen=True)
class Process:
    """A process at a moment. Times are in ticks since it began."""

    name: str
    parent: int
    ticks: int
    children: int  # ticks of those that have ended
    processor: int  # that it was last on


@dataclass(frozen=True)
class HostLoad:
    """What others use. A process is its name and its number."""

    processors: int  # that this process may use
    used: float  # of them
    processes: tuple[tuple[str, int], ...] = ()  # those that use most of it
    on_devices: tuple[tuple[str, int], ...] = ()
    clocks: str = ""  # of processors and devices, for people

    @property
    def is_busy(self) -> bool:
        """Whether a run would be measured beside other work."""
        return self.used > self.allowed or bool(self.on_devices)

    @property
    def allowed(self) -> float:
        """Of how many processors the use by others is no load."""
        return min(PROCESSORS_OF_OTHERS, SHARE_OF_OTHERS * self.processors)

    def __str__(self) -> str:
        users = f": {_listed(self.processes)}" if self.processes else ", none of which this user can see"
        parts = [f"{self.used:.1f} of {self.processors} processors are in use by others{users}"]
        if self.used <= self.allowed:
            parts = [f"others use {self.used:.2f} of {self.processors} processors"]
        if self.on_devices:
            parts.append(f"on its devices: {_listed(self.on_devices)}")
        return "; ".join([*parts, self.clocks] if self.clocks else parts)


class LoadSample:
    """A look at the processors, whose end comes later: at once if other work has taken long enough meanwhile."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._processors = os.sched_getaffinity(0)
        self._busy, self._processes = _busy_ticks(self._processors), dict(_processes())

    def end(self, hardware: Sequence[Hardware] = ()) -> HostLoad:
        """Return what others have used since the beginning, and which are on the devices of accelerators now."""
        on_devices = tuple(user for each in hardware for user in _device_users(each))
        clocks = "; ".join(filter(None, [processor_clocks(), *map(_device_clocks, hardware)]))
        time.sleep(max(0.0, self._started + SAMPLE - time.monotonic()))
        ticks = (time.monotonic() - self._started) * _TICK
        busy, after = _busy_ticks(self._processors), dict(_processes())
        family = _family(after)
        own = sum(self._gain(number, after[number], number == os.getpid()) for number in family)
        users = {number: self._gain(number, each) for number, each in after.items() if number not in family}
        here = (number for number in users if after[number].processor in self._processors)
        most = sorted(
            (number for number in here if users[number] > _SHARE_LISTED * ticks), key=lambda each: -users[each]
        )
        used = max(0.0, sum(users.values()) if busy is None else busy - (self._busy or 0) - own) / ticks
        named = tuple((after[number].name, number) for number in most)
        return HostLoad(len(self._processors), used, named, on_devices, clocks)

    def _gain(self, number: int, now: Process, with_children: bool = False) -> int:
        """Return the ticks that a process has used since the beginning, or in all if it is new."""
        before = self._processes.get(number)
        gained = now.ticks - (before.ticks if before else 0)
        return gained + (now.children - (before.children if before else 0) if with_children else 0)


def report_load(sample: LoadSample, hardware: Sequence[Hardware], wait_idle: float) -> None:
    """Say in one line what others use, and with `wait_idle` wait until they do not, for as many seconds at most.

    Raises BusyError if the host does not become idle in time.
    """
    load = sample.end(hardware)
    if not load.is_busy:
        status(f"host: {load}")
    elif wait_idle:
        wait_until_idle(wait_idle, hardware)
    else:
        warn(f"{load}; go on, or wait until the host is idle: --wait-idle 10m")


def wait_seconds(text: str) -> float:
    """Return the seconds of `--wait-idle`, a time as images take it: 90, 90s, 10m, 1.5h. Raises UsageError."""
    refusal: type[Exception] = import_shared("contract.statuses").UsageError
    try:
        return float(import_shared("planning.values").seconds(text)) if text else 0.0
    except refusal as error:
        raise UsageError(f"--wait-idle: {error}", "--wait-idle 10m", code="invalid-option") from None


def hardware_here() -> list[Hardware]:
    """Return the kinds of accelerator of which this host has devices."""
    return [each for each in all_hardware() if each.access and each.access.existing_files()]


def check_load(_settings: Settings) -> Iterator[Check]:
    """Check what others use of the processors and of the devices of this host."""
    load = LoadSample().end(hardware_here())
    remedy = "stop other work, or reserve this host; sifmark run --wait-idle TIME waits"
    yield Check("load", Status.WARNING if load.is_busy else Status.PASSED, str(load), remedy if load.is_busy else "")


def wait_until_idle(limit: float, hardware: Sequence[Hardware] = ()) -> HostLoad:
    """Wait until no others use this host, and return what they use then. Raises BusyError after `limit` seconds."""
    until, idle = time.monotonic() + limit, 0
    with step("wait until the host is idle") as current:
        while True:
            load = LoadSample().end(hardware)
            idle = 0 if load.is_busy else idle + 1
            left = until - time.monotonic()
            if idle == IDLE_LOOKS or (idle and left <= 0):
                return load
            if left <= 0:
                remedy = "nothing was measured; stop the other work, or allow more time: --wait-idle TIME"
                raise BusyError(f"not idle after {limit:g} s: {load}", remedy, code="host-busy")
            current.show(f"{load}; at most {left:.0f} s more")
            time.sleep(min(LOOK_EVERY, left))


def processor_clocks() -> str:
    """Return what decides the clocks of processors, for people; empty where the kernel does not tell."""
    host, facts = import_shared("system.host"), []
    readers = {"CPU governor": lambda: host.frequency_setting("scaling_governor"), "boost": host.boost}
    for name, read in readers.items():
        with suppress(OSError, LookupError):  # a virtual machine has neither
            facts.append(f"{name} {read()}")
    return ", ".join(facts)


def _device_users(hardware: Hardware) -> Iterator[tuple[str, int]]:
    for found in answers_of(hardware.processes):
        yield Path(found["name"]).name, int(found["pid"])


def _device_clocks(hardware: Hardware) -> str:
    """Return the clocks of devices now, for people."""
    each = [f"{found['clock']} MHz" for found in answers_of(hardware.clocks)]
    return f"device clocks {', '.join(each)}" if each else ""


def answers_of(question: Question | None) -> Iterator[Mapping[str, str]]:
    """Yield what a vendor's program says, line by line; nothing where it is not installed or fails."""
    if question is None:
        return
    chosen = os.environ.get(question.variable, "")
    devices = [f"{question.option}{chosen}"] if chosen and question.option else []
    with suppress(SifmarkError):
        done = run([*question.command, *devices], time_limit=_PATIENCE)
        for line in done.output.splitlines():
            if match := re.match(question.pattern, line):
                yield match.groupdict()


def _busy_ticks(processors: Iterable[int]) -> int | None:
    """Return for how long processors have been busy since boot, all together; None where the kernel does not tell."""
    names, busy = {f"cpu{number}" for number in processors}, 0
    with suppress(OSError, ValueError):
        lines = [line.split() for line in (PROC / "stat").read_text().splitlines()]
        own = [list(map(int, times)) for name, *times in lines if name in names]
        for times in own:
            busy += sum(times[at] for at in _BUSY)
        return busy if len(own) == len(names) else None
    return None


def _processes() -> Iterator[tuple[int, Process]]:
    for entry in os.scandir(PROC):
        with suppress(OSError, ValueError, IndexError):  # it has ended, or is no process
            number = int(entry.name)
            yield number, _process((PROC / entry.name / "stat").read_text())


def _process(line: str) -> Process:
    """Return a process by its line in /proc: proc_pid_stat(5)."""
    start, _, rest = line.rpartition(")")  # its name may have blanks and brackets
    words = rest.split()
    own, children = int(words[11]) + int(words[12]), int(words[13]) + int(words[14])
    return Process(start.partition("(")[2], int(words[1]), own, children, int(words[36]))


def _family(processes: Mapping[int, Process]) -> set[int]:
    """Return this process and those that it has started, also by way of others."""
    family, size = {os.getpid()}, 0
    while size < len(family):
        size = len(family)
        family |= {number for number, each in processes.items() if each.parent in family}
    return family & processes.keys()


def _listed(processes: Sequence[tuple[str, int]]) -> str:
    named = ", ".join(f"{printable(name)} (PID {number})" for name, number in processes[:_LISTED])
    more = len(processes) - _LISTED
    return f"{named} and {more} more" if more > 0 else named
