"""The charts of a report, in the order of its page."""

from collections.abc import Callable

from sifmark.report.charts.bandwidth import bandwidth
from sifmark.report.charts.by_batch import memory, throughput_by_batch
from sifmark.report.charts.chart import Chart
from sifmark.report.charts.energy import energy_per_epoch, power_over_time
from sifmark.report.charts.over_published import ours_over_published
from sifmark.report.charts.scaling import scaling
from sifmark.report.charts.step_times import step_times
from sifmark.report.charts.times import latency_parts, phases, time_to_target
from sifmark.report.charts.trades import energy_by_throughput, latency_by_throughput
from sifmark.report.results import ReportResults, Section

# Each returns None if the results cannot fill it.
OVERALL: tuple[Callable[[ReportResults], Chart | None], ...] = (ours_over_published, bandwidth)
OF_SECTION: tuple[Callable[[Section], Chart | None], ...] = (
    throughput_by_batch,
    scaling,
    latency_by_throughput,
    latency_parts,
    energy_by_throughput,
    energy_per_epoch,
    power_over_time,
    memory,
    phases,
    time_to_target,
    step_times,
)


def overall_charts(results: ReportResults) -> list[Chart]:
    """Return the charts that all results together can fill."""
    return [chart for draw in OVERALL if (chart := draw(results)) is not None]


def section_charts(section: Section) -> list[Chart]:
    """Return the charts that the results of a section can fill."""
    return [chart for draw in OF_SECTION if (chart := draw(section)) is not None]
