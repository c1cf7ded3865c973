"""The document's part `power`: what was metered, and how, device by device."""

from __future__ import annotations

import math
from typing import Any, Mapping, NamedTuple, Sequence

from entrypoints.metering.course import course
from entrypoints.metering.energy import (
    Consumed,
    EnergyError,
    Metered,
    TotalEnergy,
    Window,
    WindowEnergy,
    total_energy,
    window_energy,
)
from entrypoints.metering.load import Limited, Range, risen, window_states
from entrypoints.metering.meter import OTHER, UNKNOWN, Absence
from entrypoints.metering.sampling import Recording
from entrypoints.metering.states import RECEIVED, SENT, StateRecording
from entrypoints.results.json_values import Json, finite, number
from entrypoints.results.measurement import EVALUATED, NO_STEP, Measurement
from entrypoints.system.facts import MIB

CUT_SHORT = "the rest was cut short"
NO_REST = "there was no rest before the run (--idle-seconds 0)"
DIGITS = 5  # of a value of power in the trace: more would be noise of the meter
NO_WINDOW = (0.0, 0.0)
NO_STATE = "no state of the device was read in the timed window"
NOT_COVERED = "the traffic was not counted from edge to edge"
NOT_REPORTED = "the device does not report it"
NO_METER = "no meter"  # the name of a host's devices that nothing counted


class Part(NamedTuple):
    """A host, and the part `power` of a result of its devices alone."""

    host: str
    power: Mapping[str, Any]


def power(measurement: Measurement) -> Json:
    """Return how power was metered and what each device used in the timed window; without a meter only the reason.

    The course of power is there only if one task metered: hosts have no clock in common.
    """
    counted = [Part(task.host, task.power) for task in measurement.tasks if not task.elsewhere]
    return _together(counted, measurement.window) if counted else {**_own(measurement), **_trace(measurement)}


def consumed(measurement: Measurement, host: str) -> Consumed:
    """Return what the devices of this task used, from a measurement of its ranks alone."""
    metered = measurement.power
    return Consumed(
        host,
        len(measurement.timed_steps),
        _own(measurement),
        _of_host(measurement.timed_energy, host),
        [_of_host(energy, host) for energy in measurement.epoch_energies],
        played_back(metered),
        isinstance(metered, Absence) and metered.elsewhere,
        _of_host(measurement.decode_energy, host),
    )


def _of_host(energy: TotalEnergy, host: str) -> TotalEnergy:
    return energy if energy.reason is None else TotalEnergy(None, f"{host}: {energy.reason}")


def of_as_many_steps(task: Consumed, steps: int) -> Consumed:
    """Return what a task's devices used, without the energy if its ranks timed another number of steps."""
    if task.steps == steps or task.elsewhere:
        return task
    reason = f"{task.host}: its meter was read over {task.steps} timed steps, and {steps} count"
    part = {**task.power, "samples": None, "method": None, "counter_integral_difference": number(None, "1", reason)}
    part["devices"] = [_used_nothing(device["name"], reason) for device in task.power.get("devices", ())]
    nothing = TotalEnergy(None, reason)
    return task._replace(power=part if "source" in task.power else task.power, window=nothing, decode=nothing)


def played_back(metered: Metered) -> bool:
    """Return whether a meter played a recorded trace."""
    return not isinstance(metered, Absence) and metered.facts.simulated


def _together(parts: Sequence[Part], window: float) -> Json:
    """Return the parts of several hosts as one; its `window` is the document's, in s."""
    metered = [part for part in parts if "source" in part.power]
    if not metered:
        return dict(parts[0].power)
    first = metered[0]
    for part in metered:
        for name in ("source", "scope"):
            if part.power[name] != first.power[name]:
                return {"reason": f"{first.host} has the {name} {first.power[name]}, {part.host} {part.power[name]}"}
    samples = [part.power["samples"] for part in metered if part.power["samples"] is not None]
    return {
        **first.power,
        "method": next((part.power["method"] for part in metered if part.power["method"] is not None), None),
        "samples": min(samples, default=None),
        "failed_readings": sum(part.power["failed_readings"] for part in metered),
        "idle": _idle_together([part.power["idle"] for part in metered], len(metered) == len(parts)),
        "counter_integral_difference": max(
            (part.power["counter_integral_difference"] for part in metered), key=lambda each: abs(each["value"] or 0.0)
        ),
        "devices": [device for part in parts for device in _devices_of(part, window)],
    }


def _devices_of(part: Part, window: float) -> list[Json]:
    if "source" not in part.power:
        return [{**_used_nothing(NO_METER, f"{part.host}: {part.power['reason']}"), "host": part.host}]
    devices = []
    for device in part.power["devices"]:
        joules = device["energy"]["value"]
        mean = device["power_mean"] if joules is None or not window else number(joules / window, "W")
        devices.append({**device, "power_mean": mean, "host": part.host})
    return devices


def _idle_together(rests: Sequence[Mapping[str, Any]], all_metered: bool) -> Json:
    """Return the power of all hosts at rest."""
    without = next((rest for rest in rests if rest["power"]["value"] is None), None)
    shortest = min(rests, key=lambda rest: rest["duration"]["value"] or 0.0)["duration"]
    imports = [rest["importing"] for rest in rests if "importing" in rest]
    both = {"duration": shortest}
    if imports:
        both["importing"] = max(imports, key=lambda each: each["value"])
    if without or not all_metered:
        why = without["power"]["reason"] if without else "a host has no meter: devices name it"
        return {**both, "power": number(None, "W", why)}
    return {**both, "power": number(math.fsum(rest["power"]["value"] for rest in rests), "W")}


def _used_nothing(name: str, reason: str) -> Json:
    return {"name": name, "energy": number(None, "J", reason), "power_mean": number(None, "W", reason)}


def _own(measurement: Measurement) -> Json:
    """Return what this task's meter read."""
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
        "idle": _idle(measurement, recording),
        "counter_integral_difference": _difference(used, reason),
        "devices": [
            {**_device(name, index, used, reason, measurement.window), **_load(measurement, recording, index)}
            for index, name in enumerate(facts.devices)
        ],
    }


def loads(measurement: Measurement) -> list[Json]:
    """Return what the devices of all meters did under load, of those that report it."""
    recording = measurement.power
    if measurement.tasks:
        devices = [each for task in measurement.tasks if not task.elsewhere for each in task.power.get("devices", ())]
    elif isinstance(recording, Absence):
        return []
    else:
        devices = [_load(measurement, recording, index) for index in range(len(recording.facts.devices))]
    return [device["load"] for device in devices if "load" in device]


def _load(measurement: Measurement, recording: Recording, index: int) -> Json:
    """Return what a device did in the timed window: clocks, what limited them, and traffic on its bus."""
    states, facts = recording.states, recording.facts
    if states is None:
        return {}
    reason = NO_STEP if not measurement.timed_steps else EVALUATED if measurement.evaluations else None
    done = window_states(states, index, measurement.timed_edges if reason is None else NO_WINDOW)
    reason = reason or (None if done.samples else f"{NO_STATE}: {states.last_failure or 'it is shorter than a period'}")
    limits = None if done.limits is None else [_limit(each, facts.limits) for each in done.limits]
    longest = max((each["duration"]["value"] for each in limits or () if each["kind"] != OTHER), default=0.0)
    without = reason or facts.why_no_traffic or NOT_COVERED
    return {
        "load": {
            "samples": done.samples,
            "clock": _clock(done.clock, reason),
            "memory_clock": _clock(done.memory_clock, reason),
            "limited": number(None if limits is None else longest, "s", reason or NOT_REPORTED),
            "limits": limits,
            "traffic_method": facts.traffic_method,
            "received": _mib(done.received, without),
            "sent": _mib(done.sent, without),
            "traffic": _mib(_traffic(measurement, states, index), facts.why_no_traffic or NOT_COVERED),
        }
    }


def _limit(limited: Limited, kinds: Mapping[str, str]) -> Json:
    return {
        "name": limited.name,
        "kind": kinds.get(limited.name, UNKNOWN),
        "duration": number(limited.seconds, "s"),
        "method": limited.method,
    }


def _clock(read: Range | None, reason: str | None) -> Json:
    least, median = (None, None) if read is None else read
    return {name: number(value, "MHz", reason or NOT_REPORTED) for name, value in (("min", least), ("median", median))}


def _traffic(measurement: Measurement, states: StateRecording, index: int) -> float | None:
    """Return the bytes that crossed a device's bus both ways since the session was opened."""
    opened = measurement.began.get("model")
    if opened is None or not states.times:
        return None
    span = (opened, states.times[-1])
    both = [risen(states, index, direction, span) for direction in (RECEIVED, SENT)]
    return None if None in both else math.fsum(value or 0.0 for value in both)


def _mib(count: float | None, reason: str) -> Json:
    return number(None if count is None else count / MIB, "MiB", reason)


def _spent(measurement: Measurement, recording: Recording) -> tuple[WindowEnergy | None, str | None]:
    if not measurement.timed_steps:
        return None, NO_STEP
    if measurement.evaluations:
        return None, EVALUATED
    try:
        return window_energy(recording, measurement.timed_edges), None
    except EnergyError as error:
        return None, str(error)


def _trace(measurement: Measurement) -> Json:
    """Return the course of power, if the window has energy."""
    recording = measurement.power
    if isinstance(recording, Absence) or not finite(measurement.timed_energy.joules):
        return {}
    try:
        whole = course(recording, measurement.timed_edges)
    except EnergyError:
        return {}
    watts = [None if each is None or not math.isfinite(each) else float(f"{each:.{DIGITS}g}") for each in whole.watts]
    return {
        "trace": {
            "begin_seconds": whole.begin,
            "interval_seconds": whole.interval,
            "window_seconds": measurement.window,
            "rest_until_seconds": whole.rest_until,
            "watts": watts,
        }
    }


def _idle(measurement: Measurement, recording: Recording) -> Json:
    """Return the power of all devices before the run, from the first sample on."""
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
    beside = measurement.waited and {"importing": number(_importing(measurement, window), "s")}
    return {"duration": number(seconds, "s"), "power": number(watts, "W", reason), **(beside or {})}


def _importing(measurement: Measurement, rest: Window) -> float:
    """Return the seconds of the rest in which the framework was imported."""
    imported = measurement.waited.began if measurement.waited else rest[0]
    return max(0.0, min(imported, rest[1]) - max(measurement.began.get("import", rest[1]), rest[0]))


def _difference(used: WindowEnergy | None, reason: str | None) -> Json:
    share = used.counter_integral_difference if used else None
    return number(share, "1", reason or "the meter has not both, an energy counter and power")


def _device(name: str, index: int, used: WindowEnergy | None, reason: str | None, seconds: float) -> Json:
    joules = used.joules[index] if used else None
    watts = None if joules is None else joules / seconds
    return {"name": name, "energy": number(joules, "J", reason), "power_mean": number(watts, "W", reason)}
