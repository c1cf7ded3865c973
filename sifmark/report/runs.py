"""The runs of a report: every result with what repeats it, its image, and how to trace it.

They have no numbers: those of a single run are not what `compare` prints.
"""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from sifmark.report.describe import configuration_of
from sifmark.report.results import Document, ReportResult, ReportResults
from sifmark.report.systems import environment_of
from sifmark.results.marks import Mark


@dataclass(frozen=True)
class Run:
    """A result in the list of runs."""

    result: ReportResult
    system: str
    marks: tuple[Mark, ...]  # none of what is no measurement

    @property
    def document(self) -> Document:
        return self.result.document

    @property
    def file(self) -> str:
        return self.result.observation.file

    @property
    def workload(self) -> str:
        return f"{self.document['workload']['name']} {self.document['workload']['task']}"

    @cached_property
    def configuration(self) -> str:
        return configuration_of(self.result.observation)

    @property
    def repeat(self) -> str:
        """Which repeat it is: `repeat 2 of 3`; empty of a single run."""
        repeat = self.document["configuration"]["repeat"]
        return f"repeat {repeat['index']} of {repeat['of']}" if repeat["of"] > 1 else ""

    @property
    def state(self) -> str:
        return str(self.document["status"]["state"])

    @property
    def message(self) -> str:
        return str(self.document["status"]["message"]).partition("\n")[0]

    @property
    def image(self) -> str:
        """Its recipe, version and digest; or why there is none."""
        image = self.document["provenance"]["image"]
        if image is None:
            return f"none: {self.document['provenance']['reason']}"
        digest = image["file"]["digest"] or f"build {image['build_key']}"
        return f"{image['recipe']} {image['version']}, {digest}"

    @cached_property
    def command(self) -> str:
        """What repeats it, quoted for a shell."""
        image, words = self.document["provenance"]["image"], self.document["provenance"]["command"]
        if image is None:
            return f"python -m entrypoints {shlex.join(words)}"
        return shlex.join(["sifmark", "run", image["recipe"], "--", *words])

    @cached_property
    def environment(self) -> str:
        """The variables with which it ran, also those of its image; empty without any."""
        return environment_of(self.document) or ""

    @property
    def trace(self) -> str:
        return shlex.join(["sifmark", "results.trace", self.file])


def runs_of(results: ReportResults) -> tuple[Run, ...]:
    """Return all results by workload, system, configuration and start: repeats follow each other."""
    excluded = {each.result.observation.id for each in results.failures}

    def place(run: Run) -> tuple[str, str, int, str, str, str]:
        batch = run.document["configuration"]["batch_size"] or 0
        return run.workload, run.system, batch, run.configuration, run.document["started"], run.result.anchor

    runs = (
        Run(each, results.system(each.observation.fields), () if each.observation.id in excluded else each.marks)
        for each in results.members
    )
    return tuple(sorted(runs, key=place))


def groups_of(runs: Iterable[Run]) -> list[list[Run]]:
    """Return the repeats of each configuration on a system that ended alike, in their order."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        key = (run.system, run.workload, run.configuration, run.state, run.image, run.environment, run.command)
        groups.setdefault(key, []).append(run)
    return list(groups.values())
