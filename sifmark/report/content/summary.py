"""The summary of a report: a row for each workload with the best that each system measured."""

from collections.abc import Mapping
from dataclasses import dataclass

from sifmark.report.content.tables import Scale, all_marks, configuration_of, scale_of
from sifmark.report.marks import Mark
from sifmark.report.results import Point, ReportResults, Section
from sifmark.results.comparison.intervals import Ratio, ratio
from sifmark.results.comparison.scaling import THROUGHPUT


@dataclass(frozen=True)
class Best:
    """The best that a system measured of a workload."""

    point: Point
    configuration: str  # in words
    ratio: Ratio | None  # to the best of the baseline; of other results, to those of the same configuration

    @property
    def scale(self) -> Scale:
        """The unit in which it is shown."""
        return scale_of([self.point])


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
    rows = (_row(section, f"section-{number}") for number, section in enumerate(results.sections, start=1))
    return Summary(results.systems, results.divisor, tuple(rows))


def _row(section: Section, anchor: str) -> SummaryRow:
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
    """Return the ratio to the best of the baseline, or to other results of the same configuration if there are any."""
    if results.reference_name:
        return point.ratio
    baseline = best.get(results.divisor)
    if baseline is None or baseline is point:
        return None
    return ratio(point.row.values(THROUGHPUT), baseline.row.values(THROUGHPUT))


def _unit(section: Section) -> str:
    return next((point.unit for point in section.points(THROUGHPUT)), f"{section.unit}/s")
