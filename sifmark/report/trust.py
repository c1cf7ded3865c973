"""Whether to publish a report: the reservations of its results, and what of its study is missing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sifmark.core.console import counted
from sifmark.report.describe import listed, short
from sifmark.report.outputs.members import missing_runs
from sifmark.report.results import Point, ReportResult, ReportResults
from sifmark.report.scorecard import Scorecard
from sifmark.results.comparison.scaling import THROUGHPUT
from sifmark.results.marks import FEW_REPEATS, FEWEST_REPEATS, MARKS, Mark
from sifmark.studies.study import Study


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


@dataclass(frozen=True)
class Trust:
    """Whether to publish the report, in one line, and what to do."""

    verdict: str
    text: str
    notices: tuple[Notice, ...] = ()
    missing: str = ""  # what of the study has no result
    remedy: str = ""  # what to do about it


def notices_of(results: ReportResults) -> tuple[Notice, ...]:
    """Return the reasons that apply to measurements. What is no measurement is left out of the report anyway."""
    failed = {each.result.observation.id for each in results.failures}
    measured = [each for each in results.members if each.observation.id not in failed]
    few = {each.observation.id for each in _rarely_repeated(results)}

    def applies(mark: Mark, each: ReportResult) -> bool:
        return each.observation.id in few if mark is FEW_REPEATS else mark in each.marks

    notices = (Notice(mark, tuple(each for each in measured if applies(mark, each)), len(measured)) for mark in MARKS)
    return tuple(notice for notice in notices if notice.results)


def _rarely_repeated(results: ReportResults) -> Iterator[ReportResult]:
    for section in results.sections:
        for point in section.all_points(THROUGHPUT):
            if len(point.results) < FEWEST_REPEATS:
                yield from point.results


def trust_of(
    results: ReportResults, notices: Sequence[Notice], scorecard: Scorecard | None, study: Study | None = None
) -> Trust:
    """Return how many results have a reservation, and whether a number of the scorecard rests on one."""
    missing, remedy = _missing(results, study) if study else ("", "")
    if not results.measured:
        return Trust("Nothing to publish:", "no result is a measurement", (), missing, remedy)
    if not notices:
        return Trust("Nothing speaks against publication:", "no result has a reservation", (), missing, remedy)
    marked = {each.observation.id for notice in notices for each in notice.results}
    have = "has" if len(marked) == 1 else "have"
    text = f"{len(marked)} of {counted(results.measured, 'result')} {have} a reservation"
    if scorecard:
        inside = sum(not marked.isdisjoint(_results_of(results, point)) for point in scorecard.points)
        verb = "rests" if inside == 1 else "rest"
        text += f"; {inside or 'none'} of the {counted(len(scorecard.points), 'ratio')} below {verb} on one"
    return Trust("Do not publish yet:", text, tuple(notices), missing, remedy)


def _results_of(results: ReportResults, point: Point) -> set[str]:
    baseline = point.row.baseline if not results.reference_name else None
    return {each.observation.id for each in (*point.results, *(results.of_row(baseline) if baseline else ()))}


def _missing(results: ReportResults, study: Study) -> tuple[str, str]:
    """Return how many runs of a study are without a result or failed, and what to do; nothing if none is."""
    planned, missing = missing_runs(results, study)
    by_system = ", ".join(f"{short(name)} {count}" for name, count in missing.items())
    named = "" if results.anonymous else f" ({by_system})"
    parts = [f"{sum(missing.values())} have no result{named}"] if missing else []
    parts += [f"{len(results.failures)} failed or are no measurement"] if results.failures else []
    if not parts:
        return "", ""
    why = f"`sifmark study.status {study.words}` says why, and `sifmark study.run {study.words}` does what is missing"
    return f"Of {counted(planned, 'planned run')}, {listed(parts)}.", f"{why}." if missing else ""
