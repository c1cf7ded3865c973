"""The result document of one run, in the form of `schemas/result-1.2.json`."""

from __future__ import annotations

import platform
import uuid
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any, Mapping, Sequence

from entrypoints.contract.cards import Card, routing
from entrypoints.contract.group import Mesh
from entrypoints.contract.messages import PHASES
from entrypoints.contract.points import operation_of
from entrypoints.contract.session import BACKEND_FACTS, COMPILATION_FACTS, DEVICE_CONDITIONS, DeviceConditions
from entrypoints.planning.configuration import Configuration
from entrypoints.results import peaks
from entrypoints.results.json_values import Json, finite, number, printable
from entrypoints.results.measurement import Measurement
from entrypoints.results.metrics import latency
from entrypoints.results.metrics.by_workload import possible_metrics
from entrypoints.results.numerics import Numerics
from entrypoints.results.outcome import Outcome
from entrypoints.results.points import points
from entrypoints.results.power import played_back, power
from entrypoints.results.quantiles import quantiles
from entrypoints.results.ranks import ranks, transport
from entrypoints.results.roofline import flops_of_unit
from entrypoints.results.serving import serving
from entrypoints.results.steadiness import steadiness
from entrypoints.system import image as image_module
from entrypoints.system import openmp
from entrypoints.system.facts import Fact

SCHEMA_VERSION = "1.2"
MOST_STEPS = 1000  # above that, step times are given only as quantiles
MOST_EXAMPLES = 10  # of skipped samples
PARTS = ("preprocessing", "transfer", "compute", "retrieval", "other")  # of a request's latency


@dataclass(frozen=True)
class Context:
    """What surrounds a measurement: workload and configuration, place and time."""

    card: Card
    configuration: Configuration
    image: Mapping[str, Any] | None  # with the properties of its file
    host: Mapping[str, Fact]
    session: Mapping[str, Fact]
    conditions: Mapping[str, Fact]
    conditions_after: Mapping[str, Fact]
    environment: Mapping[str, Any]  # settings of libraries
    site: str | None
    command: Sequence[str]
    started: datetime
    finished: datetime
    search: Json | None
    jsonschema_version: str
    numerics: Numerics


def document(measurement: Measurement, outcome: Outcome, context: Context) -> Json:
    """Return the result as plain JSON values."""
    written: Json = {
        "schema_version": SCHEMA_VERSION,
        "id": str(uuid.uuid4()),
        "started": timestamp(context.started),
        "finished": timestamp(context.finished),
        "status": {**outcome._asdict(), "phase": measurement.last_phase},
        "workload": workload(context),
        "configuration": configuration(context.configuration),
        "accelerator": accelerator(measurement, context.configuration),
        "host": dict(context.host),
        "session": dict(context.session),
        "conditions": dict(context.conditions),
        "conditions_after": {
            **context.conditions_after,
            "run_delay": run_delay(measurement),
            "openmp_wait": openmp_wait(measurement, context),
        },
        "environment": dict(context.environment),
        "device_conditions": device_conditions(measurement.conditions),
        "device_conditions_after": device_conditions(measurement.conditions_after),
        "site": context.site,
        "provenance": provenance(measurement, context),
        "numerics": context.numerics.as_json(),
        "search": context.search,
        "phases": phases(measurement),
        "epochs": epochs(measurement),
        "data": data(measurement, context.configuration),
        "metrics": metrics(measurement, context),
        "target": target(measurement),
        "power": power(measurement),
        "ranks": ranks(measurement),
        "transport": transport(measurement),
        "steadiness": steadiness(measurement),
        "steps": steps(measurement),
        "requests": requests(measurement),
        "points": points(measurement, operation_of(context.card.problem)),
        **({"serving": serving(measurement)} if context.configuration.serving else {}),
    }
    document: Json = printable(written)
    return document


def timestamp(moment: datetime) -> str:
    """Return ISO 8601 in UTC, to the millisecond."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def workload(context: Context) -> Json:
    """Return what was run; `identity` is what makes two results comparable."""
    card = context.card
    flops = flops_of_unit(card, context.configuration.task)
    return {
        "name": card.name,
        "title": card.title,
        "set": card.set,
        "task": context.configuration.task,
        "unit": card.problem["unit"],
        "parameters": card.problem["parameters"],
        "flops": {**flops._asdict(), "source": card.flops["source"]},
        "identity": card.identity,
        **({"routing": routing(card.problem)} if routing(card.problem) else {}),
    }


def configuration(resolved: Configuration) -> Json:
    """Return what may differ between comparable runs."""
    values = resolved.as_json()
    left_out = ("workload", "task") if resolved.serving else ("workload", "task", "serving")
    return {key: value for key, value in values.items() if key not in left_out}


def accelerator(measurement: Measurement, resolved: Configuration) -> Json:
    """Return the device as its session described it, or its kind and why there is no more."""
    if measurement.device is None:
        return {"kind": resolved.device, "reason": "the run ended before a session was open"}
    facts = measurement.device._asdict()
    del facts["simulated"]  # goes to provenance
    facts["count"] = facts.pop("devices")
    facts["mesh"] = dict(zip(Mesh._fields, facts["mesh"])) if facts["mesh"] else None
    facts.update(executed(measurement, resolved))
    peak = peaks.of_device(measurement.device, resolved.precision)
    facts["peak"] = number(peak.flops, "FLOP/s", peak.reason)
    facts["peak_source"] = peak.source
    memory = peaks.memory(measurement.device)
    facts["memory_bandwidth"] = number(memory.bandwidth, "B/s", memory.reason)
    facts["memory_bandwidth_source"] = memory.source
    rated = peaks.rated_power(measurement.device)
    facts["rated_power"] = number(rated.watts, "W", rated.reason)
    facts["rated_power_scope"], facts["rated_power_source"] = rated.scope, rated.source
    return {key: value for key, value in facts.items() if value is not None}


def executed(measurement: Measurement, resolved: Configuration) -> Json:
    """Return how the model was run in fact, where the framework showed it: it replaces what was planned."""
    reported = measurement.executed
    if reported is None:
        return {}
    backends = {name: reported.facts.get(name) for name in BACKEND_FACTS}
    parts: Json = {"execution": reported.execution, "backends": backends}
    if resolved.compile:
        parts["compilation"] = {name: reported.facts.get(name) for name in COMPILATION_FACTS}
    return parts


def metrics(measurement: Measurement, context: Context) -> Json:
    """Return every metric that such a run can have, each with its value or the reason why there is none."""
    configuration = context.configuration
    possible = possible_metrics(context.card.problem, configuration.task, configuration.ranks)
    return {name: number(*metric(measurement)) for name, metric in possible.items()}


def run_delay(measurement: Measurement) -> Fact:
    """Return the percentage of their processor time that the workload's threads waited in the timed window."""
    times = measurement.scheduled
    if times is None:
        return {"value": None, "unit": "%", "reason": "the timed window did not end"}
    if not times.running > 0:
        return {"value": None, "unit": "%", "reason": "the kernel does not count it (schedstat)"}
    return {"value": round(100 * times.waiting / (times.running + times.waiting), 3), "unit": "%"}


def openmp_wait(measurement: Measurement, context: Context) -> Fact:
    """Return for how long idle threads of the OpenMP runtimes that the workload loaded spin."""
    if measurement.scheduled is None:
        return {"value": None, "reason": "the timed window did not end"}
    waits = openmp.waits(measurement.scheduled.openmp, context.environment["variables"])
    return {"value": waits} if waits else {"value": None, "reason": "no OpenMP runtime was loaded"}


def device_conditions(conditions: DeviceConditions) -> Json:
    """Return facts of the devices, null for those they do not report; or why there are none at all."""
    if conditions.reason is not None:
        return {"reason": conditions.reason}
    return {
        **{name: {"value": None, "reason": "the device does not report it"} for name in DEVICE_CONDITIONS},
        **conditions.facts,
    }


def provenance(measurement: Measurement, context: Context) -> Json:
    """Return which bytes produced this result."""
    software = measurement.software
    image = context.image
    described = {"image": dict(image)} if image else {"image": None, "reason": image_module.ABSENT}
    return {
        **described,
        "stand_in": bool(image and image["stand_in"]),
        "simulated": simulated(measurement),
        "software": {
            "python": platform.python_version(),
            "jsonschema": context.jsonschema_version,
            "framework": context.configuration.framework,
            "framework_version": software.framework_version if software else None,
            "libraries": software.libraries if software else {},
        },
        "command": list(context.command),
    }


def simulated(measurement: Measurement) -> bool:
    """Return whether the device was a test double, or the meter played a recorded trace."""
    played = any(task.simulated for task in measurement.tasks) or played_back(measurement.power)
    return played or bool(measurement.device and measurement.device.simulated)


def phases(measurement: Measurement) -> Json:
    """Return the seconds of every phase; null with the reason if it was not reached or not finished."""
    unfinished = {"seconds": None, "reason": f"not finished; the last phase that began is {measurement.last_phase}"}
    spans = measurement.phases
    return {name: {"seconds": spans[name]} if name in spans else unfinished for name in PHASES}


def epochs(measurement: Measurement) -> list[Json]:
    """Return each epoch's totals."""
    return [
        {
            "index": index,
            "seconds": sum(step.seconds for step in passed.steps),
            "units": sum(step.units for step in passed.steps),
            "steps": len(passed.steps),
            "energy": number(joules, "J", reason),
        }
        for index, (passed, (joules, reason)) in enumerate(zip(measurement.epochs, measurement.epoch_energies), start=1)
    ]


def data(measurement: Measurement, resolved: Configuration) -> Json:
    """Return the source of the inputs and the samples that could not be read."""
    data_message = measurement.data
    return {
        "source": resolved.data,
        "samples": data_message.samples if data_message else None,
        "classes": data_message.classes if data_message else None,
        "part": data_message.part if data_message else None,
        "skipped": {"count": len(measurement.skipped), "examples": list(measurement.skipped[:MOST_EXAMPLES])},
    }


def steps(measurement: Measurement) -> Json:
    """Return counts, and the times of all steps in order, up to `MOST_STEPS`; above that only quantiles."""
    taken = measurement.steps
    few = len(taken) <= MOST_STEPS
    timed = sorted(step.seconds for step in measurement.timed_steps)
    return {
        "count": len(taken),
        "untimed": len(taken) - len(timed),
        "units": sum(step.units for step in taken),
        "updates": sum(step.updates for step in taken),
        "seconds": [step.seconds for step in taken] if few else None,
        "data_wait_seconds": [step.wait for step in taken] if few and not any(step.request for step in taken) else None,
        "losses": [finite(step.loss) for step in taken] if few else None,
        "quantiles": quantiles(timed) if timed else None,
    }


def target(measurement: Measurement) -> Json | None:
    """Return the target and the evaluations, the last `MOST_STEPS` of them; None without a target."""
    target = measurement.target
    if target is None:
        return None
    seconds = [0.0, *accumulate(step.seconds for step in measurement.steps)]
    evaluations = [
        {
            "steps": evaluation.steps,
            "training_seconds": seconds[evaluation.steps],
            "seconds": evaluation.ended - evaluation.began,
            "samples": evaluation.samples,
            "loss": finite(evaluation.loss),
            "accuracy": evaluation.accuracy,
            "exact_match": evaluation.exact_match,
            "f1": evaluation.f1,
        }
        for evaluation in measurement.evaluations
    ]
    return {
        "metric": target["metric"],
        "value": target["value"],
        "reached": measurement.reaching is not None,
        "evaluations": evaluations[-MOST_STEPS:],
    }


def requests(measurement: Measurement) -> Json:
    """Return latencies of the timed requests, in order up to `MOST_STEPS`, and quantiles of them and of each part."""
    timed = measurement.timed_requests
    if not timed:
        return {"reason": str(latency.latency_mean(measurement).reason)}
    latencies = [request.latency for request in timed]
    parts = {name: [getattr(request, name) for request in timed] for name in PARTS}
    return {
        "count": len(timed),
        "latencies": latencies if len(timed) <= MOST_STEPS else None,
        "quantiles": quantiles(latencies),
        "parts": {name: quantiles(values) for name, values in parts.items()},
    }
