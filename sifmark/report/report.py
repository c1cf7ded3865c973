"""A report: everything that its page and its files say, made once from results."""

from dataclasses import dataclass

from sifmark.core.errors import SifmarkError
from sifmark.report.citations import Work, works_of
from sifmark.report.figures import over_published
from sifmark.report.forms import Figure
from sifmark.report.methods import methods_of
from sifmark.report.numbers import number_tables
from sifmark.report.outputs.measured import Chart, output_charts
from sifmark.report.results import ReportResults
from sifmark.report.runs import Run, runs_of
from sifmark.report.scorecard import Scorecard, scorecard_of, scorecard_table
from sifmark.report.strips import Strip, strips_of
from sifmark.report.systems import Card, cards_of, system_table
from sifmark.report.tables import Table, plain_table
from sifmark.report.trust import Notice, Trust, notices_of, trust_of
from sifmark.report.words import Words, words_of
from sifmark.report.workloads import workloads_of
from sifmark.studies.study import Study


@dataclass(frozen=True)
class LeftOut:
    """A result of which a report has no number, and why."""

    file: str
    reason: str
    anchor: str = ""  # its place on the page, if it is a valid result


@dataclass(frozen=True)
class Report:
    """A report in the order of its page."""

    title: str
    study: Study | None
    results: ReportResults
    words: Words
    cards: tuple[Card, ...]
    trust: Trust
    scorecard: Scorecard | None
    numbers: tuple[Table, ...]
    figures: tuple[Figure, ...]  # of all results together; strips have their own
    charts: tuple[Chart, ...]  # that the study declares
    strips: tuple[Strip, ...]
    systems: Table
    left_out: tuple[LeftOut, ...]
    refused: tuple[LeftOut, ...]  # what `compare` refuses: `file` is an example
    methods: tuple[str, ...]  # paragraphs
    citations: tuple[Work, ...]
    runs: tuple[Run, ...]

    @property
    def notices(self) -> tuple[Notice, ...]:
        return self.trust.notices

    @property
    def published(self) -> Table:
        heads = ("table", "figure", "published", "measured", "measured / published", "remarks")
        rows = (
            (each.table, each.label, each.published, each.measured, each.verdict, ", ".join(each.remarks))
            for each in self.results.over_published
        )
        return plain_table("published", "Measured over published", heads, rows)

    @property
    def tables(self) -> tuple[Table, ...]:
        scorecard = [scorecard_table(self.scorecard)] if self.scorecard else []
        declared = (chart.table for chart in self.charts if chart.is_table)
        of_workloads = (strip.table for strip in self.strips if strip.table)
        published = [self.published] if self.results.over_published else []
        return (*scorecard, *self.numbers, *published, *declared, *of_workloads, self.systems)

    @property
    def ranked(self) -> tuple[Strip, ...]:
        return tuple(strip for strip in self.strips if not strip.is_of_device)

    @property
    def of_devices(self) -> tuple[Strip, ...]:
        return tuple(strip for strip in self.strips if strip.is_of_device)

    @property
    def every_figure(self) -> tuple[Figure, ...]:
        """The charts in the order of files: those of results, and those that the study declares."""
        of_strips = (figure for strip in self.strips for figure in strip.figures)
        return (*self.figures, *of_strips, *(figure for chart in self.charts for figure in chart.figures))


def make_report(results: ReportResults, study: Study | None = None, title: str = "") -> Report:
    """Return the report of some results. Raises SifmarkError if there is none."""
    if not results.members:
        left_out = [*results.invalid, *results.unsigned]
        cause = f"no result is left for a report: {left_out[0]}" if left_out else "no result is left for a report"
        raise SifmarkError(cause, "list their problems: sifmark results.validate", code="result-missing")
    workloads, published = workloads_of(results), over_published(results)
    scorecard = scorecard_of(results, workloads)
    named = title or (study.title if study else _title(results))
    return Report(
        title=named,
        study=study,
        results=results,
        words=words_of(results, workloads, named),
        cards=cards_of(results, workloads, study),
        trust=trust_of(results, notices_of(results), scorecard, study),
        scorecard=scorecard,
        numbers=number_tables(workloads),
        figures=(published,) if published else (),
        charts=tuple(output_charts(results, study)) if study else (),
        strips=strips_of(workloads),
        systems=system_table(results, study),
        left_out=tuple(_left_out(results)),
        refused=tuple(_refused(results)),
        methods=methods_of(results, study),
        citations=works_of(results, study),
        runs=runs_of(results),
    )


def _title(results: ReportResults) -> str:
    workloads = list(dict.fromkeys(section.short_title for section in results.sections))
    systems = list(results.systems)
    return f"{_listed(workloads, 'workloads')} on {_listed(systems, 'systems')}"


def _listed(names: list[str], what: str) -> str:
    return " and ".join(names) if len(names) <= 2 else f"{len(names)} {what}"


def _left_out(results: ReportResults) -> list[LeftOut]:
    excluded = [LeftOut(each.result.file, each.reason, f"result-{each.result.id}") for each in results.excluded]
    problems = [LeftOut(file, reason) for file, _, reason in (text.partition(": ") for text in results.problems)]
    return [*excluded, *problems]


def _refused(results: ReportResults) -> list[LeftOut]:
    titles = {section.key.identity: section.title for section in results.sections}
    return [
        LeftOut(each.example, f"{titles.get(each.group.identity, '')}, {each.group.task}: {each.difference}")
        for each in results.refused
    ]
