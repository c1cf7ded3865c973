"""What became of results, read quickly: each result is validated once, and again only if its file changes."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from sifmark.core.files import write_text
from sifmark.core.locks import is_held
from sifmark.results.load import LoadedResult, load_file
from sifmark.studies.folder import system_folders
from sifmark.studies.study import RunState

NAME = ".index.json"
VERSION = 2
OUT_OF_MEMORY = "out_of_memory"  # a state that studies print as a result
INTERRUPTED = "interrupted"
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

    def entry(self, system: str, key: str) -> ResultEntry | None:
        """Return what is known of the result of a run, or None if there is none."""
        row = self._entries.get(f"{system}/{key}")
        return row[2] if row else None

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
        rows = {
            name: [size, modified, each.state, each.reason, each.seconds, each.memory_gib, each.setup_seconds]
            for name, (size, modified, each) in self._entries.items()
        }
        with suppress(OSError):  # somebody else's folder can be read too
            write_text(self.folder / NAME, orjson.dumps({"version": VERSION, "results": rows}).decode())


def read_result(path: Path) -> ResultEntry:
    """Validate a result, and return what a plan needs of it."""
    (result,) = list(load_file(str(path)))[:1]
    return entry_of(result)


def entry_of(result: LoadedResult) -> ResultEntry:
    """Return what a plan needs of a result that was read. One that was interrupted says nothing of its run."""
    if result.problems:
        return ResultEntry(RunState.TO_DO, f"its result is invalid: {result.problems[0]}", None, None)
    document = result.document
    state, message = document["status"]["state"], str(document["status"]["message"]).partition("\n")[0]
    seconds, memory = _seconds(document), _memory(document)
    if state == "completed":
        return ResultEntry(RunState.DONE, "", seconds, memory, _setup_seconds(document))
    if state == OUT_OF_MEMORY:
        return ResultEntry(RunState.DONE, OUT_OF_MEMORY, seconds, memory)
    ended = RunState.TO_DO if state == INTERRUPTED else RunState.FAILED
    return ResultEntry(ended, f"{state}: {message}", seconds, memory)


def _seconds(document: dict[str, Any]) -> float | None:
    started, finished = (datetime.fromisoformat(document[key]) for key in ("started", "finished"))
    return (finished - started).total_seconds()


def _setup_seconds(document: dict[str, Any]) -> float:
    """Return about how long the start and the correctness check took: that loads and compiles the same once more."""
    if not document["numerics"]["precisions"]:
        return IMAGE_SECONDS
    phases = [document["phases"][name]["seconds"] or 0.0 for name in ("import", "model", "compile")]
    return float(IMAGE_SECONDS + CHECK_SECONDS + sum(phases))


def _memory(document: dict[str, Any]) -> float | None:
    """Return the memory of one device in GiB: what was allocated there, on a CPU what the process had."""
    for name in ("peak_allocated_memory", "peak_process_memory"):
        value = (document["metrics"].get(name) or {}).get("value")
        if value is not None:
            return float(value) / 1024
    return None


def _read_index(path: Path) -> dict[str, tuple[int, int, ResultEntry]]:
    """Return what was known of results; nothing if the file is missing or of another version."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        document = orjson.loads(path.read_bytes())
        if document["version"] == VERSION:
            return {
                name: (size, modified, ResultEntry(RunState(state), *values))
                for name, (size, modified, state, *values) in document["results"].items()
            }
    return {}
