"""Metrics of operations, and of the bounds that devices set."""

from __future__ import annotations

from entrypoints.results import peaks
from entrypoints.results.measurement import Measurement
from entrypoints.results.metrics.metric import Metric, no_window, units
from entrypoints.results.metrics.throughput import throughput
from entrypoints.results.roofline import Roof, bound


def achieved_flops(measurement: Measurement) -> Metric:
    """Operations of the model for the units of the timed window, over its length.

    Attention counts in full, also in a causal model. What a device computes beyond that, such as recomputed
    activations, does not count.
    """
    if why := no_window(measurement):
        return Metric(None, "FLOP/s", why)
    if not measurement.flops_per_unit:
        return Metric(None, "FLOP/s", "the operations of this workload were not counted")
    return Metric(units(measurement) * measurement.flops_per_unit / measurement.window, "FLOP/s")


def utilisation(measurement: Measurement) -> Metric:
    """Achieved operations over the peak of all devices in use in this precision."""
    achieved = achieved_flops(measurement)
    if achieved.value is None or measurement.device is None:
        return Metric(None, "1", achieved.reason or "the device is not known")
    peak = peaks.of_device(measurement.device, measurement.precision)
    if peak.flops is None:
        return Metric(None, "1", peak.reason)
    return Metric(achieved.value / (peak.flops * measurement.device.devices), "1")


def utilisation_of_measured_peak(measurement: Measurement) -> Metric:
    """Achieved operations over those that matmul achieved on all devices in use, in this precision."""
    achieved, peak = achieved_flops(measurement), measurement.measured_peak
    if peak is None:
        return Metric(None, "1", "no measured peak was given (--measured-peak)")
    if achieved.value is None or measurement.device is None:
        return Metric(None, "1", achieved.reason or "the device is not known")
    return Metric(achieved.value / (peak["flops"] * measurement.device.devices), "1")


def throughput_bound(measurement: Measurement) -> Metric:
    """Highest throughput that the devices' peak, or --measured-peak, and the bandwidth of their memory allow."""
    unit, device, work = f"{measurement.unit}/s", measurement.device, measurement.work
    if work is None:
        return Metric(None, unit, "the operations of this workload were not counted")
    if device is None:
        return Metric(None, unit, "the device is not known")
    roof = peaks.roof(device, measurement.precision)
    if roof is None and measurement.measured_peak:
        roof = Roof(measurement.measured_peak["flops"])
    if roof is None:
        return Metric(None, unit, peaks.of_device(device, measurement.precision).reason)
    return Metric(bound(work, roof, device.devices).throughput, unit)


def fraction_of_bound(measurement: Measurement) -> Metric:
    """Throughput over its bound."""
    rate, highest = throughput(measurement), throughput_bound(measurement)
    if rate.value is None or highest.value is None:
        return Metric(None, "1", rate.reason or highest.reason)
    return Metric(rate.value / highest.value, "1")
