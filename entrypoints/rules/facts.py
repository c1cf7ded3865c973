"""A result as rules see it: the numbers that several of them need, read once."""

from __future__ import annotations

import json
import math
from functools import cached_property
from typing import Any, Mapping, Sequence

from entrypoints.contract.points import Point
from entrypoints.contract.session import DeviceFacts
from entrypoints.results.quantiles import QUANTILES

Document = Mapping[str, Any]
RELATIVE = 1e-9  # sums may be formed in another order, and Python 3.12 compensates them
ABSOLUTE = 1e-12
FIRST_VERSION = "1.0"  # of the schema
BETWEEN = (0.01, 0.04, 0.20, 0.25, 0.25, 0.15, 0.05, 0.04, 0.01)  # shares of values between neighbours of QUANTILES
TRIED = ("completed", "out_of_memory")  # ends of the last trial of a search that is followed by a run
ENDED_WELL = ("completed", "numerics_mismatch")  # the second: completed, but the correctness check failed


class Facts:
    """The parts of a valid document, and its JSON text. Times in s; None where the document does not have a number."""

    def __init__(self, document: Document, text: str | None = None) -> None:
        self.document = document
        self._text = text
        self.configuration: Document = document["configuration"]
        self.metrics: Document = document["metrics"]
        self.task: str = document["workload"]["task"]
        self.unit: str = document["workload"]["unit"]
        self.state: str = document["status"]["state"]
        steps: Document = document["steps"]
        self.steps = steps
        self.count = int(steps["count"])  # the schema takes 1.0 for a whole number, as JSON does
        self.untimed = int(steps["untimed"])
        self.timed_count = self.count - self.untimed
        self.seconds: Sequence[float] | None = steps["seconds"]
        self.timed: Sequence[float] | None = None if self.seconds is None else self.seconds[self.untimed :]
        self.points: Document | None = document.get("points")  # schema 1.0 has none

    @cached_property
    def text(self) -> str:
        """The JSON text."""
        return json.dumps(self.document, ensure_ascii=False) if self._text is None else self._text

    @cached_property
    def per_step(self) -> int:
        """The units of a step."""
        return units_of_step(self.configuration, self.task) if self.points is None else self.units_of_sweep

    @property
    def timed_units(self) -> int:
        """The units of all timed steps."""
        return self.timed_count * self.per_step

    @property
    def units_of_sweep(self) -> int:
        """What all ranks do in a sweep over the points of a micro-benchmark: bytes, or operations."""
        return int(sum(calls * work for calls, work in self.works) * self.configuration["replicas"])

    @property
    def works(self) -> Sequence[tuple[int, int]]:
        """The calls of each point of a micro-benchmark, and what each does: bytes, or operations."""
        points = self.points or {"operation": "", "measured": ()}
        return [(int(row["calls"]), Point(points["operation"], int(row["size"]), 1).work) for row in points["measured"]]

    @property
    def real_clock(self) -> bool:
        """Whether phases are on the host's clock: that of a model of a device may be another."""
        replayed = self.document["power"].get("source") == "replay" and self.configuration["device"] == "cpu"
        return replayed or not self.document["provenance"]["simulated"]

    @property
    def on_host(self) -> bool:
        """Whether the host computed: its clock is that of the phases, and a step is done when its call returns."""
        return bool(self.configuration["device"] == "cpu" and self.document["schema_version"] != FIRST_VERSION)

    @property
    def ranks(self) -> int:
        """The processes that share the work."""
        given = self.configuration
        if given["device"] == "ipu":
            return int(given.get("instances", 1))  # schema 1.0 has none
        if self.served:
            return 1
        return int(given["replicas"] * given["stages"] * given.get("tensor", 1))

    @property
    def served(self) -> Document | None:
        """The load on an engine, if one answered requests."""
        load: Document | None = self.configuration.get("serving")
        return load

    @property
    def has_requests(self) -> bool:
        """Whether steps are requests, of clients or to an engine, which overlap."""
        return bool(self.configuration["concurrency"] or self.served)

    @property
    def trained_together(self) -> bool:
        """Whether several ranks train one model. What instances of IPUs exchange is their framework's."""
        given = self.configuration
        return given["device"] != "ipu" and self.ranks > 1 and given["strategy"] is not None

    @property
    def completed(self) -> bool:
        """Whether the run did everything it was asked for."""
        return self.state in ENDED_WELL

    @property
    def window(self) -> float | None:
        """The length of the timed window: from the steps, or, if there are too many to list, from their mean."""
        if self.timed is not None:
            return sum(self.timed)
        mean = self.metric("step_time_mean")
        return None if mean is None else mean * self.timed_count

    @property
    def target_reached(self) -> bool:
        """Whether a target ended the run before its other bounds."""
        target = self.document["target"]
        return bool(target and target["reached"])

    @property
    def is_trial(self) -> bool:
        """Whether the document is of the last trial of a search that had no answer."""
        search = self.document["search"]
        if search is None:
            return False
        last = search["trials"][-1]["state"] if search["trials"] else "completed"
        return search["largest"] is None or last not in TRIED

    @property
    def loads(self) -> Sequence[Document]:
        """What each device did under load, where its meter reads that."""
        return [device["load"] for device in self.document["power"].get("devices", ()) if "load" in device]

    def metric(self, name: str) -> float | None:
        """Return a metric's value, None if it has none or is absent."""
        entry = self.metrics.get(name)
        return None if entry is None else entry["value"]

    def counted(self, name: str) -> float | None:
        """Return a number that was counted during the run, None if it was not; schema 1.0 lacks some."""
        value = (self.document["conditions_after"].get(name) or {}).get("value")
        return None if value is None or not is_number(value) else float(value)


def device_named(accelerator: Document) -> DeviceFacts:
    """Return a device with the name, kind and granularity of a result's, to look it up in the table of peaks."""
    name, granularity = accelerator.get("name"), accelerator.get("granularity", "")
    return DeviceFacts(accelerator["kind"], None, name, 1, granularity, None, 1, 1, "", simulated=False)


def units_of_step(configuration: Document, task: str) -> int:
    """Return the units in one step. One call of a device may be several updates, each of a batch."""
    updates = configuration["device_iterations"] if task == "training" else 1
    return int(configuration["batch_size"] * updates)


def near(first: float, second: float, relative: float = RELATIVE) -> bool:
    """Return whether two numbers are equal but for rounding. No measurement is near infinity."""
    return (
        math.isfinite(first)
        and math.isfinite(second)
        and abs(first - second) <= max(relative * max(abs(first), abs(second)), ABSOLUTE)
    )


def mean_bounds(quantiles: Document, count: int) -> tuple[float, float]:
    """Return the smallest and largest mean of `count` values with these quantiles, give or take two ranges of them."""
    values = [quantiles[f"p{share}"] for share in QUANTILES]
    slack = 2 * (values[-1] - values[0]) / count
    low = math.fsum(share * value for share, value in zip(BETWEEN, values)) - slack
    high = math.fsum(share * value for share, value in zip(BETWEEN, values[1:])) + slack
    return low, high


def is_number(value: Any) -> bool:
    """Return whether a fact of the host, which may be of any type, is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: float) -> bool:
    """Return whether a number that was computed by a multiplication is a count."""
    return abs(value - round(value)) <= 1e-3 + RELATIVE * abs(value)
