"""The log of a run: a file that only grows, with when it was planned, submitted, started and ended, and where."""

import getpass
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from sifmark.core.files import append_line, as_record, read_bounded
from sifmark.core.shell import words
from sifmark.studies.study import PlannedRun

EVENTS = ".events"  # a folder beside the results of a system, which those who read a folder of them leave out
SUFFIX = ".jsonl"
_LARGEST = 16 << 20  # bytes of a log
_PLAIN = re.compile(r"[\w.+-]*", re.ASCII)  # names that become part of a path or of a command line


@dataclass(frozen=True, slots=True)
class Planned:
    """The first event of a run that is to be done: what it is."""

    time: float  # of this event and the others: seconds since 1970, by the clock of `host`
    host: str
    command: str  # of the image, in words of a shell
    image: str  # the ID


@dataclass(frozen=True, slots=True)
class Submitted:
    """A run that a scheduler is to start. It is noted before the job has an ID, and again with it."""

    time: float
    host: str
    user: str
    array: str  # name of the job array
    index: int  # of the task
    limit: int  # seconds
    job: str = ""  # ID of the array
    cluster: str = ""
    lane: int = -1  # of arrays that follow each other; -1: all lanes

    @property
    def task(self) -> str:
        """The ID of the task; empty without a job."""
        return f"{self.job}_{self.index}" if self.job else ""


@dataclass(frozen=True, slots=True)
class Started:
    """An attempt that began, after images and folders were looked at."""

    time: float
    host: str
    job: str = ""  # ID of the task that it is
    array: str = ""
    cluster: str = ""
    restarts: int = 0  # of the task, by its scheduler


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an attempt, or why it did not begin."""

    time: float
    host: str
    code: int | None = None  # exit code; None if nothing was started
    cause: str = ""  # what is known besides
    cancelled: bool = False  # somebody asked it to end: a user, or a scheduler that wants the node
    job: str = ""
    array: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run that was not started, since it would not have fitted into a budget."""

    time: float
    host: str
    budget: float  # seconds


Event = Planned | Submitted | Started | Ended | LeftOut
_KINDS: dict[str, type[Event]] = {kind.__name__.lower(): kind for kind in (Planned, Submitted, Started, Ended, LeftOut)}


@dataclass(frozen=True, slots=True)
class RunLog:
    """The events of a run, the oldest first."""

    events: tuple[Event, ...] = ()

    @property
    def submitted(self) -> Submitted | None:
        """The last submission."""
        return next((event for event in reversed(self.events) if isinstance(event, Submitted)), None)

    @property
    def last(self) -> Started | Ended | None:
        """The last event of attempts since the last submission; None if there is none."""
        event = self.events[-1] if self.events else None
        return event if isinstance(event, Started | Ended) else None

    @property
    def left_out(self) -> LeftOut | None:
        """The last event, if the run was left out then."""
        event = self.events[-1] if self.events else None
        return event if isinstance(event, LeftOut) else None

    @property
    def seconds(self) -> float | None:
        """How long the last attempt took, if it began and has ended."""
        match self.events[-2:]:
            case [Started() as started, Ended() as ended]:
                return ended.time - started.time
        return None


def log_of_events(result: Path) -> Path:
    """Return the log of the run with this result file."""
    return result.parent / EVENTS / f"{result.stem}{SUFFIX}"


def read_log(result: Path) -> RunLog:
    """Return the log of the run with this result file. A line that is not whole, or no event, is left out."""
    with suppress(OSError, ValueError):
        return RunLog(tuple(_events(read_bounded(log_of_events(result), _LARGEST))))
    return RunLog()


def note(planned: PlannedRun, event: Event) -> None:
    """Append an event to the log of a run, which begins with what the run is. Raises OSError."""
    log = log_of_events(planned.result)
    if not log.exists():
        _append(log, Planned(time.time(), host(), words(planned.arguments), planned.image))
    _append(log, event)


def host() -> str:
    """Return the name of this host as events have it."""
    return socket.gethostname()


def user() -> str:
    """Return the name of this user as events have it; empty for one without a name."""
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return ""


def _append(log: Path, event: Event) -> None:
    append_line(log, {"what": type(event).__name__.lower(), **asdict(event)})


def _events(content: bytes) -> Iterator[Event]:
    for line in content.splitlines():
        with suppress(ValueError):
            document = orjson.loads(line)
            kind = _KINDS.get(str(document.get("what"))) if isinstance(document, dict) else None
            if kind is not None and (event := as_record(document, kind)) is not None and _is_plain(event):
                yield event


def _is_plain(event: Event) -> bool:
    """Return whether the names of an event lead to no other file, and to no other word."""
    names = (getattr(event, name, "") for name in ("job", "array", "cluster"))
    return all(_PLAIN.fullmatch(name) for name in names)
