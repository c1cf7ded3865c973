"""The time of training until a target is reached."""

from sifmark.report.charts.chart import Chart
from sifmark.report.charts.shared.bars import BarPart, Bars, bar_chart
from sifmark.report.results import Document, Section

_METRIC = "time_to_target"


def draw(section: Section) -> Chart | None:
    """Return a bar for each configuration of each system that trained to a target, if any reached it."""
    goals = {f"{goal['metric']} {goal['value']:g}" for each in section.members if (goal := _goal(each.document))}
    title = f"Time to {goals.pop()}" if len(goals) == 1 else "Time to target"
    parts = (BarPart("time", _METRIC),)
    return bar_chart(
        section, Bars("time-to-target", title, "time", parts, concerns=lambda each: _goal(each) is not None)
    )


def _goal(document: Document) -> Document | None:
    goal: Document | None = document["configuration"].get("goal")
    return goal
