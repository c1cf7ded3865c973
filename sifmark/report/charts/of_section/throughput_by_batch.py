"""Throughput by batch size."""

from sifmark.report.charts.chart import Chart
from sifmark.report.charts.series import Place
from sifmark.report.charts.shared.curves import Curves, curve_chart
from sifmark.report.results import Section
from sifmark.results.comparison.scaling import BATCH, THROUGHPUT

_WHAT = Curves("throughput-by-batch", "Throughput by batch size", THROUGHPUT, "throughput", Place(BATCH, "batch size"))


def draw(section: Section) -> Chart | None:
    """Return a line of throughput for each system, if any ran with two batch sizes."""
    return curve_chart(section, _WHAT)
