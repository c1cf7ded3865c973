"""Metrics: every public function here is one, under its own name.

Each is a pure function of a Measurement; a number that cannot be determined is None, with a reason.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from entrypoints.contract.messages import LEAST_DRAWS, Diagnosed, Generated, Request
from entrypoints.results import peaks
from entrypoints.results.measurement import NO_STEP, Measurement
from entrypoints.results.points import timed_points
from entrypoints.results.power import loads
from entrypoints.results.quantiles import quantile
from entrypoints.results.roofline import Roof, bound

NOT_SAMPLED = "no samples were drawn"
NO_TIME = "the timed window is shorter than the resolution of the clock"
IN_REQUESTS = "making its input is part of a request: see latency_preprocessing_mean"
NOT_GENERATED = "no text was generated"
LEAST = {0.5: 11, 0.9: 64, 0.95: 130, 0.99: 662, 1.0: 1}  # times that a percentile needs
NOT_WATCHED = "no meter reads the clocks and buses of the devices"
NO_REQUESTS = "no requests were made (--concurrency)"


class Metric(NamedTuple):
    """A number and its unit, or the reason why there is none."""

    value: float | None
    unit: str
    reason: str | None = None


def throughput(measurement: Measurement) -> Metric:
    """Units over the timed window, waits for data included."""
    unit, why = f"{measurement.unit}/s", _no_window(measurement)
    return Metric(None, unit, why) if why else Metric(_units(measurement) / measurement.window, unit)


def token_throughput(measurement: Measurement) -> Metric:
    """Tokens over the timed window, padding not counted."""
    if why := _no_window(measurement) or _no_tokens(measurement):
        return Metric(None, "tokens/s", why)
    return Metric(_tokens(measurement) / measurement.window, "tokens/s")


def prefill_throughput(measurement: Measurement) -> Metric:
    """Tokens of prompts over the seconds in which they were processed, up to the first new token."""
    generated = _generated(measurement)
    seconds = math.fsum(texts.first for texts in generated)
    if not seconds:
        return Metric(None, "tokens/s", NOT_GENERATED)
    return Metric(sum(texts.prompt_tokens for texts in generated) / seconds, "tokens/s")


def decode_throughput(measurement: Measurement) -> Metric:
    """New tokens except the first of each text, over the seconds in which they were generated."""
    others = [(step.units, step.generated.others) for step in measurement.timed_steps if step.generated]
    seconds = math.fsum(second for _, times in others for second in times)
    if not seconds:
        return Metric(None, "tokens/s", NOT_GENERATED)
    return Metric(sum(texts * len(times) for texts, times in others) / seconds, "tokens/s")


def time_to_first_token_p50(measurement: Measurement) -> Metric:
    """Median over batches of texts, from the prompts on the host."""
    return _first_token(measurement, 0.50)


def time_to_first_token_p99(measurement: Measurement) -> Metric:
    """Time within which 99 % of the batches of texts had their first token."""
    return _first_token(measurement, 0.99)


def time_between_tokens_p50(measurement: Measurement) -> Metric:
    """Median from one new token to the next."""
    return _between_tokens(measurement, 0.50)


def time_between_tokens_p90(measurement: Measurement) -> Metric:
    """Time within which nine of ten new tokens came."""
    return _between_tokens(measurement, 0.90)


def time_between_tokens_p99(measurement: Measurement) -> Metric:
    """Time within which 99 % of the new tokens came."""
    return _between_tokens(measurement, 0.99)


def padding_fraction(measurement: Measurement) -> Metric:
    """Fraction of the positions of all samples that held padding: computed for nothing."""
    if why := _no_tokens(measurement):
        return Metric(None, "1", why)
    padding = sum(step.padding or 0 for step in measurement.timed_steps)
    return Metric(padding / (padding + _tokens(measurement)), "1")


def throughput_per_device(measurement: Measurement) -> Metric:
    """Throughput over the number of devices in use, each of the accelerator's granularity."""
    rate = throughput(measurement)
    if rate.value is None or measurement.device is None:
        return Metric(None, rate.unit, rate.reason or "the session did not say how many devices it has")
    return Metric(rate.value / measurement.device.devices, rate.unit)


def step_time_mean(measurement: Measurement) -> Metric:
    """The timed window over its steps."""
    count = len(measurement.timed_steps)
    return Metric(measurement.window / count, "s") if count else Metric(None, "s", NO_STEP)


def step_time_p50(measurement: Measurement) -> Metric:
    """Median of the timed steps."""
    return _step_time(measurement, 0.50)


def step_time_p90(measurement: Measurement) -> Metric:
    """Time within which nine of ten timed steps finished."""
    return _step_time(measurement, 0.90)


def step_time_p95(measurement: Measurement) -> Metric:
    """Time within which 95 % of the timed steps finished."""
    return _step_time(measurement, 0.95)


def step_time_p99(measurement: Measurement) -> Metric:
    """Time within which 99 % of the timed steps finished."""
    return _step_time(measurement, 0.99)


def latency_mean(measurement: Measurement) -> Metric:
    """Mean time of a request, from its raw input on the host to its output there."""
    return _request_mean(measurement, lambda request: request.latency)


def latency_p50(measurement: Measurement) -> Metric:
    """Time within which half of the requests were answered."""
    return _latency(measurement, 0.50)


def latency_p90(measurement: Measurement) -> Metric:
    """Time within which nine of ten requests were answered."""
    return _latency(measurement, 0.90)


def latency_p95(measurement: Measurement) -> Metric:
    """Time within which 95 % of the requests were answered."""
    return _latency(measurement, 0.95)


def latency_p99(measurement: Measurement) -> Metric:
    """Time within which 99 % of the requests were answered."""
    return _latency(measurement, 0.99)


def latency_max(measurement: Measurement) -> Metric:
    """Latency of the slowest request."""
    return _latency(measurement, 1.0)


def latency_preprocessing_mean(measurement: Measurement) -> Metric:
    """Part of the mean latency in which the input was prepared."""
    return _request_mean(measurement, lambda request: request.preprocessing)


def latency_transfer_mean(measurement: Measurement) -> Metric:
    """Part of the mean latency in which the input went to the device."""
    return _request_mean(measurement, lambda request: request.transfer)


def latency_compute_mean(measurement: Measurement) -> Metric:
    """Part of the mean latency in which the device computed."""
    return _request_mean(measurement, lambda request: request.compute)


def latency_retrieval_mean(measurement: Measurement) -> Metric:
    """Part of the mean latency in which the output came back."""
    return _request_mean(measurement, lambda request: request.retrieval)


def latency_other_mean(measurement: Measurement) -> Metric:
    """The rest of the mean latency: waiting for other streams and for the interpreter."""
    return _request_mean(measurement, lambda request: request.other)


def acceptance_rate(measurement: Measurement) -> Metric:
    """Fraction of the timed transitions of Markov chains whose proposal was accepted."""
    steps = [step for step in measurement.timed_steps if step.accepted is not None]
    if not steps:
        return Metric(None, "1", NOT_SAMPLED)
    return Metric(sum(step.accepted or 0 for step in steps) / sum(step.units for step in steps), "1")


def effective_sample_size(measurement: Measurement) -> Metric:
    """Bulk effective sample size of the timed draws of all chains together: the smallest of any parameter."""
    return _diagnosed(
        measurement,
        "samples",
        lambda diagnosed: diagnosed.effective,
        f"draw {LEAST_DRAWS} timed samples of a chain that moves",
    )


def effective_sample_throughput(measurement: Measurement) -> Metric:
    """The smallest bulk effective sample size over the seconds in which its draws were made."""
    size = effective_sample_size(measurement)
    if size.value is None or measurement.diagnosed is None:
        return Metric(None, "samples/s", size.reason)
    if not measurement.diagnosed.seconds:
        return Metric(None, "samples/s", NO_TIME)
    return Metric(size.value / measurement.diagnosed.seconds, "samples/s")


def r_hat(measurement: Measurement) -> Metric:
    """Rank-normalised split R-hat of the timed draws: the largest of any parameter. Close to 1 if chains agree."""
    return _diagnosed(
        measurement, "1", lambda diagnosed: diagnosed.r_hat, f"draw {LEAST_DRAWS} timed samples of 2 chains that move"
    )


def data_wait_fraction(measurement: Measurement) -> Metric:
    """Fraction of the timed window that was spent waiting for data."""
    if why := _no_window(measurement):
        return Metric(None, "1", why)
    if measurement.timed_requests:
        return Metric(None, "1", IN_REQUESTS)
    return Metric(sum(step.wait for step in measurement.timed_steps) / measurement.window, "1")


def decode_rate(measurement: Measurement) -> Metric:
    """Units over the seconds in which they were decoded and augmented, or read as prepared text, summed over all
    workers: the rate of one worker."""
    return _decoded(measurement, workers=1)


def decode_rate_of_all_workers(measurement: Measurement) -> Metric:
    """The rate of one worker times their number: their joint rate as long as none has to wait."""
    return _decoded(measurement, workers=(measurement.data and measurement.data.workers) or 1)


def time_to_first_step(measurement: Measurement) -> Metric:
    """From the start of the import to the end of the first step."""
    spans = [measurement.phases.get(name) for name in ("import", "data", "model", "compile")]
    if None in spans:
        return Metric(None, "s", "the first step was not finished")
    return Metric(sum(span for span in spans if span is not None), "s")


def training_time(measurement: Measurement) -> Metric:
    """From the start of the first step to the end of the last one, with compilation and warm-up."""
    if measurement.task != "training":
        return Metric(None, "s", f"{measurement.task} trains nothing")
    if not measurement.steps:
        return Metric(None, "s", "no step was finished")
    return Metric(math.fsum(step.seconds for step in measurement.steps), "s")


def epoch_time(measurement: Measurement) -> Metric:
    """Mean over the finished epochs except the first, which contains compilation and warm-up."""
    reason = _no_later_epoch(measurement)
    if reason:
        return Metric(None, "s", reason)
    later = measurement.epochs[1:]
    return Metric(math.fsum(step.seconds for epoch in later for step in epoch.steps) / len(later), "s")


def time_to_target(measurement: Measurement) -> Metric:
    """Training time until the evaluation that reached the target, without evaluations."""
    if measurement.target is None:
        return Metric(None, "s", "no target was set (--target-accuracy, --target-loss)")
    evaluation = measurement.reaching
    if evaluation is None:
        return Metric(None, "s", f"the target was not reached in {len(measurement.steps)} steps")
    return Metric(math.fsum(step.seconds for step in measurement.steps[: evaluation.steps]), "s")


def evaluation_time(measurement: Measurement) -> Metric:
    """Time of all evaluations together, which is in no other time."""
    if not measurement.evaluations:
        return Metric(None, "s", "nothing was evaluated")
    return Metric(math.fsum(evaluation.ended - evaluation.began for evaluation in measurement.evaluations), "s")


def final_loss(measurement: Measurement) -> Metric:
    """The last finite loss that was read."""
    if measurement.task != "training":
        return Metric(None, "1", f"{measurement.task} has no loss")
    losses = [step.loss for step in measurement.steps if step.loss is not None and math.isfinite(step.loss)]
    return Metric(losses[-1], "1") if losses else Metric(None, "1", "no finite loss was read")


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
    if why := _no_window(measurement):
        return Metric(None, "1", why)
    limited = _of_loads(measurement, "1", lambda load: load["limited"], max)
    return limited if limited.value is None else limited._replace(value=min(1.0, limited.value / measurement.window))


def core_clock(measurement: Measurement) -> Metric:
    """Median clock of the cores in the timed window, of the device for which it is lowest."""
    return _of_loads(measurement, "MHz", lambda load: load["clock"]["median"], min)


def achieved_flops(measurement: Measurement) -> Metric:
    """Operations that the model needs for the units of the timed window, over its length.

    What a device computes beyond that, such as recomputed activations, does not count.
    """
    if why := _no_window(measurement):
        return Metric(None, "FLOP/s", why)
    if not measurement.flops_per_unit:
        return Metric(None, "FLOP/s", "the operations of this workload were not counted")
    return Metric(_units(measurement) * measurement.flops_per_unit / measurement.window, "FLOP/s")


def utilisation(measurement: Measurement) -> Metric:
    """Achieved operations over the peak of all devices in use in this precision."""
    achieved = achieved_flops(measurement)
    if achieved.value is None or measurement.device is None:
        return Metric(None, "1", achieved.reason or "the device is not known")
    peak = peaks.of_device(measurement.device, measurement.precision)
    if peak.flops is None:
        return Metric(None, "1", peak.reason)
    return Metric(achieved.value / (peak.flops * measurement.device.devices), "1")


def throughput_bound(measurement: Measurement) -> Metric:
    """Highest throughput that the devices' peak, or --measured-peak, and the bandwidth of their memory allow."""
    unit, device, work = f"{measurement.unit}/s", measurement.device, measurement.work
    if work is None:
        return Metric(None, unit, "the operations of this workload were not counted")
    if device is None:
        return Metric(None, unit, "the device is not known")
    roof = peaks.roof(device, measurement.precision)
    if roof is None and measurement.measured_peak:
        roof = Roof(measurement.measured_peak["flops"])
    if roof is None:
        return Metric(None, unit, peaks.of_device(device, measurement.precision).reason)
    return Metric(bound(work, roof, device.devices).throughput, unit)


def fraction_of_bound(measurement: Measurement) -> Metric:
    """Throughput over its bound."""
    rate, highest = throughput(measurement), throughput_bound(measurement)
    if rate.value is None or highest.value is None:
        return Metric(None, "1", rate.reason or highest.reason)
    return Metric(rate.value / highest.value, "1")


def rank_spread(measurement: Measurement) -> Metric:
    """Longest timed window of a rank less the shortest, over their mean: how unevenly the ranks waited."""
    windows = [rank.window for rank in measurement.ranks]
    if not windows or not min(windows):
        return Metric(None, "1", NO_STEP)
    return Metric((max(windows) - min(windows)) * len(windows) / math.fsum(windows), "1")


def rank_epoch_time_mean(measurement: Measurement) -> Metric:
    """Mean over ranks of their epoch times, as Lazauskas and Llewellyn-Jones report it (Turing, 2024)."""
    times = [epoch_time(rank) for rank in measurement.ranks]
    without = next((time for time in times if time.value is None), None)
    if without or not times:
        return without or Metric(None, "s", NO_STEP)
    return Metric(math.fsum(time.value or 0.0 for time in times) / len(times), "s")


def utilisation_of_measured_peak(measurement: Measurement) -> Metric:
    """Achieved operations over those that matmul achieved on all devices in use, in this precision."""
    achieved, peak = achieved_flops(measurement), measurement.measured_peak
    if peak is None:
        return Metric(None, "1", "no measured peak was given (--measured-peak)")
    if achieved.value is None or measurement.device is None:
        return Metric(None, "1", achieved.reason or "the device is not known")
    return Metric(achieved.value / (peak["flops"] * measurement.device.devices), "1")


def peak_bandwidth(measurement: Measurement) -> Metric:
    """The largest bus bandwidth of any point of a micro-benchmark."""
    rates = [timed.bus_bandwidth for timed in timed_points(measurement)]
    return _largest_rate(rates, "GB/s", "matmul has operations in its place: see peak_flops")


def peak_flops(measurement: Measurement) -> Metric:
    """The most operations per second at any size of matrices."""
    return _largest_rate(
        [timed.flops for timed in timed_points(measurement)], "FLOP/s", "only matmul counts operations"
    )


def small_message_latency(measurement: Measurement) -> Metric:
    """Median over timed sweeps of the time of a call at the smallest size of a micro-benchmark."""
    smallest = min(timed_points(measurement), key=lambda timed: timed.point.work, default=None)
    value = smallest and smallest.typical
    return Metric(value, "s", None if value else NO_STEP)


def energy(measurement: Measurement) -> Metric:
    """Energy of all the meter's devices over the timed window."""
    return _from_energy(measurement, "J", lambda joules: joules)


def energy_per_unit(measurement: Measurement) -> Metric:
    """Energy over the units of the timed window."""
    return _from_energy(measurement, f"J/{measurement.unit}", lambda joules: joules / _units(measurement))


def energy_per_device(measurement: Measurement) -> Metric:
    """Mean energy of the meter's devices, each of the meter's scope, over the timed window."""
    devices = measurement.metered_devices
    return _from_energy(measurement, "J", lambda joules: joules / devices)


def units_per_watt_hour(measurement: Measurement) -> Metric:
    """Units of the timed window over its energy in Wh."""
    return _from_energy(measurement, f"{measurement.unit}/Wh", lambda joules: _units(measurement) / (joules / 3600))


def tokens_per_watt_hour(measurement: Measurement) -> Metric:
    """Tokens over the energy of the timed window, padding not counted."""
    if why := _no_tokens(measurement):
        return Metric(None, "tokens/Wh", why)
    return _from_energy(measurement, "tokens/Wh", lambda joules: _tokens(measurement) / (joules / 3600))


def decode_tokens_per_watt_hour(measurement: Measurement) -> Metric:
    """New tokens except the first of each text, over the energy while they were generated: without that of prompts."""
    others = sum(step.units * len(step.generated.others) for step in measurement.timed_steps if step.generated)
    if not others:
        return Metric(None, "tokens/Wh", NOT_GENERATED)
    joules, reason = measurement.decode_energy
    return Metric(None, "tokens/Wh", reason) if joules is None else Metric(others / (joules / 3600), "tokens/Wh")


def throughput_per_watt(measurement: Measurement) -> Metric:
    """Throughput over mean power, both over the timed window: so units over joules."""
    return _from_energy(measurement, f"{measurement.unit}/s/W", lambda joules: _units(measurement) / joules)


def power_mean(measurement: Measurement) -> Metric:
    """Energy over the length of the timed window."""
    return _from_energy(measurement, "W", lambda joules: joules / measurement.window)


def energy_per_epoch(measurement: Measurement) -> Metric:
    """Mean over the finished epochs except the first, which contains compilation and warm-up."""
    reason = _no_later_epoch(measurement)
    if reason:
        return Metric(None, "J", reason)
    energies = measurement.epoch_energies[1:]
    reason = next((reason for joules, reason in energies if joules is None), None)
    return Metric(None if reason else math.fsum(joules or 0.0 for joules, _ in energies) / len(energies), "J", reason)


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


def _largest_rate(rates: Sequence[float | None], unit: str, absent: str) -> Metric:
    values = [rate for rate in rates if rate is not None]
    return Metric(max(values), unit) if values else Metric(None, unit, f"no sweep was finished, or {absent}")


def _decoded(measurement: Measurement, workers: int) -> Metric:
    unit, steps = f"{measurement.unit}/s", measurement.timed_steps
    if not steps:
        return Metric(None, unit, NO_STEP)
    if measurement.timed_requests:
        return Metric(None, unit, IN_REQUESTS)
    seconds = math.fsum(step.decode_seconds or 0.0 for step in steps)
    if not seconds:
        return Metric(None, unit, "nothing was decoded")
    return Metric(workers * _units(measurement) / seconds, unit)


def _no_later_epoch(measurement: Measurement) -> str | None:
    """Return why there is no epoch after the first; None if there is one."""
    if not measurement.steps_per_epoch:
        return "an epoch is not defined: synthetic data have no end (--samples-per-epoch)"
    if not measurement.epochs[1:]:
        return "no epoch after the first, which contains compilation, was finished"
    return None


def _no_window(measurement: Measurement) -> str | None:
    """Return why there is no time to divide by, if so: requests that finish together may leave a window of length 0."""
    return (None if measurement.window else NO_TIME) if measurement.timed_steps else NO_STEP


def _from_energy(measurement: Measurement, unit: str, value_of: Callable[[float], float]) -> Metric:
    if not measurement.timed_steps:
        return Metric(None, unit, NO_STEP)
    joules, reason = measurement.timed_energy
    return Metric(None, unit, reason) if joules is None else Metric(value_of(joules), unit)


def _used(mib: float | str) -> Metric:
    return Metric(None, "MiB", mib) if isinstance(mib, str) else Metric(mib, "MiB")


def _generated(measurement: Measurement) -> list[Generated]:
    return [step.generated for step in measurement.timed_steps if step.generated]


def _first_token(measurement: Measurement, share: float) -> Metric:
    times = [generated.first for generated in _generated(measurement)]
    return _percentile(times, share, "batches of texts") if times else Metric(None, "s", NOT_GENERATED)


def _between_tokens(measurement: Measurement, share: float) -> Metric:
    times = [second for generated in _generated(measurement) for second in generated.others]
    return _percentile(times, share, "new tokens") if times else Metric(None, "s", NOT_GENERATED)


def _tokens(measurement: Measurement) -> int:
    return sum(step.tokens or 0 for step in measurement.timed_steps)


def _no_tokens(measurement: Measurement) -> str | None:
    """Return why tokens cannot be counted; None if they can."""
    steps = measurement.timed_steps
    if not steps:
        return NO_STEP
    return None if all(step.tokens is not None for step in steps) else f"{measurement.unit} have no tokens"


def _diagnosed(
    measurement: Measurement, unit: str, value_of: Callable[[Diagnosed], float | None], remedy: str
) -> Metric:
    diagnosed = measurement.diagnosed
    if diagnosed is None:
        sampled = any(step.accepted is not None for step in measurement.steps)
        return Metric(None, unit, "the chains were not judged, since the run was cut short" if sampled else NOT_SAMPLED)
    value = value_of(diagnosed)
    if value is None and diagnosed.draws < min(LEAST_DRAWS, len(measurement.timed_steps)):
        remedy = f"memory was kept for {diagnosed.draws} draws of so many chains; take fewer (--batch-size)"
    return Metric(value, unit, None if value is not None else f"too little to judge: {remedy}")


def _units(measurement: Measurement) -> int:
    return sum(step.units for step in measurement.timed_steps)


def _step_time(measurement: Measurement, share: float) -> Metric:
    if not measurement.timed_steps:
        return Metric(None, "s", NO_STEP)
    if measurement.timed_requests:
        return Metric(None, "s", "requests of several streams overlap: see the percentiles of latency")
    return Metric(quantile([step.seconds for step in measurement.timed_steps], share), "s")


def _request_mean(measurement: Measurement, value_of: Callable[[Request], float]) -> Metric:
    requests = measurement.timed_requests
    if not requests:
        return Metric(None, "s", _no_requests(measurement))
    return Metric(math.fsum(map(value_of, requests)) / len(requests), "s")


def _latency(measurement: Measurement, share: float) -> Metric:
    times = [request.latency for request in measurement.timed_requests]
    return _percentile(times, share, "requests") if times else Metric(None, "s", _no_requests(measurement))


def _percentile(times: Sequence[float], share: float, what: str) -> Metric:
    """Return a percentile, if there are as many times as MLPerf Inference requires to stop early.

    From `LEAST` on, the second slowest is slower than the true percentile in 99 of 100 runs (inference_rules, "early
    stopping"). With fewer, a percentile is little more than the slowest of a few.
    """
    if len(times) < LEAST[share]:
        reason = f"{len(times)} timed {what}, and this needs {LEAST[share]}"
        return Metric(None, "s", f"{reason}: ask for more --steps or a longer --duration")
    return Metric(quantile(times, share), "s")


def _no_requests(measurement: Measurement) -> str:
    return NO_REQUESTS if measurement.timed_steps else NO_STEP
