"""The box above a report: why its numbers are not for publication, each reason with its results."""

from collections.abc import Iterator
from dataclasses import dataclass

from sifmark.report.marks import FEW_REPEATS, MARKS, Mark, marks_of
from sifmark.report.results import ReportResult, ReportResults
from sifmark.results.comparison.compatibility import exclusion_fields
from sifmark.results.comparison.intervals import FEWEST_REPEATS
from sifmark.results.comparison.scaling import THROUGHPUT


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
