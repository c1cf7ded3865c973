"""Where a run has its log and its lock, and whether there is room for what it writes."""

from pathlib import Path

from sifmark.core.errors import SifmarkError
from sifmark.core.files import free_space, human_size
from sifmark.studies.folder import log_path, run_lock
from sifmark.studies.study import PlannedRun

LEAST_SPACE = 32 << 20  # bytes that have to be free: for the logs and results of runs side by side


def log_of(planned: PlannedRun) -> Path:
    """Return the log of a run."""
    return log_path(planned.result.parent.parent, planned.run.system, planned.key)


def lock_of(planned: PlannedRun) -> Path:
    """Return the lock file of a run, held while it is done."""
    return run_lock(planned.result.parent.parent, planned.run.system, planned.key)


def require_space(folder: Path) -> None:
    """Raise SifmarkError if a run could not write its result."""
    if (free := free_space(folder)) < LEAST_SPACE:
        cause = f"only {human_size(free)} are left on the disk of {folder}"
        raise SifmarkError(cause, "free space there, then run the study again: it goes on", code="disk-full")
