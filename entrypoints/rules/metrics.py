"""Rules about metrics: each follows from the steps, and has its own unit."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Iterator, Mapping

from entrypoints.contract.cards import generates
from entrypoints.contract.choices import FP8
from entrypoints.contract.points import MICROBENCHMARK
from entrypoints.results import peaks
from entrypoints.results.measurement import fold
from entrypoints.results.metrics.by_workload import every_metric
from entrypoints.results.metrics.metric import too_few_steps
from entrypoints.results.result import PARTS
from entrypoints.results.roofline import Bound, Roof, bound, work_of_step
from entrypoints.rules.facts import FIRST_VERSION, Facts, device_named, is_whole, mean_bounds, near
from entrypoints.rules.identity import card_of
from entrypoints.rules.rule import ROUNDING, differ, rule, unequal_metrics
from entrypoints.rules.times import EARLY, EARLY_SHARE

FRACTIONS = (
    "data_wait_fraction",
    "padding_fraction",
    "acceptance_rate",
    "utilisation",
    "utilisation_full_attention",
    "throttled_fraction",
)
SIGNED = ("final_loss",)  # a likelihood's logarithm may have either sign
LEAST_LOSS = -0.01
LARGEST = 1e24  # no number of a measurement is larger
# Of the timed steps, with the quantile that each is.
STEP_TIMES = {f"step_time_p{share}": f"p{share}" for share in (50, 90, 95, 99)}
# Metrics that every version with schema 1.1 or later writes, with or without a value.
ALWAYS = (
    *("throughput", "throughput_per_device", "step_time_mean", *STEP_TIMES, "data_wait_fraction", "decode_rate"),
    *("latency_mean", "latency_p50", "latency_p90", "latency_p95", "latency_p99", "latency_max"),
    *(f"latency_{name}_mean" for name in PARTS),
    *("time_to_first_step", "training_time", "final_loss", "peak_process_memory", "achieved_flops", "utilisation"),
    *("energy", "energy_per_unit", "power_mean", "throughput_per_watt", "units_per_watt_hour"),
)
FULL_ATTENTION = "_full_attention"  # ends the names of metrics that count all pairs of places
NEEDED = 2  # of two places at least one sees the other: the most that all pairs can be, over those that count
OF_A_SWEEP = (FIRST_VERSION, "1.1")  # schemas with rates of operations of micro-benchmarks
OF_FEW_STEPS = (FIRST_VERSION, "1.1")  # schemas with a 99th percentile of any number of steps
HASTE = 0.5  # the fastest of a few steps before the window, over that of a thousand in it
OF_STEPS = ("compile", "warmup", "steady")  # phases
KEPT, KEPT_SHARE = 0.1, 0.05  # s, of the window: fetching a batch that is there takes a microsecond
DECODED = (1e-3, 1.01)  # of the waits: a file is read, decoded, and put into a batch


@rule(
    "each metric is one that sifmark has, in the unit that it has for this workload",
    "A metric of another name or unit is of another program.",
)
def metrics_are_known(facts: Facts) -> Iterator[str]:
    """Compare names and units with those of the metrics' functions."""
    units = units_of_metrics(facts.unit, facts.task)
    if facts.document["schema_version"] != FIRST_VERSION:
        yield from (f"metrics.{name}: it is missing" for name in ALWAYS if name not in facts.metrics)
    for name, entry in facts.metrics.items():
        if name not in units:
            yield f"metrics.{name}: there is no such metric"
        elif entry["unit"] != units[name] and (name, entry["unit"]) != (
            "energy_per_unit",
            f"J/{facts.unit}",
        ):  # as in 0.2
            yield differ(f"metrics.{name}.unit", entry["unit"], units[name], f"the unit {facts.unit}")
    unit = facts.document["steadiness"]["throughput_interval"]["unit"]
    if unit != units["throughput"]:
        yield differ("steadiness.throughput_interval.unit", unit, units["throughput"], f"the unit {facts.unit}")


@lru_cache(maxsize=64)
def units_of_metrics(unit: str, task: str) -> Mapping[str, str]:
    """Return the unit of every metric of a workload, from a measurement of nothing."""
    nothing = fold([], unit, task)
    return {name: metric(nothing).unit for name, metric in every_metric().items()}


@rule(
    "no metric is negative but `final_loss`, none is over 1e24, and fractions are at most 1",
    "Nothing that is counted or timed is less than nothing, and no device does more than its peak.",
    ROUNDING,
)
def metrics_are_possible(facts: Facts) -> Iterator[str]:
    """Check the range of each metric."""
    for name, entry in facts.metrics.items():
        value = entry["value"]
        if value is None:
            continue
        if value < 0 and name not in SIGNED:
            yield f"metrics.{name}: {value!r} is negative"
        if abs(value) > LARGEST and name not in SIGNED:
            yield f"metrics.{name}: {value!r} is beyond any measurement"
        if name in FRACTIONS and value > 1 and not near(value, 1):
            yield f"metrics.{name}: {value!r} is more than 1"


@rule(
    "`throughput` = timed units / timed window; `throughput_per_device` = that / `accelerator.count`; "
    "`step_time_mean` = window / timed steps",
    "They are the same measurement in other words.",
    ROUNDING,
)
def throughput_follows_from_the_steps(facts: Facts) -> Iterator[str]:
    """Divide the units by the window again."""
    window, timed = facts.window, facts.timed_count
    expected: dict[str, float | None] = dict.fromkeys(("throughput", "throughput_per_device", "step_time_mean"))
    if timed > 0 and window is not None:
        expected["step_time_mean"] = window / timed
        if window:
            expected["throughput"] = rate = facts.timed_units / window
            devices = facts.document["accelerator"].get("count")
            expected["throughput_per_device"] = None if devices is None else rate / devices
    yield from unequal_metrics(facts, expected, "steps")


@rule(
    "`step_time_p50` to `p99` = those of `steps.quantiles`; none for requests, which overlap; from schema 1.2 on "
    "`step_time_p99` only of 100 timed steps or more",
    "As for throughput.",
)
def step_times_follow_from_the_steps(facts: Facts) -> Iterator[str]:
    """Compare percentiles with the quantiles of the steps."""
    quantiles = None if facts.has_requests else facts.steps["quantiles"]
    expected = {name: quantiles[share] if quantiles else None for name, share in STEP_TIMES.items()}
    if too_few_steps(facts.timed_count) and facts.document["schema_version"] not in OF_FEW_STEPS:
        expected["step_time_p99"] = None
    yield from unequal_metrics(facts, expected, "steps.quantiles")


@rule(
    "`step_time_mean` lies where `steps.quantiles` allow",
    "Above 1000 steps the quantiles are all that is left of them.",
    "twice the range of the steps / their number",
)
def mean_fits_the_quantiles(facts: Facts) -> Iterator[str]:
    """Bound the mean by the quantiles."""
    quantiles, mean = facts.steps["quantiles"], facts.metric("step_time_mean")
    if quantiles is None or mean is None or facts.timed is not None or facts.timed_count <= 0:
        return
    low, high = mean_bounds(quantiles, facts.timed_count)
    half = facts.timed_count // 2 - 1  # of the steps are as long as the median, beside the longest
    least = quantiles["p100"] + half * (quantiles["p50"] + quantiles["p0"])
    if mean * facts.timed_count < least and not near(mean * facts.timed_count, least):
        yield differ("steps.quantiles.p100", quantiles["p100"], mean * facts.timed_count, "a part of the timed window")
    first, warmup = facts.document["phases"]["warmup"]["seconds"], facts.untimed - 1
    if first is not None and first < HASTE * warmup * quantiles["p0"]:
        yield differ("phases.warmup.seconds", first, warmup * quantiles["p0"], "as many steps")
    if not (low <= mean <= high or near(mean, low) or near(mean, high)):
        yield f"metrics.step_time_mean: {mean!r} where steps.quantiles allow {low!r} to {high!r}"


@rule(
    "`data_wait_fraction` = waits of the timed steps / window",
    "A slow input explains a low number, or does not.",
    ROUNDING,
)
def waits_follow_from_the_steps(facts: Facts) -> Iterator[str]:
    """Add the waits up again."""
    waits, window = facts.steps["data_wait_seconds"], facts.window
    if waits is None or not window or facts.timed_count <= 0:
        return
    expected = sum(waits[facts.untimed :]) / window
    yield from unequal_metrics(facts, {"data_wait_fraction": expected}, "steps.data_wait_seconds")


@rule(
    "synthetic batches are not waited for, nor decoded; a run without workers waits as long as it decodes",
    "Data that are there already take no time.",
    "0.1 s + 5 % of the window; 1 % of the time of decoding",
)
def waits_fit_the_data(facts: Facts) -> Iterator[str]:
    """Compare waits and decoding with where the data come from."""
    given, window, wait = facts.configuration, facts.window, facts.metric("data_wait_fraction")
    rate = facts.metric("decode_rate")
    if given["data"] in ("synthetic", "csv") or given["concurrency"]:
        if rate is not None:
            yield differ("metrics.decode_rate", rate, None, "data that are not decoded in steps")
        if window and wait is not None and wait * window > KEPT + KEPT_SHARE * window:
            yield f"metrics.data_wait_fraction: {wait!r} for a batch that is kept"
    elif given["data_workers"] == 0 and facts.on_host and given["framework"] == "pytorch" and rate and window:
        seconds = facts.timed_units / rate
        waited = window if wait is None else wait * window
        if not DECODED[0] * waited <= seconds <= DECODED[1] * waited:
            yield f"metrics.decode_rate: {seconds!r} s of decoding where steps waited {waited!r} s for it"


@rule(
    "losses are not negative; a run on the host has one of each step, but for the last one that was not finite",
    "Cross-entropies and squared errors are sums of what is positive.",
    "0.01, for rounding in half precision",
)
def losses_are_possible(facts: Facts) -> Iterator[str]:
    """Check the losses of training."""
    losses = facts.steps["losses"]
    if facts.task != "training" or not losses:
        return
    numbers = [loss for loss in losses if loss is not None]
    if numbers and min(numbers) < LEAST_LOSS and card_of(facts) is not None:
        yield f"steps.losses: {min(numbers)!r} is negative"
    last = facts.state == "non_finite"
    if facts.on_host and len(numbers) < len(losses) - last:
        yield differ("steps.losses", len(numbers), len(losses) - last, "a loss of each step on the host")


@rule(
    "`achieved_flops` = `throughput` x `workload.flops.needed_per_unit`; `utilisation` = that / (`accelerator.peak` x "
    "`accelerator.count`), and `utilisation_of_measured_peak` that / (`configuration.measured_peak.flops` x the same); "
    "with `_full_attention` the same of `workload.flops.per_unit`, of which the needed ones are at least half; before "
    "schema 1.2 without it too; in FP8, which is a part of the operations, there is no utilisation; the measured peak "
    "is of `accelerator.name`",
    "Operations are not measured, but counted from the units.",
    ROUNDING,
)
def operations_follow_from_the_throughput(facts: Facts) -> Iterator[str]:
    """Multiply the throughput again, by each count of operations."""
    counts = facts.document["workload"]["flops"]
    needed, full = counts.get("needed_per_unit", counts["per_unit"]), counts["per_unit"]
    if not full <= NEEDED * needed <= NEEDED * full:
        yield differ("workload.flops.needed_per_unit", needed, full, "workload.flops.per_unit")
    yield from unequal_metrics(facts, rates_of_operations(facts, needed, ""), "throughput")
    if "needed_per_unit" in counts:
        of_full = rates_of_operations(facts, full, FULL_ATTENTION)
        yield from unequal_metrics(facts, of_full, "throughput")
        yield from (f"metrics.{name}: it is missing" for name in of_full if needed < full and name not in facts.metrics)
    measured, device = facts.configuration.get("measured_peak"), facts.document["accelerator"]
    if measured and facts.completed and measured["device"] != device.get("name"):
        yield differ("configuration.measured_peak.device", measured["device"], device.get("name"), "accelerator.name")


def rates_of_operations(facts: Facts, per_unit: int, suffix: str) -> dict[str, float | None]:
    """Return the metrics that follow from the throughput and the operations of a unit, by their names with a suffix."""
    throughput, device = rate_of_one_size(facts), facts.document["accelerator"]
    achieved = None if throughput is None or not per_unit else throughput * per_unit
    measured = facts.configuration.get("measured_peak") or {}  # schema 1.0 has none
    of_two_peaks = facts.configuration["precision"] == FP8
    peaks_of = {
        "utilisation": None if of_two_peaks else (device.get("peak") or {}).get("value"),
        "utilisation_of_measured_peak": measured.get("flops"),
    }
    shares = {
        f"{name}{suffix}": achieved / (peak * device["count"]) if achieved is not None and peak else None
        for name, peak in peaks_of.items()
    }
    return {f"achieved_flops{suffix}": achieved, **shares}


def rate_of_one_size(facts: Facts) -> float | None:
    """Return the throughput, but none of a micro-benchmark: before schema 1.2 it had rates of the mean of its sweep."""
    swept = facts.task == MICROBENCHMARK and facts.document["schema_version"] not in OF_A_SWEEP
    return None if swept else facts.metric("throughput")


@rule(
    "`throughput_bound` = the units of a step / the time that its operations take at `accelerator.peak` x "
    "`accelerator.count`, in FP8 those of other layers at the peak of bf16 in the table, or its least bytes at the "
    "memory's bandwidth if that is longer; `fraction_of_bound` = "
    "`throughput` / that",
    "They are the same measurement in other words. Operations and bytes of a step follow from the card.",
    ROUNDING,
)
def bound_follows_from_the_device(facts: Facts) -> Iterator[str]:
    """Compute the bound again, if this sifmark has the card."""
    highest, throughput = bound_of(facts, _roof_of(facts)), rate_of_one_size(facts)
    if card_of(facts) is None or facts.metric("throughput_bound") is None:
        return
    expected = None if highest is None else highest.throughput
    share = None if throughput is None or expected is None else throughput / expected
    yield from unequal_metrics(facts, {"throughput_bound": expected, "fraction_of_bound": share}, "the roofline")


@rule(
    "`throughput` is at most what the cited peak and memory bandwidth of the devices allow",
    "No device does more than its roofline: the peak is of the vendor, operations and least bytes of the card.",
    ROUNDING,
)
def throughput_is_possible(facts: Facts) -> Iterator[str]:
    """Compare the throughput with the bound, also where a result does not have it."""
    device, throughput = facts.document["accelerator"], facts.metric("throughput")
    if (device.get("peak") or {}).get("value") is None:  # a peak that was measured may be passed
        return
    if facts.document["provenance"]["simulated"]:  # a model of a device has another clock
        return
    highest = bound_of(facts, _roof_of(facts))
    if highest is None or throughput is None or throughput <= highest.throughput:
        return
    if not near(throughput, highest.throughput):
        yield (
            f"metrics.throughput: {throughput:.6g} {facts.unit}/s are impossible: {highest.limit} allow at most "
            f"{highest.throughput:.6g} on {device['count']} x {device.get('name')} in "
            f"{facts.configuration['precision']}"
        )


def bound_of(facts: Facts, roof: Roof | None) -> Bound | None:
    """Return the bound of a result's throughput; None without its card, operations or devices."""
    card, count = card_of(facts), facts.document["accelerator"].get("count")
    if card is None or roof is None or not count or facts.task not in card.tasks:
        return None
    work = work_of_step(card, facts.task, facts.configuration)
    return None if work is None else bound(work, roof, count)


def _roof_of(facts: Facts) -> Roof | None:
    """Return what the device of a result can do, by the numbers in it; memory is that of the table in older ones."""
    device, measured = facts.document["accelerator"], facts.configuration.get("measured_peak")
    peak = (device.get("peak") or {}).get("value")
    if peak is None:
        return Roof(measured["flops"]) if measured else None
    cited = peaks.memory(device_named(device))
    given = device.get("memory_bandwidth")
    memory = (given["value"] if given else cited.bandwidth, cited.cache)
    if facts.configuration["precision"] != FP8:
        return Roof(peak, *memory)
    beside = peaks.of_device(device_named(device), peaks.BESIDE_FP8).flops
    return None if beside is None else Roof(beside, *memory, peak)


@rule(
    "`time_to_first_step` = phases import, data, model and compile; `training_time` = all steps; a part of them is no "
    "longer, nor are they longer than their phases",
    "They are the same measurement in other words.",
    f"{ROUNDING}; 0.1 s of each phase + 1 %",
)
def times_follow_from_phases_and_steps(facts: Facts) -> Iterator[str]:
    """Add phases and steps up again."""
    spans = [facts.document["phases"][name]["seconds"] for name in ("import", "data", "model", "compile")]
    first = None if None in spans else sum(spans)
    yield from unequal_metrics(facts, {"time_to_first_step": first}, "phases")
    given = facts.metric("training_time")
    if facts.task != "training" or not facts.count:
        if given is not None:
            yield differ("metrics.training_time", given, None, "a run without a training step")
    elif facts.seconds is not None:
        yield from unequal_metrics(facts, {"training_time": math.fsum(facts.seconds)}, "steps.seconds")
    elif given is None or (facts.window is not None and given < facts.window and not near(given, facts.window)):
        yield differ("metrics.training_time", given, facts.window, "at least the timed window")
    elif facts.completed:
        phases = sum(facts.document["phases"][name]["seconds"] for name in OF_STEPS)
        if given - phases > len(OF_STEPS) * EARLY + EARLY_SHARE * given:
            yield differ("metrics.training_time", given, phases, "at most the phases of the steps")


@rule(
    "tokens of the timed window, and positions with their padding, are whole numbers, as many positions in each unit",
    "Tokens are counted.",
    "1e-3 + 1e-9 of the count",
)
def tokens_are_counted(facts: Facts) -> Iterator[str]:
    """Compute the tokens from their rate."""
    rate, padding, window = facts.metric("token_throughput"), facts.metric("padding_fraction"), facts.window
    if rate is None or not window:
        return
    tokens = rate * window
    if not is_whole(tokens):
        yield f"metrics.token_throughput: {tokens!r} tokens in the timed window are no whole number"
    if padding is None or padding >= 1 or facts.timed_units <= 0:
        yield "metrics.padding_fraction: tokens have one, under 1"
    elif not is_whole(tokens / (1 - padding)) or not is_whole(tokens / (1 - padding) / facts.timed_units):
        yield f"metrics.padding_fraction: {padding!r} leaves no whole number of positions in each unit"


@rule(
    "`acceptance_rate` x timed samples is a whole number; `effective_sample_throughput` takes no longer than the "
    "timed window",
    "Accepted proposals are counted.",
    "1e-3 + 1e-9 of the count",
)
def chains_are_counted(facts: Facts) -> Iterator[str]:
    """Compute what was accepted from its rate."""
    accepted, window = facts.metric("acceptance_rate"), facts.window
    if accepted is not None and not is_whole(accepted * facts.timed_units):
        yield f"metrics.acceptance_rate: {accepted * facts.timed_units!r} accepted proposals are no whole number"
    size, rate = facts.metric("effective_sample_size"), facts.metric("effective_sample_throughput")
    if size is not None and rate and window is not None:
        seconds = size / rate
        if seconds > window and not near(seconds, window):
            yield differ("metrics.effective_sample_throughput", seconds, window, "at most the timed window")


@rule(
    "of texts that were generated, `token_throughput` = timed units x the card's new tokens / window, and the time of "
    "prompts and of the other tokens lies in the window",
    "The card says how many tokens a text has.",
    ROUNDING,
)
def generation_fits_the_window(facts: Facts) -> Iterator[str]:
    """Compute the seconds of prompts and new tokens from their rates."""
    card, window = card_of(facts), facts.window
    if card is None or not generates(card.problem, facts.task) or not window:
        return
    prompt, new = card.problem["generation"]["prompt"], card.problem["generation"]["new"]
    yield from unequal_metrics(facts, {"token_throughput": facts.timed_units * new / window}, "the card's new tokens")
    prefill, decode = facts.metric("prefill_throughput"), facts.metric("decode_throughput")
    if prefill and decode:
        seconds = facts.timed_units * (prompt / prefill + (new - 1) / decode)
        if seconds > window and not near(seconds, window):
            yield differ("metrics.decode_throughput", seconds, window, "at most the timed window")


@rule(
    "`decode_rate_of_all_workers` = `decode_rate` x `configuration.data_workers`, at least 1",
    "It is the rate of one worker for all of them.",
    ROUNDING,
)
def decoding_is_that_of_all_workers(facts: Facts) -> Iterator[str]:
    """Multiply the rate of a worker again."""
    rate, workers = facts.metric("decode_rate"), facts.configuration["data_workers"] or 1
    yield from unequal_metrics(
        facts, {"decode_rate_of_all_workers": None if rate is None else rate * workers}, "decode_rate"
    )
