"""The sampler's clock, and whole runs with a meter: the parent is real, device and meter are not."""

from __future__ import annotations

import json
import signal
import threading
import time
from datetime import datetime

import pytest
from metered import Clock, Made, recorded, sampled
from processes import wait_for
from program import checked

from entrypoints.metering.sampling import Sampler

ENERGY = ("energy", "energy_per_unit", "units_per_watt_hour", "throughput_per_watt", "power_mean")
SECONDS = 0.05  # a period: twenty are the shortest window, and a reading may be late by five
PERIOD = ("--meter-period", str(SECONDS))
RUN = ("resnet50", "--duration", "1.5", "--warmup-steps", "2", *PERIOD)


def undisturbed(double, *arguments):
    """The document of the first run in which the machine held no reading up for so long that energy became null."""
    for _ in range(20):
        document = double.result(*arguments)
        if not any(reason in json.dumps(document) for reason in ("a gap of", "shorter than 20 periods")):
            return document
    raise AssertionError("twenty runs with a gap")


def test_deadlines_that_passed_while_a_reading_hung_are_left_out():
    clock = Clock()

    def watts(at):
        clock.now += 0.73 if 4.95 < at < 5.05 else 0.0
        return 1.0

    times = sampled(Made(clock, watts=watts), clock, 10.0).times
    after = [at for at in times if at > 5.5]
    assert after[0] == pytest.approx(5.8) and after[1] == pytest.approx(5.9)  # no burst, and on the old deadlines


def test_a_reading_is_dated_to_the_middle_of_its_call():
    clock = Clock()

    def watts(at):
        clock.now += 0.02
        return 1.0

    assert sampled(Made(clock, watts=watts), clock, 1.0).times[0] == pytest.approx(0.01)


def test_failures_leave_gaps_and_are_counted():
    def watts(at):
        if 2.95 < at < 4.05:
            raise RuntimeError(f"no reading at {at:.0f}")
        return 5.0

    recording = recorded(5.95, watts=watts)
    assert (recording.failures, recording.last_failure) == (11, "no reading at 4")
    assert len(recording.times) == len(recording.watts[0]) == 50


def test_the_real_thread_keeps_its_deadlines_and_stops():
    clock = time.monotonic
    sampler = Sampler(Made(clock, watts=lambda at: 1.0), 0.02)
    began = clock()
    with sampler.running():
        time.sleep(0.5)
        stopping = clock()
    stopped = clock()
    recording = sampler.recording()
    assert "meter" not in [thread.name for thread in threading.enumerate()]
    assert stopping <= recording.times[-1] <= stopped  # without the reading at the end the last edge has no neighbour
    assert all(after > before for before, after in zip(recording.times, recording.times[1:]))
    assert len(recording.times) <= (stopped - began) / 0.02 + 2  # what was due, and the one at the end


def trace(tmp_path, seconds, scope="board"):
    """A file of a constant 100 W over two boards, with a counter that agrees."""
    samples = [{"at": at / 50, "watts": [60.0, 40.0], "joules": [1.2 * at, 0.8 * at]} for at in range(50 * seconds)]
    described = {"scope": scope, "devices": ["a", "b"], "update_period": 0.02, "samples": samples}
    (tmp_path / "trace.json").write_text(json.dumps(described))
    return f"replay:{tmp_path / 'trace.json'}"


def elapsed(document):
    """Seconds from start to finish."""
    started, finished = (datetime.strptime(document[key], "%Y-%m-%dT%H:%M:%S.%fZ") for key in ("started", "finished"))
    return (finished - started).total_seconds()


def test_a_metered_run(double, tmp_path):
    metered = ("--meter", trace(tmp_path, 60), "--idle-seconds", "1.2", "--batch-size", "4")
    document = undisturbed(double, *RUN, *metered)
    power, values = document["power"], {name: metric["value"] for name, metric in document["metrics"].items()}
    window = sum(document["steps"]["seconds"][2:])
    assert values["energy"] == pytest.approx(100 * window, rel=0.05)  # the counter stands still for 20 ms of 1.5 s
    assert values["power_mean"] == pytest.approx(values["energy"] / window)
    assert values["energy_per_unit"] * values["throughput"] == pytest.approx(values["power_mean"])
    assert values["units_per_watt_hour"] == pytest.approx(3600 / values["energy_per_unit"])
    assert values["throughput_per_watt"] == pytest.approx(values["throughput"] / values["power_mean"])
    assert (power["source"], power["scope"], power["method"]) == ("replay", "board", "counter")
    assert power["sampling_period_seconds"] == SECONDS and power["failed_readings"] == 0
    assert window / (5 * SECONDS) < power["samples"] <= window / SECONDS + 3
    assert power["idle"]["power"]["value"] == pytest.approx(100, rel=0.1)
    assert power["idle"]["duration"]["value"] >= 20 * SECONDS
    assert power["idle"]["duration"]["value"] + sum(document["steps"]["seconds"]) < elapsed(document)
    assert abs(power["counter_integral_difference"]["value"]) < 0.05
    assert [device["name"] for device in power["devices"]] == ["a", "b"]
    assert sum(device["energy"]["value"] for device in power["devices"]) == pytest.approx(values["energy"])
    assert document["provenance"]["simulated"]


def test_the_energy_s_window_is_the_one_that_the_child_saw(double):
    """Its edges are told by the child's clock; steps, which may be timed by the device's, fill the time between."""
    document = double.result("resnet50", "--duration", "1", "--warmup-steps", "50")  # half a second
    assert sum(document["steps"]["seconds"][50:]) == pytest.approx(document["phases"]["steady"]["seconds"], abs=0.2)


def test_energy_of_epochs(double, tmp_path):
    epochs = ("resnet50", "--epochs", "3", "--samples-per-epoch", "480", "--batch-size", "4", *PERIOD)
    document = undisturbed(double, *epochs, "--meter", trace(tmp_path, 60), "--idle-seconds", "0")
    used = [epoch["energy"]["value"] for epoch in document["epochs"]]
    assert used == [pytest.approx(100 * epoch["seconds"], rel=0.1) for epoch in document["epochs"]]
    assert document["metrics"]["energy_per_epoch"]["value"] == pytest.approx(sum(used[1:]) / 2)
    assert "--idle-seconds 0" in document["power"]["idle"]["power"]["reason"]


def test_a_vendor_s_meter_is_a_file_and_nothing_else(double):
    document = undisturbed(double, *RUN, "--meter", "double", "--idle-seconds", "0")
    assert document["power"]["source"] == "double" and document["power"]["scope"] == "die"
    assert document["power"]["method"] == "integral" and document["power"]["averaging_time"]["value"] == 0.02
    assert document["metrics"]["power_mean"]["value"] == pytest.approx(40.0)
    assert "has not both" in document["power"]["counter_integral_difference"]["reason"]


@pytest.mark.parametrize(
    ("meter", "reason"),
    [
        ("auto", "no meter measures double"),
        ("none", "no meter was asked for (--meter none)"),
        ("rapl", "the meter rapl measures cpu, and this run is on double"),
        ("double:absent", "the double's driver is not loaded"),
    ],
)
def test_an_absent_meter_ends_no_run(double, meter, reason):
    document = double.result("resnet50", "--smoke", "--meter", meter)
    assert document["status"]["state"] == "completed" and document["power"] == {"reason": reason}
    assert {document["metrics"][name]["reason"] for name in ENERGY} == {"nothing was metered: power says why"}


def test_a_meter_that_fails_in_the_middle_ends_no_run(double):
    document = double.result(*RUN, "--meter", "double:break", "--idle-seconds", "0")
    assert document["status"]["state"] == "completed" and document["power"]["failed_readings"] > 0
    assert document["metrics"]["energy"]["value"] is None
    assert "the double's bus is gone" in document["metrics"]["energy"]["reason"]


def test_a_meter_that_hangs_ends_no_run(double):
    document = double.result(*RUN, "--meter", "double:hang", "--idle-seconds", "0")
    assert document["status"]["state"] == "completed"
    assert "from edge to edge" in document["metrics"]["energy"]["reason"]


def test_a_smoke_run_is_too_short_for_energy(double):
    document = double.result("resnet50", "--smoke", "--meter", "double")
    assert "shorter than 20 periods" in document["metrics"]["energy"]["reason"]
    assert document["power"]["devices"][0]["energy"]["value"] is None


def test_a_signal_and_the_time_limit_count_while_idle_power_is_measured(double):
    process = double.start("resnet50", "--smoke", "--meter", "double", "--idle-seconds", "600")
    wait_for(process, "measuring idle power for 600 s (double: die 0, die 1)")
    process.send_signal(signal.SIGTERM)
    document = checked(process.communicate()[0])
    assert (process.returncode, document["status"]["state"]) == (143, "interrupted")
    late = double.result("resnet50", "--smoke", "--meter", "double", "--idle-seconds", "600", "--time-limit", "0.5")
    assert late["status"]["state"] == "time_limit" and late["steps"]["count"] == 0


@pytest.mark.parametrize(("replicas", "idle", "imports"), [(1, 3.0, 0.7), (1, 1.5, 2.5), (2, 3.0, 0.7)])
def test_a_framework_is_imported_while_idle_power_is_measured(double, replicas, idle, imports):
    run = ("resnet50", "--steps", "30", "--batch-size", "4", "--skip-numerics", "--replicas", str(replicas), *PERIOD)
    metered = ("--meter", "double", "--idle-seconds", str(idle))
    document = double.result(*run, *metered, DOUBLE_IMPORT_SECONDS=str(imports))
    beside = document["power"]["idle"]["importing"]["value"]
    assert 0.2 < beside < min(idle, imports) + 0.3, "less what the child needs to start"
    whole = document["phases"]["import"]["seconds"]
    assert imports <= whole < imports + 1.5 or replicas > 1, "without the wait; ranks meet in it"


def test_nothing_is_imported_beside_a_meter_that_may_see_it(double, tmp_path):
    document = double.result(*RUN, "--meter", trace(tmp_path, 60), "--idle-seconds", "0.3")
    assert "importing" not in document["power"]["idle"]


def test_a_meter_that_does_not_exist_is_refused(program):
    code, output, errors = program.run("resnet50", "--meter", "divining-rod")
    assert (code, output) == (2, "")
    assert "'divining-rod' [invalid-option]" in errors and "known: auto, none, amd, gcipuinfo, " in errors
