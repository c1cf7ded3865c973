"""What became of a run, by its result."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sifmark.results.load import load_file
from sifmark.studies.index import entry_of
from sifmark.studies.study import PlannedRun, RunState

NO_DEVICE = "no_device"


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
    """Return what became of a run by its result. Without one of its own, the run is to do."""
    if not planned.result.exists():
        return RunOutcome(RunState.TO_DO, "", {})
    loaded = next(iter(load_file(str(planned.result))))
    entry = entry_of(loaded)
    own = entry.of_run(planned.identity)
    return RunOutcome(own.state, own.reason, {} if loaded.problems or own is not entry else loaded.document)
