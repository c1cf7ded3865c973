"""What a report has of each workload: a message, charts, the table of all numbers, and what failed or was refused."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sifmark.report.describe import configuration_of, failure_text, head
from sifmark.report.figures import bandwidth, figures_of
from sifmark.report.forms import Figure
from sifmark.report.results import Failure, Point, Section
from sifmark.report.tables import Table, workload_table
from sifmark.report.words import message_of
from sifmark.report.workloads import Workload
from sifmark.results.catalogue import MICROBENCHMARK
from sifmark.results.comparison.columns import cell_text
from sifmark.results.comparison.compatibility import Incompatibility
from sifmark.results.comparison.observation import PLATFORM, PRECISION_KIND, SETTING
from sifmark.results.numbers import format_interval
from sifmark.results.summary import NEAREST, fraction_text, fractions_of
from sifmark.studies.published.nearest import nearest_lines


@dataclass(frozen=True)
class Normal:
    """The best of a system beside what its devices can do, and what others published."""

    system: str
    configuration: str  # in words
    lines: tuple[tuple[str, str], ...]  # a label, and a fraction or a figure or why there is none


@dataclass(frozen=True)
class Strip:
    """What a report has of a workload."""

    workload: Workload
    message: str  # what it shows
    figures: tuple[Figure, ...]
    table: Table | None
    normal: tuple[Normal, ...]  # by system
    failures: tuple[tuple[Failure, str], ...]  # what is no measurement, with its configuration and why
    refused: tuple[str, ...]  # what `compare` refuses of it, and why
    overridden: tuple[str, ...]  # what it would refuse, had the fields not been allowed to differ
    apart: tuple[tuple[str, str], ...]  # systems without a ratio, and in which settings they differ from the baseline

    @property
    def anchor(self) -> str:
        """Its name on the page and in names of files."""
        return self.workload.anchor

    @property
    def is_of_device(self) -> bool:
        """Whether it describes what a device can do, and ranks no systems."""
        return self.workload.kind == MICROBENCHMARK


def strips_of(workloads: Iterable[Workload]) -> tuple[Strip, ...]:
    return tuple(map(_strip, workloads))


def _strip(workload: Workload) -> Strip:
    section = workload.section
    if workload.kind == MICROBENCHMARK:
        figure = bandwidth(section)
        figures = [figure] if figure else []
    else:
        figures = figures_of(workload)
    return Strip(
        workload=workload,
        message=message_of(workload),
        figures=tuple(figures),
        table=workload_table(workload),
        normal=tuple(_normal(workload)),
        failures=tuple((each, _how_failed(each)) for each in workload.failures),
        refused=_differences(section, section.results.refused),
        overridden=_differences(section, section.results.overridden),
        apart=tuple(_apart(workload)),
    )


def _how_failed(failure: Failure) -> str:
    return ": ".join(filter(None, (configuration_of(failure.result.observation), failure_text(failure))))


def unlike_text(baseline: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """Return in which settings a configuration is not that of a baseline: `precision fp32 / bf16`."""
    names = [name for name in fields if name.startswith(SETTING) and name not in {*PLATFORM, PRECISION_KIND}]
    differing = [name for name in names if baseline.get(name) != fields[name]]
    return ", ".join(f"{head(name)} {cell_text(baseline.get(name))} / {cell_text(fields[name])}" for name in differing)


def _apart(workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield the systems that share no configuration with the baseline, with what keeps the best of both apart."""
    divisor = workload.results.divisor
    if workload.results.reference_name or not divisor:
        return
    shared = [*workload.shared(workload.rate), *workload.shared(workload.rate, many=True)]
    compared = {name for each in shared for name in each.points}
    of_baseline = [point for point in workload.section.points(workload.rate) if point.system == divisor]
    best = max(of_baseline, key=lambda point: point.value, default=None)
    for name, point in workload.best.items() if best else ():
        if name not in compared and name != divisor and best:
            yield name, unlike_text(best.fields, point.fields)


def _normal(workload: Workload) -> Iterator[Normal]:
    points = workload.best.values()
    nearest = nearest_lines(
        ([each.document for each in point.results] for point in points), not workload.results.anonymous
    )
    for point, line in zip(points, nearest, strict=True):
        of_task = fractions_of(workload.section.key.task)
        fractions = ((label, _fraction(workload, point, name)) for name, label in of_task)
        yield Normal(point.system, configuration_of(point.observation), (*fractions, (NEAREST, line)))


def _fraction(workload: Workload, point: Point, metric: str) -> str:
    """Return the mean of a metric over the repeats of a point, or why there is none."""
    other = workload.beside(point, metric)
    if other:
        return format_interval(other.value, other.mean.low, other.mean.high)
    return fraction_text(point.results[0].document, metric)


def _differences(section: Section, every: Iterable[Incompatibility]) -> tuple[str, ...]:
    own = [each for each in every if (each.group.identity, each.group.task, each.group.source) == section.key]
    return tuple(sorted({each.difference for each in own}))
