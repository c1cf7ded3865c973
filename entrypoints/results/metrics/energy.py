"""Metrics of energy and power."""

from __future__ import annotations

import math

from entrypoints.results.measurement import Measurement
from entrypoints.results.metrics.metric import Metric, from_energy, no_later_epoch, units


def energy(measurement: Measurement) -> Metric:
    """Energy of all the meter's devices over the timed window."""
    return from_energy(measurement, "J", lambda joules: joules)


def energy_per_unit(measurement: Measurement) -> Metric:
    """Energy over the units of the timed window."""
    each = measurement.unit[:-1] if measurement.unit.endswith("s") else measurement.unit
    return from_energy(measurement, f"J/{each}", lambda joules: joules / units(measurement))


def energy_per_device(measurement: Measurement) -> Metric:
    """Mean energy of the meter's devices, each of the meter's scope, over the timed window."""
    devices = measurement.metered_devices
    return from_energy(measurement, "J", lambda joules: joules / devices)


def units_per_watt_hour(measurement: Measurement) -> Metric:
    """Units of the timed window over its energy in Wh."""
    return from_energy(measurement, f"{measurement.unit}/Wh", lambda joules: units(measurement) / (joules / 3600))


def throughput_per_watt(measurement: Measurement) -> Metric:
    """Throughput over mean power, both over the timed window: so units over joules."""
    return from_energy(measurement, f"{measurement.unit}/s/W", lambda joules: units(measurement) / joules)


def power_mean(measurement: Measurement) -> Metric:
    """Energy over the length of the timed window."""
    return from_energy(measurement, "W", lambda joules: joules / measurement.window)


def energy_per_epoch(measurement: Measurement) -> Metric:
    """Mean over the finished epochs except the first, which contains compilation and warm-up."""
    reason = no_later_epoch(measurement)
    if reason:
        return Metric(None, "J", reason)
    energies = measurement.epoch_energies[1:]
    reason = next((reason for joules, reason in energies if joules is None), None)
    return Metric(None if reason else math.fsum(joules or 0.0 for joules, _ in energies) / len(energies), "J", reason)
