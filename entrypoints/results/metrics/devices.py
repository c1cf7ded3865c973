"""Metrics of memory, and of the clocks and buses of devices."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Sequence

from entrypoints.results.measurement import Measurement
from entrypoints.results.metrics.metric import Metric, no_window
from entrypoints.results.power import loads

NOT_WATCHED = "no meter reads the clocks and buses of the devices"


def peak_process_memory(measurement: Measurement) -> Metric:
    """Largest resident set of any one process of the run, data workers included."""
    if measurement.peak_process_mib is None:
        return Metric(None, "MiB", "the system did not count it")
    return Metric(measurement.peak_process_mib, "MiB")


def peak_allocated_memory(measurement: Measurement) -> Metric:
    """Most device memory that tensors occupied at one time, by the framework's count."""
    return _used(measurement.usage.peak_allocated)


def peak_reserved_memory(measurement: Measurement) -> Metric:
    """Most device memory that the framework held at one time, for tensors or in reserve."""
    return _used(measurement.usage.peak_reserved)


def peak_allocated_memory_of_window(measurement: Measurement) -> Metric:
    """Most device memory that tensors occupied at one time of the timed window: without what was taken only once, as
    by the search for the fastest kernels."""
    return _used(measurement.usage.window_peak_allocated)


def host_device_traffic(measurement: Measurement) -> Metric:
    """Data moved between host and devices since the session was opened, both ways, weights included.

    Where the framework does not count it, all that crossed the buses of the devices, commands and other devices
    included.
    """
    counted = measurement.usage.host_device_traffic
    if isinstance(counted, str):
        on_bus = _of_loads(measurement, "MiB", lambda load: load["traffic"], math.fsum)
        both = counted if on_bus.reason in (None, NOT_WATCHED) else f"{counted}; {on_bus.reason}"
        return on_bus if on_bus.value is not None else Metric(None, "MiB", both)
    return _used(counted)


def throttled_fraction(measurement: Measurement) -> Metric:
    """Fraction of the timed window for which a single reason limited the clocks, of the device for which it is largest:
    power, heat or hardware."""
    if why := no_window(measurement):
        return Metric(None, "1", why)
    limited = _of_loads(measurement, "1", lambda load: load["limited"], max)
    return limited if limited.value is None else limited._replace(value=min(1.0, limited.value / measurement.window))


def core_clock(measurement: Measurement) -> Metric:
    """Median clock of the cores in the timed window, of the device for which it is lowest."""
    return _of_loads(measurement, "MHz", lambda load: load["clock"]["median"], min)


def _of_loads(
    measurement: Measurement,
    unit: str,
    part_of: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    together: Callable[[Sequence[float]], float],
) -> Metric:
    """Return one value from what each device of a meter did under load; none if a device lacks it."""
    parts = [part_of(load) for load in loads(measurement)]
    without = next((part["reason"] for part in parts if part["value"] is None), None if parts else NOT_WATCHED)
    return Metric(None, unit, without) if without else Metric(together([part["value"] for part in parts]), unit)


def _used(mib: float | str) -> Metric:
    return Metric(None, "MiB", mib) if isinstance(mib, str) else Metric(mib, "MiB")
