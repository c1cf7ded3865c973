"""The tasks of one launch compute one run: real processes, of which the first writes the only document."""

from __future__ import annotations

import json
import os
import signal
import socket
import time

import pytest
from processes import children_of, wait_for, wait_until_gone
from program import checked

from entrypoints.runs.supervise import TICK

FULL = pytest.mark.full
TWO = ("--replicas", "2", "--batch-size", "4", "--meter", "none")
SHORT = (*TWO, "--steps", "8", "--warmup-steps", "3")
LONG = (*TWO, "--steps", "100000")


def task(number, tasks=2):
    """The variables of torchrun, with a port that is taken by nobody else: the hub's follows from it."""
    numbers = {"RANK": number, "WORLD_SIZE": tasks, "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": tasks}
    step = {"TORCHELASTIC_RUN_ID": f"of {os.getpid()}", "MASTER_PORT": PORT}
    return {name: str(value) for name, value in {**numbers, **step}.items()}


@pytest.fixture(autouse=True)
def another_step(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setitem(globals(), "PORT", server.getsockname()[1])


PORT = 0


def launched(double, *words, tasks=2, others=None):
    """The tasks of a launch; the others may have words of their own."""
    argv = [words, *([others or words] * (tasks - 1))]
    return [double.start("resnet50", *each, **task(number, tasks)) for number, each in enumerate(argv)]


def ends(processes):
    return [(process.communicate(), process.returncode) for process in processes]


@pytest.mark.parametrize(
    ("replicas", "tasks"), [pytest.param(2, 2, marks=FULL), (4, 2), pytest.param(3, 3, marks=FULL)]
)
def test_only_the_first_task_writes_a_document(double, replicas, tasks):
    words = ("--replicas", replicas, "--batch-size", 12, "--steps", 8, "--warmup-steps", 3, "--meter", "none")
    ((output, errors), code), *others = ends(launched(double, *words, tasks=tasks))
    document = checked(output)
    assert (document["status"]["state"], code) == ("completed", 0), errors
    assert document["accelerator"]["ranks"] == document["accelerator"]["count"] == replicas
    assert document["steps"]["units"] == 8 * 12
    assert [(said, code) for (said, _), code in others] == [("", 0)] * (tasks - 1)


@FULL
def test_each_run_of_a_series_is_shared(double):
    first, other = ends(
        launched(double, *TWO[:2], "--batch-sizes", "2,4", "--steps", "4", "--repeat", "2", "--meter", "none")
    )
    documents = [checked(line) for line in first[0][0].splitlines()]
    assert [document["configuration"]["batch_size"] for document in documents] == [2, 4, 2, 4]
    assert {document["accelerator"]["ranks"] for document in documents} == {2} and other[1] == 0


def metered(double, folder, *packages):
    """Two tasks, each with a recorded trace of 50 W for each of its packages."""
    started = []
    for number, names in enumerate(packages):
        within = folder / str(number)
        within.mkdir()
        samples = [{"at": at / 10, "watts": [50.0] * len(names)} for at in range(600)]
        trace = {"scope": "package", "devices": names, "update_period": 0.1, "samples": samples if names else []}
        (within / "trace.json").write_text(json.dumps(trace), "utf-8")
        words = ("--duration", "2.5", "--warmup-steps", "3", "--idle-seconds", "3", "--meter", "replay:trace.json")
        started.append(double.start("resnet50", *TWO[:4], *words, within=within, **task(number)))
    return started


def test_each_task_meters_its_own_devices_and_the_first_adds_them_up(double, tmp_path):
    (first, code), (_, its_code) = ends(metered(double, tmp_path, "a", "bc"))
    document = checked(first[0])
    assert (document["status"]["state"], code, its_code) == ("completed", 0, 0), first[1]
    power, metrics = document["power"], document["metrics"]
    host = document["host"]["hostname"]["value"]
    assert [(device["host"], device["name"]) for device in power["devices"]] == [(host, each) for each in "abc"]
    windows = [rank["window"]["value"] for rank in document["ranks"]]
    assert metrics["energy"]["value"] == pytest.approx(50 * windows[0] + 100 * windows[1], rel=0.005)
    assert power["idle"]["power"]["value"] == pytest.approx(150, rel=0.005)
    assert metrics["energy_per_device"]["value"] == pytest.approx(metrics["energy"]["value"] / 3)


def test_packages_of_a_host_that_tasks_share_are_counted_once(double, tmp_path):
    (first, _), _ = ends(metered(double, tmp_path, "ab", "ab"))
    document = checked(first[0])
    assert [device["name"] for device in document["power"]["devices"]] == ["a", "b"]
    by_rank = [pytest.approx(100 * rank["window"]["value"], rel=0.005) for rank in document["ranks"]]
    assert document["metrics"]["energy"]["value"] in by_rank, "in the window of the task that counts"


def test_another_run_is_refused_by_name(double):
    (first, code), (other, its_code) = ends(launched(double, *SHORT, others=(*SHORT, "--seed", "7")))
    assert (code, its_code) == (2, 2) and first[0] == other[0] == ""
    assert f"task 1 on {socket.gethostname()} has other options or defaults" in first[1]


def test_a_task_that_never_arrives_is_named(double):
    words = ("--replicas", "3", "--batch-size", "3", "--steps", "8", "--time-limit", "9")
    first, other = (double.start("resnet50", *words, **task(number, 3)) for number in (0, 2))
    (output, errors), code = ends([first])[0]
    status = checked(output)["status"]
    assert (status["state"], code) == ("time_limit", 124), errors
    assert "reached; tasks 1 of 3 did not arrive: look at what they wrote" in status["message"]
    other.communicate()


def test_a_port_in_use_is_named(double):
    from entrypoints.runs.launch import launch_of

    launch = launch_of(task(0))
    assert launch is not None
    with socket.create_server(("127.0.0.1", launch.port)):
        code, _, errors = double.run("resnet50", *SHORT, **task(0))
    assert code == 2 and f"port {launch.port}" in errors and "[system-error]" in errors


def test_the_tasks_meet_where_they_are_asked_to(double):
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
    (first, code), (_, its_code) = ends(launched(double, *SHORT, "--rendezvous", place))
    assert (checked(first[0])["status"]["state"], code, its_code) == ("completed", 0, 0)


def test_ranks_agree_when_the_window_is_long_enough_and_the_target_reached(double):
    words = (*TWO, "--warmup-steps", "3")
    timed = double.result("resnet50", *words, "--duration", "1.5")
    assert sum(timed["steps"]["seconds"][3:]) >= 1.5 and len({rank["steps"] for rank in timed["ranks"]}) == 1
    aimed = double.result("resnet50", *words, "--steps", "40", "--target-loss", "0.07", "--evaluation-steps", "5")
    evaluations = aimed["target"]["evaluations"]
    assert aimed["target"]["reached"] and [each["steps"] for each in evaluations] == [5, 10, 15]
    assert {each["samples"] for each in evaluations} == {4}, "of both ranks"


@FULL
def test_two_launches_at_once_do_not_meet_each_other(double):
    here = launched(double, *SHORT)
    others = [
        double.start("resnet50", *SHORT, **{**task(number), "TORCHELASTIC_RUN_ID": "another"}) for number in (0, 1)
    ]
    for (output, _), code in [ends(here)[0], ends(others)[0]]:
        assert (checked(output)["status"]["state"], code) == ("completed", 0)


def test_only_the_first_task_needs_a_place_for_results(double, tmp_path):
    (first, code), (_, its_code) = ends(
        [
            double.start("resnet50", *SHORT, "--output", "results/", within=within, **task(number))
            for number, within in enumerate((tmp_path, "/proc"))
        ]
    )
    assert (code, its_code) == (0, 0), first[1]
    assert len(list((tmp_path / "results").iterdir())) == 1


@pytest.mark.parametrize("rank", [pytest.param(0, marks=FULL), 1])
def test_a_loss_that_is_not_finite_on_one_rank_ends_all(double, rank):
    processes = [
        double.start("resnet50", *LONG, fault="non_finite" if number == rank else "", **task(number))
        for number in (0, 1)
    ]
    (first, code), (_, its_code) = ends(processes)
    status = checked(first[0])["status"]
    assert (status["state"], code, its_code) == ("non_finite", 4, 4)
    assert status["message"].startswith(f"rank {rank} of 2: the loss became nan")


def test_a_rank_that_hangs_is_ended_by_the_time_limit(double):
    processes = [
        double.start("resnet50", *LONG, "--time-limit", "6", fault="hang" if number else "", **task(number))
        for number in (0, 1)
    ]
    (first, code), (_, its_code) = ends(processes)
    assert (checked(first[0])["status"]["state"], code, its_code) == ("time_limit", 124, 124)


def test_ranks_that_tasks_cannot_share(double):
    words = ("--replicas", "3", "--batch-size", "3", "--steps", "4")
    assert {code for _, code in ends(launched(double, *words))} == {2}


def test_a_stranger_at_the_port_is_sent_away(double):
    from entrypoints.runs.launch import launch_of

    launch = launch_of(task(0))
    assert launch is not None
    first = double.start("resnet50", *SHORT, **task(0))
    for line in (b"GET / HTTP/1.1\r\n\r\n", b'["hello"]\n', b'["hello", 9, "h", "i", "r"]\n', b""):
        stranger = connected(launch.port)
        stranger.sendall(line)
        stranger.close()
    other = double.start("resnet50", *SHORT, **task(1))
    (output, errors), code = ends([first])[0]
    assert (code, checked(output)["status"]["state"]) == (0, "completed"), errors
    other.communicate()


def connected(port):
    """A connection, once the first task listens."""
    connection = socket.socket()
    while connection.connect_ex(("127.0.0.1", port)):
        connection.close()
        connection = socket.socket()
    return connection


def test_a_task_that_is_lost_is_named(double):
    first, other = launched(double, *LONG)
    wait_for(first, "measuring")
    time.sleep(4 * TICK)  # tasks rest between readings, and what was not passed on is lost
    orphans = children_of(other)
    os.kill(other.pid, signal.SIGKILL)
    document = checked(first.communicate()[0])
    assert document["status"]["state"] == "crashed" and document["steps"]["count"] > 0
    lost = f"rank 1 of 2: the workload's process on {socket.gethostname()} cannot be reached any more"
    assert document["status"]["message"] == lost
    other.communicate()
    for pid in orphans:
        wait_until_gone(pid)


def test_without_the_first_task_the_others_end(double):
    first, other = launched(double, *LONG)
    wait_for(first, "measuring")
    ranks = [*children_of(first), *children_of(other)]
    os.kill(first.pid, signal.SIGKILL)
    output, errors = other.communicate()
    assert (output, other.returncode) == ("", 4) and "the first task of this launch is gone" in errors
    first.communicate()
    for pid in ranks:
        wait_until_gone(pid)


@pytest.mark.parametrize("signalled", [pytest.param((0,), marks=FULL), (1,), (0, 1)])
def test_a_signal_ends_all_tasks_with_one_document(double, signalled):
    processes = launched(double, *LONG)
    wait_for(processes[0], "measuring")
    for number in signalled:
        processes[number].send_signal(signal.SIGTERM)
    (first, code), (other, its_code) = ends(processes)
    document = checked(first[0])
    assert (document["status"]["state"], code, its_code, other[0]) == ("interrupted", 143, 143, "")
    assert document["steps"]["count"] > 0


def test_the_time_limit_is_that_of_the_run(double):
    (first, code), (_, its_code) = ends(launched(double, *LONG, "--time-limit", "8"))
    assert (json.loads(first[0])["status"]["state"], code, its_code) == ("time_limit", 124, 124)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=FULL), 1])
def test_a_rank_that_fails_on_one_task_is_the_first_cause(double, rank):
    processes = [
        double.start("resnet50", *LONG, fault="memory" if number == rank else "", **task(number)) for number in (0, 1)
    ]
    (first, code), (_, its_code) = ends(processes)
    document = checked(first[0])
    assert (document["status"]["state"], code, its_code) == ("out_of_memory", 4, 4), document["status"]
    assert document["status"]["message"].startswith(f"rank {rank} of 2: ")
