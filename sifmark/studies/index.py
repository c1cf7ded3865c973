"""Validation cache of a study's results: a file is read again only if its size or time of modification changes."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from sifmark.core.files import write_text
from sifmark.core.locks import is_held
from sifmark.results.identity import RunIdentity, identity_of
from sifmark.results.load import LoadedResult, load_file
from sifmark.studies.folder import system_folders
from sifmark.studies.study import PlannedRun, RunState

NAME = ".index.json"
VERSION = 4
OUT_OF_MEMORY = "out_of_memory"  # a state that studies print as a result
NO_DEVICE = "no_device"
INTERRUPTED = "interrupted"
OF_ANOTHER = "its result belongs to another run"
IMAGE_SECONDS = 5.0  # until an image has started
CHECK_SECONDS = 25.0  # what the correctness check computes
_SUFFIX = ".json"
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class ResultEntry:
    """What a plan needs of a result. An invalid or interrupted one is to do, with the reason."""

    state: RunState
    reason: str
    seconds: float | None
    memory_gib: float | None
    setup_seconds: float = 0.0  # of image and correctness check before that, which a result does not have; estimated
    batch_size: int | None = None  # that a search came to; None without one
    identity: RunIdentity | None = None  # of the run that left it; None if it is invalid

    def of_run(self, run: RunIdentity) -> Self:
        """Return what the result means for the run that it is named after: nothing if another run left it."""
        difference = self.identity.difference(run) if self.identity else ""
        if not difference:
            return self
        return replace(self, state=RunState.TO_DO, reason=f"{OF_ANOTHER}: {difference}", seconds=None, memory_gib=None)

    @property
    def is_of_another(self) -> bool:
        """Whether another run left the result."""
        return self.reason.startswith(OF_ANOTHER)


@dataclass
class ResultIndex:
    """The results of a study by system and key, and which of them are being written."""

    folder: Path  # <results>/<study>
    _entries: dict[str, tuple[int, int, ResultEntry]] = field(default_factory=dict)  # by path below the folder
    _running: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        kept = _read_index(self.folder / NAME)
        for system in system_folders(self.folder):
            self._read_system(system, kept)
        if self._entries != kept:
            self._write()

    def entry(self, planned: PlannedRun) -> ResultEntry | None:
        """Return what is known of the result of a run, or None if there is none."""
        row = self._entries.get(f"{planned.run.system}/{planned.key}")
        return row[2].of_run(planned.identity) if row else None

    def is_running(self, system: str, key: str) -> bool:
        """Return whether another process is doing a run."""
        return f"{system}/{key}" in self._running

    def _read_system(self, system: Path, kept: dict[str, tuple[int, int, ResultEntry]]) -> None:
        with os.scandir(system) as entries:
            for entry in entries:
                if entry.name.endswith(_LOCK) and entry.name.startswith("."):
                    self._read_lock(system, entry.name)
                elif entry.name.endswith(_SUFFIX) and not entry.name.startswith("."):
                    self._read_result(f"{system.name}/{entry.name.removesuffix(_SUFFIX)}", entry, kept)

    def _read_result(self, name: str, entry: "os.DirEntry[str]", kept: dict[str, tuple[int, int, ResultEntry]]) -> None:
        with suppress(FileNotFoundError):  # removed meanwhile
            status = entry.stat()
            former = kept.get(name)
            if former is None or former[:2] != (status.st_size, status.st_mtime_ns):
                former = (status.st_size, status.st_mtime_ns, read_result(Path(entry.path)))
            self._entries[name] = former

    def _read_lock(self, system: Path, name: str) -> None:
        if is_held(system / name):
            self._running.add(f"{system.name}/{name[1:].removesuffix(_LOCK)}")

    def _write(self) -> None:
        rows = {name: [size, modified, *_row(each)] for name, (size, modified, each) in self._entries.items()}
        with suppress(OSError):  # a read-only folder can be read too
            write_text(self.folder / NAME, orjson.dumps({"version": VERSION, "results": rows}).decode())


def read_result(path: Path) -> ResultEntry:
    """Validate a result, and return what a plan needs of it."""
    (result,) = list(load_file(str(path)))[:1]
    return entry_of(result)


def entry_for(planned: PlannedRun) -> ResultEntry | None:
    """Return what is known of the result of a run now, without an index; None if there is none."""
    return read_result(planned.result).of_run(planned.identity) if planned.result.is_file() else None


def entry_of(result: LoadedResult) -> ResultEntry:
    """Return what a plan needs of a result that was read. One that was interrupted says nothing of its run."""
    if result.problems:
        return ResultEntry(RunState.TO_DO, f"its result is invalid: {result.problems[0]}", None, None)
    document, identity = result.document, identity_of(result.document)
    state, message = document["status"]["state"], str(document["status"]["message"]).partition("\n")[0]
    seconds, memory = _seconds(document), _memory(document)
    if state == "completed":
        setup, batch = _setup_seconds(document), _largest_batch(document)
        return ResultEntry(RunState.DONE, "", seconds, memory, setup, batch, identity)
    if state == OUT_OF_MEMORY:
        return ResultEntry(RunState.DONE, OUT_OF_MEMORY, seconds, memory, identity=identity)
    ended = RunState.TO_DO if state == INTERRUPTED else RunState.FAILED
    return ResultEntry(ended, f"{state}: {message}", seconds, memory, identity=identity)


def _seconds(document: dict[str, Any]) -> float | None:
    started, finished = (datetime.fromisoformat(document[key]) for key in ("started", "finished"))
    return (finished - started).total_seconds()


def _setup_seconds(document: dict[str, Any]) -> float:
    """Return about how long the start and the correctness check took: that loads and compiles the same once more."""
    if not document["numerics"]["precisions"]:
        return IMAGE_SECONDS
    phases = [document["phases"][name]["seconds"] or 0.0 for name in ("import", "model", "compile")]
    return float(IMAGE_SECONDS + CHECK_SECONDS + sum(phases))


def _largest_batch(document: dict[str, Any]) -> int | None:
    return document["configuration"]["batch_size"] if document["search"] else None


def _memory(document: dict[str, Any]) -> float | None:
    """Return the memory of one device in GiB: what was allocated there, on a CPU what the process had."""
    for name in ("peak_allocated_memory", "peak_process_memory"):
        value = (document["metrics"].get(name) or {}).get("value")
        if value is not None:
            return float(value) / 1024
    return None


def _row(entry: ResultEntry) -> list[Any]:
    """Return an entry as the index keeps it."""
    identity = astuple(entry.identity) if entry.identity else None
    return [entry.state, entry.reason, entry.seconds, entry.memory_gib, entry.setup_seconds, entry.batch_size, identity]


def _entry(row: list[Any]) -> ResultEntry:
    state, reason, seconds, memory, setup, batch, identity = row
    own = RunIdentity(*identity) if identity else None
    return ResultEntry(RunState(state), reason, seconds, memory, setup, batch, own)


def _read_index(path: Path) -> dict[str, tuple[int, int, ResultEntry]]:
    """Return what was known of results; nothing if the file is missing or of another version."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        document = orjson.loads(path.read_bytes())
        if document["version"] == VERSION:
            rows = document["results"].items()
            return {name: (size, modified, _entry(values)) for name, (size, modified, *values) in rows}
    return {}


class RunOutcome(NamedTuple):
    """The state of a run, the reason for it, and its result; that is empty if there is no valid one."""

    state: RunState
    reason: str
    document: Mapping[str, Any]

    @property
    def lacks_device(self) -> bool:
        """Whether the run ended because its device is not on this machine."""
        return bool(self.document) and self.document["status"]["state"] == NO_DEVICE


def outcome_of(planned: PlannedRun) -> RunOutcome:
    """Return the outcome of a run from its result file. Without one of its own, the run is to do."""
    if not planned.result.exists():
        return RunOutcome(RunState.TO_DO, "", {})
    loaded = next(iter(load_file(str(planned.result))))
    entry = entry_of(loaded)
    own = entry.of_run(planned.identity)
    return RunOutcome(own.state, own.reason, {} if loaded.problems or own is not entry else loaded.document)
