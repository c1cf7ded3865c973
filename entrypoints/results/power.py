"""The document's part `power`: what was metered, and how, device by device."""

from __future__ import annotations

from entrypoints.metering.energy import EnergyError, WindowEnergy, total_energy, window_energy
from entrypoints.metering.meter import Absence
from entrypoints.metering.sampling import Recording
from entrypoints.results.json_values import Json, number
from entrypoints.results.measurement import EVALUATED, Measurement
from entrypoints.results.metrics import NO_STEP

CUT_SHORT = "the rest was cut short"
NO_REST = "there was no rest before the run (--idle-seconds 0)"


def power(measurement: Measurement) -> Json:
    """Return how power was metered and what each device used in the timed window; without a meter only the reason."""
    recording = measurement.power
    if isinstance(recording, Absence):
        return {"reason": recording.reason}
    facts = recording.facts
    used, reason = _spent(measurement, recording)
    return {
        "source": facts.source,
        "scope": facts.scope,
        "method": used.method if used else None,
        "sampling_period_seconds": recording.period,
        "update_period_seconds": facts.update_period,
        "averaging_time": number(facts.averaging, "s", facts.averaging_reason),
        "samples": used.samples if used else None,
        "failed_readings": recording.failures,
        "idle": _idle(recording),
        "counter_integral_difference": _difference(used, reason),
        "devices": [_device(name, index, used, reason, measurement.window) for index, name in enumerate(facts.devices)],
    }


def _spent(measurement: Measurement, recording: Recording) -> tuple[WindowEnergy | None, str | None]:
    if not measurement.timed_steps:
        return None, NO_STEP
    if measurement.evaluations:
        return None, EVALUATED
    try:
        return window_energy(recording, measurement.timed_edges), None
    except EnergyError as error:
        return None, str(error)


def _idle(recording: Recording) -> Json:
    """Return the power of all devices before the child started, from the first sample on."""
    if recording.idle_until is None or not recording.times:
        why = NO_REST if recording.idle_until is None else f"no reading succeeded: {recording.last_failure}"
        return {"duration": number(None, "s", why), "power": number(None, "W", why)}
    # A meter's first value is the average over a time before the rest.
    window = recording.times[0] + (recording.facts.averaging or 0.0), recording.idle_until
    seconds = window[1] - window[0]
    if seconds <= 0:
        return {"duration": number(None, "s", CUT_SHORT), "power": number(None, "W", CUT_SHORT)}
    joules, reason = total_energy(recording, window)
    watts = None if joules is None else joules / seconds
    return {"duration": number(seconds, "s"), "power": number(watts, "W", reason)}


def _difference(used: WindowEnergy | None, reason: str | None) -> Json:
    share = used.counter_integral_difference if used else None
    return number(share, "1", reason or "the meter has not both, an energy counter and power")


def _device(name: str, index: int, used: WindowEnergy | None, reason: str | None, seconds: float) -> Json:
    joules = used.joules[index] if used else None
    watts = None if joules is None else joules / seconds
    return {"name": name, "energy": number(joules, "J", reason), "power_mean": number(watts, "W", reason)}
