"""Reasons not to publish a result, in words."""

from collections.abc import Iterator
from datetime import datetime
from types import ModuleType
from typing import Any

from sifmark.core.paths import import_shared
from sifmark.results.numbers import format_number

THROTTLED = 0.01  # of the timed window in which heat or hardware held the clocks of a device down
AT_POWER_LIMIT = 0.1  # of it in which a power limit did, which is how many devices work when they are busy
BUSY = 2.0  # %: an idle host had 0.1 to 0.3 (docs/measure/good-numbers.md)
PRESSED = 50.0  # %: above what a run and its check cause themselves
STOPS = ("interrupted", "time_limit")  # states of runs that were ended before their time
STALLED = 0.1  # of the timed window
# Of the bound of a throughput. Figures of published studies lie between 1.3 % and 77 % of it; those below are of what
# does not fill a device: MobileNetV3 on IPUs, an autoencoder (PEARC'22, tables 2 and 4), and batches of a few images.
FAR_BELOW = 0.01
DO_NOT_PUBLISH = "Do not publish this number."
_POWER, _OTHER = "power", "other"  # kinds of limits of clocks

Document = dict[str, Any]


def warnings_of(document: Document) -> Iterator[str]:
    """Yield what makes a valid result unfit for publication."""
    if document["provenance"]["stand_in"]:
        yield f"this image has a test base, not that of the vendor. {DO_NOT_PUBLISH}"
    if document["provenance"].get("simulated"):
        replayed = document["power"].get("source") == "replay"
        what = "the meter replayed a recorded trace" if replayed else "the device was simulated"
        yield f"{what}. {DO_NOT_PUBLISH}"
    if preloaded := _loaded_first(document):
        yield f"loaded before all other libraries, where they can change what is measured: {', '.join(preloaded)}"
    yield from disturbances(document)
    if is_stalled(document):
        stalled = stalled_share(document)
        yield f"outlying steps took {stalled:.0%} of the timed window: something stopped the run. {DO_NOT_PUBLISH}"
    if is_far_below(document):
        reached = format_number(100 * float(document["metrics"]["fraction_of_bound"]["value"]))
        yield f"the throughput is {reached} % of what the devices allow: something else than the devices limits it"
    yield from throttling(document)
    steadiness = document["steadiness"]
    if steadiness["steady"] is False:
        drift = steadiness["drift"]["value"]
        change = "" if drift is None else f" by {drift:+.1%}"
        yield f"step times changed{change} over the timed window. Warm up for longer, or run for longer"


def disturbances(document: Document) -> Iterator[str]:
    """Yield how other work kept processors from the run."""
    delay = waited_percent(document)
    pressure = _number(document["conditions"].get("cpu_pressure"))
    if delay > BUSY and _more_threads_than_processors(document):
        yield f"the run has more threads than processors: they waited {format_number(delay)} % of their time"
    elif delay > BUSY:
        spun = f". {_openmp().ADVICE}" if _spins(document) else ""
        yield f"the host was busy: threads waited {format_number(delay)} % of their time{spun}. {DO_NOT_PUBLISH}"
    elif document["status"]["state"] in STOPS and pressure > PRESSED:
        waited = f"threads waited {format_number(pressure)} % of the last 10 s before the run"
        yield f"the host was busy: {waited}. {DO_NOT_PUBLISH}"
    if (stolen := _stolen_percent(document)) > BUSY:
        yield f"the hypervisor took {format_number(stolen)} % of the processors' time. {DO_NOT_PUBLISH}"


def throttling(document: Document) -> Iterator[str]:
    """Yield what held the clocks of devices down in the timed window."""
    for limit, share in _longest_limits(document).items():
        kind, name = limit
        if kind != _POWER and share > THROTTLED:
            yield f"{name} held the clocks of a device down for {share:.0%} of the timed window. {DO_NOT_PUBLISH}"
        elif kind == _POWER and share > AT_POWER_LIMIT:
            yield (
                f"a power limit ({name}) held the clocks of a device down for {share:.0%} of the timed window: publish "
                "device_conditions.power_cap with this number"
            )


def is_throttled(document: Document) -> bool:
    """Return whether heat or hardware held the clocks of a device down, so that its numbers are not for publication."""
    return any(kind != _POWER and share > THROTTLED for (kind, _), share in _longest_limits(document).items())


def is_at_power_limit(document: Document) -> bool:
    """Return whether a power limit held the clocks of a device down for much of the timed window."""
    return any(kind == _POWER and share > AT_POWER_LIMIT for (kind, _), share in _longest_limits(document).items())


def stalled_share(document: Document) -> float:
    """Return the fraction of the timed window in steps that took far longer than the others."""
    outliers = document["steadiness"]["outliers"]
    return float(outliers["share_of_time"]) if outliers else 0.0


def is_stalled(document: Document) -> bool:
    """Return whether something stopped the run for so long that its numbers are not for publication."""
    return stalled_share(document) > STALLED


def is_far_below(document: Document) -> bool:
    """Return whether the throughput is so far below its bound that something else than the devices limits it."""
    fraction = document["metrics"].get("fraction_of_bound")  # older results have none
    return bool(fraction) and fraction["value"] is not None and fraction["value"] < FAR_BELOW


def waited_percent(document: Document) -> float:
    """Return how much of their time threads waited for a processor, in percent; 0 if unknown, as in schema 1.0."""
    return _number(document["conditions_after"].get("run_delay"))


def is_disturbed(document: Document) -> bool:
    """Return whether other work on the host disturbed the run, so that its numbers are not for publication."""
    return any(text.endswith(DO_NOT_PUBLISH) for text in disturbances(document))


def duration(document: Document) -> float:
    """Return how long the run took in seconds."""
    started, finished = (datetime.fromisoformat(document[name]) for name in ("started", "finished"))
    return (finished - started).total_seconds()


def _longest_limits(document: Document) -> dict[tuple[str, str], float]:
    """Return for which fraction of the timed window each limit acted on the device where it did so for longest, by kind
    and name. Limits that do not make a device slower than it is made to be are left out."""
    mean, steps = document["metrics"].get("step_time_mean", {}).get("value"), document["steps"]
    window = (mean or 0.0) * (steps["count"] - steps["untimed"])
    shares: dict[tuple[str, str], float] = {}
    for device in document["power"].get("devices", ()) if window else ():
        for limit in device.get("load", {}).get("limits") or ():
            if limit["kind"] != _OTHER:
                key = limit["kind"], limit["name"]
                shares[key] = max(shares.get(key, 0.0), min(1.0, limit["duration"]["value"] / window))
    return shares


def _loaded_first(document: Document) -> list[str]:
    """Return the libraries that the loader puts before all others, and its auditors; results of 1.0 name none."""
    environment = document.get("environment", {})
    auditors = environment.get("variables", {}).get("LD_AUDIT", "")  # with colons, ld.so(8)
    return [*environment.get("preloaded", []), *filter(None, auditors.split(":"))]


def _spins(document: Document) -> bool:
    """Return whether several threads waited for each other by spinning; unknown before schema 1.2."""
    wait = document["conditions_after"].get("openmp_wait")
    return bool(wait and _openmp().spins(wait["value"], document["configuration"]["threads"]))


def _openmp() -> ModuleType:
    return import_shared("system.openmp")


def _more_threads_than_processors(document: Document) -> bool:
    configuration, usable = document["configuration"], _number(document["host"]["threads_usable"])
    return 0 < usable < int(configuration["threads"]) * int(configuration["concurrency"] or 1)


def _stolen_percent(document: Document) -> float:
    """Return how much of the processors' time in the run a hypervisor gave to other machines, 0 if unknown."""
    stolen, processors = _number(document["conditions_after"]["cpu_stolen"]), _number(document["host"]["threads"])
    available = processors * duration(document) if stolen else 0.0
    return 100 * stolen / available if available > 0 else 0.0


def _number(fact: Document | None) -> float:
    """Return the value of a fact, 0 if it is missing or not a number, as the schema allows."""
    value = fact["value"] if fact else None
    return float(value) if isinstance(value, int | float) else 0.0
