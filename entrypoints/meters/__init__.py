"""Meters of power and energy, one module per source, found by its file name.

Each module has `MEASURES`, the kinds of device that its numbers are about (empty: whatever it is asked for, but then
it must be asked for), and `find(place)`, which returns a Meter or raises MeterError with the reason. `place` says
where to look when it is not the usual one.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING, Callable, Mapping, NamedTuple, Protocol, Sequence, TypeVar

from entrypoints.system.facts import FactError

if TYPE_CHECKING:
    from pathlib import Path

PIDS, HOST_PIDS = "/proc/self/ns/pid", "pid:[4026531836]"  # the kernel's own number, PROC_PID_INIT_INO
AUTO, NONE = "auto", "none"
M = TypeVar("M")


class MeterError(FactError):
    """A meter that is not there, or does not let itself be read; the text says why."""


class Absence(NamedTuple):
    """Instead of a meter or of what it recorded: why there is none."""

    reason: str


class MeterFacts(NamedTuple):
    """What a meter is. Its devices never contain each other, so that their energies may be added."""

    source: str  # module and, where one module has several, the interface it reads
    scope: str  # what each device is: die, package, board or node
    devices: tuple[str, ...]
    update_period: float  # s between new values in the hardware
    averaging: float | None  # s that one power value is the average of
    averaging_reason: str | None  # why that is not known
    has_power: bool
    has_counter: bool
    counter_ranges: tuple[float | None, ...]  # J by device, at which the counter starts again; None: it never does
    simulated: bool


class Reading(NamedTuple):
    """Power in W and energy counters in J, by device; empty what the meter does not have."""

    watts: Sequence[float]
    joules: Sequence[float]
    # Of a meter that may show accelerators on which others compute, or nobody: for each of them the device, by its
    # place, that its energy is in, and whether a process has it. Else empty.
    held: Sequence[tuple[int, bool]] = ()


class Meter(Protocol):
    """A source of readings. `read` is called from one thread; whatever it raises is a reading that failed."""

    facts: MeterFacts

    def read(self) -> Reading:
        """What the hardware shows now."""


def names() -> list[str]:
    """The meters that there are."""
    found = (os.path.splitext(name) for name in os.listdir(os.path.dirname(__file__)))
    return sorted(stem for stem, ending in found if ending == ".py" and not stem.startswith("_"))


def open_meter(choice: str, device: str) -> Meter | Absence:
    """The meter that `choice` means for a kind of device: auto, none, or NAME[:PLACE]."""
    if choice == NONE:
        return Absence("no meter was asked for (--meter none)")
    name, _, place = choice.partition(":")
    if name != AUTO:
        return _open(name, device, place or None)
    reasons = []
    for name in names():
        if device in _measures(name):
            found = _open(name, device, None)
            if not isinstance(found, Absence):
                return found
            reasons.append(f"{name}: {found.reason}")
    return Absence("; ".join(reasons) or f"no meter measures {device}")


def _module(name: str) -> ModuleType:
    import importlib  # here: a list of the workloads would wait for it

    return importlib.import_module(f"{__name__}.{name}")


def _open(name: str, device: str, place: str | None) -> Meter | Absence:
    kinds = _measures(name)
    if kinds and device not in kinds:
        return Absence(f"the meter {name} measures {', '.join(kinds)}, and this run is on {device}")
    try:
        meter: Meter = _module(name).find(place)
        meter.read()
    except Exception as error:  # vendor libraries have their own; whatever it is, the run goes on without power
        return Absence(str(error) or type(error).__name__)
    return meter


def first_found(searches: Mapping[str, Callable[[], M]]) -> M:
    """What the first search finds that finds something, by the name of its source.

    Raises MeterError with the reasons of all.
    """
    reasons = []
    for source, search in searches.items():
        found = _tried(search)
        if not isinstance(found, MeterError):
            return found
        reasons.append(f"{source}: {found}")
    raise MeterError("; ".join(reasons))


def _tried(search: Callable[[], M]) -> M | MeterError:
    try:
        return search()
    except MeterError as error:
        return error


class KernelFile:
    """A file of the kernel's that stays open as long as it is of use: to open it takes longer than to read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.descriptor = os.open(str(path), os.O_RDONLY)
        except OSError as error:
            raise _explained(path, error) from None
        import weakref  # here: a list of the workloads would wait for it

        weakref.finalize(self, os.close, self.descriptor)

    def number(self) -> int:
        """The whole number that it holds by now. Raises MeterError."""
        try:
            text = os.pread(self.descriptor, 64, 0).strip()
        except OSError as error:
            raise _explained(self.path, error) from None
        if not text.isdigit():
            raise MeterError(f"{self.path} holds no number: {text[:40].decode('utf-8', 'replace')!r}")
        return int(text)


def kernel_text(path: Path) -> str:
    """The text of a file of the kernel's. Raises MeterError."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError as error:
        raise _explained(path, error) from None


def host_pid() -> int:
    """The number by which drivers know this process. Raises MeterError in a container that numbers its own."""
    if os.readlink(PIDS) != HOST_PIDS:
        raise MeterError(
            "this container numbers processes anew, and the driver does not: none can be told from our own"
        )
    return os.getpid()


def _explained(path: Path, error: OSError) -> MeterError:
    if isinstance(error, PermissionError):
        return MeterError(f"{path} may be read by root only; ask the host's administrator to let you read it")
    return MeterError(f"{path}: {error.strerror}")


def _measures(name: str) -> Sequence[str]:
    kinds: Sequence[str] = _module(name).MEASURES
    return kinds
