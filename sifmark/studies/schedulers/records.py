"""What is kept beside the scripts: a record of each submission, and the lines that elements write."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sifmark.core.files import write_json
from sifmark.studies.schedulers.jobs import SEPARATOR

JOBS = "jobs"  # the folder of a study's results with scripts, lists and records
_SUFFIX = ".job"


@dataclass(frozen=True, slots=True)
class Submission:
    """An array that was submitted: `<jobs>/NAME.job`, JSON that is by its name no result. `NAME.runs` has its runs."""

    name: str
    scheduler: str
    system: str
    seconds: int  # time limit of each element
    submitted: float  # seconds since 1970, by the clock of the host that submitted
    host: str
    job: str = ""  # ID; empty while it is being submitted

    def keys(self, folder: Path) -> list[str]:
        """Return the keys of its runs, in the order of its elements; none if the list is gone."""
        with suppress(OSError):
            lines = (folder / f"{self.name}.runs").read_text(encoding="utf-8").splitlines()
            return [line.partition(SEPARATOR)[0] for line in lines]
        return []


@dataclass(frozen=True, slots=True)
class ElementEvent:
    """A line of an element's record. Times are by the clock of its node."""

    what: str  # begin or end
    time: int  # seconds since 1970
    node: str
    job: str
    restarts: int
    code: int | None  # exit code, of an end


@dataclass(frozen=True, slots=True)
class ElementRecord:
    """What an element wrote of itself."""

    events: tuple[ElementEvent, ...]
    modified: float  # when the file was changed last, by the clock of the file system

    @property
    def last(self) -> ElementEvent | None:
        """The last event, if there is any."""
        return self.events[-1] if self.events else None

    @property
    def begun(self) -> int:
        """When the last attempt began, in seconds since 1970."""
        return max((event.time for event in self.events if event.what == "begin"), default=0)

    @property
    def seconds(self) -> int | None:
        """How long the last attempt took, if it has ended."""
        if len(self.events) < 2 or (self.events[-2].what, self.events[-1].what) != ("begin", "end"):
            return None
        return self.events[-1].time - self.events[-2].time


def jobs_folder(results: Path) -> Path:
    """Return the folder with scripts and records of a study's results."""
    return results / JOBS


def submission_path(folder: Path, name: str) -> Path:
    """Return the record of a submission."""
    return folder / f"{name}{_SUFFIX}"


def write_submission(folder: Path, submission: Submission) -> None:
    """Write or replace the record of a submission."""
    write_json(submission_path(folder, submission.name), asdict(submission))


def submissions(folder: Path) -> list[Submission]:
    """Return the submissions of a folder, the oldest first. What is no record is left out."""
    records = [record for path in folder.glob(f"*{_SUFFIX}") if (record := _read_submission(path)) is not None]
    return sorted(records, key=lambda record: (record.submitted, record.name))


def _read_submission(path: Path) -> Submission | None:
    with suppress(OSError, ValueError, TypeError):
        document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Submission(**document)
    return None


def element_record(folder: Path, name: str, index: int) -> ElementRecord:
    """Return what an element wrote of itself: no events if it never began, or could not write."""
    path = folder / f"{name}.records" / str(index)
    with suppress(OSError):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return ElementRecord(tuple(_events(lines)), path.stat().st_mtime)
    return ElementRecord((), 0.0)


def _events(lines: Sequence[str]) -> Iterator[ElementEvent]:
    """Yield the events of whole lines; the last one of a full disk need not be whole."""
    for line in lines:
        words = line.split()
        with suppress(ValueError, IndexError):
            what, time, node, job, restarts = words[:5]
            code = int(words[5]) if what == "end" else None
            yield ElementEvent(what, int(time), node, job, int(restarts), code)
