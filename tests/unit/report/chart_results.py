"""Results for charts, made from valid ones: with other systems, other metrics, and published figures beside them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from unit.report import samples

from sifmark.report.figures import bandwidth, figures_of, over_published
from sifmark.report.forms import Figure
from sifmark.report.load import load_report_results
from sifmark.report.results import PublishedMark, ReportResult, ReportResults, Section
from sifmark.report.svg import Text
from sifmark.report.workloads import Workload, ranked, workloads_of
from sifmark.results.documents import MetricValue

Value = Callable[[ReportResult], float | None]


def study(folder: Path) -> ReportResults:
    """The results of the study of samples."""
    return load_report_results([str(samples.study(folder))])


def figures_of_all(results: ReportResults) -> list[Figure]:
    """The charts of all results: of published figures, of each workload, and of micro-benchmarks."""
    workloads = workloads_of(results)
    drawn = [figure for workload in ranked(workloads) for figure in figures_of(workload)]
    sweeps = [bandwidth(each.section) for each in workloads if each not in ranked(workloads)]
    return [figure for figure in (over_published(results), *drawn, *sweeps) if figure]


def figure_of(results: ReportResults, ending: str) -> Figure:
    """The chart whose name ends so."""
    return next(figure for figure in figures_of_all(results) if figure.name.endswith(ending))


def titles(figure: Figure) -> list[str]:
    """What a pointer shows on the marks of a chart."""
    return [mark.title for mark in figure.plot.marks if mark.title]


def words(figure: Figure) -> list[str]:
    """The words in a chart."""
    marks = (*figure.plot.backdrop, *figure.plot.marks)
    return [mark.words for mark in marks if isinstance(mark, Text)]


def workload_of(results: ReportResults, kind: str, name: str = "pictures") -> Workload:
    """The workload of a kind of run."""
    return next(each for each in workloads_of(results) if (each.kind, each.name) == (kind, name))


def section_of(results: ReportResults, task: str, title: str = "Network of pictures") -> Section:
    """The section of a task and workload."""
    return next(each for each in results.sections if each.key.task == task and each.title == title)


def with_metric(results: ReportResults, metric: str, unit: str, value_of: Value) -> ReportResults:
    """The same results with another value of a metric."""

    def changed(result: ReportResult) -> ReportResult:
        value = value_of(result)
        numbers = result.observation.numbers | {metric: MetricValue(value, unit, None if value else "not measured")}
        return replace(result, observation=replace(result.observation, numbers=numbers))

    return replace(results, members=tuple(map(changed, results.members)))


def with_fields(results: ReportResults, fields_of: Callable[[ReportResult], dict[str, Any]]) -> ReportResults:
    """The same results with some fields changed."""

    def changed(result: ReportResult) -> ReportResult:
        fields = result.observation.fields | fields_of(result)
        return replace(result, observation=replace(result.observation, fields=fields))

    return replace(results, members=tuple(map(changed, results.members)))


def of_systems(results: ReportResults, names: Iterable[str]) -> ReportResults:
    """The results of the first system once for each name, each faster than the one before."""
    members = []
    first = [each for each in results.members if results.system(each.observation.fields) == results.systems[0]]
    for number, name in enumerate(names):
        for each in first:
            speed = 1 + number / 4
            numbers = {
                metric: value._replace(value=None if value.value is None else value.value * speed)
                for metric, value in each.observation.numbers.items()
            }
            fields = each.observation.fields | {results.by: name}
            observation = replace(
                each.observation, id=f"{each.observation.id}-{number}", fields=fields, numbers=numbers
            )
            members.append(ReportResult(observation, each.document))
    return replace(results, members=tuple(members), baseline="")


def printed(section: Section, metric: str, unit: str, value: float | None, **conditions: Any) -> PublishedMark:
    """A published figure beside a section, or that a run failed; conditions are of the configuration."""
    paths = {f"configuration.{name}": value for name, value in conditions.items()}
    state = "" if value is not None else "out_of_memory"
    where = ("PEARC'22, table 1, row 2", "https://example.org/pearc22")
    return PublishedMark(section.key, *where, "GC200", metric, unit, value, value, state, paths, ("precision differs",))
