"""The parts of the latency of requests."""

from sifmark.report.charts.chart import Chart
from sifmark.report.charts.shared.bars import BarPart, Bars, bar_chart
from sifmark.report.results import Section

_PARTS = ("preprocessing", "transfer", "compute", "retrieval", "other")
_WHAT = Bars(
    kind="latency-breakdown",
    title="Parts of the latency",
    quantity="mean latency",
    parts=tuple(BarPart(name, f"latency_{name}_mean") for name in _PARTS),
    explanation="Other is waiting for other clients and for the interpreter.",
    concerns=lambda document: document["configuration"]["concurrency"] is not None,
)


def draw(section: Section) -> Chart | None:
    """Return a bar for each number of clients of each system, if requests were answered."""
    return bar_chart(section, _WHAT)
