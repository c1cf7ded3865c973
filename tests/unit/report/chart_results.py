"""Results for charts, made from valid ones: with other systems, other metrics, and published figures beside them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from unit.report import samples

from sifmark.report.charts.chart import Chart
from sifmark.report.charts.draw import overall_charts, section_charts
from sifmark.report.load import load_report_results
from sifmark.report.results import PublishedMark, ReportResult, ReportResults, Section
from sifmark.results.documents import MetricValue

Value = Callable[[ReportResult], float | None]


def study(folder: Path) -> ReportResults:
    """The results of the study of samples."""
    return load_report_results([str(samples.study(folder))])


def charts_of(results: ReportResults) -> list[Chart]:
    """The charts of all results, then those of each section."""
    return [*overall_charts(results), *(chart for section in results.sections for chart in section_charts(section))]


def chart_of(chart: Chart | None) -> Chart:
    """The chart, which there has to be."""
    assert chart is not None
    return chart


def layers(spec: Any) -> Iterator[Any]:
    """The layers of all panels of a specification."""
    for panel in spec.get("vconcat", spec.get("concat", [spec])):
        yield from panel["layer"]


def rows(chart: Chart, kind: str, **wanted: Any) -> list[dict[str, Any]]:
    """The rows of all layers with a kind of mark that has these properties."""
    chosen = [each for each in layers(chart.spec) if {"type": kind, **wanted}.items() <= each["mark"].items()]
    return [row for each in chosen for row in each["data"]["values"]]


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
