"""What a report begins with: its provenance, reasons not to publish it, and the best of each workload."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sifmark.report.charts.words import scale_of_points
from sifmark.report.content.tables import all_marks, configuration_of
from sifmark.report.results import Point, ReportResult, ReportResults, Section
from sifmark.results.comparison.compatibility import exclusion_fields
from sifmark.results.comparison.intervals import Ratio
from sifmark.results.comparison.scaling import THROUGHPUT
from sifmark.results.marks import FEW_REPEATS, FEWEST_REPEATS, MARKS, Mark, marks_of
from sifmark.results.numbers import Scale
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
    measured = [each for each in results.members if not exclusion_fields(each.observation)]
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


@dataclass(frozen=True)
class Best:
    """The best that a system measured of a workload."""

    point: Point
    configuration: str  # in words
    ratio: Ratio | None  # to the best of the baseline, or other results, of the same configuration

    @property
    def scale(self) -> Scale:
        """The unit in which it is shown."""
        return scale_of_points([self.point])


@dataclass(frozen=True)
class SummaryRow:
    """A workload in the summary."""

    section: Section
    anchor: str
    unit: str
    best: tuple[Best | None, ...]  # by system

    @property
    def title(self) -> str:
        """The workload without what its title explains."""
        return self.section.short_title


@dataclass(frozen=True)
class Summary:
    """The best throughput of each workload by system."""

    systems: tuple[str, ...]
    baseline: str  # what the systems are divided by: one of them, or other results; empty without ratios
    rows: tuple[SummaryRow, ...]

    @property
    def marks(self) -> tuple[Mark, ...]:
        """All marks of its numbers."""
        return all_marks(best.point for row in self.rows for best in row.best if best)


def summary_of(results: ReportResults) -> Summary:
    """Return the summary. A workload of which nothing may be compared has a row without numbers."""
    rows = (_summary_row(section, f"section-{number}") for number, section in enumerate(results.sections, start=1))
    return Summary(results.systems, results.divisor, tuple(rows))


def _summary_row(section: Section, anchor: str) -> SummaryRow:
    points = best_points(section)
    best = {
        name: Best(point, configuration_of(point.observation), ratio_to_best(point, points, section.results))
        for name, point in points.items()
    }
    return SummaryRow(section, anchor, _unit(section), tuple(map(best.get, section.results.systems)))


def best_points(section: Section) -> dict[str, Point]:
    """Return the point of the highest throughput by system."""
    best: dict[str, Point] = {}
    for point in section.points(THROUGHPUT):
        former = best.get(point.system)
        if former is None or (point.mean.value or 0.0) > (former.mean.value or 0.0):
            best[point.system] = point
    return {name: best[name] for name in section.results.systems if name in best}


def ratio_to_best(point: Point, best: Mapping[str, Point], results: ReportResults) -> Ratio | None:
    """Return the ratio to the best of the baseline if that has the same configuration, or to other results if given."""
    if results.reference_name:
        return point.ratio
    baseline = best.get(results.divisor)
    if baseline is None or point.row.baseline is not baseline.row:
        return None
    return point.ratio


def _unit(section: Section) -> str:
    return next((point.unit for point in section.points(THROUGHPUT)), f"{section.unit}/s")
