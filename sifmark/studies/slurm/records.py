"""On-disk job records: submissions, and the begin and end events of array tasks."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sifmark.core.files import read_bounded, read_record, write_json
from sifmark.studies.slurm.jobs import SEPARATOR

JOBS = "jobs"  # the folder of a study's results with scripts, lists and records
_SUFFIX = ".job"
_LARGEST = 64 << 20  # bytes of a list or a record of a task


@dataclass(frozen=True, slots=True)
class Submission:
    """An array that was submitted: `<jobs>/NAME.job`, JSON that is by its name no result. `NAME.runs` has its runs."""

    name: str
    system: str
    seconds: int  # time limit of each task
    submitted: float  # seconds since 1970, by the clock of the host that submitted
    host: str
    job: str = ""  # ID; empty while it is being submitted

    def keys(self, folder: Path) -> list[str]:
        """Return the keys of its runs, in the order of its tasks; none if the list is gone."""
        with suppress(OSError, ValueError):
            text = read_bounded(folder / f"{self.name}.runs", _LARGEST).decode(errors="surrogateescape")
            # As sed divides lines in the script: other characters end one for splitlines.
            return [line.partition(SEPARATOR)[0] for line in text.split("\n")[:-1]]
        return []


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """A line of a task's record. Times are by the clock of its node."""

    what: str  # begin or end
    time: int  # seconds since 1970
    node: str
    job: str
    restarts: int
    code: int | None  # exit code, of an end


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The events that a task wrote, the oldest first."""

    events: tuple[TaskEvent, ...]

    @property
    def last(self) -> TaskEvent | None:
        """The last event, if there is any."""
        return self.events[-1] if self.events else None

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
    write_json(submission_path(folder, submission.name), {"scheduler": "slurm", **asdict(submission)})


def submissions(folder: Path) -> list[Submission]:
    """Return the submissions of a folder, the oldest first. What is no record is left out."""
    records = filter(None, map(_read_submission, folder.glob(f"*{_SUFFIX}")))
    return sorted(records, key=lambda record: (record.submitted, record.name))


def _read_submission(path: Path) -> Submission | None:
    """Return a record; None if it would lead to other files, or to what is no job."""
    record = read_record(path, Submission)
    return record if record and record.name == path.stem and re.fullmatch(r"\d*", record.job, re.ASCII) else None


def task_record(folder: Path, name: str, index: int) -> TaskRecord:
    """Return the events that a task wrote: none if it never began, or could not write."""
    path = folder / f"{name}.records" / str(index)
    with suppress(OSError, ValueError):
        lines = read_bounded(path, _LARGEST).decode(errors="replace").splitlines()
        return TaskRecord(tuple(_events(lines)))
    return TaskRecord(())


def _events(lines: Sequence[str]) -> Iterator[TaskEvent]:
    """Yield the events of whole lines; the last one of a full disk need not be whole."""
    for line in lines:
        words = line.split()
        with suppress(ValueError, IndexError):
            what, time, node, job, restarts = words[:5]
            code = int(words[5]) if what == "end" else None
            yield TaskEvent(what, int(time), node, job, int(restarts), code)
