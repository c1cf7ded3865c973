"""A quick screening as OpenMetrics, for the textfile collector of node_exporter (OpenMetrics 1.0, prometheus.io)."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sifmark.doctor.quick.fleet import HEALTHY, NAMED, UNKNOWN
from sifmark.doctor.quick.screen import QuickScreening

PREFIX = "sifmark_screen"
Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class Family:
    """A family of gauges."""

    name: str
    help: str
    samples: Iterable[Sample]


def openmetrics(screening: QuickScreening) -> str:
    """Return the text. Counters are gauges here: those of a driver begin again when it is loaded."""
    lines = [line for family in _families(screening) for line in _lines(family)]
    return "\n".join([*lines, "# EOF", ""])


def _families(screening: QuickScreening) -> Iterator[Family]:
    of = {"node": screening.node}
    states = [({**of, "verdict": each}, float(screening.verdict == each)) for each in (HEALTHY, NAMED, UNKNOWN)]
    yield Family("verdict", "1 for the verdict of the latest screening", states)
    yield Family("time_seconds", "When it began, since 1970", [(of, screening.started.timestamp())])
    yield Family("duration_seconds", "How long it took", [(of, screening.seconds)])
    found = [({**of, "test": each.test, "measure": each.measure}, each) for each in screening.findings]
    units = [({**labels, "unit": each.unit}, each.value) for labels, each in found]
    yield Family("value", "What a test measured, in the unit of its label", units)
    ratios = [(labels, each.ratio) for labels, each in found if each.ratio is not None]
    yield Family("ratio", "The value over the median of earlier screenings", ratios)
    distances = [(labels, each.distance) for labels, each in found if each.distance is not None]
    yield Family("deviations", "Its distance from that median in scaled median absolute deviations", distances)
    counts = [
        ({**of, "counter": name, "device": device}, float(count))
        for name, devices in screening.counters.values.items()
        for device, count in devices.items()
    ]
    yield Family("faults", "Counters of faults that are not 0", counts)
    rises = [({**of, "counter": each.name, "device": each.device}, float(each.count)) for each in screening.rises]
    yield Family("new_faults", "By how much they rose since the screening before", rises)


def _lines(family: Family) -> Iterator[str]:
    samples = list(family.samples)
    if samples:
        yield f"# TYPE {PREFIX}_{family.name} gauge"
        yield f"# HELP {PREFIX}_{family.name} {family.help}"
    for labels, value in samples:
        inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{PREFIX}_{family.name}{{{inner}}} {_number(value)}"


def _number(value: float) -> str:
    return f"{value:.9g}" if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
