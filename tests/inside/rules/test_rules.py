"""Rules of results: genuine ones keep them all, and forged ones break one by name.

The genuine results are of the real parent on a double of a device, one for each kind of run.
"""

from __future__ import annotations

import copy
import fcntl
import importlib
import json
import math
import os
import re
import sys
import tracemalloc
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from program import FEW, Program, lay_double

from entrypoints.contract.float8 import OUTPUTS, relative
from entrypoints.contract.statuses import UsageError
from entrypoints.metering import names as meters
from entrypoints.results import copies
from entrypoints.results.points import RATES
from entrypoints.results.result import timestamp
from entrypoints.rules import energy, memory
from entrypoints.rules.check import MOST, violations
from entrypoints.rules.correctness import reference_of
from entrypoints.rules.facts import near
from entrypoints.rules.rule import RULES, Rule

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "h200"
SHORT = ("--warmup-steps", "2", "--batch-size", "3")
METERED = ("--meter", "double", "--meter-period", "0.01", "--idle-seconds", "0.3")
RUNS = {
    "training": ("resnet50", "--steps", "60", *SHORT, *METERED),
    "epochs": ("resnet50", "--epochs", "4", "--samples-per-epoch", "31", *SHORT, *METERED),
    "target": ("resnet50", "--steps", "50", "--target-loss", "0.05", "--evaluation-steps", "10", *SHORT),
    "tokens": ("bert_base", "--steps", "8", *SHORT),
    "requests": ("resnet50", "--task", "inference", "--concurrency", "3", "--steps", "80", "--warmup-steps", "6"),
    "chains": ("mcmc", "--steps", "8", *SHORT),
    "generation": ("gpt2", "--task", "inference", "--steps", "4", *SHORT),
    "many": ("image_compression", "--steps", "1100", *SHORT),
    "search": ("resnet50", "--find-max-batch", "--batch-size", "4", "--steps", "4", "--warmup-steps", "1"),
    "crashed": ("resnet50", "--steps", "60", *SHORT),
    "no_device": ("resnet50", "--steps", "60", *SHORT),
    "ranks": (
        "resnet50",
        "--replicas",
        "2",
        "--epochs",
        "4",
        "--samples-per-epoch",
        "40",
        "--batch-size",
        "4",
        *METERED,
    ),
    "late": ("resnet50", "--steps", "8", "--target-loss", "0.05", "--evaluation-steps", "100", *SHORT),
    "mismatch": ("bert_base", "--steps", "8", *SHORT),
}
FAULTS = {
    "search": "capacity:8",
    "crashed": "raise",
    "no_device": "no_device",
    "late": "evaluation",
    "mismatch": "gradients",
}
STATES = {
    "crashed": "crashed",
    "no_device": "no_device",
    "late": "out_of_memory",
    "mismatch": "numerics_mismatch",
}
HASTE = {"many": "0.0005"}  # seconds of a step


@pytest.fixture(scope="module")
def genuine(tmp_path_factory):
    """Results by kind of run, measured once for all processes of these tests."""
    with_others = "PYTEST_XDIST_WORKER" in os.environ
    folder = tmp_path_factory.getbasetemp().parent if with_others else tmp_path_factory.mktemp("genuine")
    with (folder / "genuine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = folder / "genuine.json"
        if not kept.exists():
            kept.write_text(json.dumps(measured(tmp_path_factory)))
        return json.loads(kept.read_text())


def measured(tmp_path_factory):
    tree = lay_double(tmp_path_factory.mktemp("image") / "sifmark", workloads=FEW)
    double = Program(tree, tmp_path_factory.mktemp("folder"))
    speed = {name: {"DOUBLE_STEP_SECONDS": HASTE[name]} if name in HASTE else {} for name in RUNS}
    results = {name: double.result(*words, fault=FAULTS.get(name, ""), **speed[name]) for name, words in RUNS.items()}
    for _ in range(2):  # a host that stops for a moment reads too little power
        if not is_metered(results["training"]):
            results["training"] = double.result(*RUNS["training"])
    return {**results, "cpu": as_on_a_cpu(results["training"])}


def is_metered(document):
    measured = document["metrics"]["energy"], *document["power"]["idle"].values()
    return all(quantity["value"] is not None for quantity in measured)


def as_on_a_cpu(document):
    """A copy of a double's result that says what one of a CPU without an image does, but for its simulated meter."""
    copied = copy.deepcopy(document)
    host, provenance = copied["host"], copied["provenance"]
    copied["accelerator"].update(kind="cpu", granularity="node", execution="eager, channels_last")
    copied["accelerator"].update(memory_mib=host["memory"]["value"], name=host["cpu_model"]["value"] or "")
    host["cpu_model"] = {"value": copied["accelerator"]["name"]}
    del copied["accelerator"]["vendor"]  # the double's
    copied["configuration"].update(framework="pytorch", device="cpu")
    copied["device_conditions"] = copied["device_conditions_after"] = {"reason": "the host is the device"}
    copied["metrics"]["peak_process_memory"]["value"] += 100.0
    for name in memory.COUNTED:
        copied["metrics"][name] = {"value": None, "unit": "MiB", "reason": "not counted"}
    provenance.update(image=None, reason="no image", stand_in=False)
    provenance["software"].update(framework="pytorch", framework_version="2.6.0+cpu")
    return copied


def put(document, path, change):
    """A copy in which the value at a dotted path is changed, by a function or to another value."""
    forged = copy.deepcopy(document)
    *parents, last = (int(key) if key.lstrip("-").isdigit() else key for key in path.split("."))
    part = forged
    for key in parents:
        part = part[key]
    part[last] = change(part[last]) if callable(change) else change
    return forged


def codes(document):
    return {text.rpartition("[")[2].rstrip("]") for text in violations(document)}


def test_clients_without_a_processor_send_nothing(genuine):
    """Seen on a host with a load of 15 on two processors: threads waited 96 % of their time."""
    document = put(genuine["requests"], "configuration.concurrency", 30)
    idle, starved = (put(document, "conditions_after.run_delay", {"value": each, "unit": "%"}) for each in (0.0, 99.9))
    rule = "clients-wait-for-their-answers"
    assert rule in codes(idle) and rule not in codes(starved)


def test_a_result_of_a_cpu_keeps_every_rule(genuine):
    assert violations(genuine["cpu"]) == []


@pytest.mark.parametrize("name", RUNS)
def test_a_genuine_result_keeps_every_rule(genuine, name):
    assert violations(genuine[name]) == []
    assert genuine[name]["status"]["state"] == STATES.get(name, "completed"), genuine[name]["status"]


def test_a_result_has_what_its_devices_did_in_the_window(genuine):
    document = genuine["training"]
    loads = [device["load"] for device in document["power"]["devices"]]
    assert [load["clock"]["median"]["value"] for load in loads] == [1500.0, 1400.0]
    assert [limit["name"] for limit in loads[1]["limits"]] == ["heat"] and loads[1]["limited"]["value"] > 0
    assert document["metrics"]["core_clock"]["value"] == 1400.0
    assert document["metrics"]["peak_allocated_memory_of_window"]["value"] == 4.0, "the session knew both edges"
    assert 0 < loads[0]["received"]["value"] < loads[0]["traffic"]["value"]


def test_a_run_that_fails_after_its_window_has_measured_it(genuine):
    """Its last evaluation ran out of memory."""
    document = genuine["late"]
    assert document["status"]["phase"] == "steady" and document["phases"]["steady"]["seconds"] > 0
    assert document["steps"]["count"] == 8 and document["conditions_after"]["run_delay"]["value"] is not None


def test_a_rule_has_a_formula_a_tolerance_and_a_reason():
    assert len(RULES) > 40
    assert all(rule.formula and rule.tolerance and rule.reason for rule in RULES.values())


def tenfold(value):
    return 10 * value


def one_more(value):
    return value + 1


def double_list(values):
    return [2 * value for value in values]


def double_list_of_checks(checks):
    return 2 * checks


def with_samples(count):
    return lambda evaluations: [{**each, "samples": count} for each in evaluations]


def with_words(*words):
    return lambda command: [*command, *words]


def without(name):
    return lambda parts: {key: value for key, value in parts.items() if key != name}


COUNTED = {"graphs": 1, "recompilations": 0, "cuda_graphs": None, "cuda_graphs_skipped": None, "cache": "cold"}
FORGERIES: list[tuple[str, str, object, str]] = [
    # The numbers of the steps.
    ("training", "steps.seconds", lambda values: values[:-1], "steps-are-listed"),
    ("training", "steps.losses", lambda values: [*values, 0.1], "steps-are-listed"),
    ("training", "steps.seconds", None, "steps-are-listed"),
    ("training", "steps.seconds", double_list, "throughput-follows-from-the-steps"),
    ("training", "steps.count", one_more, "steps-are-those-asked-for"),
    ("training", "configuration.steps", tenfold, "steps-are-those-asked-for"),
    ("training", "steps.untimed", 50, "steps-are-those-asked-for"),
    ("training", "steps.untimed", 61, "steps-are-those-asked-for"),
    ("training", "configuration.duration_seconds", 1e4, "window-is-as-long-as-asked-for"),
    ("training", "steps.units", tenfold, "units-are-steps-times-batch"),
    ("training", "configuration.batch_size", tenfold, "units-are-steps-times-batch"),
    ("training", "steps.updates", one_more, "updates-follow-from-steps"),
    ("training", "steps.quantiles.p99", 0.0, "quantiles-are-those-of-the-steps"),
    ("training", "steps.quantiles", None, "quantiles-are-those-of-the-steps"),
    ("many", "steps.quantiles.p1", 0.0, "quantiles-are-those-of-the-steps"),
    ("training", "steps.data_wait_seconds", lambda values: [1.0, *values[1:]], "waits-are-parts-of-steps"),
    ("training", "configuration.micro_batch_size", 1, "batch-is-the-product-of-its-parts"),
    ("training", "configuration.warmup_steps", 60, "length-is-bounded-once"),
    ("training", "configuration.steps", None, "length-is-bounded-once"),
    ("training", "configuration.concurrency", 2, "settings-fit-the-task"),
    ("training", "configuration.strategy", "pipelined", "settings-fit-the-task"),
    ("training", "configuration.stages", 2, "settings-fit-the-task"),
    ("training", "configuration.offload", True, "settings-fit-the-task"),
    ("training", "configuration.instances", 2, "settings-fit-the-task"),
    ("training", "configuration.repeat", {"index": 3, "of": 2}, "length-is-bounded-once"),
    ("training", "configuration.smoke", True, "settings-fit-the-task"),
    ("training", "configuration.data_path", "/data", "settings-fit-the-task"),
    ("requests", "configuration.gradient_accumulation", 2, "settings-fit-the-task"),
    (
        "requests",
        "configuration.goal",
        {"metric": "loss", "value": 1.0, "evaluation_steps": 1},
        "settings-fit-the-task",
    ),
    ("epochs", "configuration.epochs", 5, "length-is-bounded-once"),
    ("epochs", "configuration.steps_per_epoch", 11, "epochs-fit-the-data"),
    ("training", "data.samples", 1000, "epochs-fit-the-data"),
    ("training", "data.source", "folder", "data-are-those-asked-for"),
    ("training", "data.skipped.count", 3, "data-are-those-asked-for"),
    ("training", "data.classes", 5000, "data-are-those-asked-for"),
    ("training", "configuration.data_workers", 4, "settings-fit-the-device"),
    ("training", "configuration.seed", 2**40, "settings-fit-the-device"),
    # States and times.
    ("training", "status.exit_code", 3, "state-fits-the-exit-code"),
    ("training", "status.phase", "warmup", "state-fits-the-exit-code"),
    ("training", "status.state", "numerics_mismatch", "state-fits-the-exit-code"),
    ("crashed", "status.state", "completed", "state-fits-the-exit-code"),
    ("training", "phases.warmup", {"seconds": None, "reason": "not begun"}, "phases-follow-each-other"),
    ("training", "phases.steady", {"seconds": None, "reason": "not begun"}, "phases-follow-each-other"),
    ("crashed", "phases.steady", {"seconds": 1.0}, "phases-follow-each-other"),
    ("no_device", "steps.count", 1, "phases-follow-each-other"),
    ("training", "phases.steady.seconds", tenfold, "phases-last-as-long-as-their-steps"),
    ("training", "phases.steady.seconds", 0.1, "phases-last-as-long-as-their-steps"),
    ("training", "phases.compile.seconds", 30.0, "phases-last-as-long-as-their-steps"),
    ("many", "phases.steady.seconds", 60.0, "phases-last-as-long-as-their-steps"),
    ("requests", "phases.steady.seconds", lambda value: value + 1e-4, "phases-last-as-long-as-their-steps"),
    ("requests", "phases.warmup.seconds", lambda value: value - 1e-4, "phases-last-as-long-as-their-steps"),
    ("training", "status.message", "all is well", "message-fits-the-state"),
    ("training", "status.message", "--time-limit was reached", "message-fits-the-state"),
    ("target", "status.message", "the target, loss 0.05, was reached after 49 steps", "message-fits-the-state"),
    ("crashed", "status.message", "everything that was asked for was measured", "message-fits-the-state"),
    ("late", "status.message", "--time-limit was reached", "message-fits-the-state"),
    ("crashed", "status.state", "no_device", "state-can-be-reached"),
    ("crashed", "status.state", "unsupported", "state-can-be-reached"),
    ("no_device", "status.state", "compile_failure", "state-can-be-reached"),
    ("crashed", "status.state", "data_error", "state-can-be-reached"),
    ("crashed", "status.state", "non_finite", "state-can-be-reached"),
    ("crashed", "status.state", "time_limit", "state-can-be-reached"),
    ("training", "status.state", "crashed", "state-can-be-reached"),
    # Metrics.
    ("training", "metrics", without("step_time_p99"), "metrics-are-known"),
    ("requests", "metrics", without("latency_mean"), "metrics-are-known"),
    ("many", "steps.quantiles.p100", 1e3, "mean-fits-the-quantiles"),
    ("many", "phases.warmup.seconds", 0.0, "mean-fits-the-quantiles"),
    ("training", "metrics.data_wait_fraction.value", 0.9, "waits-fit-the-data"),
    ("training", "metrics.decode_rate", {"value": 9.0, "unit": "images/s"}, "waits-fit-the-data"),
    ("training", "steps.losses", lambda values: [-1.0, *values[1:]], "losses-are-possible"),
    ("training", "metrics.throughputs", {"value": 1.0, "unit": "images/s"}, "metrics-are-known"),
    ("training", "metrics.throughput.unit", "tokens/s", "metrics-are-known"),
    ("training", "metrics.step_time_p50.unit", "ms", "metrics-are-known"),
    ("training", "metrics.peak_process_memory.value", -1.0, "metrics-are-possible"),
    ("training", "metrics.host_device_traffic.value", 1e30, "metrics-are-possible"),
    ("training", "metrics.data_wait_fraction.value", 1.5, "metrics-are-possible"),
    ("training", "metrics.throughput.value", tenfold, "throughput-follows-from-the-steps"),
    ("many", "metrics.throughput.value", tenfold, "throughput-follows-from-the-steps"),
    ("training", "metrics.throughput_per_device.value", tenfold, "throughput-follows-from-the-steps"),
    ("training", "accelerator.count", 2, "throughput-follows-from-the-steps"),
    ("training", "metrics.step_time_mean.value", tenfold, "throughput-follows-from-the-steps"),
    ("many", "metrics.step_time_p99.value", 1e-3, "step-times-follow-from-the-steps"),
    ("training", "metrics.step_time_p99", {"value": 1e-3, "unit": "s"}, "step-times-follow-from-the-steps"),
    (
        "training",
        "metrics.step_time_p50",
        {"value": None, "unit": "s", "reason": "no"},
        "step-times-follow-from-the-steps",
    ),
    ("many", "metrics.step_time_mean.value", tenfold, "mean-fits-the-quantiles"),
    ("training", "metrics.data_wait_fraction.value", 0.5, "waits-follow-from-the-steps"),
    ("training", "metrics.achieved_flops.value", tenfold, "operations-follow-from-the-throughput"),
    ("training", "metrics.utilisation", {"value": 0.4, "unit": "1"}, "operations-follow-from-the-throughput"),
    ("generation", "metrics.achieved_flops_full_attention.value", tenfold, "operations-follow-from-the-throughput"),
    ("generation", "metrics", without("utilisation_full_attention"), "operations-follow-from-the-throughput"),
    ("generation", "workload.flops.needed_per_unit", tenfold, "operations-follow-from-the-throughput"),
    ("generation", "workload.flops.needed_per_unit", one_more, "workload-is-that-of-its-identity"),
    ("training", "metrics.achieved_flops_full_attention", {"value": 1.0, "unit": "FLOP/s"}, "metrics-fit-the-workload"),
    ("training", "metrics.time_to_first_step.value", 0.1, "times-follow-from-phases-and-steps"),
    ("training", "metrics.time_to_result", {"value": 0.1, "unit": "s"}, "time-to-result-is-that-of-check-and-run"),
    ("training", "metrics.training_time.value", 0.1, "times-follow-from-phases-and-steps"),
    ("many", "metrics.training_time.value", 0.001, "times-follow-from-phases-and-steps"),
    ("tokens", "metrics.token_throughput.value", lambda value: value * 1.0001, "tokens-are-counted"),
    ("tokens", "metrics.padding_fraction.value", 0.123456, "tokens-are-counted"),
    ("chains", "metrics.acceptance_rate.value", 0.123456, "chains-are-counted"),
    ("generation", "metrics.token_throughput.value", tenfold, "generation-fits-the-window"),
    ("generation", "metrics.decode_throughput.value", 0.01, "generation-fits-the-window"),
    (
        "training",
        "metrics.decode_rate_of_all_workers",
        {"value": 9.0, "unit": "images/s"},
        "decoding-is-that-of-all-workers",
    ),
    ("training", "metrics.peak_process_memory.value", 1e9, "memory-fits"),
    ("training", "metrics.peak_allocated_memory.value", 17.0, "memory-fits"),
    ("training", "metrics.peak_allocated_memory_of_window.value", 9.0, "memory-fits"),
    # Steadiness.
    ("training", "steadiness.drift.value", 0.5, "steadiness-is-that-of-the-steps"),
    ("training", "steadiness.throughput_interval.low", 1.0, "steadiness-is-that-of-the-steps"),
    ("training", "steadiness.outliers.count", 5, "steadiness-is-that-of-the-steps"),
    ("training", "steadiness.outliers", None, "steadiness-is-that-of-the-steps"),
    ("many", "steadiness.steady", lambda steady: not steady, "steadiness-follows-from-its-numbers"),
    ("many", "steadiness.throughput_interval.low", 1e9, "steadiness-follows-from-its-numbers"),
    ("many", "steadiness.outliers.count", lambda count: 0 if count else 9, "steadiness-follows-from-its-numbers"),
    (
        "many",
        "steadiness.outliers.share_of_time",
        lambda share: 0.0 if share else 0.9,
        "steadiness-follows-from-its-numbers",
    ),
    # Requests.
    ("requests", "requests.parts.compute.p0", 9.0, "parts-fit-their-requests"),
    ("requests", "metrics.latency_compute_mean.value", 9.0, "parts-fit-their-requests"),
    ("requests", "requests.count", one_more, "requests-are-the-timed-steps"),
    ("requests", "requests", {"reason": "no requests"}, "requests-are-the-timed-steps"),
    ("requests", "requests.latencies", double_list, "latencies-have-their-quantiles"),
    ("requests", "requests.quantiles.p50", 0.0, "latencies-have-their-quantiles"),
    ("requests", "requests.parts.compute.p100", 9.0, "latencies-have-their-quantiles"),
    ("requests", "metrics.latency_p90.value", 0.001, "latencies-follow-from-the-requests"),
    ("requests", "metrics.latency_p99", {"value": 0.1, "unit": "s"}, "latencies-follow-from-the-requests"),
    ("requests", "metrics.latency_mean.value", 0.001, "latencies-follow-from-the-requests"),
    ("requests", "metrics.latency_compute_mean.value", 0.001, "latencies-follow-from-the-requests"),
    ("requests", "configuration.concurrency", 1, "clients-wait-for-their-answers"),
    # Energy.
    ("training", "configuration.meter", "none", "energy-has-a-meter"),
    ("training", "configuration.meter", "nvml", "energy-has-a-meter"),
    ("training", "power.source", "nvml", "energy-has-a-meter"),
    ("training", "metrics.energy.value", 1.0, "energy-is-that-of-the-devices"),
    ("training", "power.devices.0.energy.value", 1.0, "energy-is-that-of-the-devices"),
    ("training", "power.devices.1.power_mean.value", 1.0, "energy-is-that-of-the-devices"),
    ("training", "metrics.power_mean.value", 1.0, "efficiency-follows-from-energy"),
    ("training", "metrics.energy_per_unit.value", 1.0, "efficiency-follows-from-energy"),
    ("training", "metrics.energy_per_device.value", 1.0, "efficiency-follows-from-energy"),
    ("training", "metrics.units_per_watt_hour.value", 1.0, "efficiency-follows-from-energy"),
    ("training", "metrics.throughput_per_watt.value", 1.0, "efficiency-follows-from-energy"),
    ("epochs", "metrics.energy_per_epoch", {"value": 1.0, "unit": "J"}, "energy-of-epochs-is-their-mean"),
    # Training.
    ("training", "metrics.final_loss.value", 0.001, "final-loss-is-the-last"),
    ("requests", "metrics.final_loss", {"value": 0.001, "unit": "1"}, "final-loss-is-the-last"),
    ("epochs", "epochs.1.seconds", 1.0, "epochs-follow-from-the-steps"),
    ("epochs", "epochs.1.units", one_more, "epochs-follow-from-the-steps"),
    ("epochs", "epochs", [], "epochs-follow-from-the-steps"),
    ("epochs", "epochs.0.index", 2, "epochs-follow-from-the-steps"),
    ("epochs", "metrics.epoch_time.value", 0.001, "epochs-follow-from-the-steps"),
    ("target", "target", None, "targets-are-reached-by-evaluations"),
    ("target", "metrics", without("time_to_target"), "targets-are-reached-by-evaluations"),
    ("target", "target.value", 2.0, "targets-are-reached-by-evaluations"),
    ("target", "target.reached", False, "targets-are-reached-by-evaluations"),
    ("target", "target.evaluations", [], "targets-are-reached-by-evaluations"),
    ("target", "target.evaluations.0.loss", 0.01, "targets-are-reached-by-evaluations"),
    ("target", "target.evaluations.0.steps", 30, "targets-are-reached-by-evaluations"),
    ("target", "target.evaluations.0.samples", 1, "targets-are-reached-by-evaluations"),
    ("target", "target.evaluations.1.training_seconds", 0.001, "targets-are-reached-by-evaluations"),
    ("target", "target.evaluations.0.accuracy", 1.5, "targets-are-reached-by-evaluations"),
    ("target", "metrics.time_to_target.value", 0.001, "targets-are-reached-by-evaluations"),
    ("target", "metrics.evaluation_time.value", 0.001, "targets-are-reached-by-evaluations"),
    ("training", "metrics.time_to_target", {"value": 1.0, "unit": "s"}, "targets-are-reached-by-evaluations"),
    ("search", "search.largest", 16, "search-found-the-batch"),
    ("search", "configuration.batch_size", 4, "search-found-the-batch"),
    # Readings of a meter.
    ("training", "power.method", None, "energy-is-covered-by-readings"),
    ("training", "power.samples", 2, "energy-is-covered-by-readings"),
    ("training", "power.samples", 100_000, "energy-is-covered-by-readings"),
    ("training", "power.update_period_seconds", 10.0, "energy-is-covered-by-readings"),
    ("training", "power.sampling_period_seconds", 0.02, "energy-is-covered-by-readings"),
    ("training", "power.failed_readings", 10**9, "energy-is-covered-by-readings"),
    ("training", "power.counter_integral_difference", {"value": 0.1, "unit": "1"}, "energy-is-covered-by-readings"),
    ("training", "metrics", without("energy_per_unit"), "energy-has-a-meter"),
    ("training", "power.devices.1.name", "die 0", "energy-is-that-of-the-devices"),
    ("training", "power.devices.1.energy.value", 0.0, "energy-is-that-of-the-devices"),
    ("training", "power.devices.1.power_mean.value", 1e9, "energy-is-that-of-the-devices"),
    ("training", "power.idle.duration.value", 1000.0, "idle-power-is-of-a-rest"),
    ("training", "power.idle.duration", {"value": None, "unit": "s", "reason": "no"}, "idle-power-is-of-a-rest"),
    ("training", "power.idle.power.value", -5.0, "idle-power-is-of-a-rest"),
    ("training", "power.idle.importing.value", -0.001, "idle-power-is-of-a-rest"),
    ("training", "power.idle.importing.value", 0.35, "idle-power-is-of-a-rest"),
    ("ranks", "power.idle.importing.value", 30.0, "idle-power-is-of-a-rest"),
    ("training", "power.idle.power.value", 1e9, "idle-power-is-of-a-rest"),
    ("training", "power.averaging_time.value", 100.0, "idle-power-is-of-a-rest"),
    # Clocks, limits and traffic.
    ("training", "metrics.throttled_fraction.value", 0.5, "load-is-of-the-window"),
    ("training", "metrics.throttled_fraction.value", 1.5, "metrics-are-possible"),
    ("training", "metrics.core_clock.value", 1500.0, "load-is-of-the-window"),
    ("training", "power.devices.0.load.clock.min.value", 1501.0, "load-is-of-the-window"),
    ("training", "power.devices.0.load.samples", 0, "load-is-of-the-window"),
    ("training", "power.devices.1.load.limits.0.duration.value", 100.0, "load-is-of-the-window"),
    ("training", "power.devices.1.load.limits.0.kind", "other", "load-is-of-the-window"),
    ("training", "power.devices.1.load.limits", [], "load-is-of-the-window"),
    ("training", "power.devices.1.load.limits", None, "load-is-of-the-window"),
    ("training", "power.devices.0.load.received.value", 1e4, "traffic-is-that-of-the-buses"),
    ("training", "power.devices.0.load.sent.value", -1.0, "traffic-is-that-of-the-buses"),
    ("training", "power.devices.0.load.traffic_method", None, "traffic-is-that-of-the-buses"),
    ("training", "configuration.idle_seconds", 0.0, "idle-power-is-of-a-rest"),
    ("training", "configuration.idle_seconds", 60.0, "idle-power-is-of-a-rest"),
    (
        "training",
        "power.trace.watts",
        lambda watts: [2 * (each or 0.0) for each in watts],
        "trace-adds-up-to-the-energy",
    ),
    ("training", "power.trace.watts", lambda watts: [None] * len(watts), "trace-adds-up-to-the-energy"),
    ("training", "power.trace.watts", lambda watts: watts[:1], "trace-adds-up-to-the-energy"),
    (
        "training",
        "power.trace",  # half an interval: one that is whole shifts a steady power to the same energy
        lambda trace: {**trace, "begin_seconds": trace["begin_seconds"] - trace["interval_seconds"] / 2},
        "trace-adds-up-to-the-energy",
    ),
    ("training", "power.trace.window_seconds", tenfold, "trace-adds-up-to-the-energy"),
    ("training", "metrics.energy", {"value": None, "unit": "J", "reason": "no"}, "trace-adds-up-to-the-energy"),
    ("training", "power.trace.interval_seconds", 1e-3, "trace-is-of-the-run"),
    ("training", "power.trace.watts", lambda watts: (watts + [40.0] * 1000)[:1000], "trace-is-of-the-run"),
    ("training", "power.trace.rest_until_seconds", 0.1, "trace-is-of-the-run"),
    ("epochs", "epochs.1.energy", {"value": 1e3, "unit": "J"}, "energy-of-epochs-is-that-of-the-window"),
    ("epochs", "epochs.0.energy", {"value": -1.0, "unit": "J"}, "energy-of-epochs-is-that-of-the-window"),
    # Evaluations.
    ("target", "target.evaluations", lambda each: [each[0], *each[2:]], "evaluations-follow-when-due"),
    ("target", "configuration.goal.evaluation_steps", 7, "evaluations-follow-when-due"),
    ("target", "target.evaluations", with_samples(1000), "evaluations-fit-the-workload"),
    ("target", "target.evaluations.0.accuracy", 0.1234, "evaluations-fit-the-workload"),
    ("target", "target.evaluations.0.exact_match", 0.5, "evaluations-fit-the-workload"),
    ("target", "target.evaluations.0.loss", -1.0, "evaluations-fit-the-workload"),
    # Data.
    ("training", "data.source", "tokens", "data-are-of-a-format-for-the-workload"),
    ("training", "configuration.data_workers", 4, "data-are-of-a-format-for-the-workload"),
    ("training", "configuration.evaluation_path", "/data", "data-are-of-a-format-for-the-workload"),
    ("training", "data.part", "train-images-idx3-ubyte", "data-have-what-their-format-has"),
    ("training", "data.classes", 2, "data-have-what-their-format-has"),
    ("training", "data.samples", None, "data-have-what-their-format-has"),
    ("chains", "data.samples", 1000, "data-have-what-their-format-has"),
    # A search.
    ("search", "search.trials", lambda trials: trials[::-1], "trials-follow-the-bracket"),
    ("search", "search.trials", lambda trials: trials[:1], "trials-follow-the-bracket"),
    ("search", "search.trials.0.state", "interrupted", "trials-follow-the-bracket"),
    ("search", "search.memory_limit_mib", 7, "trials-have-their-limit"),
    ("search", "search.trials.0.seconds", 1e9, "trials-have-their-limit"),
    ("search", "search.trials.0.peak_process_mib", 1e9, "trials-have-their-limit"),
    # Memory, tokens and chains.
    ("training", "metrics.peak_process_memory.value", 0.5, "memory-holds-the-weights"),
    ("cpu", "metrics.peak_allocated_memory", {"value": 100.0, "unit": "MiB"}, "memory-is-counted"),
    ("cpu", "metrics.host_device_traffic", {"value": 100.0, "unit": "MiB"}, "memory-is-counted"),
    ("training", "metrics.acceptance_rate", {"value": 0.5, "unit": "1"}, "metrics-fit-the-workload"),
    ("training", "metrics.token_throughput", {"value": 9.0, "unit": "tokens/s"}, "metrics-fit-the-workload"),
    ("training", "steadiness.throughput_interval.unit", "tokens/s", "metrics-are-known"),
    ("generation", "metrics.padding_fraction.value", 0.5, "generation-fills-the-window"),
    ("generation", "metrics.decode_throughput.value", tenfold, "generation-fills-the-window"),
    ("generation", "metrics.decode_throughput", {"value": None, "unit": "tokens/s"}, "generation-fills-the-window"),
    ("generation", "metrics.time_between_tokens_p90.value", 100.0, "token-times-fit-the-throughput"),
    ("generation", "metrics.time_between_tokens_p90.value", 0.0, "token-times-fit-the-throughput"),
    ("generation", "metrics.time_between_tokens_p99", {"value": 0.01, "unit": "s"}, "token-times-fit-the-throughput"),
    ("generation", "metrics.time_to_first_token_p50", {"value": 0.01, "unit": "s"}, "token-times-fit-the-throughput"),
    ("chains", "metrics.effective_sample_size", {"value": 5.0, "unit": "samples"}, "chains-are-judged-by-draws"),
    ("chains", "metrics.r_hat", {"value": 1.0, "unit": "1"}, "chains-are-judged-by-draws"),
    # The correctness check.
    ("training", "numerics", {"state": "passed", "precisions": [], "run_checks": []}, "correctness-is-that-of-the-run"),
    ("training", "configuration.probe_numerics", False, "correctness-is-that-of-the-run"),
    ("training", "numerics.run_checks.0.check", "trajectory", "run-checks-fit-the-task"),
    ("generation", "numerics.run_checks.0.check", "dropout", "run-checks-fit-the-task"),
    ("training", "numerics.run_checks", double_list_of_checks, "correctness-is-that-of-the-run"),
    ("mismatch", "numerics.run_checks.0.state", "passed", "checks-follow-from-deviations"),
    ("mismatch", "numerics.run_checks.0.faults", [], "checks-follow-from-deviations"),
    ("mismatch", "numerics.state", "not_run", "correctness-is-that-of-the-run"),
    ("training", "numerics.state", "not_run", "whole-check-is-that-of-its-parts"),
    ("cpu", "numerics.run_checks", [], "completed-run-is-checked"),
    ("generation", "numerics.run_checks", [], "completed-run-is-checked"),
    ("chains", "numerics.run_checks", [], "completed-run-is-checked"),
    # The command line.
    ("training", "provenance.command", [], "command-is-what-was-configured"),
    ("training", "provenance.command.0", "lstm", "command-is-what-was-configured"),
    ("training", "provenance.command.2", "600", "command-is-what-was-configured"),
    ("training", "provenance.command.2", "many", "command-is-what-was-configured"),
    ("training", "provenance.command", with_words("--smoke"), "command-is-what-was-configured"),
    ("training", "provenance.command", with_words("--skip-numerics"), "command-is-what-was-configured"),
    ("training", "provenance.command", with_words("--precision=bf16"), "command-is-what-was-configured"),
    ("training", "provenance.command", with_words("--task", "infer"), "command-is-what-was-configured"),
    ("many", "provenance.command", ["image_compression", "--batch-sizes", "1,2"], "command-is-what-was-configured"),
    ("training", "provenance.command", with_words("--site", "here"), "command-is-what-was-configured"),
    ("training", "provenance.command", with_words("--device", "cpu"), "command-is-what-was-configured"),
    ("training", "provenance.command", with_words("--data", "/data"), "command-is-what-was-configured"),
    ("training", "provenance.command", with_words("--repeat", "3"), "command-is-what-was-configured"),
    ("training", "provenance.command", with_words("--list"), "command-is-what-was-configured"),
    ("training", "provenance.command", with_words("lstm"), "command-is-what-was-configured"),
    ("training", "provenance.command", with_words("--find-max-batch"), "command-is-what-was-configured"),
    ("training", "configuration.seed", 7, "command-is-what-was-configured"),
    ("training", "configuration.time_limit_seconds", 60.0, "command-is-what-was-configured"),
    ("training", "site", "alpha", "command-is-what-was-configured"),
    ("target", "configuration.goal.value", 0.06, "command-is-what-was-configured"),
    ("target", "configuration.goal.evaluation_steps", 11, "command-is-what-was-configured"),
    ("search", "search.trials.0.batch_size", 5, "command-is-what-was-configured"),
    # Ranks.
    ("ranks", "ranks", lambda ranks: ranks[:1], "ranks-are-all-there"),
    ("ranks", "ranks", None, "ranks-are-all-there"),
    ("ranks", "ranks.1.rank", 2, "ranks-are-all-there"),
    ("ranks", "ranks.1.host", None, "ranks-are-all-there"),
    ("ranks", "ranks.0.steps", one_more, "ranks-step-together"),
    ("ranks", "ranks.0.window.value", tenfold, "ranks-step-together"),
    ("ranks", "ranks.1.window", {"value": None, "unit": "s", "reason": "lost"}, "ranks-step-together"),
    ("ranks", "metrics.rank_spread.value", one_more, "metrics-of-ranks-follow-from-ranks"),
    ("ranks", "metrics.rank_epoch_time_mean.value", tenfold, "metrics-of-ranks-follow-from-ranks"),
    ("ranks", "metrics.peak_process_memory.value", tenfold, "metrics-of-ranks-follow-from-ranks"),
    ("ranks", "transport", None, "transport-is-that-of-the-connections"),
    ("ranks", "transport.network", "rdma", "transport-is-that-of-the-connections"),
    ("ranks", "transport.connections", ["NET/IB"], "transport-is-that-of-the-connections"),
    ("ranks", "transport.all_reduce.bus_bandwidth.value", tenfold, "transport-is-that-of-the-connections"),
    ("ranks", "power.devices.0.host", "elsewhere", "metered-hosts-are-those-of-the-ranks"),
    # The machine.
    ("cpu", "accelerator.granularity", "package", "device-is-one-of-its-kind"),
    ("cpu", "accelerator.name", "NVIDIA H100 80GB HBM3", "device-is-one-of-its-kind"),
    ("cpu", "accelerator.memory_mib", 1e9, "device-is-one-of-its-kind"),
    ("cpu", "accelerator.identifier", "GPU-1", "device-is-one-of-its-kind"),
    ("cpu", "accelerator.ranks", 8, "device-is-one-of-its-kind"),
    ("cpu", "accelerator.count", 8, "device-is-one-of-its-kind"),
    ("cpu", "accelerator.kind", "ipu", "device-is-one-of-its-kind"),
    ("cpu", "accelerator.kind", "cuda", "device-is-one-of-its-kind"),
    ("cpu", "accelerator.kind", "quantum", "device-is-one-of-its-kind"),
    ("cpu", "accelerator.execution", "compiled by TorchInductor, channels_last", "device-is-one-of-its-kind"),
    ("cpu", "accelerator.compilation", {**COUNTED, "graph_breaks": 0}, "execution-is-what-was-counted"),
    ("cpu", "configuration.framework", "jax", "device-is-one-of-its-kind"),
    ("cpu", "configuration.precision", "fp16", "device-is-one-of-its-kind"),
    ("cpu", "device_conditions", {"driver": {"value": "1"}}, "device-is-one-of-its-kind"),
    ("cpu", "accelerator.rated_power", {"value": 1.0, "unit": "W"}, "peaks-are-those-of-the-table"),
    ("cpu", "accelerator.rated_power_scope", "board", "peaks-are-those-of-the-table"),
    ("cpu", "power", {"reason": "nothing was metered"}, "software-is-what-ran"),
    ("cpu", "provenance.software.framework_version", None, "software-is-what-ran"),
    ("cpu", "provenance.software.libraries", {"torch": "1.0"}, "software-is-what-ran"),
    ("training", "host.sockets", {"value": 10**5}, "facts-are-possible"),
    ("training", "host.cores", {"value": 10**6}, "facts-are-possible"),
    ("training", "conditions.cpu_affinity", {"value": "0-99999"}, "facts-are-possible"),
    ("training", "conditions.memory_available", {"value": 1e12}, "facts-are-possible"),
    ("training", "conditions_after.cpu_stolen", {"value": 1e12, "unit": "s"}, "facts-are-possible"),
    (
        "training",
        "conditions_after.run_delay",
        {"value": None, "unit": "%", "reason": "the timed window did not end"},
        "facts-are-possible",
    ),
    ("training", "environment.variables", {"LD_PRELOAD": "a.so"}, "preloaded-libraries-are-named"),
    (
        "training",
        "conditions_after.openmp_wait",
        {"value": "libgomp: 0 spins (default)"},
        "openmp-waits-as-it-was-told",
    ),
    ("training", "conditions_after.openmp_wait", {"value": "libspin: 0 spins"}, "openmp-waits-as-it-was-told"),
    # The session.
    ("training", "session.boot", {"value": "today"}, "session-has-identifiers"),
    ("training", "session.job", {"value": "a job"}, "session-has-identifiers"),
    ("training", "session.job", {"value": "1" * 256}, "session-has-identifiers"),
    # Names.
    ("training", "workload.name", "resnet18", "workload-is-that-of-its-identity"),
    ("training", "workload.parameters", tenfold, "workload-is-that-of-its-identity"),
    ("training", "workload.flops.per_unit", tenfold, "workload-is-that-of-its-identity"),
    ("training", "workload.unit", "pictures", "workload-is-that-of-its-identity"),
    ("training", "workload.set", "2026", "workload-is-that-of-its-identity"),
    ("training", "workload.routing", "balanced", "workload-is-that-of-its-identity"),
    ("training", "workload.name", "resnet50\u200b", "workload-name-is-plain"),
    ("training", "workload.name", "r\u0435snet50", "workload-name-is-plain"),  # with a Cyrillic e
    ("training", "accelerator.kind", "cuda", "device-is-that-asked-for"),
    ("training", "accelerator.replicas", 2, "device-is-that-asked-for"),
    ("training", "accelerator", {"kind": "double", "reason": "unknown"}, "device-is-that-asked-for"),
    ("training", "provenance.stand_in", False, "device-is-that-asked-for"),
    ("training", "provenance.software.framework", "pytorch", "device-is-that-asked-for"),
    ("training", "accelerator.peak", {"value": 1e15, "unit": "FLOP/s"}, "peaks-are-those-of-the-table"),
    ("training", "conditions_after.run_delay", {"value": 101.0, "unit": "%"}, "facts-are-possible"),
    ("training", "conditions.swap_used", {"value": -1.0, "unit": "MiB"}, "facts-are-amounts"),
    ("training", "device_conditions_after.memory_used", {"value": -5.0, "unit": "MiB"}, "facts-are-amounts"),
    ("training", "configuration.threads", 10**9, "facts-are-amounts"),
    ("many", "metrics.training_time.value", 1e9, "times-follow-from-phases-and-steps"),
    ("training", "host.threads_usable", {"value": 10**6, "unit": "threads"}, "facts-are-possible"),
    ("training", "site", "a\x1b[2Kb", "texts-show-what-they-are"),
    ("training", "status.message", " ", "texts-show-what-they-are"),
    (
        "training",
        "workload.title",
        "Bayesian neural network of 963 weights, sampled by Hamiltonian Monte Carlo",
        "known-name-is-that-of-its-card",
    ),
    ("training", "site", "a\u202eb", "texts-show-what-they-are"),
    ("training", "site", "a" * 10_000, "sizes-are-possible"),
    ("training", "accelerator.vendor", "\u039dVIDIA", "texts-show-what-they-are"),  # with a Greek capital nu
    ("training", "conditions.cpu_clock", {"value": 1e300, "unit": "MHz"}, "sizes-are-possible"),
]


@pytest.mark.parametrize(
    ("name", "path", "change", "code"),
    FORGERIES,
    ids=lambda each: str(getattr(each, "__name__", each))[:40].encode("ascii", "replace").decode(),
)
def test_a_forgery_breaks_a_rule(genuine, name, path, change, code):
    assert code in codes(put(genuine[name], path, change))


# What no other number of a result determines: peaks of memory, traffic, the statistics of chains beyond their bounds,
# and the times of single tokens.
FREE = (
    *("peak_process_memory", "peak_allocated_memory", "peak_reserved_memory", "host_device_traffic"),
    *("peak_allocated_memory_of_window", "decode_tokens_per_watt_hour"),
    *("effective_sample_size", "effective_sample_throughput", "r_hat"),
    *("prefill_throughput", "decode_throughput", "time_to_first_token_p50", "time_between_tokens_p50"),
    *("time_between_tokens_p90", "time_between_tokens_p99"),
)


@pytest.mark.parametrize("name", [name for name in RUNS if name not in STATES or name == "mismatch"])
def test_no_metric_can_be_one_hundredth_larger(genuine, name):
    document = genuine[name]
    values = {key: metric["value"] for key, metric in document["metrics"].items() if metric["value"]}
    changed = {key: put(document, f"metrics.{key}.value", 1.01 * value) for key, value in values.items()}
    accepted = {key for key, forged in changed.items() if not violations(forged)}
    unlisted = ("data_wait_fraction", "training_time", "final_loss") if document["steps"]["seconds"] is None else ()
    assert accepted <= {*FREE, *unlisted}


def test_a_simulated_clock_is_not_compared_but_a_real_one_is(genuine):
    document = put(genuine["training"], "provenance.simulated", False)
    assert "clocks-agree" not in codes(document)
    assert "clocks-agree" in codes(put(document, "finished", document["started"]))
    assert "clocks-agree" in codes(put(document, "finished", "2026-01-01T00:00:00.000Z"))
    assert "clocks-agree" in codes(put(document, "finished", "2999-01-01T00:00:00.000Z"))


def of_ten_seconds(document, **elapsed):
    """A copy of a result whose clock is real, of a run that took 10 s on each clock, or what `elapsed` says."""
    forged = put(document, "provenance.simulated", False)
    began = datetime.strptime(document["started"], "%Y-%m-%dT%H:%M:%S.%fZ")
    forged["finished"] = timestamp(began + timedelta(seconds=10))
    for name in ("elapsed_monotonic", "elapsed_kernel"):
        forged["conditions_after"][name] = {"value": elapsed.get(name, 10.0), "unit": "s"}
    return forged


def on_clocks(document):
    return [text for text in violations(document) if text.endswith("[clocks-agree]")]


@pytest.mark.parametrize(
    ("elapsed", "fields"),
    [
        ({}, []),
        ({"elapsed_kernel": 10.1}, []),
        ({"elapsed_kernel": 10.15}, ["conditions_after.elapsed_kernel"]),
        ({"elapsed_kernel": 9.85}, ["conditions_after.elapsed_kernel"]),
        ({"elapsed_kernel": None}, []),
        ({"elapsed_monotonic": None}, ["conditions_after.elapsed_monotonic"]),
        (
            {"elapsed_monotonic": 10.3, "elapsed_kernel": 10.3},
            ["conditions_after.elapsed_monotonic", "conditions_after.elapsed_kernel"],
        ),
        ({"elapsed_monotonic": 9.7, "elapsed_kernel": None}, ["conditions_after.elapsed_monotonic"]),
        ({"elapsed_monotonic": 10.3, "elapsed_kernel": None}, ["conditions_after.elapsed_monotonic"]),
    ],
)
def test_the_clocks_of_a_run_agree(genuine, elapsed, fields):
    """A library that is loaded first slows down CLOCK_MONOTONIC, and not what the kernel counts."""
    assert [text.partition(":")[0] for text in on_clocks(of_ten_seconds(genuine["training"], **elapsed))] == fields


def test_phases_are_no_longer_than_the_run_by_its_own_clock(genuine):
    document = of_ten_seconds(genuine["training"], elapsed_monotonic=9.95)
    inside = sum(span["seconds"] for span in document["phases"].values())
    inside += document["power"]["idle"]["duration"]["value"] - document["power"]["idle"]["importing"]["value"]
    assert on_clocks(put(document, "phases.data.seconds", lambda value: value + 9.99 - inside)) == []
    (text,) = on_clocks(put(document, "phases.data.seconds", lambda value: value + 10.01 - inside))
    assert text.startswith("phases:") and "conditions_after.elapsed_monotonic" in text


def test_a_result_that_says_it_is_inconsistent_is_not_judged(genuine):
    document = put(genuine["training"], "metrics.throughput.value", 1e9)
    assert violations(document)
    assert not violations(put(document, "status.state", "inconsistent"))


def test_checks_in_a_precision_follow_from_their_deviations(genuine):
    stored = reference_of(genuine["training"]["workload"]["identity"])
    assert stored is not None
    quantity, tolerance = sorted(stored.tolerances["fp32"].items())[0]

    def check(state, share, mismatched, precision="fp32", times=1.0):
        worst = {"quantity": quantity, "deviation": share * tolerance, "tolerance": times * tolerance}
        return {"precision": precision, "state": state, "worst": worst, "mismatched": mismatched}

    def judged(whole, *checks, **more):
        numerics = {**genuine["training"]["numerics"], **more, "state": whole, "precisions": [*checks]}
        return codes(put(genuine["training"], "numerics", numerics))

    whole, own = "whole-check-is-that-of-its-parts", "correctness-is-that-of-the-run"
    limits = "tolerances-are-those-of-the-reference"
    assert not judged("passed", check("passed", 0.5, []))
    assert judged("passed", check("passed", 5, [])) == {"checks-follow-from-deviations"}
    assert judged("passed", check("passed", 0.5, [quantity])) == {"checks-follow-from-deviations"}
    assert judged("passed", check("passed", 0.5, [], times=2)) == {limits}
    assert {own, whole, limits} <= judged("passed", check("passed", 0.5, [], "bf16"))
    assert judged("passed", check("not_provable", 0.5, [])) == {own, whole, limits}
    assert whole in judged("passed", check("passed", 0.5, []), check("not_provable", 0.5, [], "tf32"))
    assert own in judged("passed", check("failed", 5, [quantity]))
    assert limits in judged("failed", check("failed", 5, ["quantity"]))
    assert own in judged("passed", *2 * [check("passed", 0.5, [])])
    assert not judged("not_run", check("passed", 0.5, []), reason="the check ended in crashed: no")
    assert judged("not_run", check("passed", 0.5, []), reason="no time") == {whole}
    assert judged("not_run", reason="the check was skipped (--smoke)") == {whole}
    for state, times, right in (("passed", 16, False), ("not_provable", 16, True), ("not_provable", 17, False)):
        document = put(genuine["training"], "numerics.precisions", [check(state, 5, [], times=times)])
        document["configuration"]["device"] = "xpu"  # on which no rounding was measured
        assert (limits not in codes(document)) == right
    old = put(genuine["training"], "schema_version", "1.0")
    old["configuration"]["precision"] = "bf16"
    old["numerics"]["precisions"] = [check("passed", 0.5, []), check("not_provable", 0.5, [], "bf16")]
    old["numerics"]["state"] = "passed"
    assert "correctness-is-that-of-the-run" not in codes(old)


def test_fp8_has_a_scaling_and_its_own_tolerances(genuine):
    kind, limits = "device-is-one-of-its-kind", "tolerances-are-those-of-the-reference"

    def in_fp8(document):
        document = put(document, "configuration.precision", "fp8")
        document["configuration"].update(precision_kind="mixed", fp8_scaling="rowwise")
        return document

    on_cpu = in_fp8(genuine["cpu"])
    assert kind not in codes(on_cpu)
    assert kind in codes(put(on_cpu, "configuration.fp8_scaling", None))
    assert kind in codes(put(genuine["cpu"], "configuration.fp8_scaling", "rowwise"))
    for tolerance, right in ((relative(45), True), (relative(40), False)):
        worst = {"quantity": OUTPUTS, "deviation": 0.001, "tolerance": tolerance}
        checked = [{"precision": "fp8", "state": "passed", "worst": worst, "mismatched": []}]
        for device in ("cpu", "cuda"):
            document = put(in_fp8(genuine["training"]), "numerics.precisions", checked)
            document["configuration"]["device"] = device
            assert (limits not in codes(document)) == right


def test_results_of_schema_1_1_count_as_they_did(genuine):
    """Their rates are of all pairs of places, and they have a 99th percentile of any number of steps."""
    rule, of_steps = "operations-follow-from-the-throughput", "step-times-follow-from-the-steps"
    text = copy.deepcopy(genuine["generation"])
    text["schema_version"] = "1.1"
    del text["session"]
    counts = text["workload"]["flops"]
    full = counts["per_unit"] / counts.pop("needed_per_unit")
    assert full > 1 and rule in codes(text)
    text["metrics"] = {key: each for key, each in text["metrics"].items() if not key.endswith("_full_attention")}
    text["metrics"]["achieved_flops"]["value"] *= full
    assert of_steps in codes(text) and rule not in codes(text)
    text["metrics"]["step_time_p99"] = {"value": text["steps"]["quantiles"]["p99"], "unit": "s"}
    assert violations(text) == []


def test_rules_read_a_document_as_json_has_it(genuine):
    assert all(violations(json.loads(json.dumps(document))) == [] for document in genuine.values())


def test_phases_on_the_clock_of_the_steps_are_as_long_as_these(genuine):
    """A host that computes has one clock for both."""
    host = put(genuine["target"], "configuration.device", "cpu")
    waited = {"run_delay": {"value": 1.0, "unit": "%"}, "cpu_stolen": {"value": 0.0, "unit": "s"}}
    host["conditions_after"].update(waited, cpu_quota_waited={"value": 0.0, "unit": "s"})
    rule = "phases-last-as-long-as-their-steps"
    assert rule not in codes(host)
    assert rule in codes(put(host, "phases.steady.seconds", lambda value: value - 0.05))
    assert rule in codes(put(host, "phases.steady.seconds", lambda value: value + 0.2))
    assert rule in codes(put(host, "phases.compile.seconds", lambda value: value + 0.5))
    busy = put(host, "conditions_after.run_delay.value", 95.0)
    assert rule not in codes(put(busy, "phases.steady.seconds", lambda value: value + 0.2))
    assert rule not in codes(
        put(put(host, "schema_version", "1.0"), "phases.steady.seconds", lambda value: value + 0.2)
    )


def of_h200(name):
    return json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))


def scaled_points(factor):
    """Points whose times are so many times shorter, with the rates that follow."""

    def scale(rows):
        return [
            {
                **row,
                "seconds": {key: value / factor for key, value in row["seconds"].items()},
                **{rate: row[rate] and row[rate] * factor for rate in RATES},
            }
            for row in rows
        ]

    return scale


def swapped(document):
    """A result whose three slowest timed steps, and twice as slow, are the last of its warm-up."""
    seconds = list(document["steps"]["seconds"])
    seconds[2:5] = [2 * max(seconds[5:])] * 3
    return put(document, "steps.seconds", seconds)


ON_AN_H200 = [
    # Micro-benchmarks above the peaks: an H200 that copies 51.8 TB/s, 5.6 peaks of matmul, 1.2 TB/s over PCIe.
    ("memory_copy", "points.measured", scaled_points(12.5), "points-are-possible"),
    ("memory_copy", "points.measured", scaled_points(1.3), "points-are-possible"),
    ("matmul_bf16", "points.measured", scaled_points(6.5), "points-are-possible"),
    ("host_device", "points.measured", scaled_points(22), "points-are-possible"),
    ("memory_copy", "points.measured.0.seconds.max", 1e6, "rates-follow-from-seconds"),
    # Power below idle, and four times the rated one.
    ("resnet50_bf16", "metrics.power_mean.value", 50.0, "power-is-possible"),
    ("resnet50_bf16", "power.devices.0.power_mean.value", 2800.0, "power-is-possible"),
    # Another name for the device.
    ("resnet50_bf16", "accelerator.name", "NVIDIA H100 80GB HBM3", "device-is-that-of-its-name"),
    ("resnet50_bf16", "accelerator.name", "NVIDIA A100-SXM4-80GB", "device-is-that-of-its-name"),
    ("resnet50_bf16", "accelerator.name", "AMD Instinct MI300X", "device-is-that-of-its-name"),
    ("resnet50_bf16", "accelerator.memory_mib", 81559.0, "device-is-that-of-its-name"),
    ("resnet50_bf16", "accelerator.vendor", "AMD", "device-is-that-of-its-name"),
    # Counts, and another workload's title, or one of its own.
    ("resnet50_bf16", "host.threads.value", 10**9, "facts-are-possible"),
    ("resnet50_bf16", "configuration.replicas", 10**9, "sizes-are-possible"),
    ("resnet50_bf16", "accelerator.count", 10**9, "sizes-are-possible"),
    ("resnet50_bf16", "configuration.batch_size", 10**308, "sizes-are-possible"),
    ("resnet50_bf16", "workload.title", "ResNet-50 v1.5 on eight GPUs", "workload-is-that-of-its-identity"),
    # Steps that are too short for a number.
    ("resnet50_bf16", "steps.seconds", lambda values: [5e-324] * len(values), "sizes-are-possible"),
]


@pytest.mark.parametrize(
    ("name", "path", "change", "code"), ON_AN_H200, ids=[f"{path}-{code}" for _, path, _, code in ON_AN_H200]
)
def test_what_an_h200_cannot_do_is_refused(name, path, change, code):
    document = of_h200(name)
    assert violations(document) == []
    assert code in codes(put(document, path, change))


def test_rows_of_tables_may_be_half_as_fast_again_as_the_memory():
    """Some of them, and of their sums, stay in caches."""
    document = put(of_h200("memory_copy"), "points.operation", "embedding_bag")
    for factor, refused in ((1.8, False), (2.0, True)):
        faster = put(document, "points.measured", scaled_points(factor))
        assert ("points-are-possible" in codes(faster)) == refused


def copies_of_today():
    """The copies of an H200 as a run writes them today."""
    document = put(of_h200("memory_copy"), "schema_version", "1.2")
    document["points"]["last_level_cache"] = {"value": 60.0, "unit": "MiB", "source": "its vendor"}
    document["metrics"].update(copies.metrics_of(document))
    return document


COPIES = [
    ("metrics.memory_bandwidth.value", 4150.0, "peaks-are-the-largest-points"),
    ("metrics.memory_bandwidth_size.value", 256.0, "peaks-are-the-largest-points"),
    ("metrics.cached_bandwidth.value", 3559.0, "peaks-are-the-largest-points"),
    ("metrics.peak_bandwidth", {"value": 4146.553868383315, "unit": "GB/s"}, "peaks-are-the-largest-points"),
    ("points.last_level_cache", {"value": None, "unit": "MiB", "reason": "no"}, "memory-is-beyond-the-caches"),
    ("points.last_level_cache", None, "memory-is-beyond-the-caches"),
    ("points.operation", "host_device", "memory-is-beyond-the-caches"),
    ("metrics.memory_bandwidth.value", 5500.0, "memory-is-beyond-the-caches"),
]


@pytest.mark.parametrize(
    ("path", "value", "code"), COPIES, ids=[f"{path}-{code}-{number}" for number, (path, _, code) in enumerate(COPIES)]
)
def test_copies_in_caches_are_none_in_memory(path, value, code):
    document = copies_of_today()
    assert code not in codes(document)
    assert code in codes(put(document, path, value))


def test_with_smaller_caches_a_copy_in_them_is_still_none_in_memory():
    """An H200 whose caches are said to hold nothing, and whose copies within them are faster than its memory."""
    document = put(copies_of_today(), "points.last_level_cache.value", 0.1)
    for row in document["points"]["measured"]:
        if row["size"] <= 2**24:
            row["bus_bandwidth_gb_per_second"] = 40000.0
    document["metrics"].update(copies.metrics_of(document))
    assert document["metrics"]["memory_bandwidth"]["value"] == 40000.0
    assert "memory-is-beyond-the-caches" in codes(document)


@pytest.mark.parametrize(("model", "vendor"), [("AMD EPYC", "AuthenticAMD"), ("Intel(R) Xeon(R)", "GenuineIntel")])
def test_a_processor_is_of_the_vendor_of_its_name(genuine, model, vendor):
    document = put(put(genuine["cpu"], "accelerator.name", model), "host.cpu_model.value", model)
    document["accelerator"]["vendor"] = vendor
    assert violations(document) == []
    assert "device-is-one-of-its-kind" in codes(put(document, "accelerator.vendor", "ARM"))


def test_a_warm_up_does_not_take_the_slow_steps():
    document = of_h200("gpt_117m_bf16")
    assert "warmup-is-no-refuge" in codes(swapped(document))
    seconds = document["steps"]["seconds"]
    early = put(document, "steps.seconds", [9.0, 9.0, *seconds[2:]])  # compilation, and what is tried once
    assert "warmup-is-no-refuge" not in codes(early)


def test_a_rank_has_no_negative_memory(genuine):
    for field, value in (("peak_process_memory", -1.0), ("peak_allocated_memory", -1e9), ("window", -1.0)):
        assert "ranks-are-possible" in codes(put(genuine["ranks"], f"ranks.1.{field}.value", value))


@pytest.mark.parametrize("pair", [(1.0, math.inf), (math.inf, math.inf), (-math.inf, 0.0), (math.nan, math.nan)])
def test_no_number_is_near_infinity(pair):
    assert not near(*pair) and near(0.1 + 0.2, 0.3)


def raising(cause):
    def check(facts):
        if facts.count:
            raise cause
        yield "never"

    return Rule("a-rule", "", "", "", check)


@pytest.mark.parametrize(
    "cause",
    [OverflowError("too large"), KeyError("a"), TypeError("'<'"), RecursionError(), MemoryError(), UsageError("no")],
    ids=lambda cause: type(cause).__name__,
)
def test_a_rule_that_raises_whatever_it_is_says_that_it_cannot_be_checked(monkeypatch, cause):
    monkeypatch.setitem(RULES, "a-rule", raising(cause))
    (text,) = violations(of_h200("resnet50_bf16"))
    assert text.startswith(f"it cannot be checked: {type(cause).__name__}: ") and text.endswith(" [a-rule]")


@pytest.mark.parametrize("word", ["NaN", "", "1e400", "x" * 60])
@pytest.mark.parametrize("option", ["--idle-seconds", "--memory-limit", "--largest-size", "--seed", "--batch-size"])
def test_a_command_line_that_no_image_reads_is_refused(option, word):
    document = of_h200("resnet50_bf16")
    document["provenance"]["command"] += [option, word]
    assert "command-is-what-was-configured" in codes(document)


SIZES = [
    ("configuration.device_iterations", 10**400),
    ("configuration.batch_size", 1e308),
    ("configuration.stages", 10**7),
    ("configuration.threads", 10**13),
    ("accelerator.ranks", 10**9),
    ("steps.seconds.0", 1e308),
    ("steps.seconds.0", 1e-100),
    ("steps.seconds.0", math.inf),
    ("steps.seconds.0", math.nan),
    ("steps.losses", lambda values: values * 100),
    ("provenance.command", ["x"] * 10**5),
    ("environment.variables", {"x" * 10**4: ""}),
    ("status.message", "x" * 10**4),
    ("status.message", "\u00e9" * 10**4),
]


@pytest.mark.parametrize(("path", "change"), SIZES, ids=[f"{number} {path}" for number, (path, _) in enumerate(SIZES)])
@pytest.mark.parametrize("state", ["completed", "inconsistent"])
def test_what_is_too_large_is_judged_by_no_other_rule(monkeypatch, state, path, change):
    monkeypatch.setitem(RULES, "a-rule", raising(KeyError("it was judged")))
    document = put(put(of_h200("resnet50_bf16"), "status.state", state), path, change)
    assert codes(document) == {"sizes-are-possible"}


def test_numbers_that_runs_have_are_no_sizes():
    document = of_h200("resnet50_bf16")
    for value in (0, 0.0, 1e-99, -1e-45, 5e38, -3.4e38):
        assert "sizes-are-possible" not in codes(put(document, "steps.losses", [value]))
    ranks = put(document, "ranks", [{"rank": number} for number in range(16_000)])
    assert "sizes-are-possible" not in codes(ranks)


def test_a_rule_lists_a_few_of_many_contradictions():
    document = put(
        of_h200("resnet50_bf16"), "numerics.run_checks", [{"check": "x", "state": "failed", "faults": []}] * 999
    )
    said = [text for text in violations(document) if text.endswith("[checks-follow-from-deviations]")]
    assert len(said) == MOST


def whole_numbers(value, path=()):
    """The paths of the whole numbers of a document."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from whole_numbers(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value[:2]):
            yield from whole_numbers(item, (*path, str(number)))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield ".".join(path)


def work_of(document):
    """The lines of Python that the rules execute, and the most memory that they hold meanwhile, in bytes."""
    lines = 0

    def count(frame, event, argument):
        nonlocal lines
        lines += 1
        return count

    violations(document)  # tables are read once
    tracemalloc.start()
    sys.settrace(count)
    try:
        violations(document)
    finally:
        sys.settrace(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return lines, peak


@pytest.mark.parametrize("name", ["resnet50_bf16", "memory_copy"])
def test_no_number_of_a_result_says_how_much_work_its_rules_are(name):
    """Each whole number is the largest that it may be."""
    document = of_h200(name)
    lines, peak = work_of(document)
    for path in whole_numbers(document):
        large = 10**6 if re.search("replicas|stages|instances|accelerator", path) else 10**12
        more, held = work_of(put(document, path, large))
        assert more < 2 * lines and held < 2 * peak + 2**20, path


def staged(document):
    """The result of two ranks with a copy each, as that of two with a stage each."""
    given = document["configuration"]
    changes = {
        "replicas": 1,
        "stages": 2,
        "strategy": "pipelined",
        "micro_batch_size": given["batch_size"] // 2,
        "gradient_accumulation": 2,
    }
    document = {**document, "configuration": {**given, **changes}}
    words = [word.replace("--replicas", "--stages") for word in document["provenance"]["command"]]
    return put(put(document, "provenance.command", words), "accelerator.replicas", 1)


def test_stages_of_a_pipeline_compute_one_batch_together(genuine):
    document = staged(genuine["ranks"])
    assert not codes(document)
    for path, change, rule in (
        ("steps.units", lambda units: 2 * units, "units-are-steps-times-batch"),
        ("configuration.strategy", "ddp", "settings-fit-the-task"),
        ("configuration.strategy", "sharded", "settings-fit-the-task"),
        ("configuration.strategy", None, "settings-fit-the-task"),
        ("configuration.replicas", 2, "settings-fit-the-task"),
        ("configuration.stages", 3, "ranks-are-all-there"),
        ("configuration.stages", 4, "command-is-what-was-configured"),
        ("accelerator.replicas", 2, "device-is-that-asked-for"),
        ("workload.task", "inference", "settings-fit-the-task"),
    ):
        assert rule in codes(put(document, path, change)), (path, rule)


def test_what_only_a_host_can_say(genuine):
    host = put(genuine["training"], "configuration.device", "cpu")
    assert "losses-are-possible" not in codes(host)
    assert "losses-are-possible" in codes(put(host, "steps.losses.3", None))
    assert "settings-fit-the-device" in codes(put(host, "accelerator.ranks", 8))
    assert "settings-fit-the-device" in codes(put(host, "configuration.replicas", 2))
    assert "settings-fit-the-device" in codes(put(host, "configuration.stages", 2))
    for_a_time = put(put(host, "configuration.steps", None), "configuration.duration_seconds", 1e-3)
    assert "window-is-no-longer-than-asked-for" in codes(for_a_time)


def test_no_run_is_longer_than_its_limit(genuine):
    document = put(genuine["training"], "provenance.simulated", False)
    document["configuration"]["time_limit_seconds"] = 60.0
    assert "state-can-be-reached" not in codes(document)
    assert "state-can-be-reached" in codes(put(document, "phases.import.seconds", 63.0))
    soon = put(put(document, "status.state", "time_limit"), "configuration.time_limit_seconds", 1e5)
    assert "state-can-be-reached" in codes(soon)


def test_the_meters_of_rules_measure_what_their_modules_say():
    modules = {name: importlib.import_module(f"entrypoints.metering.meters.{name}") for name in meters.names()}
    assert {name: meter.devices for name, meter in energy.METERS.items()} == {
        name: module.MEASURES for name, module in modules.items()
    }


@pytest.mark.parametrize(
    ("meter", "device", "source", "scope", "method", "fits"),
    [
        ("auto", "cuda", "nvml", "package", "counter", True),
        ("amd:0", "cuda", "rocm_smi", "package", "integral", True),
        ("auto", "cpu", "acpi_power_meter", "package", "integral", True),
        ("grace_hopper:0", "cuda", "acpi_power_meter", "board", "integral", True),
        ("intel", "xpu", "drm_hwmon", "board", "counter", True),
        ("auto", "hpu", "hlml", "board", "counter", True),
        ("auto", "cpu", "nvml", "package", "counter", False),
        ("nvml", "cpu", "nvml", "package", "counter", False),
        ("rapl", "cpu", "rapl", "board", "counter", False),
        ("rapl", "cpu", "rapl", "package", "integral", False),
        ("auto", "cpu", "magic", "package", "counter", False),
    ],
)
def test_a_meter_has_a_source_a_scope_and_a_method(genuine, meter, device, source, scope, method, fits):
    document = genuine["training"]
    for path, value in {
        "configuration.meter": meter,
        "configuration.device": device,
        "power.source": source,
        "power.scope": scope,
        "power.method": method,
    }.items():
        document = put(document, path, value)
    assert ("energy-has-a-meter" not in codes(document)) is fits


@pytest.mark.parametrize(("kind", "refused"), [("cuda", True), ("hpu", False)])
def test_a_build_of_pytorch_for_cpus_has_no_gpus(genuine, kind, refused):
    """Intel's bridge for Gaudi takes such builds."""
    document = put(put(genuine["cpu"], "accelerator.kind", kind), "configuration.device", kind)
    assert any("2.6.0+cpu, which is for CPUs" in text for text in violations(document)) is refused


def test_without_a_meter_there_is_no_energy(genuine):
    """A busy machine may give the double's own run too few readings for one."""
    document = put(genuine["training"], "power", {"reason": "nothing was metered"})
    assert "energy-has-a-meter" in codes(put(document, "metrics.energy", {"value": 5.0, "unit": "J"}))


def test_chains_mix_as_far_as_they_are_drawn(genuine):
    """40 draws of 3 chains, that is 6 halves of 20."""
    document = genuine["chains"]
    document = put(document, "steps.seconds", [0.5] * 42)
    document = put(put(document, "steps.count", 42), "steps.untimed", 2)
    document = put(document, "metrics.acceptance_rate", {"value": 0.5, "unit": "1"})

    def judged(size, spread, rate):
        changes = {
            "effective_sample_size": (size, "samples"),
            "r_hat": (spread, "1"),
            "effective_sample_throughput": (rate, "samples/s"),
        }
        forged = document
        for name, (value, unit) in changes.items():
            forged = put(forged, f"metrics.{name}", {"value": value, "unit": unit})
        return codes(forged) & {"chains-mix-as-far-as-drawn", "chains-are-judged-by-draws"}

    assert not judged(30.0, 1.0, 1.5) and not judged(4.5, 3.0, 0.225)
    assert judged(30.0, 1.0, 3.0) == {"chains-mix-as-far-as-drawn"}
    assert judged(300.0, 1.0, 15.0) == {"chains-mix-as-far-as-drawn"}
    assert judged(30.0, 0.5, 1.5) == {"chains-mix-as-far-as-drawn"}
    assert judged(4.5, 1.0, 0.225) == {"chains-mix-as-far-as-drawn"}


def test_samples_are_skipped_once(genuine):
    document = put(put(genuine["training"], "data.source", "idx"), "data.samples", 40)
    rule = "samples-are-skipped-once"
    names_of = [f"train-images-idx3-ubyte/{number}" for number in range(2)]
    assert rule not in codes(put(document, "data.skipped", {"count": 2, "examples": names_of}))
    assert rule in codes(put(document, "data.skipped", {"count": 2, "examples": 2 * names_of[:1]}))
    assert rule in codes(put(document, "data.skipped", {"count": 2, "examples": ["a", "b"]}))
    assert rule in codes(put(document, "data.skipped", {"count": 1000, "examples": names_of}))


@pytest.mark.parametrize(
    ("mode", "kind", "counts", "execution", "wrong"),
    [
        ("default", "cpu", {}, "compiled by TorchInductor (default), channels_last", None),
        ("default", "cpu", {"graph_breaks": 2}, "compiled by TorchInductor (default), channels_last", "execution"),
        ("default", "cpu", {"graph_breaks": 2}, "compiled by TorchInductor (default), with graph breaks", None),
        ("default", "cpu", {"cuda_graphs": 2}, "compiled by TorchInductor, replayed as CUDA graphs", "cuda_graphs"),
        ("reduce-overhead", "cuda", {"cuda_graphs": 2}, "compiled by TorchInductor, replayed as CUDA graphs", None),
        ("reduce-overhead", "cuda", {"cuda_graphs": 0}, "compiled by TorchInductor, replayed as CUDA graphs", "exec"),
        (None, "cpu", {}, "eager", "compiled nothing"),
    ],
)
def test_what_was_counted_is_what_is_said(genuine, mode, kind, counts, execution, wrong):
    document = copy.deepcopy(genuine["cpu"])
    document["configuration"].update(compile=mode, framework="pytorch")
    compilation = {**COUNTED, "graph_breaks": 0, **counts}
    document["accelerator"].update(kind=kind, execution=execution, compilation=compilation)
    said = [text for text in violations(document) if "[execution-is-what-was-counted]" in text]
    assert bool(said) == (wrong is not None) and (wrong is None or wrong in said[0])


@pytest.mark.parametrize(
    ("updates", "precision", "agrees"), [(3, "fp16", True), (0, "fp16", False), (3, "fp32", False)]
)
def test_only_a_scaler_skips_updates(genuine, updates, precision, agrees):
    document = copy.deepcopy(genuine["cpu"])
    document["configuration"]["precision"] = precision
    document["steps"]["updates"] = updates
    assert ("updates-follow-from-steps" not in codes(document)) == agrees
