"""What is printed when a run has ended."""

from __future__ import annotations

import json

import pytest
from program import ROOT

from entrypoints.results.steadiness import outliers
from entrypoints.runs.report import duration_text, report, significant, throttling, warnings_of
from entrypoints.system.console import aligned

SPINS, SLEEPS = "libgomp: 300000 spins (default)", "libgomp: 0 spins (OMP_WAIT_POLICY)"


@pytest.fixture
def whole():
    """A result as a run on a CPU wrote it, but with numbers that stay the same."""
    document = json.loads((ROOT / "schemas" / "examples" / "result-1.2" / "training.json").read_text())
    for name, value in {"throughput": 2.1784, "step_time_p50": 0.91944}.items():
        document["metrics"][name]["value"] = value
    document["metrics"]["step_time_p99"] = {"value": None, "unit": "s", "reason": "too few"}
    document["steps"]["quantiles"]["p100"] = 0.9219
    return {**document, "started": "2026-11-26T05:00:00.000Z", "finished": "2026-11-26T05:00:12.100Z"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (3.14159, "3.142"),
        (123456.7, "123,500"),
        (0.00123456, "0.001235"),
        (2.246e-06, "2.246e-06"),
        (float("inf"), "inf"),
        (1.7976931348623157e308, "1.798e+308"),
    ],
)
def test_a_number_has_four_significant_digits(value, text):
    assert significant(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (24.2, "24 s"), (72.0, "1 min 12 s"), (7500.0, "2 h 5 min")],
)
def test_durations(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize("width", [60, 71, 91])
def test_on_a_terminal_lines_are_folded_between_words_but_for_what_is_copied(whole, width):
    whole["provenance"]["stand_in"] = True
    whole["environment"]["preloaded"] = [f"/usr/lib/lib{number}.so" for number in range(9)]
    place = f"results/{'x' * 90}.json"
    lines, at_once = report(whole, place, width), report(whole, place)
    assert all(len(line) <= width for line in lines[:-2]) and lines[-2:] == at_once[-2:]
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(at_once).split()) and len(lines) > len(at_once)


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        (
            "interrupted",
            "the check ended in interrupted: stopped",
            "interrupted in 32 s, during the correctness check: ",
        ),
        ("interrupted", "the check was skipped (--smoke)", "interrupted in 32 s: "),
        ("interrupted", "the check ended in crashed: no", "interrupted in 32 s: "),
        ("crashed", "the check ended in crashed: no", "crashed in 32 s: "),
    ],
)
def test_a_run_that_was_stopped_in_its_check_says_so_and_how_long_that_took(whole, state, reason, said):
    whole["status"] = {**whole["status"], "state": state, "message": "why"}
    whole["numerics"] = {"state": "not_run", "reason": reason, "seconds": 20.0, "precisions": [], "run_checks": []}
    assert report(whole, None)[0].endswith(f"{said}why")


def test_the_report_has_the_number_first_and_the_place_last(whole):
    lines = report(whole, "results/a b.json")
    assert lines[:3] == [
        "resnet50 training  fp32  batch 2   completed in 12 s",
        "  throughput   2.178 images/s",
        "  step time    919.4 ms median, 921.9 ms slowest",
    ]
    assert [line.split()[0] for line in lines[-2:]] == ["result", "next"]
    assert lines[-1].endswith("sifmark results.show 'results/a b.json'")
    assert any(line.split()[0] == "correctness" for line in lines)
    assert not [line for line in report(whole, None) if line.split()[0] in ("result", "next")]


def test_a_percentile_is_shown_of_steps_that_are_enough_for_it(whole):
    whole["metrics"]["step_time_p99"] = {"value": 0.9216, "unit": "s"}
    assert report(whole, None)[2] == "  step time    919.4 ms median, 921.6 ms p99"


def test_language_models_and_targets_have_their_own_numbers(whole):
    numbers = {
        "token_throughput": 1234.5,
        "decode_throughput": 99.0,
        "time_to_first_token_p50": 0.25,
        "time_between_tokens_p50": 0.0101,
        "time_to_target": 72.0,
    }
    whole["metrics"].update({name: {"value": value, "unit": "x"} for name, value in numbers.items()})
    lines = [line.strip() for line in report(whole, None)]
    heads = [line.split()[0] for line in lines]
    assert heads[1:5] == ["tokens", "first", "next", "generation"] and "throughput" in heads[5:]
    for line in (
        "tokens       1,234 tokens/s",
        "generation   99.00 new tokens/s",
        "first token  250.0 ms median",
        "next tokens  10.10 ms median",
        "to target    1 min 12 s",
    ):
        assert line in lines, lines


def test_one_line_says_what_keeps_a_number_from_being_published(whole):
    def publication():
        return [line.split(None, 1)[1] for line in report(whole, None) if line.split()[0] == "publish"]

    whole["numerics"]["state"], whole["steadiness"]["steady"], whole["steadiness"]["outliers"] = "passed", True, None
    whole["provenance"]["stand_in"] = False
    whole["conditions_after"]["run_delay"]["value"] = whole["conditions_after"]["cpu_stolen"]["value"] = 0.0
    assert [text.partition(":")[0] for text in publication()] == ["not alone"]
    whole["configuration"]["repeat"] = {"index": 1, "of": 3}
    assert publication() == []
    whole["provenance"]["stand_in"], whole["numerics"]["state"] = True, "not_run"
    whole["conditions_after"]["cpu_stolen"]["value"] = 1000.0
    assert publication() == ["no: test base, busy host, correctness not shown"]
    whole["status"]["state"], whole["conditions_after"]["cpu_stolen"]["value"] = "interrupted", 0.0
    assert publication() == ["no: interrupted, test base, correctness not shown"]
    whole["conditions_after"]["run_delay"] = {"value": None, "unit": "%", "reason": "the timed window did not end"}
    whole["conditions"]["cpu_pressure"] = {"value": 97.96, "unit": "%"}
    assert publication() == ["no: interrupted, test base, busy host, correctness not shown"]
    waited = "the host was busy: threads waited 97.96 % of the last 10 s before the run. Do not publish this number"
    assert waited in list(warnings_of(whole))


def test_a_replayed_meter_is_no_simulated_device(whole):
    whole["provenance"]["simulated"], whole["power"] = True, {"source": "replay"}
    assert "the meter replayed a recorded trace. Do not publish this number" in list(warnings_of(whole))


@pytest.mark.parametrize(
    ("kind", "share", "beginning"),
    [
        ("heat", 0.02, "slow held the clocks of a device down for 2% of the window. Do not publish this number"),
        ("heat", 0.009, None),
        ("power", 0.5, "a power limit (slow) held the clocks of a device down for 50% of the window"),
        ("power", 0.1, None),
        ("other", 1.0, None),
    ],
)
def test_the_report_warns_of_clocks_that_were_held_down(whole, kind, share, beginning):
    window = whole["metrics"]["step_time_mean"]["value"] * (whole["steps"]["count"] - whole["steps"]["untimed"])
    limit = {"name": "slow", "kind": kind, "duration": {"value": share * window, "unit": "s"}, "method": "counter"}
    whole["power"]["devices"] = [{"name": "idle"}, {"name": "busy", "load": {"limits": [limit]}}]
    assert list(throttling(whole)) == ([beginning] if beginning else [])
    assert set(throttling(whole)) <= set(warnings_of(whole))


@pytest.mark.parametrize(
    ("delay", "threads", "wait", "stolen", "beginning"),
    [
        (2.0, 2, SPINS, 0.0, None),
        (2.5, 1, SPINS, 0.0, "the host was busy: threads waited 2.500 % of their time. Do not publish"),
        (2.5, 2, SLEEPS, 0.0, "the host was busy: threads waited 2.500 % of their time. Do not publish"),
        (2.5, 2, None, 0.0, "the host was busy: threads waited 2.500 % of their time. Do not publish"),
        (2.5, 2, SPINS, 0.0, "the host was busy: threads waited 2.500 % of their time. Busy waiting of OpenMP"),
        (2.5, 64, SPINS, 0.0, "the run has more threads than processors: they waited 2.500 % of their time"),
        (None, 1, SPINS, 1000.0, "the hypervisor took "),
    ],
)
def test_the_report_warns_of_other_work_on_the_host(whole, delay, threads, wait, stolen, beginning):
    whole["conditions_after"]["openmp_wait"]["value"] = wait
    whole["conditions_after"]["run_delay"]["value"] = delay
    whole["conditions_after"]["cpu_stolen"]["value"] = stolen
    whole["configuration"]["threads"] = threads
    whole["host"]["threads_usable"]["value"] = 2
    warnings = [text for text in warnings_of(whole) if "step times" not in text]
    assert len(warnings) == (beginning is not None) and all(text.startswith(beginning) for text in warnings)


@pytest.mark.parametrize(
    ("seconds", "warned"),
    [
        ([0.1] * 54 + [6.0], True),  # a process that was stopped for 6 of 12 s
        ([0.1] * 50 + [0.6], True),
        ([0.1] * 50 + [0.5], False),
        ([0.1] * 50, False),
        ([], False),
    ],
)
def test_a_stall_of_more_than_a_tenth_of_the_window_is_warned_of(whole, seconds, warned):
    whole["steadiness"]["outliers"] = outliers(seconds) if seconds else None
    texts = [text for text in warnings_of(whole) if "outlying steps" in text]
    assert len(texts) == warned and all("Do not publish this number" in text for text in texts)


def test_libraries_that_are_loaded_first_are_named(whole):
    assert not [text for text in warnings_of(whole) if "loaded before all other" in text]
    whole["environment"]["preloaded"] = ["slowclock.so", "libjemalloc.so.2"]
    (line,) = [line for line in report(whole, None) if "loaded before all other libraries" in line]
    assert line.split()[0] == "warning" and line.endswith(": slowclock.so, libjemalloc.so.2")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (2.0518, 2.3031, "± 5.8 %"),
        (2.177, 2.179, "± 0.06 %"),
        (2.1784, 2.17841, "± 0.01 %"),
        (1.2, 3.1, "[1.20, 3.10]"),
        (0.0, 2.2, "[0, 2.20]"),
    ],
)
def test_the_interval_is_that_over_steps(whole, low, high, text):
    whole["steadiness"]["throughput_interval"] = {"low": low, "high": high, "unit": "images/s"}
    assert report(whole, None)[1] == f"  throughput   2.178 images/s {text}   (95 % over steps)"


def test_the_memory_of_a_run_is_in_gib_from_one_on(whole):
    whole["metrics"]["peak_process_memory"]["value"] = 1240.0
    whole["metrics"]["peak_allocated_memory"]["value"] = 512.0
    (line,) = [line for line in report(whole, None) if line.split()[0] == "memory"]
    assert line.endswith("1.211 GiB host, 512.0 MiB device")


def test_a_run_without_steps_has_no_number(whole):
    for metric in whole["metrics"].values():
        metric["value"] = None
    whole["status"] = {"state": "out_of_memory", "message": "too large"}
    lines = report(whole, None)
    assert lines[0].endswith("out of memory in 12 s: too large")
    assert not [line for line in lines if line.split()[0] in ("throughput", "step")]


@pytest.mark.parametrize("field", ["stand_in", "simulated"])
def test_a_number_that_must_not_be_published_says_so(whole, field):
    whole["provenance"][field] = True
    (warning,) = [line for line in report(whole, None) if line.split()[0] == "warning"]
    assert warning.endswith("Do not publish this number")


def test_columns_are_aligned():
    assert list(aligned([("a", "bb"), ("ccc", "d")])) == ["a    bb", "ccc  d"]
