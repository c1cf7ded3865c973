"""The search for the largest batch: its logic for every capacity, and whole searches on the double."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import wait_for
from program import checked

from entrypoints.contract import cards
from entrypoints.planning.arguments import parse
from entrypoints.planning.plan import MOST_BATCH
from entrypoints.planning.resolve import resolve
from entrypoints.results.outcome import Outcome
from entrypoints.runs import batch_search
from entrypoints.runs.batch_search import Bracket

MOST_TRIALS = 32  # as the schema has it
SEARCH = ("resnet50", "--steps", "5", "--warmup-steps", "1", "--find-max-batch")


@given(st.integers(0, 2 * MOST_BATCH), st.integers(1, MOST_BATCH), st.integers(1, MOST_BATCH))
def test_any_capacity_is_found_from_any_start_within_the_bound(capacity, start, most):
    start = min(start, most)
    bracket, size, tried = Bracket(), start, []
    while size is not None:
        assert 1 <= size <= most and size not in tried
        tried.append(size)
        bracket = bracket.after(size, fits=size <= capacity)
        size = bracket.next(start, most)
    assert bracket.fits == min(capacity, most)
    assert len(tried) <= MOST_TRIALS


def trials(document):
    return [(trial["batch_size"], trial["state"]) for trial in document["search"]["trials"]]


@pytest.mark.parametrize(("concurrency", "steps"), [(None, 3), (4, 9)])
def test_a_trial_sees_all_streams_at_work(monkeypatch, concurrency, steps):
    trial_steps = []

    def execute(card, trial, orders):
        trial_steps.append(trial.steps)
        return SimpleNamespace(
            outcome=Outcome("completed", 0, ""), measurement=SimpleNamespace(peak_process_mib=1.0), configuration=trial
        )

    monkeypatch.setattr(batch_search, "execute", execute)
    words = ["--task", "inference", "--find-max-batch", "--batch-size", "65536"]
    card = cards.load()["resnet50"]
    options = parse([*words, *(["--concurrency", str(concurrency)] if concurrency else [])])
    orders: Any = None  # nothing runs that could be stopped
    batch_search.search(card, resolve(options, card, None), orders)
    assert trial_steps == [steps]


def test_a_trial_of_a_compiled_model_replays_its_graphs(monkeypatch):
    """Recorded graphs have memory of their own, and take two steps of warm-up more."""
    settings = []

    def execute(card, trial, orders):
        settings.append((trial.warmup_steps, trial.steps))
        return SimpleNamespace(
            outcome=Outcome("completed", 0, ""), measurement=SimpleNamespace(peak_process_mib=1.0), configuration=trial
        )

    monkeypatch.setattr(batch_search, "execute", execute)
    image = {"framework": "pytorch", "device": "cuda"}
    words = ["--find-max-batch", "--batch-size", "65536", "--compile"]
    orders: Any = None  # nothing runs that could be stopped
    batch_search.search(cards.load()["resnet50"], resolve(parse(words), cards.load()["resnet50"], image), orders)
    assert settings == [(3, 5)]


def test_the_run_is_at_the_size_found(double):
    document = double.result(*SEARCH, fault="capacity:5")
    fits, fails = "completed", "out_of_memory"
    assert trials(document) == [(1, fits), (2, fits), (4, fits), (8, fails), (6, fails), (5, fits)]
    assert document["search"]["largest"] == document["configuration"]["batch_size"] == 5
    assert document["search"]["memory_limit_mib"] is None  # the double has memory of its own
    assert document["status"]["state"] == "completed" and document["steps"]["count"] == 5
    assert all(trial["peak_process_mib"] > 1 and trial["seconds"] > 0 for trial in document["search"]["trials"])


def test_a_start_that_is_too_large_is_halved(double):
    document = double.result(*SEARCH, "--batch-size", 6, fault="capacity:2")
    assert [size for size, _ in trials(document)] == [6, 3, 1, 2]
    assert document["configuration"]["batch_size"] == 2


def test_the_samples_bound_the_batch(double):
    document = double.result(*SEARCH, "--samples-per-epoch", 3)
    assert [size for size, _ in trials(document)] == [1, 2, 3]
    assert document["configuration"]["batch_size"] == 3


def test_where_nothing_fits_the_result_says_so(double):
    document = double.result(*SEARCH, "--batch-size", 2, fault="capacity:0")
    assert document["status"]["state"] == "out_of_memory"
    assert [size for size, _ in trials(document)] == [2, 1]
    assert document["search"]["largest"] is None
    assert document["configuration"]["batch_size"] == 1 and "batch 1" in document["status"]["message"]


def test_another_failure_ends_the_search(double):
    code, output, errors = double.run(*SEARCH, "--repeat", 3, fault="brittle:2")
    document = checked(output)
    assert code == 4 == document["status"]["exit_code"]
    assert document["status"]["state"] == "crashed"
    assert trials(document) == [(1, "completed"), (2, "completed"), (4, "crashed")]
    assert document["search"]["largest"] == 2
    assert "3 of 3" not in errors and "2 of 3 runs were not started" in errors


@pytest.mark.parametrize("stop", [signal.SIGTERM, None])
def test_a_stop_keeps_the_trials_so_far(clocked, stop):
    process = clocked.start(*SEARCH, "--time-limit", 60, fault="stuck:2")
    wait_for(process, "batch 4")
    wait_for(process, "first step")
    process.send_signal(stop or signal.SIGUSR1)  # the latter: the time limit passes
    output, _ = process.communicate()
    document = checked(output)
    state = "interrupted" if stop else "time_limit"
    assert document["status"]["state"] == state
    assert trials(document)[-1][1] == state
    assert process.returncode == document["status"]["exit_code"] == (143 if stop else 124)


def test_repeats_share_one_search(double):
    _, output, _ = double.run(*SEARCH, "--repeat", 2, fault="capacity:1")
    first, second = map(checked, output.splitlines())
    assert first["search"] == second["search"]
    assert [d["configuration"]["repeat"]["index"] for d in (first, second)] == [1, 2]
