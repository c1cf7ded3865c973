"""Metrics of measurements made by hand, where every number can be checked on paper."""

from __future__ import annotations

import dataclasses
import math

import pytest
from metered import recorded

from entrypoints.contract import cards
from entrypoints.contract.messages import Data, Ended, Generated, Message, Phase, Scheduled, Skipped, Step
from entrypoints.contract.session import DEVICE_CONDITIONS, DeviceConditions, DeviceFacts, Usage
from entrypoints.metering.meter import Absence
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.results import result
from entrypoints.results.measurement import fold
from entrypoints.results.metrics import compute, devices, energy, generation, throughput, tokens, training
from entrypoints.results.metrics.by_workload import every_metric
from entrypoints.results.metrics.metric import NO_TIME, STEPS_FOR_P99
from entrypoints.results.metrics.operations import OF_TWO_PEAKS
from entrypoints.results.quantiles import quantile
from entrypoints.results.roofline import Flops

# Two packages, each of which can do 312e12 operations in a second.
DEVICE = DeviceFacts("cuda", "NVIDIA", "NVIDIA A100-SXM4-40GB", 2, "package", 81920.0, 1, 1, "eager", simulated=True)
# Phases begin at 0, 2, 3, 5, 10 and 12 s; four timed steps of 1, 2, 3 and 4 s, of which 0, 1, 0 and 1 s waited.
MESSAGES: list[Message] = [
    Phase("import", 100.0),
    Phase("data", 102.0),
    Phase("model", 103.0),
    DEVICE,
    Phase("compile", 105.0),
    Step(5.0, 0.0, 8, 1, 7.0),
    Phase("warmup", 110.0),
    Step(2.0, 0.0, 8, 1, 6.0),
    Phase("steady", 112.0),
    Step(1.0, 0.0, 8, 1, 5.0),
    Step(2.0, 1.0, 8, 1, 4.0),
    Step(3.0, 0.0, 8, 1, 3.0),
    Step(4.0, 1.0, 8, 1, 2.0),
    Ended(122.5),
]
# The meter shows 50 W and a counter that agrees, at 10 Hz from 99 s to 125 s; until 104 s nothing of ours ran.
POWER = recorded(26.0, watts=lambda at: 50.0, joules=lambda at: 50.0 * at, began=99.0)._replace(idle_until=104.0)
RUN = fold(
    [
        DeviceConditions({"driver": {"value": "550.1"}, "clock": {"value": 1410, "unit": "MHz"}}, None),
        *MESSAGES,
        Usage(100.0, 200.0, 300.0, 60.0),
        DeviceConditions({"clock": {"value": 1095, "unit": "MHz"}}, None),
    ],
    "images",
    "training",
    steps_per_epoch=2,
    peak_process_mib=12.5,
    power=POWER,
    flops=Flops(2 * 10**12, 10**12),
    precision="bf16",
)
NOTHING = fold([], "images", "training")


def test_phases_last_until_the_next_one():
    assert RUN.phases == {"import": 2.0, "data": 1.0, "model": 2.0, "compile": 5.0, "warmup": 2.0, "steady": 10.5}
    assert RUN.last_phase == "steady" and NOTHING.last_phase is None


def test_a_phase_that_did_not_end_has_no_duration():
    cut = fold(MESSAGES[:7], "images", "training")
    assert cut.phases == {"import": 2.0, "data": 1.0, "model": 2.0, "compile": 5.0}
    assert cut.last_phase == "warmup"


@pytest.mark.parametrize(
    ("name", "value", "unit"),
    [
        ("throughput", 32 / 10, "images/s"),
        ("throughput_per_device", 32 / 10 / 2, "images/s"),
        ("step_time_mean", 2.5, "s"),
        ("step_time_p50", 2.5, "s"),
        ("step_time_p90", 3.7, "s"),
        ("step_time_p95", 3.85, "s"),
        ("data_wait_fraction", 0.2, "1"),
        ("time_to_first_step", 10.0, "s"),
        ("training_time", 17.0, "s"),
        ("epoch_time", (3 + 7) / 2, "s"),
        ("final_loss", 2.0, "1"),
        ("peak_process_memory", 12.5, "MiB"),
        ("peak_allocated_memory", 100.0, "MiB"),
        ("peak_reserved_memory", 200.0, "MiB"),
        ("peak_allocated_memory_of_window", 60.0, "MiB"),
        ("host_device_traffic", 300.0, "MiB"),
        ("achieved_flops", 3.2e12, "FLOP/s"),
        ("utilisation", 3.2 / 624, "1"),
        ("achieved_flops_full_attention", 6.4e12, "FLOP/s"),
        ("utilisation_full_attention", 6.4 / 624, "1"),
        ("energy", 500.0, "J"),
        ("energy_per_device", 500.0, "J"),
        ("energy_per_unit", 500 / 32, "J/image"),
        ("units_per_watt_hour", 32 * 3600 / 500, "images/Wh"),
        ("throughput_per_watt", 3.2 / 50, "images/s/W"),
        ("power_mean", 50.0, "W"),
        ("energy_per_epoch", (150 + 350) / 2, "J"),
    ],
)
def test_values(name, value, unit):
    metric = every_metric()[name](RUN)
    assert metric.value == pytest.approx(value, rel=1e-9)
    assert (metric.unit, metric.reason) == (unit, None)


def test_a_99th_percentile_is_of_a_hundred_steps_at_least():
    steps = [Step(0.01 * number, 0.0, 8, 1, None) for number in range(1, STEPS_FOR_P99 + 1)]
    enough = fold([Phase("steady", 0.0), *steps], "images", "training")
    few = fold([Phase("steady", 0.0), *steps[1:]], "images", "training")
    p99, p95 = every_metric()["step_time_p99"], every_metric()["step_time_p95"]
    assert p99(enough).value == pytest.approx(0.9901)
    assert p99(few).value is None and p95(few).value is not None
    assert p99(few).reason == "99 timed steps, and this needs 100: ask for more --steps or a longer --duration"
    assert p99(NOTHING).reason == p95(NOTHING).reason


TEXTS: list[Message] = [
    Phase("steady", 112.0),
    # Each batch waits 0.5 s, its prompts take 1.5 s, and seven more tokens of each of 4 texts 0.5 s each.
    *[Step(5.5, 0.5, 4, 0, None, None, None, 32, 0, Generated(256, 1.5, [0.5] * 7)) for _ in range(2)],
]


def test_the_energy_of_decoding_is_without_that_of_prompts():
    """Prompts take 700 W, and tokens after them 100 W."""
    power = recorded(26.0, watts=lambda at: 700.0 if (at - 112.0) % 5.5 < 2.0 else 100.0, began=99.0, period=0.01)
    run = fold(TEXTS, "sequences", "inference", power=power)
    assert tokens.tokens_per_watt_hour(run).value == pytest.approx(64 * 3600 / 3500, rel=0.01)
    assert generation.decode_tokens_per_watt_hour(run).value == pytest.approx(56 * 3600 / 700, rel=0.02)
    slow = recorded(26.0, watts=lambda at: 100.0, began=99.0, period=0.5)
    reason = generation.decode_tokens_per_watt_hour(fold(TEXTS, "sequences", "inference", power=slow)).reason
    assert "the window of 3.5 s is shorter than 20 periods of 0.5 s" in str(reason)
    assert generation.decode_tokens_per_watt_hour(RUN).reason == generation.NOT_GENERATED


def test_training_time_is_of_training_and_counts_the_steps_until_a_failure():
    assert "trains nothing" in str(training.training_time(fold(MESSAGES, "images", "inference")).reason)
    assert training.training_time(fold(MESSAGES[:9], "images", "training")).value == 7.0


def test_energy_per_device_is_the_mean_over_the_meter_s_devices():
    facts = POWER.facts._replace(devices=("a", "b"), counter_ranges=(None, None))
    halves = [[at / 2 for at in joules] for joules in POWER.joules]
    both = POWER._replace(facts=facts, watts=[POWER.watts[0]] * 2, joules=[POWER.joules[0], *halves])
    run = fold(MESSAGES, "images", "training", power=both)
    assert energy.energy(run).value == pytest.approx(750.0)
    assert energy.energy_per_device(run).value == pytest.approx(375.0)


def test_throughput_per_device_needs_a_session_that_told_of_them():
    untold = fold([message for message in MESSAGES if not isinstance(message, DeviceFacts)], "images", "training")
    assert throughput.throughput(untold).value and "how many devices" in str(
        throughput.throughput_per_device(untold).reason
    )


def test_the_rate_of_decoding_is_that_of_the_timed_steps_and_of_one_worker_or_all():
    warmup: list[Message] = [
        Data(99, 3, None, 4),
        Phase("warmup", 0.0),
        Step(1.0, 0.0, 8, 1, None, None, 9.0),
        Phase("steady", 1.0),
    ]
    run = fold([*warmup, *[Step(1.0, 0.0, 8, 1, None, None, 0.5)] * 2], "images", "training")
    assert throughput.decode_rate(run) == (16.0, "images/s", None)
    assert throughput.decode_rate_of_all_workers(run) == (64.0, "images/s", None)
    alone = fold(
        [Data(99, 3, None, 0), Phase("steady", 1.0), Step(1.0, 0.0, 8, 1, None, None, 0.5)], "images", "training"
    )
    assert throughput.decode_rate_of_all_workers(alone).value == 16.0, "the main process decodes"
    undecoded = throughput.decode_rate(fold([Phase("steady", 1.0), Step(1.0, 0.0, 8, 1, None)], "images", "training"))
    assert undecoded == (None, "images/s", "nothing was decoded")


def test_every_public_function_is_a_metric_and_nothing_else():
    assert set(every_metric()) == {
        "checkpoint_blocked_fraction",
        *("throughput_per_device", "energy_per_device", "training_time", "epoch_time"),
        *("time_to_target", "evaluation_time", "rank_spread", "rank_epoch_time_mean"),
        *("throughput", "data_wait_fraction", "time_to_first_step", "final_loss", "peak_process_memory"),
        *("peak_allocated_memory", "peak_reserved_memory", "host_device_traffic", "achieved_flops", "utilisation"),
        *("energy", "energy_per_unit", "units_per_watt_hour", "throughput_per_watt", "power_mean", "energy_per_epoch"),
        *("step_time_mean", "step_time_p50", "step_time_p90", "step_time_p95", "step_time_p99"),
        *("acceptance_rate", "effective_sample_size", "effective_sample_throughput", "r_hat"),
        *("latency_mean", "latency_p50", "latency_p90", "latency_p95", "latency_p99", "latency_max"),
        *("latency_preprocessing_mean", "latency_transfer_mean", "latency_compute_mean"),
        *("latency_retrieval_mean", "latency_other_mean", "decode_rate", "decode_rate_of_all_workers"),
        *("token_throughput", "padding_fraction", "tokens_per_watt_hour", "prefill_throughput", "decode_throughput"),
        *("time_to_first_token_p50", "time_to_first_token_p90", "time_to_first_token_p99"),
        *("time_per_output_token_p50", "time_per_output_token_p90", "time_per_output_token_p99", "sent_late_p99"),
        *("input_token_throughput", "output_token_throughput", "output_token_throughput_per_device"),
        *("energy_per_output_token", "goodput"),
        *("time_between_tokens_p50", "time_between_tokens_p90", "time_between_tokens_p99"),
        *("peak_bandwidth", "peak_flops", "small_message_latency", "utilisation_of_measured_peak"),
        *("memory_bandwidth", "memory_bandwidth_size", "cached_bandwidth", "cached_bandwidth_size"),
        *("achieved_flops_full_attention", "utilisation_full_attention"),
        *("utilisation_of_measured_peak_full_attention", "throughput_bound", "fraction_of_bound"),
        *("peak_allocated_memory_of_window", "throttled_fraction", "core_clock", "decode_tokens_per_watt_hour"),
        "time_to_result",
    }


def test_without_steps_every_metric_is_null_with_a_reason():
    for name, metric in every_metric().items():
        quantity = metric(NOTHING)
        assert quantity.value is None and quantity.reason, name


def test_what_the_device_could_not_tell_has_its_reason():
    run = fold([DEVICE, *MESSAGES, Usage("no count", 1.0, "no bus")], "images", "training", flops=Flops(1, 1))
    assert devices.peak_allocated_memory(run) == (None, "MiB", "no count")
    assert devices.peak_reserved_memory(run).value == 1.0
    assert devices.host_device_traffic(run).reason == "no bus"
    assert compute.utilisation(run).reason == "no cited peak for NVIDIA A100-SXM4-40GB (package) in None"


def test_a_run_in_fp8_has_no_single_peak():
    run = fold([DEVICE, *MESSAGES], "images", "training", flops=Flops(1, 1), precision="fp8")
    assert compute.achieved_flops(run).value is not None
    assert compute.utilisation(run) == (None, "1", OF_TWO_PEAKS)


def test_the_conditions_of_devices_before_and_after():
    before, after = result.device_conditions(RUN.conditions), result.device_conditions(RUN.conditions_after)
    assert (before["clock"]["value"], after["clock"]["value"]) == (1410, 1095)
    assert before["driver"] == {"value": "550.1"} and set(before) == set(after) == set(DEVICE_CONDITIONS)
    assert after["driver"] == {"value": None, "reason": "the device does not report it"}
    cut = fold([DEVICE, DeviceConditions({}, None)], "images", "training")
    assert set(result.device_conditions(cut.conditions)) == set(DEVICE_CONDITIONS)
    assert "did not answer" in result.device_conditions(cut.conditions_after)["reason"]


def test_the_run_delay_is_the_waiting_part_of_processor_time():
    delay = result.run_delay(fold([*MESSAGES, Scheduled(10.0, 7.6, 0.4)], "images", "training"))
    assert delay == {"value": 5.0, "unit": "%"}
    assert result.run_delay(RUN)["reason"] == "the timed window did not end"
    uncounted = result.run_delay(fold([*MESSAGES, Scheduled(10.0, 0.0, 0.0)], "images", "training"))
    assert uncounted["value"] is None and "schedstat" in uncounted["reason"]


def test_the_time_to_a_result_is_that_of_check_and_run():
    metric = every_metric()["time_to_result"](dataclasses.replace(RUN, whole_seconds=40.5))
    assert metric == (40.5, "s", None)
    assert every_metric()["time_to_result"](dataclasses.replace(NOTHING, whole_seconds=40.5)).value is None


def test_inference_has_no_loss():
    loss = training.final_loss(fold(MESSAGES, "images", "inference"))
    assert loss.value is None and "inference" in str(loss.reason)


def test_the_final_loss_is_the_last_finite_one():
    loss = training.final_loss(fold([*MESSAGES[:-1], Step(1.0, 0.0, 8, 1, math.inf)], "images", "training"))
    assert loss.value == 2.0


def test_epochs_are_whole_and_the_first_has_compilation_in_it():
    assert result.epochs(RUN) == [
        {"index": 1, "seconds": 7.0, "units": 16, "steps": 2, "energy": approximately(350.0)},
        {"index": 2, "seconds": 3.0, "units": 16, "steps": 2, "energy": approximately(150.0)},
        {"index": 3, "seconds": 7.0, "units": 16, "steps": 2, "energy": approximately(350.0)},
    ]
    assert len(fold(MESSAGES[:-2], "images", "training", steps_per_epoch=2).epochs) == 2
    assert fold(MESSAGES, "images", "training").epochs == []


def approximately(joules):
    return {"value": pytest.approx(joules, rel=1e-9), "unit": "J"}


def test_energy_per_epoch_needs_a_second_epoch_and_all_of_them_metered():
    first_only = fold(MESSAGES[:8], "images", "training", steps_per_epoch=2, power=POWER)
    assert len(first_only.epochs) == 1 and "after the first" in str(energy.energy_per_epoch(first_only).reason)
    gap = [at for at in POWER.times if not 116.0 < at < 117.0]  # in the third epoch
    broken = POWER._replace(times=gap, watts=[[50.0] * len(gap)], joules=[[50.0 * at for at in gap]])
    mean = energy.energy_per_epoch(fold(MESSAGES, "images", "training", steps_per_epoch=2, power=broken))
    assert mean.value is None and "gap" in str(mean.reason)
    assert "not defined" in str(energy.energy_per_epoch(fold(MESSAGES, "images", "training", power=POWER)).reason)


@pytest.mark.parametrize(
    ("device", "scope", "simulated", "computed", "counted"),
    [
        ("GPU-1", "package", False, "GPU-1", True),
        ("GPU-2", "package", False, "GPU-1", False),
        ("GPU-2 with all its MIG instances", "package", False, "MIG-1", True),  # an instance has a name of its own
        ("GPU-2 with all its MIG instances", "package", False, "GPU-1", False),
        ("GPU-2", "package", True, "GPU-1", True),  # a trace, played back
        ("Module Power Socket 0", "board", False, "GPU-1", True),  # all of a Grace Hopper module
    ],
)
def test_a_meter_of_another_device_than_the_one_that_computed_tells_nothing(
    device, scope, simulated, computed, counted
):
    facts = POWER.facts._replace(source="nvml", scope=scope, devices=(device,), simulated=simulated)
    power = POWER._replace(facts=facts)
    named = [
        message._replace(identifier=computed, simulated=False) if message is DEVICE else message for message in MESSAGES
    ]
    run = fold(named, "images", "training", power=power)
    assert (energy.energy(run).value is not None) == counted
    if not counted:
        assert isinstance(run.power, Absence)
        assert run.power.reason == f"nvml read {device}, and {computed} computed: name it, --meter nvml:{computed}"


def test_without_a_meter_no_energy_is_told_and_the_meter_s_reason_stands_in_one_place():
    run = fold(MESSAGES, "images", "training", power=Absence("no meter measures abacuses"))
    for name in ("energy", "energy_per_unit", "units_per_watt_hour", "throughput_per_watt", "power_mean"):
        assert every_metric()[name](run)[::2] == (None, "nothing was metered: power says why")
    assert result.power(run) == {"reason": "no meter measures abacuses"}


def test_the_part_on_power():
    power = result.power(RUN)
    assert (power["source"], power["scope"], power["method"], power["failed_readings"]) == (
        "made up",
        "board",
        "counter",
        0,
    )
    assert power["samples"] == 102  # 10 s at 10 Hz, and the two around the window's edges
    assert power["idle"]["duration"]["value"] == pytest.approx(5.0)
    assert power["idle"]["power"]["value"] == pytest.approx(50.0)
    assert power["counter_integral_difference"]["value"] == pytest.approx(0.0, abs=1e-9)
    assert power["devices"][0]["energy"]["value"] == pytest.approx(500.0)
    assert power["devices"][0]["power_mean"]["value"] == pytest.approx(50.0)


def test_the_course_of_power_is_on_the_clock_of_the_timed_window():
    trace = result.power(RUN)["trace"]
    assert trace["window_seconds"] == pytest.approx(RUN.window)
    assert trace["rest_until_seconds"] == pytest.approx(104.0 - RUN.timed_edges[0])
    assert trace["begin_seconds"] == pytest.approx(99.0 - RUN.timed_edges[0], abs=trace["interval_seconds"])
    assert set(trace["watts"]) == {50.0}


def test_without_energy_there_is_no_course_of_power():
    assert "trace" not in result.power(fold(MESSAGES, "images", "training", power=POWER._replace(failures=1, times=[])))
    reset = POWER._replace(joules=[[50.0 * at % 100 for at in POWER.times]])
    assert "trace" not in result.power(fold(MESSAGES, "images", "training", power=reset))


def test_idle_power_that_was_not_measured_says_why():
    def idle(power):
        return result.power(fold(MESSAGES, "images", "training", power=power))["idle"]

    assert "--idle-seconds 0" in idle(POWER._replace(idle_until=None))["power"]["reason"]
    short = idle(POWER._replace(idle_until=100.0))
    assert short["duration"]["value"] == pytest.approx(1.0) and "shorter than 20 periods" in short["power"]["reason"]
    nothing = POWER._replace(times=[], watts=[[]], joules=[[]], failures=9, last_failure="the driver is gone")
    assert "the driver is gone" in idle(nothing)["duration"]["reason"]


def test_steps_are_kept_up_to_a_thousand_and_summarised_beyond():
    few = result.steps(fold([Phase("steady", 0.0), *[Step(1.0, 0.0, 1, 1, None)] * 1000], "images", "training"))
    many = result.steps(fold([Phase("steady", 0.0), *[Step(1.0, 0.0, 1, 1, None)] * 1001], "images", "training"))
    assert len(few["seconds"]) == 1000
    assert many["seconds"] is None and many["losses"] is None
    assert many["count"] == 1001 and many["quantiles"]["p50"] == 1.0


def test_quantiles_of_the_timed_steps_only():
    assert result.steps(RUN)["quantiles"]["p100"] == 4.0
    assert result.steps(NOTHING)["quantiles"] is None


def test_skipped_files_are_counted_and_ten_named():
    run = fold([Skipped(f"cat/{number}.jpg") for number in range(12)], "images", "training")
    data = result.data(run, resolve(parse([]), cards.load()["resnet50"], None))
    assert data["skipped"] == {"count": 12, "examples": [f"cat/{number}.jpg" for number in range(10)]}


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([3.0], 0.99, 3.0), ([1.0, 2.0], 0.5, 1.5), ([4.0, 1.0, 3.0, 2.0], 0.25, 1.75), ([1.0, 9.0], 1.0, 9.0)],
)
def test_quantile_by_hand(values, share, expected):
    assert quantile(values, share) == expected


def test_quantile_is_numpys():
    numpy = pytest.importorskip("numpy")
    values = list(numpy.random.default_rng(3).exponential(size=97))
    for share in (0, 0.01, 0.37, 0.9, 0.95, 0.99, 1):
        assert quantile(values, share) == pytest.approx(numpy.quantile(values, share), rel=1e-12)


def test_a_window_of_no_length_has_no_rate():
    overtaken = [*MESSAGES[:9], Step(0.0, 0.0, 8, 0, None), Ended(112.0)]
    run = fold(overtaken, "images", "inference", power=POWER, flops=Flops(1, 1))
    for name in ("throughput", "data_wait_fraction", "achieved_flops"):
        assert every_metric()[name](run)[::2] == (None, NO_TIME)
    values = [metric(run).value for metric in every_metric().values()]
    assert all(value is None or value >= 0 for value in values)
    assert result.steadiness(run)["outliers"]["share_of_time"] == 0


def test_idle_power_begins_when_the_meter_has_forgotten_what_was_before():
    averaging = POWER._replace(facts=POWER.facts._replace(averaging=2.0))
    idle = result.power(dataclasses.replace(RUN, power=averaging))["idle"]
    assert idle["duration"]["value"] == pytest.approx(3.0)
    cut = dataclasses.replace(RUN, power=POWER._replace(idle_until=98.9))
    assert result.power(cut)["idle"]["duration"] == {"value": None, "unit": "s", "reason": "the rest was cut short"}
