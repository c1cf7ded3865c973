"""Peak memory by batch size, or of each configuration, with what the device has."""

from sifmark.report.charts.chart import Chart
from sifmark.report.charts.marks import level
from sifmark.report.charts.series import Place
from sifmark.report.charts.shared.bars import BarPart, Bars, bar_chart
from sifmark.report.charts.shared.curves import Curves, curve_chart
from sifmark.report.charts.shared.memory_limits import ALLOCATED, OF_METRIC, PROCESS, limits_of
from sifmark.report.charts.shared.microbenchmarks import MICROBENCHMARK
from sifmark.report.results import Section
from sifmark.results.comparison.scaling import BATCH

_PLACE = Place(BATCH, "batch size")


def draw(section: Section) -> Chart | None:
    """Return the memory of devices, or of processes on hosts that compute themselves, if two runs differ in it."""
    if section.key.task == MICROBENCHMARK:
        return None
    metric = ALLOCATED if section.points(ALLOCATED) else PROCESS
    quantity, limits = f"peak {OF_METRIC[metric]}", limits_of(section.results, section.points(metric))
    title = quantity.capitalize()
    curves = Curves("memory-by-batch", f"{title} by batch size", metric, quantity, _PLACE, limits.named)
    behind = [layer for limit in limits.drawn for layer in level(limit.value, limit.label)]
    by_batch = curve_chart(section, curves, behind, including=[limit.value for limit in limits.drawn])
    if by_batch is not None:
        return by_batch
    bars = Bars("memory", title, quantity, (BarPart("memory", metric),), limits.named)
    return bar_chart(section, bars, limits.drawn, fewest=2)
