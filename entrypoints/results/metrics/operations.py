"""What rates of operations follow from, whichever operations of the model they count."""

from __future__ import annotations

from entrypoints.contract.choices import FP8
from entrypoints.contract.points import MICROBENCHMARK, OF_ALL_SIZES
from entrypoints.results import peaks
from entrypoints.results.measurement import Measurement
from entrypoints.results.metrics.metric import Metric, no_window, units

OF_TWO_PEAKS = "linear layers are in FP8, and the rest in bf16, whose peak is another: see fraction_of_bound"


def operations_rate(measurement: Measurement, per_unit: int | None) -> Metric:
    """Return the operations of the timed window over its length, of so many for a unit."""
    if measurement.task == MICROBENCHMARK:
        return Metric(None, "FLOP/s", OF_ALL_SIZES)
    if why := no_window(measurement):
        return Metric(None, "FLOP/s", why)
    if not per_unit:
        return Metric(None, "FLOP/s", "the operations of this workload were not counted")
    return Metric(units(measurement) * per_unit / measurement.window, "FLOP/s")


def share_of_peak(measurement: Measurement, achieved: Metric) -> Metric:
    """Return a rate over the cited peak of all devices in use in this precision."""
    if achieved.value is None or measurement.device is None:
        return Metric(None, "1", achieved.reason or "the device is not known")
    if measurement.precision == FP8:
        return Metric(None, "1", OF_TWO_PEAKS)
    peak = peaks.of_device(measurement.device, measurement.precision)
    if peak.flops is None:
        return Metric(None, "1", peak.reason)
    return Metric(achieved.value / (peak.flops * measurement.device.devices), "1")


def share_of_measured_peak(measurement: Measurement, achieved: Metric) -> Metric:
    """Return a rate over that which matmul achieved on all devices in use, in this precision."""
    peak = measurement.measured_peak
    if peak is None:
        return Metric(None, "1", "no measured peak was given (--measured-peak)")
    if achieved.value is None or measurement.device is None:
        return Metric(None, "1", achieved.reason or "the device is not known")
    return Metric(achieved.value / (peak["flops"] * measurement.device.devices), "1")
