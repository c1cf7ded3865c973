"""The folder of a study's results: `<results>/<study>`, which belongs to one study."""

import re
import shutil
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import atomic_path, free_space, human_size, sha256_file, write_json
from sifmark.core.permissions import file_state
from sifmark.results.envelope import envelope_path
from sifmark.results.load import STUDY_MARKER, StudyOwner, owner_of
from sifmark.studies.study import PlannedRun, Study, StudyPlan

_EARLIER = ".earlier"  # a folder beside the results of a system, which those who read a folder of them leave out
_SAYS_NOTHING = re.compile(r"  remedy: |srun: error: .* Exited with exit code \d+$")
_TAIL = 4096  # bytes of a log that are looked at
LEAST_SPACE = 32 << 20  # bytes that have to be free: for the logs and results of runs side by side
JOBS = "jobs"
RESERVED = (JOBS, "logs")  # folders beside those of systems


def folder_of(study: Study, results: Path) -> Path:
    """Return the folder of a study's results. Raises SifmarkError if it belongs to another study, or is none."""
    folder = results / study.name
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", "choose another one: --results FOLDER", code="study-folder-mismatch")
    owner = owner_of(folder)
    if owner and (owner.name, owner.title) != (study.name, study.title):
        if owner.digest == sha256_file(study.file):  # renamed
            return folder
        cause = f"{folder} has the results of another study: {owner.name}, {owner.title}"
        remedy = f"choose another folder: --results FOLDER; or, if it is the same study, remove {folder / STUDY_MARKER}"
        raise SifmarkError(cause, remedy, code="study-folder-mismatch")
    return folder


def claim_folder(study: Study, results: Path) -> Path:
    """Make the folder of a study's results and note whose it is. Raises SifmarkError if it belongs to another study."""
    folder = folder_of(study, results)
    folder.mkdir(parents=True, exist_ok=True)
    owner = StudyOwner(study.name, study.title, sha256_file(study.file))
    if owner_of(folder) != owner:
        write_json(folder / STUDY_MARKER, asdict(owner))
    return folder


def take_over(plan: StudyPlan) -> int:
    """Copy into the folder of a variant the results that its whole study has of the same runs. Return how many."""
    study, folder = plan.study, plan.folder
    whole = folder.with_name(study.whole)
    owner = owner_of(whole)
    if not study.variant or owner is None or owner.name != study.whole:
        return 0
    pairs = [(whole / each.result.relative_to(folder), each.result) for each in plan.runs]
    pairs = [(source, target) for source, target in pairs if source.is_file() and not target.exists()]
    if pairs:
        claim_folder(study, folder.parent)
    for source, target in pairs:
        for of in (envelope_path, _log_beside, Path):  # the result last: with it, the run is done
            if of(source).is_file():
                _copy(of(source), of(target))
    return len(pairs)


def _copy(source: Path, target: Path) -> None:
    with atomic_path(target) as draft:
        shutil.copyfile(source, draft)


def _log_beside(result: Path) -> Path:
    return log_path(result.parent.parent, result.parent.name, result.stem)


def system_folders(folder: Path) -> tuple[Path, ...]:
    """Return the folders within a study's folder that have results of systems."""
    if not folder.is_dir():
        return ()
    children = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    return tuple(child for child in children if child.name not in RESERVED)


def result_path(folder: Path, system: str, key: str) -> Path:
    """Return the path of a run's result."""
    return folder / system / f"{key}.json"


def put_away(result: Path) -> None:
    """Put away a result that is not, or no longer, that of its run: it is kept among the earlier ones."""
    earlier = result.parent / _EARLIER
    earlier.mkdir(exist_ok=True)
    names = (earlier / f"{result.stem}-{number}.json" for number in count(1))
    result.rename(next(name for name in names if not name.exists()))


def log_path(folder: Path, system: str, key: str) -> Path:
    """Return the path of what a run printed."""
    return folder / system / "logs" / f"{key}.log"


def jobs_folder(folder: Path) -> Path:
    """Return the folder with scripts, lists and logs of the jobs of a study's results."""
    return folder / JOBS


def task_log(folder: Path, array: str, index: int) -> Path:
    """Return the path of what a task of a job array printed."""
    return jobs_folder(folder) / f"{array}.logs" / f"{index}.log"


def tail(log: Path) -> str:
    """Return the last lines of a log; nothing if it cannot be read."""
    with suppress(OSError), log.open("rb") as stream:
        stream.seek(max(0, file_state(log).size - _TAIL))
        return stream.read().decode(errors="replace")
    return ""


def last_line(log: Path) -> str:
    """Return the last line of a log that says something, shortened: no remedy of an error, no end of a task."""
    lines = reversed(tail(log).splitlines())
    return next((line.strip()[:300] for line in lines if line.strip() and not _SAYS_NOTHING.match(line)), "")


def run_lock(folder: Path, system: str, key: str) -> Path:
    """Return the path of the lock file of a run, which is held while it is done."""
    return folder / system / f".{key}.lock"


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
