"""What a report begins with: its provenance, and reasons not to publish it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sifmark.report.content.tables import head, value_text
from sifmark.report.results import ReportResult, ReportResults
from sifmark.results.comparison.observation import PLATFORM, PRECISION_KIND, SETTING
from sifmark.results.comparison.scaling import THROUGHPUT
from sifmark.results.marks import FEW_REPEATS, FEWEST_REPEATS, MARKS, Mark, marks_of
from sifmark.studies.study import Study


@dataclass(frozen=True)
class Provenance:
    """Facts that stand below the title."""

    study: str  # its name; empty without one
    first: str  # day of the first run
    last: str
    results: int
    measurements: int
    systems: tuple[str, ...]
    hosts: int
    images: tuple[str, ...]  # recipe and version, each once
    versions: tuple[str, ...]  # of sifmark that the images have
    duplicates: int


def provenance_of(results: ReportResults, study: Study | None) -> Provenance:
    """Return the provenance of a report."""
    days = sorted(each.document["started"][:10] for each in results.members)
    images = [image for each in results.members if (image := each.document["provenance"]["image"])]
    return Provenance(
        study=study.name if study else "",
        first=days[0],
        last=days[-1],
        results=len(results.members),
        measurements=len(results.members) - len(results.failures),
        systems=results.systems,
        hosts=len({each.observation.host for each in results.members}),
        images=tuple(sorted({image["recipe"] for image in images})),
        versions=tuple(sorted({image["version"] for image in images})),
        duplicates=results.duplicates,
    )


@dataclass(frozen=True)
class Notice:
    """A reason not to publish a report, with the results that it concerns."""

    mark: Mark
    results: tuple[ReportResult, ...]
    of: int  # all results that are measurements

    @property
    def count(self) -> str:
        """How many results it concerns, in words: `3 of 18 results`, `all 18 results`."""
        number = len(self.results)
        if number == self.of:
            return "the only result" if number == 1 else f"all {number} results"
        return f"{number} of {self.of} results"


def notices_of(results: ReportResults) -> tuple[Notice, ...]:
    """Return the reasons that apply to measurements. What is no measurement is left out of the report anyway."""
    failed = {each.result.observation.id for each in results.failures}
    measured = [each for each in results.members if each.observation.id not in failed]
    marked = {each.observation.id: marks_of([each.document]) for each in measured}
    few = {each.observation.id for each in _rarely_repeated(results)}

    def applies(mark: Mark, each: ReportResult) -> bool:
        return each.observation.id in few if mark is FEW_REPEATS else mark in marked[each.observation.id]

    notices = (Notice(mark, tuple(each for each in measured if applies(mark, each)), len(measured)) for mark in MARKS)
    return tuple(notice for notice in notices if notice.results)


def _rarely_repeated(results: ReportResults) -> Iterator[ReportResult]:
    """Yield the results that have fewer repeats than an interval needs."""
    for section in results.sections:
        for point in section.all_points(THROUGHPUT):
            if len(point.results) < FEWEST_REPEATS:
                yield from point.results


def unlike_text(baseline: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """Return in which settings a configuration is not that of a baseline: `precision fp32 / bf16`."""
    names = [name for name in fields if name.startswith(SETTING) and name not in {*PLATFORM, PRECISION_KIND}]
    differing = [name for name in names if baseline.get(name) != fields[name]]
    return ", ".join(
        f"{head(name)} {value_text(baseline.get(name))} / {value_text(fields[name])}" for name in differing
    )
