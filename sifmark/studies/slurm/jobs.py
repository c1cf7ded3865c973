"""Job arrays of a plan: runs of one system and shape are the tasks of an array, in the order of the plan."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.engines.binds import Bind
from sifmark.studies.slurm.options import JobOptions, limit_of
from sifmark.studies.study import PlannedRun

ALL_LANES = -1
SEPARATOR = "\t"  # between the words of a line of a list
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def require_line(text: str) -> str:
    """Return a text that is a part of a line of Slurm's. Raises UsageError if it has a control character."""
    if _CONTROL.search(text):
        remedy = "remove tabs and line breaks from the study file, or from the names of folders"
        raise UsageError(f"a job cannot have a control character: {text!r}", remedy, code="document-invalid")
    return text


@dataclass(frozen=True, slots=True)
class JobShape:
    """What the runs of an array have in common."""

    system: str
    nodes: int
    devices: int  # of each node
    seconds: int  # time limit

    @property
    def text(self) -> str:
        """The shape as a part of a file's name."""
        return f"{self.system}-{self.nodes}x{self.devices}-{self.seconds // 60}min"


@dataclass(frozen=True, slots=True)
class ArrayTask:
    """A run as a task of an array."""

    key: str
    result: Path
    arguments: tuple[str, ...]  # of the image, complete

    @property
    def line(self) -> str:
        """The run as a line of the list. Raises UsageError for a word that no line can hold."""
        return SEPARATOR.join(map(require_line, (self.key, str(self.result), *self.arguments)))


@dataclass(frozen=True, slots=True)
class StartedImage:
    """How nodes start the image of a system."""

    path: Path  # of the SIF file
    state: str  # `SIZE MTIME`, by which a task notices that it was replaced ...
    digest: str  # ... and the hash of its bytes: a copy of the same bytes is the same image; empty where nobody asks
    binds: tuple[Bind, ...] = ()  # of the system, which sifmark is told; plain Apptainer has them in its flags
    sifmark: tuple[str, ...] = ()  # the words that start sifmark; empty: plain Apptainer
    flags: tuple[str, ...] = ()  # of plain Apptainer, on each node
    device_files: tuple[str, ...] = ()  # globs: on nodes that have one, the image gets `device_flags`
    device_flags: tuple[str, ...] = ()  # empty: the device files are bound
    selection_paths: tuple[str, ...] = ()  # variables of nodes that have one: the image gets the file that each names
    facts: str = ""  # of plain Apptainer: what results say of the image, as JSON


@dataclass(frozen=True, slots=True)
class JobArray:
    """A job array: task N of its script `<jobs>/NAME.sh` does the run in line N of `<jobs>/NAME.runs`."""

    name: str
    study: str
    shape: JobShape
    options: JobOptions
    image: StartedImage
    folder: Path  # jobs/
    work: Path  # the folder that jobs start in
    tasks: tuple[ArrayTask, ...]
    limit: int | None = None  # tasks that run at once
    lane: int = ALL_LANES  # whose arrays follow each other
    excluded: tuple[str, ...] = ()  # nodes that could not start the image

    @property
    def script(self) -> Path:
        """The script that Slurm starts for each task."""
        return self.folder / f"{self.name}.sh"

    @property
    def list(self) -> Path:
        """The list of runs."""
        return self.folder / f"{self.name}.runs"

    @property
    def logs(self) -> Path:
        """The folder with what tasks print."""
        return self.folder / f"{self.name}.logs"

    @property
    def lines(self) -> str:
        """The list of runs as a text."""
        return "".join(f"{task.line}\n" for task in self.tasks)


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """The runs of an array before it is one."""

    shape: JobShape
    runs: tuple[PlannedRun, ...]
    limit: int | None = None  # of runs at once
    lane: int = ALL_LANES


def arrays_of(
    runs: Iterable[PlannedRun],
    options: Mapping[str, JobOptions],
    at_least: Mapping[str, float],
    busy: Collection[str] = (),
) -> Iterator[ArrayPlan]:
    """Yield runs by shape, no more than an array of their system may have.

    `at_least` has by key the seconds that a run needs because it ran out of time before. Of a system with a limit of
    jobs in flight that has several arrays, or is `busy` with earlier ones, runs are dealt to as many lanes: arrays of a
    lane follow each other with one run at once, so that a run that is held, or takes long, holds up its lane alone.
    """
    groups: dict[JobShape, list[PlannedRun]] = {}
    for planned in runs:
        shape = _shape(planned, options[planned.run.system], at_least.get(planned.key, 0.0))
        groups.setdefault(shape, []).append(planned)
    shapes = Counter(shape.system for shape in groups)
    dealt = Counter[str]()  # runs by system: the next one goes to the next lane
    for shape, members in groups.items():
        own = options[shape.system]
        limit, size = own.max_jobs_in_flight, own.max_array_size
        if limit is None or (shapes[shape.system] == 1 and len(members) <= size and shape.system not in busy):
            yield from (ArrayPlan(shape, part, limit) for part in _parts(members, size))
            continue
        lanes = [members[(lane - dealt[shape.system]) % limit :: limit] for lane in range(limit)]
        dealt[shape.system] += len(members)
        yield from (ArrayPlan(shape, part, 1, lane) for lane, each in enumerate(lanes) for part in _parts(each, size))


def _parts(runs: Sequence[PlannedRun], size: int) -> Iterator[tuple[PlannedRun, ...]]:
    yield from (tuple(runs[start : start + size]) for start in range(0, len(runs), size))


def task_of(planned: PlannedRun) -> ArrayTask:
    """Return a run as an array task, with the arguments that say where its result goes."""
    return ArrayTask(planned.key, planned.result.absolute(), planned.arguments)


def _shape(planned: PlannedRun, options: JobOptions, at_least: float) -> JobShape:
    run = planned.run
    devices = -(-run.devices // run.nodes)
    return JobShape(run.system, run.nodes, devices, limit_of(planned.seconds, options, at_least))
