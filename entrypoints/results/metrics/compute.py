"""Metrics of operations, and of the bounds that devices set."""

from __future__ import annotations

from entrypoints.contract.points import MICROBENCHMARK, OF_ALL_SIZES
from entrypoints.results import peaks
from entrypoints.results.measurement import Measurement
from entrypoints.results.metrics.metric import Metric
from entrypoints.results.metrics.operations import operations_rate, share_of_measured_peak, share_of_peak
from entrypoints.results.metrics.throughput import throughput
from entrypoints.results.roofline import Roof, bound


def achieved_flops(measurement: Measurement) -> Metric:
    """Operations that the model needs for the units of the timed window, over its length.

    Pairs of places that a causal model does not see do not count, nor what a device computes beyond the model, such as
    recomputed activations.
    """
    return operations_rate(measurement, measurement.flops and measurement.flops.needed_per_unit)


def utilisation(measurement: Measurement) -> Metric:
    """Achieved operations over the peak of all devices in use in this precision."""
    return share_of_peak(measurement, achieved_flops(measurement))


def utilisation_of_measured_peak(measurement: Measurement) -> Metric:
    """Achieved operations over those that matmul achieved on all devices in use, in this precision."""
    return share_of_measured_peak(measurement, achieved_flops(measurement))


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
    if measurement.task == MICROBENCHMARK:
        return Metric(None, "1", OF_ALL_SIZES)
    rate, highest = throughput(measurement), throughput_bound(measurement)
    if rate.value is None or highest.value is None:
        return Metric(None, "1", rate.reason or highest.reason)
    return Metric(rate.value / highest.value, "1")
