"""What results say of the runs of a study: each process validates them itself, and believes no file beside them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from sifmark.core.permissions import FileState, file_state
from sifmark.results.identity import RunIdentity, identity_of
from sifmark.results.load import LoadedResult, load_file
from sifmark.studies.study import NOTHING, Cause, PlannedRun, Reason, RunState

OUT_OF_MEMORY = "out_of_memory"  # a state that studies print as a result
NO_DEVICE = "no_device"
INTERRUPTED = "interrupted"
# States of results that say nothing of their run: it is to do.
_NOTHING_MEASURED = (INTERRUPTED, NO_DEVICE)
IMAGE_SECONDS = 5.0  # until an image has started
CHECK_SECONDS = 10.0  # of the correctness check: 4 s to 17 s on two cores, by network


@dataclass(frozen=True, slots=True)
class ResultEntry:
    """What a plan needs of a result. An invalid or interrupted one is to do, with the reason."""

    state: RunState
    reason: Reason
    seconds: float | None
    memory_gib: float | None
    setup_seconds: float = 0.0  # of the image's start, which is estimated, and of the correctness check before the run
    batch_size: int | None = None  # that a search came to; None without one
    identity: RunIdentity | None = None  # of the run that left it; None if it is invalid

    def of_run(self, run: RunIdentity) -> Self:
        """Return what the result means for the run that it is named after: nothing if another run left it."""
        difference = self.identity.difference(run) if self.identity else ""
        if not difference:
            return self
        reason = Reason(Cause.OF_ANOTHER, difference)
        return replace(self, state=RunState.TO_DO, reason=reason, seconds=None, memory_gib=None)

    @property
    def is_of_another(self) -> bool:
        """Whether another run left the result."""
        return self.reason.cause == Cause.OF_ANOTHER


def entry_for(planned: PlannedRun) -> ResultEntry | None:
    """Return what is known of the result of a run; None if there is none."""
    if not planned.result.exists():
        return None
    with suppress(FileNotFoundError):  # removed meanwhile
        return _validated(planned.result, file_state(planned.result)).of_run(planned.identity)
    return None


@cache  # for those who watch a study: a result is validated again if its file changes
def _validated(path: Path, _: FileState) -> ResultEntry:
    (result,) = load_file(str(path))
    return entry_of(result)


def entry_of(result: LoadedResult) -> ResultEntry:
    """Return what a plan needs of a result that was read. One that was interrupted says nothing of its run."""
    if result.problems:
        return ResultEntry(RunState.TO_DO, Reason(Cause.INVALID, str(result.problems[0])), None, None)
    document, identity = result.document, identity_of(result.document)
    state, message = document["status"]["state"], str(document["status"]["message"]).partition("\n")[0]
    seconds, memory = _seconds(document), _memory(document)
    if state == "completed":
        setup, batch = _setup_seconds(document), _largest_batch(document)
        return ResultEntry(RunState.DONE, NOTHING, seconds, memory, setup, batch, identity)
    if state == OUT_OF_MEMORY:
        return ResultEntry(RunState.DONE, Reason(OUT_OF_MEMORY), seconds, memory, identity=identity)
    ended = RunState.TO_DO if state in _NOTHING_MEASURED else RunState.FAILED
    return ResultEntry(ended, Reason(state, message), seconds, memory, identity=identity)


def _seconds(document: dict[str, Any]) -> float | None:
    started, finished = (datetime.fromisoformat(document[key]) for key in ("started", "finished"))
    return (finished - started).total_seconds()


def _setup_seconds(document: dict[str, Any]) -> float:
    numerics = document["numerics"]
    return float(IMAGE_SECONDS + numerics.get("seconds", CHECK_SECONDS if numerics["precisions"] else 0.0))


def _largest_batch(document: dict[str, Any]) -> int | None:
    return document["configuration"]["batch_size"] if document["search"] else None


def _memory(document: dict[str, Any]) -> float | None:
    """Return the memory of one device in GiB: what was allocated there, on a CPU what the process had."""
    for name in ("peak_allocated_memory", "peak_process_memory"):
        value = (document["metrics"].get(name) or {}).get("value")
        if value is not None:
            return float(value) / 1024
    return None


class RunOutcome(NamedTuple):
    """The state of a run, the reason for it, and its result; that is empty if there is no valid one."""

    state: RunState
    reason: Reason
    document: Mapping[str, Any]

    @property
    def lacks_device(self) -> bool:
        """Whether the run ended because its device is not on this machine."""
        return bool(self.document) and self.document["status"]["state"] == NO_DEVICE


def outcome_of(planned: PlannedRun) -> RunOutcome:
    """Return the outcome of a run from its result file. Without one of its own, the run is to do."""
    if not planned.result.exists():
        return RunOutcome(RunState.TO_DO, NOTHING, {})
    loaded = next(iter(load_file(str(planned.result))))
    entry = entry_of(loaded)
    own = entry.of_run(planned.identity)
    return RunOutcome(own.state, own.reason, {} if loaded.problems or own is not entry else loaded.document)
