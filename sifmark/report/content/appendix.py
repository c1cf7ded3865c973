"""The appendix of a report: every result with what repeats it, its image, and how to trace it.

It has no numbers: those of a single run are not what `compare` prints.
"""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from sifmark.report.content.tables import configuration_of
from sifmark.report.results import Document, ReportResult, ReportResults
from sifmark.results.marks import FEW_REPEATS, Mark, marks_of


@dataclass(frozen=True)
class AppendixEntry:
    """A result in the appendix."""

    result: ReportResult
    system: str
    workload: str  # with its task
    configuration: str  # in words
    repeat: str  # which repeat it is: `repeat 2 of 3`; empty of a single run
    started: str  # UTC
    state: str
    message: str
    command: str  # what repeats the run
    image: str  # recipe, version and digest; or why there is none
    trace: str  # the command that traces it
    marks: tuple[Mark, ...]

    @property
    def anchor(self) -> str:
        """The name of its place on the page."""
        return self.result.anchor

    @property
    def file(self) -> str:
        """The result's file."""
        return self.result.observation.file


@dataclass(frozen=True)
class RunGroup:
    """The repeats of a configuration on a system that ended alike."""

    entries: tuple[AppendixEntry, ...]

    @property
    def first(self) -> AppendixEntry:
        """The first of them, which has what they have in common."""
        return self.entries[0]


def groups_of(entries: Iterable[AppendixEntry]) -> tuple[RunGroup, ...]:
    """Return results in groups, in their order."""
    groups: dict[tuple[str, ...], list[AppendixEntry]] = {}
    for each in entries:
        key = (each.system, each.workload, each.configuration, each.state, each.image, each.command)
        groups.setdefault(key, []).append(each)
    return tuple(RunGroup(tuple(members)) for members in groups.values())


def appendix_of(results: ReportResults) -> tuple[AppendixEntry, ...]:
    """Return all results by workload, system, configuration and start."""
    excluded = {each.result.observation.id for each in results.failures}
    entries = (_entry(each, results, each.observation.id in excluded) for each in results.members)
    return tuple(sorted(entries, key=_place))


def _place(entry: AppendixEntry) -> tuple[str, str, int, str, str, str]:
    """Return what entries are sorted by: repeats follow each other."""
    batch = entry.result.document["configuration"]["batch_size"] or 0
    configuration = configuration_of(entry.result.observation)
    return entry.workload, entry.system, batch, configuration, entry.started, entry.anchor


def _entry(result: ReportResult, results: ReportResults, excluded: bool) -> AppendixEntry:
    document = result.document
    return AppendixEntry(
        result=result,
        system=results.system(result.observation.fields),
        workload=f"{document['workload']['name']} {document['workload']['task']}",
        configuration=configuration_of(result.observation),
        repeat=_repeat(result),
        started=document["started"],
        state=document["status"]["state"],
        message=str(document["status"]["message"]).partition("\n")[0],
        command=command_of(document),
        image=image_of(document),
        trace=shlex.join(["sifmark", "results.trace", result.observation.file]),
        marks=() if excluded else tuple(mark for mark in marks_of([document]) if mark is not FEW_REPEATS),
    )


def _repeat(result: ReportResult) -> str:
    repeat = result.document["configuration"]["repeat"]
    return f"repeat {repeat['index']} of {repeat['of']}" if repeat["of"] > 1 else ""


def command_of(document: Document) -> str:
    """Return the command that repeats a run; quoted for a shell."""
    image, words = document["provenance"]["image"], document["provenance"]["command"]
    if image is None:
        return f"python -m entrypoints {shlex.join(words)}"
    return shlex.join(["sifmark", "run", image["recipe"], "--", *words])


def image_of(document: Document) -> str:
    """Return which image a result is of: its recipe, version and digest."""
    image = document["provenance"]["image"]
    if image is None:
        return f"none: {document['provenance']['reason']}"
    digest = image["file"]["digest"] or f"build {image['build_key']}"
    return f"{image['recipe']} {image['version']}, {digest}"
