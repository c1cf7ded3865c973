"""A quick screening as OpenMetrics, for the textfile collector of node_exporter."""

from sifmark.core.gauges import Gauges
from sifmark.doctor.quick.fleet import HEALTHY, NAMED, UNKNOWN
from sifmark.doctor.quick.screen import QuickScreening


def openmetrics(screening: QuickScreening) -> str:
    """Return the text. Counters are gauges here: those of a driver begin again when it is loaded."""
    gauges, of = Gauges(), {"node": screening.node}
    for verdict in (HEALTHY, NAMED, UNKNOWN):
        is_it = float(screening.verdict == verdict)
        gauges.add("screen_verdict", "1 for the verdict of the latest screening.", {**of, "verdict": verdict}, is_it)
    began = screening.started.timestamp()
    gauges.add("screen_start_timestamp_seconds", "When it began, seconds since 1970.", of, began)
    gauges.add("screen_duration_seconds", "How long it took.", of, screening.seconds)
    for each in screening.findings:
        labels = {**of, "test": each.test, "measure": each.measure}
        about = "What a test measured, in the unit of its label."
        gauges.add("screen_value", about, {**labels, "unit": each.unit}, each.value)
        if each.ratio is not None:
            gauges.add("screen_ratio", "The value over the median of earlier screenings.", labels, each.ratio)
        if each.distance is not None:
            about = "Its distance from that median in scaled median absolute deviations."
            gauges.add("screen_deviations", about, labels, each.distance)
    for name, devices in screening.counters.values.items():
        for device, count in devices.items():
            labels = {**of, "counter": name, "device": device}
            gauges.add("screen_faults", "Counters of faults that are not 0.", labels, float(count))
    for rise in screening.rises:
        labels = {**of, "counter": rise.name, "device": rise.device}
        gauges.add("screen_new_faults", "By how much they rose since the screening before.", labels, float(rise.count))
    return gauges.text()
