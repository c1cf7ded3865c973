"""The tasks of one launch compute one run: real processes, of which the first writes the only document."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from processes import children_of, wait_for, wait_until_gone
from program import checked

from entrypoints.runs import meeting
from entrypoints.runs.launch import launch_of
from entrypoints.runs.supervise import TICK, Orders

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


@pytest.mark.parametrize("several_hosts", [False, True], ids=["socket", "port"])
def test_a_place_in_use_is_named(double, several_hosts):
    where = ("--rendezvous", f"127.0.0.1:{PORT}") if several_hosts else ()
    with meeting._listening(seen_from(0, *where)):
        code, _, errors = double.run("resnet50", *SHORT, *where, **task(0), HOME=str(double.folder))
    place = f"port {PORT}" if several_hosts else "the socket"
    assert code == 2 and f"{place}, at which the tasks of this launch meet" in errors and "[system-error]" in errors


@pytest.mark.parametrize("given", [{}, {meeting.VARIABLE: "of hexadecimal digits"}], ids=["file", "variable"])
def test_tasks_of_several_hosts_share_a_secret_that_nobody_sees(double, given):
    """The first one leaves it in a file while they meet, unless the launcher has given one. No rank gets it."""
    words, home = (*LONG, "--rendezvous", f"127.0.0.1:{PORT}"), {"HOME": str(double.folder)}
    first, other = (double.start("resnet50", *words, **task(number), **given, **home) for number in (0, 1))
    said = [""]
    while "measuring" not in said[-1]:
        said.append(first.stderr.readline())
        assert said[-1], said
    environments = [Path(f"/proc/{rank}/environ").read_bytes() for each in (first, other) for rank in children_of(each)]
    assert not any(meeting.VARIABLE.encode() in each for each in environments) and len(environments) == 2
    assert not list(double.folder.rglob("launch-*"))
    first.send_signal(signal.SIGTERM)
    ((output, errors), _), ((_, its_errors), _) = ends([first, other])
    assert checked(output)["status"]["state"] == "interrupted"
    assert "hexadecimal" not in "".join([*said, output, errors, its_errors])


def test_a_task_with_another_secret_is_a_stranger(double):
    words = (*SHORT, "--rendezvous", f"127.0.0.1:{PORT}", "--time-limit", "6")
    first, other = (
        double.start("resnet50", *words, **task(number), **{meeting.VARIABLE: f"secret of task {number}"})
        for number in (0, 1)
    )
    ((output, errors), code), ((nothing, its_errors), its_code) = ends([first, other])
    assert (checked(output)["status"]["state"], code) == ("time_limit", 124)
    assert "a stranger from 127.0.0.1 was sent away" in errors and "tasks 1 of 2 did not arrive" in errors
    assert (nothing, its_code) == ("", 2) and "what answers does not know the secret of this launch" in its_errors


@pytest.mark.parametrize("home", ["nowhere", "of others", "by a link"])
def test_without_a_common_secret_nobody_waits(double, home):
    folder = double.folder / home
    if home == "of others":
        (folder / ".sifmark").mkdir(parents=True)
        (folder / ".sifmark").chmod(0o777)
    if home == "by a link":
        folder.mkdir()
        (folder / ".sifmark").symlink_to(double.folder)
    words = (*SHORT, "--rendezvous", f"127.0.0.1:{PORT}")
    code, output, errors = double.run("resnet50", *words, **task(0), HOME=str(folder))
    assert (code, output) == (2, "") and "[launch-secret]" in errors and meeting.VARIABLE in errors


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


ATTACKS = {
    "nothing": b"",
    "HTTP": b"GET / HTTP/1.1\r\nHost: n\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(range(256)),
    "SSH": b"SSH-2.0-scan\r\n",
    "zeros": bytes(4096) + b"\n",
    "half a line": b'["task", "0123456789',
    "a line without end": b"9" * (1 << 20),
    "a hello as before": b'["hello", 1, "n", "h", "0", "i", "r"]\n',
    "a second first task": b'["hello", 0, "n", "h", "0", "i", "r", "0"]\n',
    "task 99": b'["hello", 99, "n", "h", "0", "i", "r", "0"]\n',
    "task -1": b'["task", -1]\n',
    "infinity": b'["task", Infinity]\n',
    "no number": b'["task", NaN]\n',
    "a fraction": b'["task", 0.5]\n',
    "a text": b'["task", "1"]\n',
    "an object": b'["task", {"task": 1}]\n',
    "no array": b"5\n",
    "null": b"null\n",
    "empty": b"[]\n",
    "nested": b"[" * 10_000 + b"\n",
    "nested words": b'["task", ' + b"[" * 700 + b"]" * 700 + b"]\n",
    "a large number": b'["task", ' + b"9" * 9000 + b"]\n",
    "no UTF-8": b'["task", "\xff\xfe"]\n',
    "half a character": b'["task", "' + b"\\ud800" * 32 + b'"]\n',
    "twice": b'["task", "0123456789abcdef0123456789abcdef"]\n' * 2,
    "a wrong proof": b'["task", "0123456789abcdef0123456789abcdef"]\n["hello", 1, "n", "h", "0", "i", "r", "0"]\n',
    "no proof": b'["task", "0123456789abcdef0123456789abcdef"]\n["hello"]\n',
    "an order": b'["goodbye", 0]\n["job"]\n["stop", "interrupted"]\n',
}


@pytest.mark.parametrize("several_hosts", [False, True], ids=["socket", "port"])
def test_strangers_are_sent_away_and_the_run_goes_on(double, several_hosts):
    """Some send all at once, some in two halves, some leave without waiting, and some stay and say nothing."""
    where = ("--rendezvous", f"127.0.0.1:{PORT}") if several_hosts else ()
    words, home = (*SHORT, *where), {"HOME": str(double.folder)}
    first = double.start("resnet50", *words, **task(0), **home)
    launch = seen_from(1, *where)
    idle = [connected(launch) for _ in range(20)]
    for said in ATTACKS.values():
        connected(launch, said).close()
        sent_away(connected(launch, said, end=True))
    for said in filter(None, ATTACKS.values()):
        halves = connected(launch, said[: len(said) // 2])
        with contextlib.suppress(OSError):
            halves.sendall(said[len(said) // 2 :])
            halves.shutdown(socket.SHUT_WR)
        sent_away(halves)
    other = double.start("resnet50", *words, **task(1), **home)
    ((output, errors), code), (_, its_code) = ends([first, other])
    assert (checked(output)["status"]["state"], code, its_code) == ("completed", 0, 0), errors
    assert errors.count("was sent away") == meeting.MOST_NOTED and "strangers were sent away while" in errors
    assert "Traceback" not in errors
    for stranger in idle:
        sent_away(stranger)


def test_a_flood_of_strangers_does_not_keep_a_task_out(double):
    where = ("--rendezvous", f"127.0.0.1:{PORT}")
    words, home = (*SHORT, *where), {"HOME": str(double.folder)}
    first = double.start("resnet50", *words, **task(0), **home)
    launch = seen_from(1, *where)
    flood = [connected(launch) for _ in range(3 * meeting.MOST_STRANGERS)]
    other = double.start("resnet50", *words, **task(1), **home)
    ((output, errors), code), (_, its_code) = ends([first, other])
    assert (checked(output)["status"]["state"], code, its_code) == ("completed", 0, 0), errors
    assert "too many others arrived after it" in errors
    for stranger in flood:
        sent_away(stranger)


def test_a_task_that_says_other_things_than_tasks_do_is_lost(double):
    """It knows the secret, and is one of the launch."""
    launch = seen_from(1)
    hello = heard_of_itself(double, launch)
    first = double.start("resnet50", *LONG, **task(0))
    line = meeting.joined(launch, hello, Untroubled())
    while not any(words[0] == "job" for words in line.read()):
        pass
    for said in (["consumed", 5], ["message", 1, "x"], ["message", [1], 2], ["message", 1.0, []], ["ended", 1, [None]]):
        line.send(*said)
    document = checked(first.communicate()[0])
    assert (document["status"]["state"], document["status"]["exit_code"]) == ("crashed", 4)
    lost = f"rank 1 of 2: the workload's process on {socket.gethostname()} cannot be reached any more"
    assert document["status"]["message"] == lost


class Untroubled(Orders):
    """No orders, and no handlers of signals."""

    def __init__(self):
        self.signals, self.deadline = [], None


def heard_of_itself(double, launch):
    """What the second task says to what it takes for the first one."""
    with meeting.opened(launch) as door:
        other = double.start("resnet50", *LONG, **task(1))
        arrived: list[Any] = []
        while not arrived:
            arrived.extend(door.arrivals())
    line, words = arrived[0]
    line.stream.close()
    _, errors = other.communicate()
    assert other.returncode == 4 and "the first task of this launch is gone" in errors
    return words


def connected(launch, said=b"", end=False):
    """A connection to the first task, once it listens, over which something was said and perhaps ended."""
    while True:
        try:
            connection = meeting._connection(launch)
            break
        except OSError:
            pass
    with contextlib.suppress(OSError):  # it was sent away before it had said all
        connection.sendall(said)
        if end:
            connection.shutdown(socket.SHUT_WR)
    return connection


def sent_away(connection):
    """Wait until the other end has closed the connection."""
    connection.settimeout(None)
    with contextlib.suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass
    connection.close()


def seen_from(number, *where):
    """The launch of a task, in the way of the program."""
    launch = launch_of(task(number))
    assert launch is not None
    return launch._replace(head="127.0.0.1", port=PORT) if where else launch


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


@pytest.mark.full
def test_the_time_limit_is_that_of_the_run(double):
    (first, code), (_, its_code) = ends(launched(double, *LONG, "--time-limit", "8"))
    assert (json.loads(first[0])["status"]["state"], code, its_code) == ("time_limit", 124, 124)


def test_two_ranks_that_fail_end_in_one_document(double):
    ends_of = ends([double.start("resnet50", *LONG, fault="memory", **task(number)) for number in (0, 1)])
    ((output, errors), code), ((nothing, _), its_code) = ends_of
    assert (checked(output)["status"]["state"], code, its_code, nothing) == ("out_of_memory", 4, 4, ""), errors


@pytest.mark.parametrize("rank", [pytest.param(0, marks=FULL), 1])
def test_a_rank_that_fails_on_one_task_is_the_first_cause(double, rank):
    processes = [
        double.start("resnet50", *LONG, fault="memory" if number == rank else "", **task(number)) for number in (0, 1)
    ]
    (first, code), (_, its_code) = ends(processes)
    document = checked(first[0])
    assert (document["status"]["state"], code, its_code) == ("out_of_memory", 4, 4), document["status"]
    assert document["status"]["message"].startswith(f"rank {rank} of 2: ")
