"""Checks before a submission, on a login node that has no accelerator: image, data, and room for results."""

import os
from collections.abc import Iterable
from pathlib import Path

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import is_full
from sifmark.engines.binds import binds_of, read_options
from sifmark.studies.study import PlannedRun, System

ROOM = 256 * 1024  # bytes that are written for a try: some results


def require_room(folder: Path) -> None:
    """Raise SifmarkError unless results can be written below a folder, which is made if need be.

    Bytes are written and removed again: only this shows a quota.
    """
    trial = folder / f".room-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with trial.open("wb") as stream:
                stream.write(bytes(ROOM))
                stream.flush()
                os.fsync(stream.fileno())
        finally:
            trial.unlink(missing_ok=True)
    except OSError as error:
        raise _no_room(folder, error) from error


def _no_room(folder: Path, error: OSError) -> SifmarkError:
    cause = f"results cannot be written to {folder}: {error.strerror}"
    if is_full(error):
        remedy = "make room, see `df -h .` and your quota; or choose another folder with --results"
        return SifmarkError(cause, remedy, code="disk-full")
    return SifmarkError(cause, "choose a folder that you may write to, with --results", code="system-error")


def require_paths(system: System, runs: Iterable[PlannedRun]) -> None:
    """Raise UsageError unless the data of runs and the bind mounts of their system are here.

    Nodes are taken to see the same paths.
    """
    for path in system.bind:
        if not Path(path.partition(":")[0]).exists():
            cause = f"system {system.name}: bind {path}: no such file or folder on this host"
            raise UsageError(cause, "correct bind in the study file", code="file-missing")
    for words in {read_options(planned.run.arguments) for planned in runs}:
        binds_of(words, make_folders=False)
