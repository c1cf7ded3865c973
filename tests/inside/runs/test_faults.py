"""Everything that can go wrong around a run still ends in a valid document. The parent is real, the device is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from processes import child_of, running, wait_for, wait_until_gone
from program import ROOT, Program, checked, lay_double

from entrypoints.runs import supervise

LONG = ("resnet50", "--steps", "100000", "--warmup-steps", "2", "--batch-size", "3")
SHORT = ("resnet50", "--steps", "6", "--warmup-steps", "2", "--batch-size", "3")
STREAMS = (*LONG, "--task", "inference", "--concurrency", "3")
HASTE = {"DOUBLE_SPEED": "20"}  # where the child is deaf, nothing is gained by the rest of the grace


def after_an_hour(process, text):
    """The document of a clocked program for which the time limit passes once a line holds `text`."""
    wait_for(process, text)
    process.send_signal(signal.SIGUSR1)
    output, errors = process.communicate()
    assert "left alone" not in errors
    document = checked(output)
    assert process.returncode == document["status"]["exit_code"]
    return document


def test_a_run_that_completes(double):
    document = double.result("resnet50", "--steps", "6", "--warmup-steps", "2", "--batch-size", "3")
    assert document["status"]["state"] == "completed"
    assert document["provenance"]["stand_in"] and document["provenance"]["simulated"]
    assert document["provenance"]["image"]["recipe"] == "double"
    assert document["accelerator"]["kind"] == "double"
    assert document["steps"]["count"] == 6 and document["steps"]["untimed"] == 2
    assert document["steps"]["units"] == 18 and document["steps"]["updates"] == 6
    assert 0 < document["metrics"]["throughput"]["value"] < 3 / 0.01  # a step sleeps for a hundredth of a second


@pytest.mark.parametrize(
    ("fault", "state", "code", "steps"),
    [
        ("no_device", "no_device", 3, 0),
        ("exit", "crashed", 4, 0),
        ("raise", "crashed", 4, 3),
        ("memory", "out_of_memory", 4, 3),
        ("compile_failure", "compile_failure", 4, 3),
        ("segmentation", "crashed", 4, 3),
        ("non_finite", "non_finite", 4, 4),
    ],
)
def test_failures_are_results(double, fault, state, code, steps):
    document = double.result(*LONG, fault=fault)
    assert document["status"]["state"] == state
    assert document["status"]["exit_code"] == code
    assert document["steps"]["count"] == steps


@pytest.mark.parametrize(
    ("fault", "state", "code"),
    [
        ("raise", "crashed", 4),
        ("memory", "out_of_memory", 4),
        ("compile_failure", "compile_failure", 4),
        ("segmentation", "crashed", 4),
    ],
)
def test_a_failure_of_one_stream_is_a_result(double, fault, state, code):
    document = double.result(*STREAMS, fault=fault)
    assert document["status"]["state"] == state and document["status"]["exit_code"] == code
    assert document["steps"]["count"] <= 3  # the fourth request is the one that fails


def test_a_failure_of_one_stream_is_a_result_although_the_device_never_lets_go(clocked):
    document = after_an_hour(clocked.start(*STREAMS, fault="linger", **HASTE), "measuring")
    assert (document["status"]["state"], document["status"]["exit_code"]) == ("crashed", 4)
    assert document["steps"]["count"] <= 3


def test_a_stream_that_hangs_is_ended_by_the_time_limit(clocked):
    process = clocked.start(*STREAMS, "--time-limit", "60", fault="hang", **HASTE)
    document = after_an_hour(process, "the double hangs")
    assert document["status"]["state"] == "time_limit" and document["status"]["exit_code"] == 124
    assert document["steps"]["count"] == 3


def test_requests_are_told_with_their_latency(double):
    document = double.result("resnet50", "--task", "inference", "--concurrency", "3", "--steps", "120")
    assert document["status"]["state"] == "completed"
    assert (document["configuration"]["concurrency"], document["configuration"]["batch_size"]) == (3, 1)
    timed = 120 - document["configuration"]["warmup_steps"]
    assert document["requests"]["count"] == len(document["requests"]["latencies"]) == timed
    metrics = {name: metric["value"] for name, metric in document["metrics"].items()}
    assert metrics["latency_p50"] <= metrics["latency_p90"] <= metrics["latency_max"]
    assert metrics["latency_p99"] is None and "needs 662" in document["metrics"]["latency_p99"]["reason"]
    assert metrics["latency_compute_mean"] >= 0.006  # the double sleeps
    assert metrics["latency_other_mean"] > 0.01  # two others are served first, each in a hundredth of a second
    assert metrics["latency_mean"] >= 0.012  # with pre-processing
    # Three are under way at a time, and each stream's first of the window may have begun before it.
    within = 3 * (timed / metrics["throughput"] + metrics["latency_max"])
    assert metrics["latency_mean"] * timed <= within * (1 + 1e-9)


def test_a_failure_names_its_cause_and_its_phase(double):
    status = double.result(*LONG, fault="raise")["status"]
    assert status["message"] == "ValueError: the double was told to fail"
    assert status["phase"] == "steady"
    assert "SIGSEGV" in double.result(*LONG, fault="segmentation")["status"]["message"]


def test_a_loss_that_is_no_number_is_null_and_the_last_finite_one_is_told(double):
    document = double.result(*LONG, fault="non_finite")
    assert document["steps"]["losses"] == [1.0, 0.5, 1 / 3, None]
    assert document["metrics"]["final_loss"]["value"] == 1 / 3


@pytest.mark.parametrize("fault", ["", "raise", "memory"])
def test_however_a_run_ends_the_device_is_asked_what_was_taken_of_it(double, fault):
    document = double.result("resnet50", "--steps", "6", "--warmup-steps", "2", fault=fault)
    handed = 4 if fault else 6
    metrics = document["metrics"]
    assert metrics["peak_allocated_memory"] == {"value": 8.0, "unit": "MiB"}
    assert metrics["host_device_traffic"]["value"] == handed / 2
    assert document["device_conditions"]["temperature"]["value"] == 30
    assert document["device_conditions_after"]["temperature"]["value"] == 30 + handed


def test_a_device_that_cannot_be_asked_spoils_nothing(double):
    document = double.result("resnet50", "--steps", "6", "--warmup-steps", "2", fault="mute")
    assert document["status"]["state"] == "completed"
    parts = [document["metrics"]["peak_reserved_memory"], document["device_conditions"]]
    assert all("OSError: the double's library is gone" in part["reason"] for part in parts)


def test_a_device_that_never_answers_takes_nothing_away(clocked):
    process = clocked.start("resnet50", "--steps", "6", "--warmup-steps", "2", fault="silent", **HASTE)
    document = after_an_hour(process, "measuring")
    assert document["status"]["state"] == "completed" and document["steps"]["count"] == 6
    assert "did not answer" in document["metrics"]["peak_reserved_memory"]["reason"]


@pytest.mark.parametrize("arguments", [LONG, STREAMS], ids=["loop", "streams"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_in_the_middle(double, number, code, arguments):
    process = double.start(*arguments)
    wait_for(process, "measuring")
    process.send_signal(number)
    output, _ = process.communicate()
    document = checked(output)
    assert process.returncode == code == document["status"]["exit_code"]
    assert document["status"]["state"] == "interrupted"
    assert document["steps"]["count"] >= 2
    assert len(document["steps"]["seconds"]) == document["steps"]["count"]
    assert document["metrics"]["host_device_traffic"]["value"] >= document["steps"]["count"] / 2


@pytest.mark.parametrize("arguments", [LONG, STREAMS], ids=["loop", "streams"])
def test_a_second_signal_kills_a_child_that_does_not_listen(clocked, arguments):
    """The clock stands still, so that no grace ends."""
    process = clocked.start(*arguments, fault="hang")
    wait_for(process, "the double hangs")
    child = child_of(process)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)  # another one: equal signals that wait are one
    output, errors = process.communicate()
    assert checked(output)["status"]["state"] == "interrupted"
    assert "left alone" not in errors
    assert not running(child)


def test_what_a_child_started_is_killed_with_it(double):
    process = double.start(*LONG, fault="offspring")
    started = next(line for line in process.stderr if "the double started" in line)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.communicate()
    offspring = int(started.split()[3])
    wait_until_gone(offspring, seconds=10)
    assert not running(offspring)


def test_a_daemon_that_a_child_started_does_not_outlive_the_run(double):
    """It is in a session of its own and its parent is gone, so no process group of the child's has it."""
    code, _, errors = double.run(*SHORT, fault="daemon")
    daemon = int(errors.partition("the double started ")[2].split()[0])
    survived = running(daemon)
    if survived:
        os.kill(daemon, signal.SIGKILL)
    assert code == 0 and not survived


def test_what_was_there_before_a_child_is_left_alone():
    """A process that started the program may have left it children."""
    script = (
        "import subprocess, sys\n"
        "from entrypoints.system.parent_death import children, kill_orphans\n"
        "first, second = (subprocess.Popen(['sleep', '600']) for _ in range(2))\n"
        "kill_orphans({first.pid})\n"
        "print(first.poll(), second.poll())\n"
        "first.kill()\n"
    )
    said = subprocess.run([sys.executable, "-c", script], cwd=str(ROOT), stdout=subprocess.PIPE, check=True).stdout
    assert said.split()[0] == b"None" and said.split()[1] != b"None"


def test_a_child_that_does_not_listen_is_killed_after_the_grace(clocked):
    process = clocked.start(*LONG, "--time-limit", "60", fault="hang", **HASTE)
    document = after_an_hour(process, "the double hangs")
    assert document["status"]["state"] == "time_limit"
    assert document["status"]["exit_code"] == 124
    assert document["steps"]["count"] == 3


def test_the_time_limit(clocked):
    document = after_an_hour(clocked.start(*LONG, "--time-limit", "60"), "measuring")
    assert document["status"]["state"] == "time_limit"
    assert document["status"]["exit_code"] == 124
    assert document["steps"]["count"] >= 2


def test_a_failure_counts_although_the_device_never_lets_go(clocked):
    process = clocked.start(*LONG, "--time-limit", "60", fault="linger", **HASTE)
    document = after_an_hour(process, "the double lingers")
    assert document["status"]["state"] == "crashed"
    assert document["steps"]["count"] == 3


def test_a_result_outlives_the_file_system_of_its_image(tmp_path):
    """Slurm tells all processes of a job to end: also the one that mounts the image."""
    tree = lay_double(tmp_path / "image" / "sifmark")
    process = Program(tree, tmp_path).start(*LONG, "--meter", "none")
    wait_for(process, "measuring")
    tree.rename(tmp_path / "gone")
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate()
    assert checked(output)["status"]["state"] == "interrupted", errors
    assert "Traceback" not in errors


def test_a_killed_child(double):
    process = double.start(*LONG)
    wait_for(process, "measuring")
    os.kill(child_of(process), signal.SIGKILL)
    output, _ = process.communicate()
    document = checked(output)
    assert process.returncode == 4
    assert document["status"]["state"] == "crashed"
    assert "SIGKILL" in document["status"]["message"]
    assert document["steps"]["count"] >= 2


@pytest.mark.parametrize("arguments", [LONG, STREAMS], ids=["loop", "streams"])
def test_the_child_of_a_killed_parent_dies_too(double, arguments):
    process = double.start(*arguments)
    wait_for(process, "measuring")
    child = child_of(process)
    process.kill()
    process.communicate()
    wait_until_gone(child)


def test_versions_below_the_framework_are_told(double):
    document = double.result("resnet50", "--smoke")
    assert document["provenance"]["software"]["libraries"] == {"beneath": "1.2"}


def test_what_the_environment_changes_is_in_the_document(double):
    given = {
        "OMP_PROC_BIND": "close",
        "ROC_ACTIVE_WAIT_TIMEOUT": "0",
        "LD_PRELOAD": "libm.so.6",
        "TF_TOKEN_a": "hunter2",
    }
    code, output, errors = double.run(*SHORT, **given)
    environment = checked(output)["environment"]
    recorded = {name: environment["variables"].get(name) for name in given}
    assert code == 0 and recorded == {**given, "TF_TOKEN_a": None} and "hunter2" not in output
    assert environment["preloaded"][0] == "libm.so.6"
    assert "loaded before all other libraries, where they can change what is measured: libm.so.6" in errors


def test_what_libraries_print_stays_off_standard_output(double):
    _, output, errors = double.run("resnet50", "--smoke", fault="print")
    assert checked(output)["status"]["state"] == "completed"
    for text in ("printed by Python", "one by a C library", "a tool of the vendor"):
        assert text in errors


def test_a_precision_beyond_the_device(double):
    document = double.result("resnet50", "--precision", "fp16")
    assert document["status"]["state"] == "unsupported"
    assert document["status"]["exit_code"] == 3
    assert document["steps"]["count"] == 0
    assert document["metrics"]["throughput"]["value"] is None


def test_a_check_passes_fails_and_skips(few):
    assert few.run("--check")[:2] == (0, "")
    assert few.run("--check", fault="exit")[:2] == (4, "")
    code, output, errors = few.run("--check", fault="no_device")
    assert (code, output) == (0, "") and "skipped" in errors


def test_the_pipe_takes_all_that_a_child_can_tell_while_the_parent_rests():
    stream, descriptor = os.pipe()
    assert supervise.widen_pipe(stream)
    os.set_blocking(descriptor, False)
    assert os.write(descriptor, b"." * supervise.WIDTH) == supervise.WIDTH
    os.close(stream)
    os.close(descriptor)
    assert not supervise.widen_pipe(stream)  # a pipe that is refused, for whatever reason: the parent will not rest


@pytest.mark.parametrize(
    ("before", "after", "active"), [(3, 3, False), (3, 4, True), (0, 1, True), (None, 4, False), (3, None, False)]
)
def test_only_kills_during_a_run_are_of_it(monkeypatch, before, after, active):
    """Others in its control group may have been killed before; without a count nothing is known."""
    monkeypatch.setattr(supervise.host, "oom_kills", lambda: after)
    child: Any = SimpleNamespace(oom_kills_before=before)
    assert supervise.Child.oom_killed(child) == active
