"""Where the results are that a command of studies reads: at paths, or in the folder of a study."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.studies.folder import folder_of, system_folders
from sifmark.studies.load import load_study


def result_paths(paths: Sequence[str], study: str, results: str) -> tuple[str, ...]:
    """Return the paths of results, or the folders of a study's systems. Raises UsageError for both, or none."""
    remedy = "name files or folders of results, or a study: --study NAME"
    if paths and study:
        raise UsageError("results are given twice: by path, and by --study", remedy, code="invalid-option")
    if not paths and not study:
        raise UsageError("no results are given", remedy, code="argument-missing")
    return tuple(paths) or _of_study(study, Path(results))


def _of_study(study: str, results: Path) -> tuple[str, ...]:
    folder = folder_of(load_study(study), results)
    if folders := system_folders(folder):
        return tuple(map(str, folders))
    remedy = f"run it first: sifmark study.run {shlex.quote(study)}"
    raise UsageError(f"the study has no results in {folder}", remedy, code="result-missing")
