"""The document: everything known about one run, in the form of `schemas/result-1.0.json`."""

from __future__ import annotations

import inspect
import math
import platform
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Callable, Dict, Mapping, Sequence

from entrypoints import image as image_module
from entrypoints import metrics
from entrypoints.cards import Card
from entrypoints.configuration import Configuration
from entrypoints.host import Fact
from entrypoints.measurement import Measurement
from entrypoints.messages import PHASES, Step
from entrypoints.quantiles import quantile
from entrypoints.verdict import Verdict

SCHEMA_VERSION = "1.0"
MOST_STEPS = 1000  # beyond, step times are given as quantiles only
MOST_EXAMPLES = 10  # of skipped files
QUANTILES = (0, 1, 5, 25, 50, 75, 95, 99, 100)  # per cent
Json = Dict[str, Any]


@dataclass(frozen=True)
class Context:
    """What surrounds a measurement: the question, the place and the time."""

    card: Card
    configuration: Configuration
    image: Mapping[str, Any] | None
    host: Mapping[str, Fact]
    conditions: Mapping[str, Fact]
    site: str | None
    command: Sequence[str]
    started: datetime
    finished: datetime
    jsonschema_version: str


def document(measurement: Measurement, verdict: Verdict, context: Context) -> Json:
    """The result as plain JSON values."""
    written: Json = {
        "schema_version": SCHEMA_VERSION,
        "id": str(uuid.uuid4()),
        "started": timestamp(context.started),
        "finished": timestamp(context.finished),
        "status": {**verdict._asdict(), "phase": measurement.last_phase},
        "workload": workload(context),
        "configuration": configuration(context.configuration),
        "accelerator": accelerator(measurement, context.configuration),
        "host": dict(context.host),
        "conditions": dict(context.conditions),
        "site": context.site,
        "provenance": provenance(measurement, context),
        "phases": phases(measurement),
        "epochs": epochs(measurement),
        "data": data(measurement, context.configuration),
        "metrics": {name: number(*metric(measurement)) for name, metric in every_metric().items()},
        "steps": steps(measurement),
    }
    document: Json = printable(written)
    return document


def printable(value: Any) -> Any:
    """The same JSON value with what is not Unicode, as in foreign file names, replaced by question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: printable(item) for key, item in value.items()}
    return [printable(item) for item in value] if isinstance(value, list) else value


def timestamp(moment: datetime) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def workload(context: Context) -> Json:
    """What was run; `identity` is what makes two results comparable."""
    card = context.card
    return {
        "name": card.name,
        "title": card.title,
        "task": context.configuration.task,
        "unit": card.problem["unit"],
        "parameters": card.problem["parameters"],
        "identity": card.identity,
    }


def configuration(resolved: Configuration) -> Json:
    """What may differ between comparable runs."""
    values = resolved.as_json()
    return {key: value for key, value in values.items() if key not in ("workload", "task")}


def accelerator(measurement: Measurement, resolved: Configuration) -> Json:
    """The device as its session described it, or its kind and why there is no more."""
    if measurement.device is None:
        return {"kind": resolved.device, "reason": "the run ended before a session was open"}
    facts = measurement.device._asdict()
    del facts["simulated"]  # stands in provenance
    facts["count"] = facts.pop("devices")
    return {key: value for key, value in facts.items() if value is not None}


def provenance(measurement: Measurement, context: Context) -> Json:
    """Which bytes produced this result."""
    software = measurement.software
    image = context.image
    described = {"image": dict(image)} if image else {"image": None, "reason": image_module.ABSENT}
    return {
        **described,
        "stand_in": bool(image and image["stand_in"]),
        "simulated": bool(measurement.device and measurement.device.simulated),
        "software": {
            "python": platform.python_version(),
            "jsonschema": context.jsonschema_version,
            "framework": context.configuration.framework,
            "framework_version": software.framework_version if software else None,
            "libraries": software.libraries if software else {},
        },
        "command": list(context.command),
    }


def phases(measurement: Measurement) -> Json:
    """Seconds of every phase; none where it was not reached or not finished."""
    unfinished = {"seconds": None, "reason": f"not finished; the last phase that began is {measurement.last_phase}"}
    spans = measurement.phases
    return {name: {"seconds": spans[name]} if name in spans else unfinished for name in PHASES}


def epochs(measurement: Measurement) -> list[Json]:
    """The finished epochs, where an epoch is defined."""
    size = measurement.steps_per_epoch
    if not size:
        return []
    taken = measurement.steps
    starts = range(0, len(taken) - size + 1, size)
    return [epoch(index, taken[start : start + size]) for index, start in enumerate(starts, start=1)]


def epoch(index: int, taken: Sequence[Step]) -> Json:
    """One epoch's totals."""
    return {
        "index": index,
        "seconds": sum(step.seconds for step in taken),
        "units": sum(step.units for step in taken),
        "steps": len(taken),
    }


def data(measurement: Measurement, resolved: Configuration) -> Json:
    """Where the inputs came from and what of them could not be read."""
    told = measurement.data
    return {
        "source": resolved.data,
        "samples": told.samples if told else None,
        "classes": told.classes if told else None,
        "skipped": {"count": len(measurement.skipped), "examples": list(measurement.skipped[:MOST_EXAMPLES])},
    }


def steps(measurement: Measurement) -> Json:
    """Counts, and step by step in order what it took, up to `MOST_STEPS`; beyond, quantiles alone."""
    taken = measurement.steps
    few = len(taken) <= MOST_STEPS
    timed = [step.seconds for step in measurement.timed_steps]
    return {
        "count": len(taken),
        "untimed": len(taken) - len(timed),
        "units": sum(step.units for step in taken),
        "updates": sum(step.updates for step in taken),
        "seconds": [step.seconds for step in taken] if few else None,
        "data_wait_seconds": [step.wait for step in taken] if few else None,
        "losses": [finite(step.loss) for step in taken] if few else None,
        "quantiles": {f"p{share}": quantile(timed, share / 100) for share in QUANTILES} if timed else None,
    }


def every_metric() -> dict[str, Callable[[Measurement], metrics.Metric]]:
    """The public functions that `metrics` defines, by name."""
    return {
        name: function
        for name, function in inspect.getmembers(metrics, inspect.isfunction)
        if function.__module__ == metrics.__name__ and not name.startswith("_")
    }


def number(value: float | None, unit: str, reason: str | None = None) -> Json:
    """A number with its unit; null with the reason where there is none or it is not finite."""
    if value is not None and math.isfinite(value):
        return {"value": value, "unit": unit}
    return {"value": None, "unit": unit, "reason": reason or f"not a finite number: {value}"}


def finite(value: float | None) -> float | None:
    """The value, or None where JSON has no number for it."""
    return value if value is not None and math.isfinite(value) else None
