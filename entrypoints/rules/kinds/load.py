"""Rules about devices under load: clocks, what limited them, and traffic on buses, where a meter reads them."""

from __future__ import annotations

import math
from typing import Iterator

from entrypoints.metering.meter import OTHER
from entrypoints.rules.facts import Document, Facts, near
from entrypoints.rules.memory import GPUS
from entrypoints.rules.rule import ROUNDING, differ, rule, unequal_metrics

INTERPOLATED = 1e-6  # of traffic, at the edges of the window


@rule(
    "a limit of the clocks lasted at most the timed window; `limited` is the longest that is not of the kind `other`; "
    "`throttled_fraction` is the longest of any device over the window, and `core_clock` the lowest median of any; a "
    "least clock is at most the median",
    "Throttling and clocks are those of the timed window.",
    ROUNDING,
)
def load_is_of_the_window(facts: Facts) -> Iterator[str]:
    """Compare limits and clocks with the window, and with the metrics."""
    loads, window = facts.loads, facts.window
    for number, load in enumerate(loads):
        yield from (f"power.devices.{number}.load.{text}" for text in _contradictions(load, window))
    limited = [load["limited"]["value"] for load in loads]
    medians = [load["clock"]["median"]["value"] for load in loads]
    longest = max(limited) if limited and None not in limited else None
    fraction = None if longest is None or not window else min(1.0, longest / window)
    lowest = min(medians) if medians and None not in medians else None
    yield from unequal_metrics(facts, {"throttled_fraction": fraction, "core_clock": lowest}, "power.devices")


def _contradictions(load: Document, window: float | None) -> Iterator[str]:
    for name in ("clock", "memory_clock"):
        least, median = load[name]["min"]["value"], load[name]["median"]["value"]
        if (least is None) != (median is None) or (least is not None and not 0 <= least <= median):
            yield f"{name}: the least is {least!r} and the median {median!r}"
        if least is not None and not load["samples"]:
            yield f"{name}: {least!r} MHz without a sample"
    limits = load["limits"]
    durations = {limit["name"]: limit["duration"]["value"] for limit in limits or () if limit["kind"] != OTHER}
    longest = None if limits is None else max(durations.values(), default=0.0)
    if load["limited"]["value"] != longest:
        yield differ("limited", load["limited"]["value"], longest, "the longest of limits")
    for limit in limits or ():
        seconds = limit["duration"]["value"]
        if window is None or not (0 < seconds <= window or near(seconds, window)):
            yield differ(f"limits: {limit['name']}", seconds, window, "at most the timed window")


@rule(
    "`host_device_traffic` that only meters count is the sum of the devices' `traffic`, which is at least what they "
    "received and sent in the timed window; all of it was counted in one way",
    "A part of a run moves at most what the run does.",
    "1e-6 of the traffic, since readings are interpolated",
)
def traffic_is_that_of_the_buses(facts: Facts) -> Iterator[str]:
    """Add the traffic of the buses up again."""
    loads = facts.loads
    for number, load in enumerate(loads):
        whole, parts = load["traffic"]["value"], [load[name]["value"] for name in ("received", "sent")]
        moved = math.fsum(part or 0.0 for part in parts)
        negative = any(part is not None and part < 0 for part in parts)
        if negative or (whole is not None and moved > whole * (1 + INTERPOLATED)):
            yield differ(f"power.devices.{number}.load.traffic", whole, moved, "received and sent")
        if load["traffic_method"] is None and (whole is not None or parts != [None, None]):
            yield f"power.devices.{number}.load.traffic_method: traffic was counted in some way"
    totals = [load["traffic"]["value"] for load in loads]
    together = math.fsum(totals) if totals and None not in totals else None
    if facts.configuration["device"] in GPUS:  # where no framework counts it
        yield from unequal_metrics(facts, {"host_device_traffic": together}, "power.devices")
