"""What people read when a run has ended: the number with its interval, what it rests on, and where the result is."""

from __future__ import annotations

import math
import shlex
from datetime import datetime
from typing import Any, Iterator, Mapping

from entrypoints.contract.points import MEMORY_COPY, MICROBENCHMARK
from entrypoints.metering.meter import OTHER, POWER
from entrypoints.results.numerics import cut_by
from entrypoints.results.outcome import STOPS
from entrypoints.system import openmp
from entrypoints.system.console import folded

Document = Mapping[str, Any]
THROTTLED, AT_POWER_LIMIT = 0.01, 0.1  # of the timed window: docs/measure/good-numbers.md
BUSY = 2.0  # %: an idle host had 0.1 to 0.3 (docs/measure/good-numbers.md)
PRESSED = 50.0  # %: above what a run and its check cause themselves
STALLED = 0.1  # of the timed window
FEWEST_REPEATS = 3  # that an interval needs
_NOT_TO_PUBLISH = "Do not publish this number"
NO_FIGURE = "-"
WIDE = 10.0  # percent: up to here an interval is `± 1.2 %`, above it stands in brackets
_LABEL = 13  # columns
_LONGEST = 1e15  # number that is written out; those near the largest float cannot be rounded


def report(document: Document, place: str | None, width: int | None = None) -> list[str]:
    """Return the lines about a finished run whose document is in the file `place`, or None for standard output.

    They are folded to a `width` in columns, but for what people copy.
    """
    warnings = (("warning", text) for text in warnings_of(document))
    facts = [*_measured(document), *warnings, *_publication(document)]
    lines = [folded(_title(document), 2, width), *(folded(_labelled(*fact), 2 + _LABEL, width) for fact in facts)]
    return [*(piece for pieces in lines for piece in pieces), *(_labelled(*fact) for fact in _result(place))]


def _labelled(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}"


def warnings_of(document: Document) -> Iterator[str]:
    """Yield what a reader of the number must know."""
    return (text for _, text in _reservations(document))


def _publication(document: Document) -> Iterator[tuple[str, str]]:
    """Yield in one line what keeps the number from being published, by the names of marks in reports; or nothing."""
    state = document["status"]["state"]
    if state not in ("completed", *STOPS):
        return
    names = [state.replace("_", " ")] if state in STOPS else []
    names += [name for name, _ in _reservations(document) if name]
    if document["numerics"]["state"] != "passed":
        names.append("correctness not shown")
    if names:
        yield "publish", f"no: {', '.join(dict.fromkeys(names))}"
    elif document["configuration"]["repeat"]["of"] < FEWEST_REPEATS:
        yield "publish", f"not alone: only {FEWEST_REPEATS} or more runs have an interval (--repeat {FEWEST_REPEATS})"


def _reservations(document: Document) -> Iterator[tuple[str, str]]:
    """Yield what a reader must know of the number, behind a name if it is therefore not to be published."""
    if document["provenance"]["stand_in"]:
        yield "test base", f"this image has a test base, not that of the vendor. {_NOT_TO_PUBLISH}"
    if document["provenance"]["simulated"]:
        replayed = document["power"].get("source") == "replay"
        what = "the meter replayed a recorded trace" if replayed else "the device was simulated"
        yield "simulated", f"{what}. {_NOT_TO_PUBLISH}"
    if preloaded := document["environment"]["preloaded"]:
        yield "", f"loaded before all other libraries, where they can change what is measured: {', '.join(preloaded)}"
    yield from _disturbances(document)
    for text in throttling(document):
        yield "throttled" if text.endswith(_NOT_TO_PUBLISH) else "", text
    if document["steadiness"]["steady"] is False:
        change = document["steadiness"]["drift"]["value"]
        text = f"step times changed by {change:+.1%} over the timed window. Warm up for longer, or run for longer"
        yield "not steady", text


def _disturbances(document: Document) -> Iterator[tuple[str, str]]:
    """Yield what else used the processors, or stopped the run."""
    after, threads = document["conditions_after"], document["configuration"]["threads"]
    delay, pressure = after["run_delay"]["value"] or 0.0, document["conditions"]["cpu_pressure"]["value"] or 0.0
    if delay > BUSY and more_threads_than_processors(document):
        yield "", f"the run has more threads than processors: they waited {significant(delay)} % of their time"
    elif delay > BUSY:
        waited = f"threads waited {significant(delay)} % of their time"
        spun = f". {openmp.ADVICE}" if openmp.spins(after["openmp_wait"]["value"], threads) else ""
        yield "busy host", f"the host was busy: {waited}{spun}. {_NOT_TO_PUBLISH}"
    elif document["status"]["state"] in STOPS and pressure > PRESSED:
        waited = f"threads waited {significant(pressure)} % of the last 10 s before the run"
        yield "busy host", f"the host was busy: {waited}. {_NOT_TO_PUBLISH}"
    stolen = stolen_percent(document)
    if stolen > BUSY:
        yield "busy host", f"the hypervisor took {significant(stolen)} % of the processors' time. {_NOT_TO_PUBLISH}"
    outliers = document["steadiness"]["outliers"]
    if outliers and outliers["share_of_time"] > STALLED:
        share = outliers["share_of_time"]
        text = f"outlying steps took {share:.0%} of the timed window: the run was disturbed. {_NOT_TO_PUBLISH}"
        yield "stopped for a time", text


def throttling(document: Document) -> Iterator[str]:
    """Yield what held the clocks of devices down in the timed window."""
    mean, steps = document["metrics"]["step_time_mean"]["value"], document["steps"]
    window = (mean or 0.0) * (steps["count"] - steps["untimed"])
    for (kind, name), seconds in longest_limits(document).items() if window else ():
        share = min(1.0, seconds / window)
        if kind != POWER and share > THROTTLED:
            yield f"{name} held the clocks of a device down for {share:.0%} of the window. {_NOT_TO_PUBLISH}"
        elif kind == POWER and share > AT_POWER_LIMIT:
            yield f"a power limit ({name}) held the clocks of a device down for {share:.0%} of the window"


def longest_limits(document: Document) -> Mapping[tuple[str, str], float]:
    """Return for how many s each limit of clocks acted on the device where it did so for longest, by kind and name."""
    longest: dict[tuple[str, str], float] = {}
    for device in document["power"].get("devices", ()):
        for limit in device.get("load", {}).get("limits") or ():
            key = limit["kind"], limit["name"]
            longest[key] = max(limit["duration"]["value"], longest.get(key, 0.0))
    return {key: seconds for key, seconds in longest.items() if key[0] != OTHER}


def more_threads_than_processors(document: Document) -> bool:
    """Return whether the run itself had more compute threads than processors."""
    configuration, usable = document["configuration"], document["host"]["threads_usable"]["value"]
    return usable is not None and configuration["threads"] * (configuration["concurrency"] or 1) > usable


def stolen_percent(document: Document) -> float:
    """Return how much of the processors' time in the run a hypervisor gave to other machines, 0 if unknown."""
    stolen = document["conditions_after"]["cpu_stolen"]["value"] or 0.0
    processors = document["host"]["threads"]["value"] or 1
    seconds = _seconds_of_run(document)
    return 100 * stolen / (processors * seconds) if seconds > 0 else 0.0


def significant(value: float, digits: int = 4) -> str:
    """Return a number with separators of thousands."""
    if value == 0 or not abs(value) < _LONGEST:
        return f"{value:.{digits}g}"
    own = math.floor(math.log10(abs(value)))
    places = digits - 1 - own
    return f"{round(value, places):,.{max(0, places)}f}" if own > -5 else f"{value:.3e}"


def duration_text(seconds: float) -> str:
    """Return a duration for people: `24 s`, `1 min 12 s`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def main_text(document: Document) -> str:
    """Return the first figure of a run with its unit, a dash without one: of a micro-benchmark its peak."""
    if document["workload"]["task"] != MICROBENCHMARK:
        return throughput_text(document)
    return next((text for _, text in _peaks(_values(document))), NO_FIGURE)


def throughput_text(document: Document) -> str:
    """Return the throughput with its unit, and its interval if there is one; a dash without throughput."""
    metric = document["metrics"]["throughput"]
    if metric["value"] is None:
        return NO_FIGURE
    interval = document["steadiness"]["throughput_interval"]
    low, high = interval["low"], interval["high"]
    if low is None or high is None:
        return f"{significant(metric['value'])} {metric['unit']}"
    value = metric["value"]
    percent = 100 * max(high - value, value - low) / value if value > 0 else math.inf
    if percent <= WIDE:
        interval = f"± {max(percent, 0.01):.{1 if percent >= 0.095 else 2}f} %"
    else:
        interval = f"[{significant(low, digits=3)}, {significant(high, digits=3)}]"
    return f"{significant(value)} {metric['unit']} {interval}   (95 % over steps)"


def _title(document: Document) -> str:
    workload, configuration, status = document["workload"], document["configuration"], document["status"]
    numerics = document["numerics"]
    took = duration_text(_seconds_of_run(document) + numerics.get("seconds", 0.0))
    if status["state"] in STOPS and numerics.get("reason", "").startswith(cut_by(status["state"])):
        took += ", during the correctness check"
    clients = f", {configuration['concurrency']} clients" if configuration["concurrency"] else ""
    what = f"{workload['name']} {workload['task']}  {configuration['precision']}  batch {configuration['batch_size']}"
    reason = "" if status["state"] == "completed" and not configuration["goal"] else f": {status['message']}"
    return f"{what}{clients}   {status['state'].replace('_', ' ')} in {took}{reason}"


def _measured(document: Document) -> Iterator[tuple[str, str]]:
    metrics, numerics, values = document["metrics"], document["numerics"], _values(document)
    if document["workload"]["task"] == MICROBENCHMARK:
        yield from _of_sizes(document, values)
    elif "throughput" in values:
        facts = [("throughput", throughput_text(document))], list(_tokens(values))
        for part in reversed(facts) if "decode_throughput" in values else facts:
            yield from part
    yield from _times(document, values)
    if "time_to_target" in values:
        yield "to target", duration_text(values["time_to_target"])
    sizes = {"host": values.get("peak_process_memory"), "device": values.get("peak_allocated_memory")}
    if memory := [f"{_memory(size)} {where}" for where, size in sizes.items() if size is not None]:
        yield "memory", ", ".join(memory)
    if "energy_per_unit" in values:
        energy = metrics["energy_per_unit"]
        yield "energy", f"{significant(energy['value'])} {energy['unit']}"
    reason = f": {numerics['reason']}" if "reason" in numerics else ""
    yield "correctness", numerics["state"].replace("_", " ") + reason


def _tokens(values: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield what a run of a language model is measured for."""
    if "token_throughput" in values:
        yield "tokens", f"{significant(values['token_throughput'])} tokens/s"
    if "output_token_throughput" in values:
        yield "tokens", f"{significant(values['output_token_throughput'])} new tokens/s"
    if "goodput" in values:
        yield "goodput", f"{significant(values['goodput'])} requests/s"
    for label, name in (("first token", "time_to_first_token"), ("next tokens", "time_between_tokens")):
        if f"{name}_p50" in values:
            yield label, f"{_seconds(values[f'{name}_p50'])} median"
    if "decode_throughput" in values:
        yield "generation", f"{significant(values['decode_throughput'])} new tokens/s"


def _values(document: Document) -> Mapping[str, float]:
    return {name: metric["value"] for name, metric in document["metrics"].items() if metric["value"] is not None}


def _of_sizes(document: Document, values: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield what a micro-benchmark is run for, or why it is not known."""
    yield from _peaks(values)
    if "memory_bandwidth" not in values and document["workload"]["name"] == MEMORY_COPY:
        yield "bandwidth", f"not known: {document['metrics']['memory_bandwidth']['reason']}"
    if "small_message_latency" in values:
        yield "latency", f"{_seconds(values['small_message_latency'])} a call, at the smallest size"


def _peaks(values: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield the peaks over sizes, in the order of the headlines of result-1.2.json."""
    if "peak_flops" in values:
        yield "operations", f"{_flops(values['peak_flops'])}, at the best size"
    for kind, label in (("memory", "bandwidth"), ("cached", "in caches")):
        if f"{kind}_bandwidth" in values:
            size = significant(values[f"{kind}_bandwidth_size"])
            yield label, f"{significant(values[f'{kind}_bandwidth'])} GB/s, by copies of {size} MiB"
    if "peak_bandwidth" in values:
        label = "storage" if "checkpoint_blocked_fraction" in values else "bus"
        yield label, f"{significant(values['peak_bandwidth'])} GB/s, at the best size"
    if "checkpoint_blocked_fraction" in values:
        yield "blocked", f"{100 * values['checkpoint_blocked_fraction']:.3g} % of a save, by an asynchronous one"


def _flops(rate: float) -> str:
    factor, unit = (1e12, "TFLOP/s") if rate >= 1e12 else (1e9, "GFLOP/s")
    return f"{significant(rate / factor)} {unit}"


def _times(document: Document, values: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield medians, with the 99th percentile if there are steps enough for it, else the slowest step."""
    if "step_time_p50" in values:
        p99, longest = values.get("step_time_p99"), document["steps"]["quantiles"]["p100"]
        slowest = f"{_seconds(longest)} slowest" if p99 is None else f"{_seconds(p99)} p99"
        yield "step time", f"{_seconds(values['step_time_p50'])} median, {slowest}"
    if "latency_p50" in values:
        slowest = f", {_seconds(values['latency_p99'])} p99" if "latency_p99" in values else ""
        yield "latency", f"{_seconds(values['latency_p50'])} median{slowest}"


def _result(place: str | None) -> Iterator[tuple[str, str]]:
    if place is not None:
        yield "result", place
        yield "next", f"sifmark results.show {shlex.quote(place)}"


def _seconds_of_run(document: Document) -> float:
    return (_instant(document["finished"]) - _instant(document["started"])).total_seconds()


def _instant(text: str) -> datetime:
    # Without Z, which Python reads from 3.11 on. strptime imports a module late, when a signal may have ended the
    # process that mounts the image: Slurm sends signals to all processes of a step.
    return datetime.fromisoformat(text[:-1])


def _memory(mib: float) -> str:
    return f"{significant(mib / 1024)} GiB" if mib >= 1024 else f"{significant(mib)} MiB"


def _seconds(value: float) -> str:
    factor, unit = next(((f, u) for f, u in ((1.0, "s"), (1e-3, "ms")) if value >= f), (1e-6, "µs"))
    return f"{significant(value / factor)} {unit}"
