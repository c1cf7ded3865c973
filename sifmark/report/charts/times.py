"""Bars of times: phases before the timed window, parts of the latency of requests, and training to a target."""

from sifmark.report.charts.bars import BarPart, Bars, bar_chart
from sifmark.report.charts.chart import Chart
from sifmark.report.results import Document, Section
from sifmark.results.catalogue import MICROBENCHMARK

_EPOCHS = Bars(
    kind="epochs",
    title="Compilation, first and second epoch",
    quantity="time",
    parts=(
        BarPart("compilation", "phases.compile", within_next=True),
        BarPart("first epoch", "epochs.1"),
        BarPart("second epoch", "epochs.2"),
    ),
    explanation="Compilation is the first step, with which the first epoch begins.",
)
_PHASES = Bars(
    kind="phases",
    title="Time until the timed window",
    quantity="time",
    parts=(
        BarPart("import", "phases.import"),
        BarPart("data", "phases.data"),
        BarPart("model", "phases.model"),
        BarPart("first step", "phases.compile"),
        BarPart("warm-up", "phases.warmup"),
    ),
    explanation="The first step includes compilation; warm-up is the rest of it.",
)


def phases(section: Section) -> Chart | None:
    """Return bars of the first two epochs, or, of runs without epochs, of the phases before the timed window."""
    if section.key.task == MICROBENCHMARK:
        return None
    return bar_chart(section, _EPOCHS) or bar_chart(section, _PHASES)


_LATENCY_PARTS = ("preprocessing", "transfer", "compute", "retrieval", "other")
_LATENCY = Bars(
    kind="latency-breakdown",
    title="Parts of the latency",
    quantity="mean latency",
    parts=tuple(BarPart(name, f"latency_{name}_mean") for name in _LATENCY_PARTS),
    explanation="Other is waiting for other clients and for the interpreter.",
    concerns=lambda document: document["configuration"]["concurrency"] is not None,
)


def latency_parts(section: Section) -> Chart | None:
    """Return a bar for each number of clients of each system, if requests were answered."""
    return bar_chart(section, _LATENCY)


_TIME_TO_TARGET = "time_to_target"


def time_to_target(section: Section) -> Chart | None:
    """Return a bar for each configuration of each system that trained to a target, if any reached it."""
    goals = {f"{goal['metric']} {goal['value']:g}" for each in section.members if (goal := _goal(each.document))}
    title = f"Time to {goals.pop()}" if len(goals) == 1 else "Time to target"
    parts = (BarPart("time", _TIME_TO_TARGET),)
    return bar_chart(
        section, Bars("time-to-target", title, "time", parts, concerns=lambda each: _goal(each) is not None)
    )


def _goal(document: Document) -> Document | None:
    goal: Document | None = document["configuration"].get("goal")
    return goal
