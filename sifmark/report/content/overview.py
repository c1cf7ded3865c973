"""What a report begins with: its provenance, reasons not to publish it, and the best of each workload."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.report.content.tables import all_marks, configuration_of, head, notes_of_ratios, value_text
from sifmark.report.describe import quantity_text, scale_of_points
from sifmark.report.results import Point, ReportResult, ReportResults, Section
from sifmark.results.catalogue import metric_label
from sifmark.results.comparison.intervals import Ratio
from sifmark.results.comparison.observation import PLATFORM, PRECISION_KIND, SETTING
from sifmark.results.comparison.scaling import THROUGHPUT
from sifmark.results.marks import FEW_REPEATS, FEWEST_REPEATS, MARKS, Mark, marks_of
from sifmark.results.numbers import Scale
from sifmark.studies.study import Study

STEP_TIME = "step_time_p50"  # it says what throughput says
MOST_BESIDE = 3  # headlines of a workload, of which one is the best by which systems are ranked


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


@dataclass(frozen=True)
class Best:
    """The best that a system measured of a workload."""

    point: Point
    configuration: str  # in words
    beside: tuple[str, ...]  # the other headlines of the same results: `time to first token, median 35.20 ms`
    ratio: Ratio | None  # to the best of the baseline, or other results, of the same configuration
    unlike: str  # in which settings it differs from the best of the baseline, if that is why it has no ratio

    @property
    def scale(self) -> Scale:
        """The unit in which it is shown."""
        return scale_of_points([self.point])


@dataclass(frozen=True)
class SummaryRow:
    """A workload in the summary."""

    section: Section
    anchor: str
    metric: str
    unit: str
    best: tuple[Best | None, ...]  # by system

    @property
    def label(self) -> str:
        """The metric in words."""
        return metric_label(self.metric)

    @property
    def title(self) -> str:
        """The workload without what its title explains."""
        return self.section.short_title


@dataclass(frozen=True)
class Summary:
    """The best of each workload by system, by its first metric of which more is better."""

    systems: tuple[str, ...]
    baseline: str  # what the systems are divided by: one of them, or other results; empty without ratios
    rows: tuple[SummaryRow, ...]
    notes: tuple[str, ...]  # in which settings columns with a ratio differ, and what verdicts allow for

    @property
    def marks(self) -> tuple[Mark, ...]:
        """All marks of its numbers."""
        return all_marks(best.point for row in self.rows for best in row.best if best)


def summary_of(results: ReportResults) -> Summary:
    """Return the summary. A workload of which nothing may be compared has a row without numbers."""
    rows = (_summary_row(section, f"section-{number}") for number, section in enumerate(results.sections, start=1))
    shown = tuple(rows)
    return Summary(results.systems, results.divisor, shown, tuple(_notes(results, shown)))


def _notes(results: ReportResults, rows: Sequence[SummaryRow]) -> Iterator[str]:
    """Yield what ratios are of, with the workloads where that is not so of all."""
    titles: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        compared = [best.point.row for best in row.best if best and best.ratio]
        for text in notes_of_ratios(compared, results.compare(row.metric).query):
            titles[text].append(row.title)
    for text, named in titles.items():
        yield text if len(named) == len(rows) else f"{', '.join(dict.fromkeys(named))}: {text}"


def _summary_row(section: Section, anchor: str) -> SummaryRow:
    points = best_points(section)
    best = {name: _best(section, point, points) for name, point in points.items()}
    return SummaryRow(section, anchor, section.rate, _unit(section), tuple(map(best.get, section.results.systems)))


def _best(section: Section, point: Point, best: Mapping[str, Point]) -> Best:
    results = section.results
    ratio = ratio_to_best(point, best, results)
    baseline = None if results.reference_name or ratio else best.get(results.divisor)
    unlike = unlike_text(baseline.fields, point.fields) if baseline and baseline is not point else ""
    return Best(point, configuration_of(point.observation), tuple(_beside(section, point)), ratio, unlike)


def _beside(section: Section, point: Point) -> Iterator[str]:
    """Yield the other headlines of the same results."""
    own = {each.observation.id for each in point.results}
    for metric in section.headlines[:MOST_BESIDE]:
        for other in section.points(metric) if metric not in (point.metric, STEP_TIME) else ():
            if {each.observation.id for each in other.results} == own:
                yield f"{metric_label(metric)} {quantity_text(other.mean, other.unit)}"


def unlike_text(baseline: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """Return in which settings a configuration is not that of a baseline: `precision fp32 / bf16`."""
    names = [name for name in fields if name.startswith(SETTING) and name not in {*PLATFORM, PRECISION_KIND}]
    differing = [name for name in names if baseline.get(name) != fields[name]]
    return ", ".join(
        f"{head(name)} {value_text(baseline.get(name))} / {value_text(fields[name])}" for name in differing
    )


def best_points(section: Section) -> dict[str, Point]:
    """Return the best point of each system."""
    best: dict[str, Point] = {}
    for point in section.points(section.rate):
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
    return next((point.unit for point in section.points(section.rate)), f"{section.unit}/s")
