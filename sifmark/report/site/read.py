"""Reading results for a site: each is validated once and reduced to what pages need of it, in several processes.

Ten thousand documents would take gigabytes. Of each, what remains are its observation, as comparisons have it, a few
metrics, and the environment of its run for the history; equal ones are kept once.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import orjson

from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.report.anonymous import FILE, Anonymiser, anonymiser_of
from sifmark.report.results import SIGNER
from sifmark.results.catalogue import KINDS, headlines
from sifmark.results.comparison.compatibility import FIELDS
from sifmark.results.comparison.observation import PREFILL, Observation, observe
from sifmark.results.comparison.scaling import THROUGHPUT
from sifmark.results.documents import metric_value, metrics_of, value_at
from sifmark.results.envelope import require_usable, signer_of
from sifmark.results.load import LoadedResult, load_file, result_files, run_keys
from sifmark.results.marks import marks_of_result
from sifmark.results.rules import violations_of
from sifmark.studies.history.environment import PATHS
from sifmark.studies.history.series import STARTED

MOST_PROCESSES = 4  # each takes 60 to 130 MB

Item = TypeVar("Item")
Answer = TypeVar("Answer")
# The metrics that pages show: headlines of every kind of run, and what separates the kinds.
METRICS = tuple(dict.fromkeys((THROUGHPUT, PREFILL, *headlines(*KINDS))))
_FILES_AT_ONCE = 200
_DIGEST = 12  # bytes: of a million digests, two are equal by chance once in 10^17 times
Document = dict[str, Any]


def in_processes(
    function: Callable[[Sequence[Item]], list[Answer]], items: Sequence[Item], at_once: int, processes: int = 0
) -> Iterator[Answer]:
    """Yield what a function returns for items, in their order, `at_once` of them in a call.

    One call needs no process. The default is a process for each usable processor, but no more than MOST_PROCESSES.
    """
    parts = [items[place : place + at_once] for place in range(0, len(items), at_once)]
    processes = min(processes or usable_processors(), MOST_PROCESSES, len(parts))
    if processes <= 1:
        for part in parts:
            yield from function(part)
        return
    # Forked, so that what has been loaded is shared: schemas and rules.
    with ProcessPoolExecutor(processes, get_context("fork"), _leave_interrupts_to_parent) as pool:
        try:
            for answers in pool.map(function, parts):
                yield from answers
        except BrokenProcessPool as error:
            cause = "a process that made a part of the site was ended from outside"
            raise SifmarkError(cause, "is there enough memory? free some, then try again", code="run-failed") from error


def usable_processors() -> int:
    """Return on how many processors this process may run."""
    return len(os.sched_getaffinity(0))


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True, slots=True)
class SiteResult:
    """What pages need of a result. `file` of the observation is relative to the folder of results."""

    folder: str  # of its file, relative to the folder of results
    observation: Observation
    started: str  # when the run began: UTC, in ISO 8601
    about: Mapping[str, Any]  # the fields of ABOUT_RUNS but for that
    workload: str
    unit: str  # what is counted: images, tokens ...
    message: str  # of a run that did not complete: the first line
    marks: tuple[str, ...]  # reasons not to publish it

    @property
    def id(self) -> str:
        return self.observation.id

    @property
    def state(self) -> str:
        return str(self.observation.fields["status.state"])

    def for_history(self) -> Observation:
        return replace(self.observation, fields={**self.observation.fields, **self.about, STARTED: self.started})


@dataclass(frozen=True)
class Fetched:
    """A folder with what came from registries, HOST/PATH/NAME ..., and what could not be fetched, and why."""

    folder: Path
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Places:
    """Where the files of a site are, and what it calls them: by their paths from a folder that has them all."""

    folder: Path
    fetched: Path | None = None  # another one, with what came from registries

    def name(self, file: str) -> str:
        """Return the name of a file or folder."""
        path = Path(file)
        within = self.fetched if self.fetched and path.is_relative_to(self.fetched) else self.folder
        return path.relative_to(within).as_posix()

    def path(self, name: str) -> Path:
        """Return the file or folder of a name."""
        path = self.fetched / name if self.fetched and name else None
        return path if path and path.exists() else self.folder / name

    @property
    def title(self) -> str:
        """What to call them all; empty if they only came from registries."""
        return "" if self.folder == self.fetched else self.folder.resolve().name


@dataclass
class SiteResults:
    """All results below a folder, each run counted once, and what was left out."""

    places: Places
    members: list[SiteResult] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)  # file and first problem
    unsigned: list[str] = field(default_factory=list)  # of a register: file, and why no trusted key vouches for it
    duplicates: int = 0
    labels: Anonymiser | None = None  # in place of names of hosts, users and paths
    signed: bool = False  # whether results count only if a trusted key has signed them: a register

    @property
    def signers(self) -> dict[str, int]:
        """How many results each key has signed."""
        return dict(sorted(Counter(str(each.observation.fields[SIGNER]) for each in self.members).items()))


@dataclass(frozen=True, slots=True)
class _Reading:
    """A document of a file: a result with what identifies its run, or the problem."""

    problem: str = ""
    unsigned: bool = False  # whether the problem is that no trusted key vouches for it
    result: SiteResult | None = None
    keys: tuple[bytes, ...] = ()


def places_of(folders: Sequence[Path], fetched: Path | None = None) -> Places:
    """Return the places of some folders. Raises UsageError for one that is not there."""
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"no folder {folder}", "name a folder with results of runs", code="result-missing")
    if fetched and not folders:
        return Places(fetched, fetched)
    single = len(folders) == 1
    return Places(folders[0] if single else Path(os.path.commonpath([each.absolute() for each in folders])), fetched)


def read_results(
    folders: Path | Sequence[Path],
    more_fields: tuple[str, ...] = (),
    anonymous: bool = False,
    anonymous_sites: bool = False,
    processes: int = 0,
    trusted_keys: Sequence[str] | None = None,
    fetched: Fetched | None = None,
) -> SiteResults:
    """Return the results below folders; files are named from the folder that has them all.

    Observations have `more_fields` besides the usual ones. Labels stand for names if results are to be `anonymous`.
    With 0 `processes`, there are a few, as there are processors. With `trusted_keys`, only what one of them has signed
    counts, and observations have the field SIGNER. What was `fetched` counts too. Raises UsageError.
    """
    chosen = [folders] if isinstance(folders, Path) else list(folders)
    places = places_of(chosen, fetched.folder if fetched else None)
    roots = list(chosen) if len(chosen) == 1 else list(dict.fromkeys(each.absolute() for each in chosen))
    found = [each for root in [*roots, *([fetched.folder] if fetched else [])] for each in result_files(str(root))]
    results = SiteResults(places, unsigned=list(fetched.problems if fetched else ()), signed=trusted_keys is not None)
    files = [name for name, problem in found if not problem]
    violations_of()  # loaded before there are processes, which then share it
    if trusted_keys is not None:
        require_usable(trusted_keys)  # here: the errors of other processes have no remedies
    if anonymous:
        results.labels = anonymiser_of((each for name in files for each in load_file(name)), anonymous_sites)
    results.invalid.extend(_unreadable(found, results))
    read = _ReducingReader(places, more_fields, results.labels, None if trusted_keys is None else tuple(trusted_keys))
    _collect(results, in_processes(read, files, _FILES_AT_ONCE, processes))
    if not results.members and not results.invalid and not results.unsigned:
        cause = f"no result below {places.folder}" if roots else "no result refers to these images"
        raise UsageError(cause, "name a folder with results of runs", code="result-missing")
    return results


def _collect(results: SiteResults, readings: Iterable[_Reading]) -> None:
    """Add what was read, each run once: that which was read first."""
    signers: dict[bytes, str] = {}  # by what identifies a run
    interned = Interned()
    for reading in readings:
        if reading.result is None:
            (results.unsigned if reading.unsigned else results.invalid).append(reading.problem)
            continue
        signer = str(reading.result.observation.fields.get(SIGNER, ""))
        earlier = next((signers[key] for key in reading.keys if key in signers), None)
        if earlier is None:
            results.members.append(interned.result(reading.result))
        elif earlier == signer:
            results.duplicates += 1
        else:
            words = f"{signer} has signed it, but it is of a run that {earlier} has signed and that was read before"
            results.unsigned.append(printable(f"{reading.result.observation.file}: {words}"))
        for key in reading.keys:
            signers.setdefault(key, signer)


def _unreadable(found: Iterable[tuple[str, str]], results: SiteResults) -> Iterator[str]:
    """Yield the folders that cannot be searched, with the reason."""
    for name, problem in found:
        if problem:
            shown = results.labels.label(FILE, name) if results.labels else results.places.name(name)
            yield printable(f"{shown}: {problem}")


class Interned:
    """Equal fields and texts, each kept once: repeats differ in little."""

    def __init__(self) -> None:
        self._fields: dict[frozenset[tuple[str, Any]], dict[str, Any]] = {}

    def result(self, result: SiteResult) -> SiteResult:
        """Return a result that shares what it has in common with earlier ones."""
        observation = replace(result.observation, fields=self._shared(result.observation.fields))
        return replace(result, observation=observation, about=self._shared(result.about))

    def _shared(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        key = frozenset(fields.items())
        if key not in self._fields:
            self._fields[key] = {_interned(name): _interned(value) for name, value in fields.items()}
        return self._fields[key]


def _interned(value: Any) -> Any:
    return sys.intern(value) if type(value) is str else value


@dataclass(frozen=True)
class _ReducingReader:
    """What reads some files, in whatever process."""

    places: Places
    more_fields: tuple[str, ...]
    labels: Anonymiser | None
    keys: tuple[str, ...] | None  # that may have signed what counts; None: signatures are not looked at

    def __call__(self, files: Sequence[str]) -> list[_Reading]:
        interned = Interned()  # so that what goes to the other process is small
        return [reading for file in files for reading in self._read(file, interned)]

    def _read(self, file: str, interned: Interned) -> Iterator[_Reading]:
        try:
            signer = None if self.keys is None else signer_of(Path(file), self.keys)
        except SifmarkError as error:
            cause = error.cause.replace(file, Path(file).name)
            yield _Reading(printable(f"{self.places.name(file)}: {cause}"), unsigned=True)
            return
        for loaded in load_file(file):
            name = self.labels.result(loaded).file if self.labels else self.places.name(file)
            if loaded.problems:
                problem = self.labels.text(loaded.problems[0]) if self.labels else loaded.problems[0]
                yield _Reading(printable(f"{name}: {problem}"))
                continue
            keys = tuple(blake2b(orjson.dumps(key), digest_size=_DIGEST).digest() for key in run_keys(loaded.document))
            yield _Reading(result=interned.result(self._reduced(loaded, name, signer)), keys=keys)

    def _reduced(self, loaded: LoadedResult, name: str, signer: str | None) -> SiteResult:
        document = self.labels.document(loaded.document) if self.labels else loaded.document
        metrics, status = metrics_of(document), document["status"]
        numbers = {metric: metric_value(metrics[metric]) for metric in METRICS if metric in metrics}
        completed = status["state"] == "completed"
        observation = observe(document, "results", name, (*FIELDS, *self.more_fields), numbers)
        if signer is not None:
            observation = replace(observation, fields={**observation.fields, SIGNER: signer})
        return SiteResult(
            folder=str(PurePosixPath(self.places.name(loaded.file)).parent),
            observation=observation,
            started=document["started"],
            about={path: value_at(document, path) for path in PATHS},
            workload=document["workload"]["name"],
            unit=document["workload"]["unit"],
            message="" if completed else str(status["message"]).partition("\n")[0],
            marks=tuple(mark.name for mark in marks_of_result(document) if mark.everywhere),
        )
