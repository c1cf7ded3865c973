"""The sections of a report: a workload and task each, with the tables that its results fill."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sifmark.report.charts.chart import Chart
from sifmark.report.charts.draw import section_charts
from sifmark.report.charts.words import failure_text
from sifmark.report.content.overview import STEP_TIME, best_points
from sifmark.report.content.tables import MetricTable, configuration_of, metric_table
from sifmark.report.results import Failure, Point, ReportResult, ReportResults, Section
from sifmark.results.catalogue import MICROBENCHMARK
from sifmark.results.comparison.compatibility import Incompatibility
from sifmark.results.comparison.scaling import DEVICES
from sifmark.results.numbers import format_interval
from sifmark.results.summary import NEAREST, fraction_text, fractions_of
from sifmark.studies.published.nearest import nearest_lines

PER_DEVICE = "throughput_per_device"

MOST_MAIN = 5  # headlines that a section shows at once; the others are behind a line to open
# What is behind that line besides.
_MORE = (
    STEP_TIME,
    "step_time_p99",
    PER_DEVICE,
    "throughput_per_watt",
    "units_per_watt_hour",
    "energy_per_epoch",
    "power_mean",
    "utilisation",
    "fraction_of_bound",
    "peak_allocated_memory",
    "peak_process_memory",
    "time_to_first_step",
    "time_to_result",
    "epoch_time",
    "training_time",
)

# The same of micro-benchmarks: rates and efficiencies of a whole sweep over sizes say nothing of a device.
_OF_SWEEPS = ("power_mean", "peak_allocated_memory", "peak_process_memory", "time_to_first_step")


@dataclass(frozen=True)
class FailedRun:
    """A run that is no measurement."""

    failure: Failure
    configuration: str  # in words
    reason: str  # in words: `out of memory`

    @property
    def system(self) -> str:
        """The name of the system that it ran on."""
        return self.failure.system

    @property
    def result(self) -> ReportResult:
        """Its result."""
        return self.failure.result


@dataclass(frozen=True)
class Normal:
    """The best of a system beside what its devices can do, and what others published."""

    system: str
    configuration: str  # in words
    lines: tuple[tuple[str, str], ...]  # a label, and a fraction or a figure or why there is none


@dataclass(frozen=True)
class ReportSection:
    """A section with its tables."""

    section: Section
    anchor: str
    tables: tuple[MetricTable, ...]
    more_tables: tuple[MetricTable, ...]
    normal: tuple[Normal, ...]  # by system
    failures: tuple[FailedRun, ...]
    refused: tuple[str, ...]  # what `compare` refuses of it, and why
    overridden: tuple[str, ...]  # what it would refuse, had the fields not been allowed to differ
    charts: tuple[Chart, ...]

    @property
    def title(self) -> str:
        """The workload, task and data in words."""
        return f"{self.section.title}: {self.section.key.task}, {self.section.key.source} data"

    @property
    def short_title(self) -> str:
        """The workload and task."""
        return f"{self.section.short_title}, {self.section.key.task}"


def sections_of(results: ReportResults) -> tuple[ReportSection, ...]:
    """Return the sections, in the order of the results."""
    return tuple(_section(section, number) for number, section in enumerate(results.sections, start=1))


def _section(section: Section, number: int) -> ReportSection:
    main = [metric for metric in section.headlines[:MOST_MAIN] if metric != STEP_TIME]
    others = _OF_SWEEPS if section.key.task == MICROBENCHMARK else _MORE
    more = [metric for metric in dict.fromkeys((*section.headlines, *others)) if metric not in main]
    tables = tuple(_said_once((*_tables(section, main), *_tables(section, more))))
    open_ = [table for table in tables if table.metric in main]
    return ReportSection(
        section=section,
        anchor=f"section-{number}",
        tables=tuple(open_),
        more_tables=tables[len(open_) :],
        normal=tuple(_normal(section)),
        failures=tuple(
            FailedRun(each, configuration_of(each.result.observation), failure_text(each)) for each in section.failures
        ),
        refused=_differences(section, section.results.refused),
        overridden=_differences(section, section.results.overridden),
        charts=tuple(section_charts(section)),
    )


def _normal(section: Section) -> Iterator[Normal]:
    points = best_points(section).values()
    nearest = nearest_lines(
        ([each.document for each in point.results] for point in points), not section.results.anonymous
    )
    for point, line in zip(points, nearest, strict=True):
        fractions = ((label, _fraction(section, point, name)) for name, label in fractions_of(section.key.task))
        yield Normal(point.system, configuration_of(point.observation), (*fractions, (NEAREST, line)))


def _fraction(section: Section, point: Point, metric: str) -> str:
    """Return the mean of a metric over the repeats of a point, or why there is none."""
    same = (other.mean for other in section.points(metric) if other.results == point.results)
    if (mean := next(same, None)) and mean.value is not None:
        return format_interval(mean.value, mean.low, mean.high)
    return fraction_text(point.results[0].document, metric)


def _differences(section: Section, every: Iterable[Incompatibility]) -> tuple[str, ...]:
    """Return the incompatibilities of a section in words."""
    own = [each for each in every if (each.group.identity, each.group.task, each.group.source) == section.key]
    return tuple(sorted({each.difference for each in own}))


def _tables(section: Section, metrics: Sequence[str]) -> tuple[MetricTable, ...]:
    """Return the tables that results fill, without that which would repeat throughput: per device, of one device."""
    one_device = all(point.fields[DEVICES] == 1 for point in section.points(PER_DEVICE))
    shown = [metric for metric in metrics if not (metric == PER_DEVICE and one_device)]
    return tuple(table for metric in shown if (table := metric_table(section, metric)))


def _said_once(tables: Iterable[MetricTable]) -> Iterator[MetricTable]:
    """Yield tables; what ratios are of is said of the first of which it is true."""
    said: set[str] = set()
    for table in tables:
        yield replace(table, of_ratios=tuple(text for text in table.of_ratios if text not in said))
        said.update(table.of_ratios)
