"""A recorded trace, played back in real time: for tests and demonstrations. Results that use it say `simulated`.

The trace is a JSON file: `scope`, `devices`, `update_period` (s), and `samples`, each with `at` (s, the first one 0)
and `watts` (W by device), `joules` (counter in J by device) or both; also `counter_ranges` (J by device) if the
counters start again, and `averaging` (s) if it is known.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from pathlib import Path
from typing import Any, Callable, Mapping

from entrypoints.metering.meter import MeterError, MeterFacts, Reading

NAME = "replay"
MEASURES = ()  # any device, if it is asked for


class Replay:
    """Returns the latest sample that is due, like hardware with its update period, until the trace ends."""

    def __init__(self, trace: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.facts = _facts(trace)
        self.readings = [Reading(sample.get("watts", ()), sample.get("joules", ())) for sample in trace["samples"]]
        self.moments = [float(sample["at"]) for sample in trace["samples"]]
        self.clock, self.began = clock, clock()

    def read(self) -> Reading:
        """Return the sample that is due. Raises MeterError once the trace has ended."""
        elapsed = self.clock() - self.began
        if elapsed >= self.moments[-1] + self.facts.update_period:
            raise MeterError(f"the trace is over after {self.moments[-1]:g} s")
        return self.readings[bisect_right(self.moments, elapsed) - 1]


SCOPES = ("die", "package", "board", "node")  # as the schema of results has them


def find(place: str | None) -> Replay:
    """Return the trace in the file `place`."""
    if place is None:
        raise MeterError("no trace was named: --meter replay:FILE")
    try:
        return Replay(json.loads(Path(place).read_text("utf-8")))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MeterError(f"{place} is no trace: {type(error).__name__}: {error}") from None


def _facts(trace: Mapping[str, Any]) -> MeterFacts:
    first, devices = trace["samples"][0], tuple(trace["devices"])
    if trace["scope"] not in SCOPES:
        raise ValueError(f"its scope {trace['scope']!r} is not one of {', '.join(SCOPES)}")
    if len(set(devices)) < len(devices) or (trace["scope"] == "node" and len(devices) > 1):
        raise ValueError("its devices have not each their own name, or are several nodes")
    averaging = trace.get("averaging")
    return MeterFacts(
        source=NAME,
        scope=trace["scope"],
        devices=devices,
        update_period=float(trace["update_period"]),
        averaging=averaging,
        averaging_reason=None if averaging else "the trace does not say",
        has_power="watts" in first,
        has_counter="joules" in first,
        counter_ranges=tuple(trace.get("counter_ranges", [None] * len(devices))),
        simulated=True,
    )
