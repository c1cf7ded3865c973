"""The progress of a run as data: the named pipe into which an image writes lines of schemas/progress-1.0.json."""

import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifmark.core.schemas import is_valid
from sifmark.engines import Engine
from sifmark.engines.binds import Bind

PROGRESS_VARIABLE = "SIFMARK_PROGRESS"  # which entrypoints/system/feed.py reads; older images do not, and write nothing
_SCHEMA = "progress-1.0"
_LARGEST = 10**300
_CHUNK = 1 << 16  # bytes; what a pipe holds
_LONGEST_LINE = 1 << 12  # bytes that a pipe takes in one piece


@dataclass(frozen=True)
class RunProgress:
    """How far a run is, as the schema describes it. What is not known is None."""

    started: str
    workload: str
    task: str
    device: str
    precision: str
    batch_size: int
    phase: str
    steps: int
    planned_steps: int | None
    share: float
    seconds_left: float | None
    unit: str
    throughput: float | None
    rate: float | None
    loss: float | None
    power_watts: float | None
    memory_mib: float | None


class ProgressPipe:
    """A named pipe for one run, or for the runs of one image after each other; this process reads it."""

    def __init__(self, path: Path) -> None:
        """Make the pipe. Raises OSError."""
        self.path, self._rest = path, b""
        os.mkfifo(path, 0o600)
        # For both: a pipe that is only read is at its end whenever nobody writes.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def variables(self) -> dict[str, str]:
        """What a run has to have in its environment."""
        return {PROGRESS_VARIABLE: str(self.path)}

    def options(self, engine: Engine) -> list[str]:
        """Return the options of an engine with which a run sees the pipe, and its variable."""
        bind = Bind(self.path.parent, writable=True)
        return [*engine.bind_flags([bind]), *engine.env_flags(PROGRESS_VARIABLE)]

    def fileno(self) -> int:
        """Return the descriptor, so that one can wait for a line."""
        return self._descriptor

    def read(self) -> Iterator[RunProgress]:
        """Yield what has arrived. Lines of another form are left out: an image may have been made by anyone."""
        data = self._rest
        with suppress(BlockingIOError):
            data += os.read(self._descriptor, _CHUNK)
        *lines, rest = data.split(b"\n")
        self._rest = rest if len(rest) <= _LONGEST_LINE else b""
        for line in lines:
            if (document := _document(line)) is not None:
                yield _progress(document)

    def close(self) -> None:
        """Remove the pipe."""
        os.close(self._descriptor)
        with suppress(OSError):  # an image may have put something else in its place
            self.path.unlink()


@contextmanager
def progress_folder() -> Iterator[Path | None]:
    """Make a folder for pipes, which only this user can enter; None where none can be made, as on a full disk."""
    with ExitStack() as stack:
        folder = None
        with suppress(OSError):
            made = tempfile.TemporaryDirectory(prefix="sifmark-progress-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made))
        yield folder


def new_pipe(folder: Path | None, name: str) -> ProgressPipe | None:
    """Return a new pipe in a folder; None where none can be made: a run does without, and nobody sees how far it is."""
    if folder is None:
        return None
    try:
        return ProgressPipe(folder / name)
    except OSError:
        return None


def _document(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if is_valid(_SCHEMA, document) else None


def _progress(document: dict[str, Any]) -> RunProgress:
    values = {name: _bounded(value) for name, value in document.items() if name in RunProgress.__dataclass_fields__}
    if isinstance(values["loss"], str):
        values["loss"] = float(values["loss"])
    return RunProgress(**values)


def _bounded(value: Any) -> Any:
    """Return a number as one that a float can hold, which JSON does not guarantee."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        return math.inf if value > 0 else -math.inf
    return value
