"""What a report rests on: study, dates, systems, images and versions. Nothing of it depends on when it is written."""

from dataclasses import dataclass

from sifmark.report.results import ReportResults
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
