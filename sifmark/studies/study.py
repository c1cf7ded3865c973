"""Data classes of studies: systems, groups, runs and plans."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from sifmark.engines.binds import Bind, read_options
from sifmark.results.identity import OUTPUT_OPTION, SITE_OPTION, RunIdentity, key_of

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Source:
    """Where a study was published."""

    title: str
    authors: str = ""
    url: str = ""
    published: str = ""  # name of its figures in studies/published, for `compare --against`


@dataclass(frozen=True, slots=True)
class System:
    """A machine as tables call it, with the image that it runs. `devices` are those of one node."""

    name: str
    image: str  # a recipe, the path of a SIF file, or an address of a registry with a digest
    title: str = ""
    devices: int | None = None  # accelerators of a node; None if unknown
    nodes: int | None = None  # that a study may use at once
    memory_gib: float | None = None  # of one device
    bind: tuple[Bind, ...] = ()  # paths of the host that its runs see, besides those that their arguments name
    arguments: tuple[str, ...] = ()  # of the image, added to those of each run
    slurm: Mapping[str, object] = field(default_factory=dict)  # options that replace those of the settings


@dataclass(frozen=True, slots=True)
class Limitation:
    """A part of a published study that cannot be repeated, and why."""

    part: str
    reason: str
    figures: tuple[str, ...] = ()  # published ones that have no counterpart for it: `TABLE`, `TABLE, row N[, COLUMN]`


@dataclass(frozen=True, slots=True)
class Output:
    """A table or figure that the results of a study fill."""

    name: str
    title: str
    kind: str  # table, line, bar, heat-map
    groups: tuple[str, ...]  # names of the groups of runs that it shows
    x: str
    y: str  # a metric
    series: tuple[str, ...] = ("system",)
    published: str = ""  # the published table that it repeats: NAME/TABLE


@dataclass(frozen=True, slots=True)
class Group:
    """A `[[run]]` of a study file: each value is a tuple, and those with several are axes."""

    name: str
    line: int  # in the study file
    axes: Mapping[str, tuple[Scalar, ...]]  # by key of the file: workload, precision, batch_size, devices ...
    scaling: str | None  # weak: batch_size is per device; strong: it is of all devices
    repeats: int
    systems: tuple[str, ...]  # empty: all
    except_: tuple[Mapping[str, tuple[Scalar, ...]], ...] = ()
    only: tuple[Mapping[str, tuple[Scalar, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Study:
    """A checked study file, or a variant of one, which has a name and a folder of its own: `quick-small`."""

    name: str  # with the variant
    title: str  # with the variant
    file: Path
    questions: tuple[str, ...]
    source: Source | None
    systems: tuple[System, ...]
    groups: tuple[Group, ...]
    outputs: tuple[Output, ...]
    limitations: tuple[Limitation, ...]
    variant: str  # "" for the whole study

    @property
    def whole(self) -> str:
        """The name of the whole study."""
        return self.file.stem

    @property
    def words(self) -> str:
        """How a command names it: `quick --variant small`."""
        whole = self.name.removesuffix(f"-{self.variant}")  # not that of the file: anonymous reports have their own
        return f"{whole} --variant {self.variant}" if whole != self.name else self.name


Command = tuple[str, int, int, tuple[str, ...]]  # a system, nodes, devices, and arguments of its image


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an image: one repeat of one cell of a study, on one system."""

    system: str
    group: str
    cell: Mapping[str, Scalar]  # what distinguishes the run in its study: workload, task, batch_size, devices ...
    arguments: tuple[str, ...]  # of the image: workload and options, without --output and --site
    devices: int  # of all nodes together
    nodes: int
    repeat: int  # from 1
    repeats: int

    @property
    def command(self) -> Command:
        """What the repeats of a run have in common."""
        return self.system, self.nodes, self.devices, self.arguments

    def key(self, image: str) -> str:
        """Return the run's identity: 16 hexadecimal digits of its image's ID, arguments, system and repeat.

        The number of repeats is not part of it: more repeats keep those that are there.
        """
        return key_of(image, self.system, self.nodes, self.repeat, self.arguments)


class RunState(StrEnum):
    """The state of a run."""

    DONE = "done"  # a valid result of a completed run
    FAILED = "failed"  # it ended by a fault of its own; `out_of_memory` is done, as the studies print it
    RUNNING = "running"
    QUEUED = "queued"  # by a scheduler
    TO_DO = "to do"
    CANNOT_RUN = "cannot run"


class Cause(StrEnum):
    """Why a run is in its state, besides the states of results that have not completed."""

    NONE = ""
    # Failed: the run is to blame, or may be.
    NO_RESULT = "no_result"
    TIME_LIMIT = "job_time_limit"
    MEMORY_LIMIT = "job_memory_limit"
    # To do: something else was to blame.
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    NODE_FAILED = "node_failed"
    NOT_STARTED = "not_started"
    NOT_WRITABLE = "results_not_writable"
    NOT_SEEN = "results_not_seen"
    PROGRAM_MISSING = "program_missing"
    IMAGE_REPLACED = "image_replaced"
    INVALID = "invalid_result"
    OF_ANOTHER = "result_of_another_run"
    LOST = "lost"
    ELSEWHERE = "submitted_elsewhere"
    AGAIN = "again"
    OVER_BUDGET = "over_budget"
    # Queued or running.
    JOB = "job"
    SILENT = "scheduler_silent"
    # Known before it starts.
    IMPOSSIBLE = "impossible"
    IMAGE_MISSING = "image_missing"
    EXPECTED = "out_of_memory_expected"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a run is in its state: a cause that programs know, or the state of a result, and what is to be said of it."""

    cause: str = Cause.NONE  # a Cause, or a state of results such as `crashed`
    detail: str = ""

    def __bool__(self) -> bool:
        return bool(self.cause)

    def __str__(self) -> str:
        # By the state or the detail already.
        told = self.cause in (Cause.IMPOSSIBLE, Cause.IMAGE_MISSING, Cause.JOB, Cause.OVER_BUDGET)
        return ": ".join(filter(None, ("" if told else str(self.cause), self.detail)))


NOTHING = Reason()


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run with its state. The result is at `<results>/<study>/<system>/<key>.json`."""

    run: Run
    key: str
    result: Path
    state: RunState
    reason: Reason = NOTHING  # why it is in its state; of a completed run nothing, or `out_of_memory`
    seconds: float | None = None  # estimated, or measured where it is done
    memory_gib: float | None = None  # estimated for one device
    image: str = ""  # the ID of its image; empty if that is not here
    batch_size: int | None = None  # that a search for the largest came to, as the cell has it: of all or of each device
    job: str = ""  # of a scheduler, where it waits or runs: `ID_INDEX`

    @property
    def arguments(self) -> tuple[str, ...]:
        """All arguments of the image, with those that say where the result goes."""
        return self._arguments(str(self.result.absolute()))

    @property
    def paths(self) -> tuple[str, ...]:
        """The words that say what it has to be shown: what it reads, and the folder of its result, made or not."""
        return (*read_options(self.run.arguments), OUTPUT_OPTION, f"{self.result.absolute().parent}/")

    @property
    def identity(self) -> RunIdentity:
        """What the result of this run says of its origin."""
        return RunIdentity.of(self._arguments(self.result.name), self.image)

    def _arguments(self, output: str) -> tuple[str, ...]:
        return (*self.run.arguments, SITE_OPTION, self.run.system, OUTPUT_OPTION, output)

    @property
    def device_hours(self) -> float | None:
        """The hours of all devices that the run takes, or None if its time is unknown."""
        return None if self.seconds is None else self.seconds * self.run.devices / 3600


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """All runs of a study on the chosen systems, in the order in which they are to run: repeats outermost.

    Cells of several groups, or of one, may have the same command. Their run is in `runs` once.
    """

    study: Study
    folder: Path  # <results>/<study>
    images: Mapping[str, str]  # the ID of the image by system; empty text if the image is not here
    runs: tuple[PlannedRun, ...]
    image_reasons: Mapping[str, str] = field(default_factory=dict)  # why an image is not here, by system
    shared: tuple[tuple[str, Run], ...] = ()  # further cells of runs, by the key of the run

    @property
    def cells(self) -> tuple[PlannedRun, ...]:
        """The runs as the cells of all groups have them: those of several cells as often as they have cells."""
        by_key = {planned.key: planned for planned in self.runs}
        return (*self.runs, *(replace(by_key[key], run=run) for key, run in self.shared if key in by_key))
