"""Several results from one command line: their order, their places, and what a stop leaves."""

from __future__ import annotations

import json
import signal

import pytest
from processes import wait_for
from program import FEW, checked, lines
from test_faults import LONG

from entrypoints.contract import cards
from entrypoints.runs import series
from entrypoints.runs.report import significant
from entrypoints.runs.supervise import Orders

SMALL = ("resnet50", "--steps", "3", "--warmup-steps", "1")


def runs(documents):
    return [(d["configuration"]["repeat"]["index"], d["configuration"]["batch_size"]) for d in documents]


def test_a_single_run_is_the_first_of_one(double):
    assert double.result(*SMALL)["configuration"]["repeat"] == {"index": 1, "of": 1}


def test_repeats_are_the_outer_loop_and_each_is_a_process_of_its_own(double):
    code, output, errors = double.run(*SMALL, "--repeat", 2, "--batch-sizes", "4,1")
    documents = lines(output)
    assert code == 0
    assert runs(documents) == [(1, 4), (1, 1), (2, 4), (2, 1)]
    assert len({document["id"] for document in documents}) == 4
    assert all(document["configuration"]["repeat"]["of"] == 2 for document in documents)
    assert all(document["search"] is None for document in documents)
    starts = [document["started"] for document in documents]
    assert starts == sorted(starts)
    assert "run 4 of 4" in errors


def test_a_size_that_fails_is_a_result_and_the_others_run(double):
    code, output, _ = double.run(*SMALL, "--batch-sizes", "1,16,2", fault="capacity:8")
    assert code == 4
    assert [d["status"]["state"] for d in lines(output)] == ["completed", "out_of_memory", "completed"]


def test_the_first_document_is_out_before_the_second_run_ends(double):
    process = double.start(*LONG[:1], "--duration", "1", "--warmup-steps", "1", "--repeat", 2)
    assert checked(process.stdout.readline())["configuration"]["repeat"]["index"] == 1
    assert process.poll() is None
    process.communicate()


def cards_of_few():
    return {name: card for name, card in cards.load().items() if name in FEW}


def test_all_workloads_run_in_turn_and_a_summary_ends_them(few):
    code, output, errors = few.run("--all", "--duration", "0.1", "--warmup-steps", "1", APPTAINER_NAME="nosuch-cpu.sif")
    documents = lines(output)
    assert code == 0
    assert [document["workload"]["name"] for document in documents] == list(cards_of_few())
    summary = errors.splitlines()[-len(documents) :]
    for document, line in zip(documents, summary):
        rate = document["metrics"]["throughput"]
        assert line.split() == [
            *("sifmark:", document["workload"]["name"], document["workload"]["task"]),
            *(str(document["configuration"]["batch_size"]), "completed", significant(rate["value"]), rate["unit"]),
        ]


def test_the_failure_of_a_workload_ends_none_but_its_own(few):
    sizes = {card.name: card.defaults_for("double", card.tasks[0])["batch_size"] for card in cards_of_few().values()}
    code, output, errors = few.run("--all", *SMALL[1:], fault=f"capacity:{max(sizes.values()) - 1}")
    states = {document["workload"]["name"]: document["status"]["state"] for document in lines(output)}
    fitting = {name: "completed" if size < max(sizes.values()) else "out_of_memory" for name, size in sizes.items()}
    assert code == 4 and states == fitting and len(set(states.values())) == 2
    summary = [line.split() for line in errors.splitlines()[-len(states) :]]
    assert {words[1]: words[4] for words in summary} == {name: state.split("_")[0] for name, state in states.items()}


def test_a_workload_that_cannot_take_an_option_is_left_out(few):
    code, output, errors = few.run("--all", "--task", "inference", "--concurrency", "1", "--duration", "0.1")
    able = [card.name for card in cards_of_few().values() if "inference" in card.tasks]
    ran = [document["workload"]["name"] for document in lines(output)]
    assert code == 0 and ran == [name for name in able if not name.startswith("gpt")]
    assert "left out: gpt2: --concurrency 1: gpt2 generates texts batch by batch" in errors
    code, output, errors = few.run("--all", "--steps", "3", "--warmup-steps", "3")
    assert (code, output) == (2, "")


def test_all_of_them_or_one(double):
    code, _, errors = double.run("--all", "resnet50")
    assert code == 2 and "name a workload, or ask for all of them" in errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--batch-size", 1, "--batch-sizes", "1,2"), "not allowed with"),
        (("--batch-sizes", "1,2,1"), "names a number twice"),
        (("--batch-sizes", "1,,2"), "'' is not a whole number"),
        (("--batch-sizes", ""), "'' is not a whole number"),
        (("--batch-sizes", "1,many"), "'many' is not"),
        (("--repeat", 0), "from 1 to 1000"),
        (("--repeat", 2, "--output", "one.json"), "--output results/"),
        (("--memory-limit", 0), "--memory-limit: "),
        (("--find-max-batch", "--batch-sizes", "1,2"), "leave --batch-sizes out"),
        (("--find-max-batch", "--epochs", 1, "--samples-per-epoch", 99), "--steps or --duration"),
        (("--find-max-batch", "--batch-size", 2**16 + 1), "no further than 65536"),
        (("--find-max-batch", "--target-loss", 1, "--steps", 9), "find the batch first"),
        (("--samples-per-epoch", 3, "--batch-sizes", "1,4"), "do not fill one step"),
    ],
)
def test_contradictions_are_refused_before_anything_runs(double, arguments, said):
    code, output, errors = double.run("resnet50", *arguments)
    assert (code, output) == (2, "")
    assert said in errors and "importing" not in errors
    assert not list(double.folder.iterdir())


def test_describe_tells_every_run(double):
    _, output, _ = double.run(*SMALL, "--describe", "--json", "--repeat", 2, "--batch-sizes", "1,2")
    described = [json.loads(line)["configuration"] for line in output.splitlines()]
    assert [(c["repeat"]["index"], c["batch_size"]) for c in described] == [(1, 1), (1, 2), (2, 1), (2, 2)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_keeps_what_there_is_and_counts_what_there_is_not(double, number, code):
    process = double.start(*SMALL, "--batch-sizes", "1,9,2", "--repeat", 2, fault="stuck:8")
    first = process.stdout.readline()
    wait_for(process, "batch 9")
    wait_for(process, "first step")
    process.send_signal(number)
    output, errors = process.communicate()
    assert process.returncode == code
    assert [d["status"]["state"] for d in lines(first + output)] == ["completed", "interrupted"]
    assert "4 of 6 runs were not started" in errors


def test_the_time_limit_is_for_all_runs_together(clocked):
    process = clocked.start(*SMALL, "--batch-sizes", "1,9,2", "--time-limit", 60, fault="stuck:8")
    wait_for(process, "batch 9")
    wait_for(process, "first step")
    process.send_signal(signal.SIGUSR1)
    output, errors = process.communicate()
    assert process.returncode == 124
    assert [document["status"]["state"] for document in lines(output)] == ["completed", "time_limit"]
    assert "1 of 3 runs were not started" in errors


def test_a_failure_and_then_a_stop_is_a_stop(double):
    process = double.start("resnet50", "--duration", 600, "--batch-sizes", "9,1", fault="brittle:8")
    assert checked(process.stdout.readline())["status"]["exit_code"] == 4
    wait_for(process, "measuring")
    process.terminate()
    process.communicate()
    assert process.returncode == 143


@pytest.mark.parametrize(
    ("codes", "planned", "signals", "expected"),
    [
        ([0, 0], 2, [], 0),
        ([0, 4, 3], 3, [], 4),
        ([4, 0, 124], 9, [], 124),
        ([4, 143], 9, [signal.SIGTERM], 143),
        ([4, 6, 143], 9, [signal.SIGTERM], 6),
        ([0, 0], 3, [signal.SIGINT], 130),  # it came between two runs
        ([0, 0], 2, [signal.SIGINT], 0),  # it came too late
        ([4], 3, [], 4),  # a search that failed
    ],
)
def test_the_exit_code_of_a_series(codes, planned, signals, expected, restored_signals):
    orders = Orders(None)
    orders.signals += signals
    assert series.close(codes, planned, orders) == expected


@pytest.fixture()
def restored_signals():
    """Orders take over the handlers of the process, here pytest's."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_each_child_has_its_own_peak_of_memory(double):
    """The second run is not charged for what the first one took."""
    _, output, _ = double.run(*SMALL, "--batch-sizes", "2,1", fault="feast:1")
    first, second = (document["metrics"]["peak_process_memory"]["value"] for document in lines(output))
    assert first > second + 100


def test_a_series_that_is_killed_keeps_the_lines_before(double):
    target = double.folder / "results.jsonl"
    process = double.start(*SMALL, "--batch-sizes", "1,9", "--output", target, fault="stuck:8")
    wait_for(process, "batch 9")
    wait_for(process, "first step")
    process.kill()
    process.communicate()
    assert runs(lines(target.read_text("utf-8"))) == [(1, 1)]
    double.run(*SMALL, "--batch-size", 2, "--output", target)
    assert runs(lines(target.read_text("utf-8"))) == [(1, 1), (1, 2)]


def test_a_torn_line_spoils_no_other(double):
    target = double.folder / "results.jsonl"
    target.write_text('{"schema_ver')
    assert double.run(*SMALL, "--output", target)[:2] == (0, "")
    torn, whole = target.read_text("utf-8").splitlines()
    assert torn == '{"schema_ver'
    checked(whole)
