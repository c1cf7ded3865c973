"""Reasons not to publish a result, in words."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sifmark.results.numbers import format_number

BUSY = 2.0  # %: an idle host had 0.1 to 0.3 (docs/measure/good-numbers.md)
STALLED = 0.1  # of the timed window
DO_NOT_PUBLISH = "Do not publish this number."

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
    steadiness = document["steadiness"]
    if steadiness["steady"] is False:
        drift = steadiness["drift"]["value"]
        change = "" if drift is None else f" by {drift:+.1%}"
        yield f"step times changed{change} over the timed window. Warm up for longer, or run for longer"


def disturbances(document: Document) -> Iterator[str]:
    """Yield how other work kept processors from the run."""
    delay = _number(document["conditions_after"].get("run_delay"))  # results of schema 1.0 have none
    if delay > BUSY and _more_threads_than_processors(document):
        yield f"the run has more threads than processors: they waited {format_number(delay)} % of their time"
    elif delay > BUSY:
        yield f"the host was busy: threads waited {format_number(delay)} % of their time. {DO_NOT_PUBLISH}"
    if (stolen := _stolen_percent(document)) > BUSY:
        yield f"the hypervisor took {format_number(stolen)} % of the processors' time. {DO_NOT_PUBLISH}"


def stalled_share(document: Document) -> float:
    """Return the fraction of the timed window in steps that took far longer than the others."""
    outliers = document["steadiness"]["outliers"]
    return float(outliers["share_of_time"]) if outliers else 0.0


def is_stalled(document: Document) -> bool:
    """Return whether something stopped the run for so long that its numbers are not for publication."""
    return stalled_share(document) > STALLED


def is_disturbed(document: Document) -> bool:
    """Return whether other work on the host disturbed the run, so that its numbers are not for publication."""
    return any(text.endswith(DO_NOT_PUBLISH) for text in disturbances(document))


def duration(document: Document) -> float:
    """Return how long the run took in seconds."""
    started, finished = (datetime.fromisoformat(document[name]) for name in ("started", "finished"))
    return (finished - started).total_seconds()


def _loaded_first(document: Document) -> list[str]:
    """Return the libraries that the loader puts before all others, and its auditors; results of 1.0 name none."""
    environment = document.get("environment", {})
    auditors = environment.get("variables", {}).get("LD_AUDIT", "")  # with colons, ld.so(8)
    return [*environment.get("preloaded", []), *filter(None, auditors.split(":"))]


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
