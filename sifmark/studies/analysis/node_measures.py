"""Measures by which nodes are compared: speed, energy, clocks and temperature; and facts that nodes should share."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sifmark.results.catalogue import Direction, direction_of
from sifmark.results.documents import MetricValue, measured_metrics, metric_value

Document = dict[str, Any]
HOTTER = 5.0  # °C that a temperature must differ by, whatever the statistics say
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class NodeMeasure:
    """A number of a result, and how nodes are compared by it."""

    name: str
    read: Callable[[Document], MetricValue]
    better: Direction  # none where a difference is only worth knowing
    relative: bool = True  # compared as a ratio; otherwise as a difference
    least: float | None = None  # difference below which nothing is said; None: the ratio that the user chose


def _metric(name: str) -> Callable[[Document], MetricValue]:
    def read(document: Document) -> MetricValue:
        metric = measured_metrics(document).get(name)
        return metric_value(metric) if metric else MetricValue(None, "1", "the result does not have it")

    return read


def _throughput(document: Document) -> MetricValue:
    """Return the throughput; a micro-benchmark has a peak instead, since its sizes are as on its card."""
    if document["workload"]["task"] == "microbenchmark":
        return MetricValue(None, "1", "a micro-benchmark is judged by its peak")
    return _metric("throughput")(document)


def _idle_power(document: Document) -> MetricValue:
    idle = document["power"].get("idle")
    return metric_value(idle["power"]) if idle else MetricValue(None, "W", document["power"].get("reason", "no meter"))


def _all_reduce(document: Document) -> MetricValue:
    transport = document.get("transport")
    if not transport:
        return MetricValue(None, "GB/s", "one process computed")
    return metric_value(transport["all_reduce"]["bus_bandwidth"])


def _condition(part: str, name: str, choose: Callable[[list[float]], float]) -> Callable[[Document], MetricValue]:
    """Return a reader of a condition after the run; of several devices, the value that `choose` does."""

    def read(document: Document) -> MetricValue:
        fact = document.get(part, {}).get(name, {"value": None, "reason": document.get(part, {}).get("reason")})
        value, unit = fact["value"], fact.get("unit", "1")
        numbers = [float(text) for text in _NUMBER.findall(str(value))] if value is not None else []
        if not numbers:
            return MetricValue(None, unit, fact.get("reason") or "the result does not have it")
        return MetricValue(choose(numbers), unit, None)

    return read


_DEVICES, _HOST = "device_conditions_after", "conditions_after"
MEASURES = (
    NodeMeasure("throughput", _throughput, direction_of("throughput")),
    *(
        NodeMeasure(name, _metric(name), direction_of(name))
        for name in (
            "peak_flops",
            "memory_bandwidth",
            "peak_bandwidth",
            "small_message_latency",
            "step_time_p99",
            "energy_per_unit",
            "power_mean",
        )
    ),
    NodeMeasure("all_reduce_bandwidth", _all_reduce, Direction.HIGHER),
    NodeMeasure("idle_power", _idle_power, Direction.NONE),
    NodeMeasure("device_clock", _condition(_DEVICES, "clock", min), Direction.HIGHER),
    NodeMeasure("device_temperature", _condition(_DEVICES, "temperature", max), Direction.LOWER, False, HOTTER),
    NodeMeasure("cpu_clock", _condition(_HOST, "cpu_clock", min), Direction.HIGHER),
)


def measure_node(document: Document) -> dict[str, MetricValue]:
    """Return the measures of a node's result by name."""
    return {each.name: each.read(document) for each in MEASURES}
