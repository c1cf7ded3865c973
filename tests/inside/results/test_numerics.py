"""What the probe's numbers prove, told from numbers that are made up."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program import Program

from entrypoints.cli import verbs
from entrypoints.contract import cards, float8, reference
from entrypoints.contract.messages import Probed
from entrypoints.planning.arguments import parse
from entrypoints.results import numerics
from entrypoints.results.outcome import Outcome, with_numerics

CARD = cards.load()["resnet50"]
STORED = reference.Reference(
    schema_version="1.0",
    workload="made_up",
    identity="",
    batch_size=1,
    optimizer={},
    model={},
    parameters=0,
    values={"output": [3.0, 4.0], "loss": [2.0], "zero": [0.0]},
    tolerances={
        "fp32": {"output": 0.1, "loss": 0.01, "zero": 0.1},
        "bf16": {"output": 0.5, "loss": 0.5, "zero": 0.5},
    },
    not_provable={"bf16": "too coarse"},
    source="made up",
)
RIGHT = {"output": [3.0, 4.0], "loss": [2.0], "zero": [0.0]}
NUMBERS = st.integers(-(10**6), 10**6)


def messages(precision="fp32", **changes):
    return [Probed(precision, name, values) for name, values in {**RIGHT, **changes}.items() if values is not None]


def test_what_matches_passes():
    judged = numerics.compare_with_reference(messages(), STORED, "fp32")
    assert (judged.state, judged.reason) == ("passed", None)
    assert judged.as_json()["precisions"][0]["mismatched"] == []


@pytest.mark.parametrize(
    ("changes", "mismatched"),
    [
        ({"loss": [2.03]}, ["loss"]),
        ({"output": [3.0, 4.6]}, ["output"]),
        ({"zero": [0.2]}, ["zero"]),
        ({"output": [3.0]}, ["output"]),  # another size
        ({"output": None}, ["output"]),  # not told
        ({"loss": [math.nan]}, ["loss"]),
        ({"loss": [math.inf]}, ["loss"]),
        ({"loss": [2.1], "output": [0.0, 0.0]}, ["output", "loss"]),
    ],
)
def test_what_does_not_match_fails_by_name(changes, mismatched):
    judged = numerics.compare_with_reference(messages(**changes), STORED, "fp32")
    document = json.dumps(judged.as_json(), allow_nan=False)
    assert judged.state == "failed" and judged.precisions[0].mismatched == tuple(mismatched)
    worst = judged.precisions[0].worst
    assert worst and worst.quantity in mismatched and worst.quantity in document
    assert f"{len(mismatched)} of 3 quantities do not match in fp32" in str(judged.reason)


def test_a_deviation_within_the_tolerance_is_no_mismatch():
    judged = numerics.compare_with_reference(messages(output=[3.0, 4.4], loss=[2.019]), STORED, "fp32")
    worst = judged.precisions[0].worst
    assert judged.state == "passed" and worst and worst.quantity == "loss"


def test_a_precision_that_proves_nothing_proves_nothing_however_well_it_matches():
    judged = numerics.compare_with_reference(messages("bf16"), STORED, "bf16")
    assert (judged.state, judged.reason) == ("not_provable", "too coarse")
    assert (
        numerics.compare_with_reference(messages("fp16"), STORED, "fp16").reason == "there are no tolerances for fp16"
    )


def test_the_run_s_own_precision_is_what_passes_and_any_failure_refutes_it():
    assert numerics.compare_with_reference(messages(), STORED, "fp32").state == "passed"
    judged = numerics.compare_with_reference(messages() + messages("bf16"), STORED, "bf16")
    assert (judged.state, [each.state for each in judged.precisions]) == ("not_provable", ["passed", "not_provable"])
    assert numerics.compare_with_reference(messages() + messages("bf16", loss=[9.0]), STORED, "bf16").state == "failed"
    assert numerics.compare_with_reference(messages(loss=[9.0]) + messages("bf16"), STORED, "bf16").state == "failed"


@pytest.mark.parametrize(("accumulation", "missing"), [(1, "own_rule.loss"), (8, "accumulated.loss")])
def test_a_run_has_the_update_of_its_own_kind(accumulation, missing):
    """With micro-batches or without: the other's is not expected, and its own has to be there."""
    both = {"own_rule.loss": [1.0], "accumulated.loss": [1.0]}
    tolerances = {"fp32": {**STORED.tolerances["fp32"], **dict.fromkeys(both, 0.1)}}
    stored = dataclasses.replace(STORED, values={**STORED.values, **both}, tolerances=tolerances)
    expected = stored.of_run(accumulation)
    assert set(expected.values) == set(expected.tolerances["fp32"]) == {*RIGHT, missing}
    assert numerics.compare_with_reference(messages(**{missing: [1.0]}), expected, "fp32").state == "passed"
    judged = numerics.compare_with_reference(messages(), expected, "fp32")
    assert judged.state == "failed" and judged.precisions[0].mismatched == (missing,)


def test_what_the_run_itself_computes_in_has_to_be_held_against_something():
    judged = numerics.compare_with_reference(messages() + messages("fp16"), STORED, "fp16")
    assert (judged.state, judged.reason) == ("not_provable", "there are no tolerances for fp16")
    assert numerics.compare_with_reference(messages(), STORED, "bf16").state == "not_run"


def test_a_probe_that_was_cut_short_proves_nothing_and_may_refute():
    part = [message for message in messages("bf16") if message.quantity != "zero"]
    judged = numerics.compare_with_reference(messages() + part, STORED, "bf16", cut="it crashed")
    assert (judged.state, judged.reason) == ("not_run", "it crashed")
    assert (
        numerics.compare_with_reference(messages(loss=[9.0]) + part, STORED, "bf16", cut="it crashed").state == "failed"
    )
    assert numerics.compare_with_reference([], None, "fp32", cut="it crashed").state == "not_run"


def test_without_stored_values_nothing_is_provable():
    assert numerics.compare_with_reference(messages(), None, "fp32") == numerics.Numerics(
        "not_provable", numerics.NO_REFERENCE
    )
    assert numerics.compare_with_reference([], STORED, "fp32").state == "not_run"


MEASURED = dataclasses.replace(
    STORED,
    devices={
        "cuda": {
            "measured_on": "made up",
            "tolerances": {"fp32": {"loss": 0.05}, "tf32": {"loss": 0.1}},
            "not_provable": {"tf32": "too coarse there"},
        }
    },
)


@pytest.mark.parametrize(
    ("device", "precision", "loss", "state", "tolerance"),
    [
        ("cpu", "fp32", 2.06, "failed", 0.01),
        ("cuda", "fp32", 2.06, "passed", 0.05),  # as was measured there
        ("cuda", "fp32", 2.2, "failed", 0.05),
        ("cuda", "tf32", 2.06, "not_provable", 0.1),  # a precision that CPUs do not have
        ("xpu", "fp32", 2.01, "passed", 0.01),
        ("xpu", "fp32", 2.06, "not_provable", 0.16),  # nobody has measured how it rounds
        ("xpu", "fp32", 2.4, "failed", 0.16),
        ("xpu", "fp32", math.nan, "failed", 0.16),
    ],
)
def test_tolerances_are_those_of_the_kind_of_device(device, precision, loss, state, tolerance):
    stored = MEASURED.on(device)
    judged = numerics.compare_with_reference(messages(precision, loss=[loss]), stored, precision)
    (only,) = judged.precisions
    assert only.state == state
    if only.worst and only.worst.quantity == "loss":
        assert only.worst.tolerance == pytest.approx(tolerance)


def test_ranks_are_never_allowed_more_than_rounding():
    """A mistake in an exchange deviates by a third at least, on any device."""
    stored = MEASURED.on("ipu").by_ranks(clipped=False)
    judged = numerics.compare_with_reference(
        messages(loss=[2.06], update_by_ranks=[0.3], weights_between_ranks=[0.0]), stored, "fp32"
    )
    assert judged.state == "failed" and judged.precisions[0].mismatched == ("update_by_ranks",)


def of_float8(**changed):
    """Messages of a check in FP8, all within their tolerances but for what is changed."""
    deviations = {name: [0.9 * tolerance] for name, tolerance in float8.TOLERANCES.items()}
    return messages("fp8", **{**deviations, **{f"float8.{name}": [value] for name, value in changed.items()}})


@pytest.mark.parametrize("device", ["cpu", "cuda", "xpu"])
def test_fp8_has_the_same_tolerances_on_every_device(device):
    """45 dB from what is emulated, 20 dB of the output and 17 dB of gradients from fp32."""
    stored = MEASURED.on(device).in_float8()
    assert numerics.compare_with_reference(of_float8(), stored, "fp8").state == "passed"
    for name, deviation in (("outputs", 0.006), ("others", 0.006), ("output", 0.11), ("gradients", 0.15)):
        judged = numerics.compare_with_reference(of_float8(**{name: deviation}), stored, "fp8")
        assert judged.state == "failed" and judged.precisions[0].mismatched == (f"float8.{name}",)
    assert numerics.compare_with_reference(messages("fp8", output=[1.0]), stored, "fp8").state == "failed"


def test_a_check_in_fp8_that_was_cut_short_is_whole_by_its_own_quantities():
    stored = STORED.in_float8()
    cut = numerics.compare_with_reference(of_float8(outputs=1.0), stored, "fp8", "it crashed")
    assert cut.state == "failed"
    some = [message for message in of_float8(outputs=1.0) if message.quantity != "float8.output"]
    assert numerics.compare_with_reference(some, stored, "fp8", "it crashed").state == "not_run"


def test_ranks_in_fp8_have_the_same_weights_and_each_its_own_scales():
    stored = STORED.in_float8().by_ranks(clipped=True)
    assert set(stored.tolerances["fp8"]) == {*float8.TOLERANCES, reference.WEIGHTS}
    assert set(reference.BY_RANKS) <= set(stored.tolerances["fp32"])


def test_a_reference_serves_its_own_problem_only(tmp_path):
    assert reference.load(CARD, tmp_path) is None
    for identity, usable in ((CARD.identity, True), ("sha256:" + "0" * 64, False)):
        written = {**dataclasses.asdict(STORED), "identity": identity}
        (tmp_path / "resnet50.json").write_text(json.dumps(written))
        assert (reference.load(CARD, tmp_path) is not None) == usable


CHECKED = [card for card in cards.load().values() if "microbenchmark" not in card.tasks]


@pytest.mark.parametrize("card", CHECKED, ids=lambda card: card.name)
def test_every_workload_has_a_reference_for_its_card_as_it_is(card):
    stored = reference.load(card)
    assert stored is not None, "the card has changed: python benchmarks/numerics.py --write"
    assert stored.workload == card.name
    assert "fp32" in stored.tolerances and "fp32" not in stored.not_provable
    for precision, tolerances in stored.tolerances.items():
        assert min(tolerances.values()) > 0
        assert set(tolerances) == set(stored.values) or precision in stored.not_provable
        assert set(tolerances) <= set(stored.values)
    for own in stored.devices.values():
        assert own["measured_on"] and "fp32" not in own["not_provable"]
        for precision, tolerances in own["tolerances"].items():
            narrower = stored.tolerances.get(precision, {})
            assert all(narrower.get(name, 0.0) < tolerance for name, tolerance in tolerances.items())
            assert set(tolerances) <= set(narrower or stored.values)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8), st.floats(0.5, 2))
def test_a_deviation_is_a_relative_distance(pairs, factor):
    probed, stored = zip(*pairs)
    value = numerics.deviation(probed, stored)
    assert value >= 0 and numerics.deviation(stored, stored) == 0
    scaled = numerics.deviation([factor * x for x in stored], stored)
    assert scaled == pytest.approx(abs(factor - 1) if any(stored) else 0.0, abs=1e-9)


def test_a_run_that_completed_with_other_numerics_has_not_completed():
    failed = numerics.compare_with_reference(messages(loss=[9.0]), STORED, "fp32")
    outcome = with_numerics(Outcome("completed", 0, "all"), failed)
    assert (outcome.state, outcome.exit_code) == ("numerics_mismatch", 5) and "loss" in outcome.message
    crashed = Outcome("crashed", 4, "gone")
    assert with_numerics(crashed, failed) == crashed
    assert with_numerics(Outcome("completed", 0, "all"), numerics.not_run("left out")).state == "completed"


@pytest.fixture()
def proving(double_tree, tmp_path):
    """The program on the double, with stored values that its losses match."""
    tree = tmp_path / "sifmark"
    shutil.copytree(str(double_tree), str(tree))
    values = {"first_update.loss": [1 / 2], "second_update.loss": [1 / 3]}  # the output was its first step
    stored = dataclasses.replace(STORED, workload="resnet50", identity=CARD.identity, batch_size=3, values=values)
    stored = dataclasses.replace(stored, tolerances={"fp32": dict.fromkeys(values, 1e-6)}, not_provable={})
    (tree / "entrypoints" / "references").mkdir()
    (tree / "entrypoints" / "references" / "resnet50.json").write_text(json.dumps(dataclasses.asdict(stored)))
    return Program(tree, tmp_path)


def test_a_run_says_what_its_numerics_rest_on(proving):
    document = proving.result("resnet50", "--steps", 8)
    assert document["status"]["state"] == "completed"
    assert document["numerics"]["state"] == "passed" and "reason" not in document["numerics"]
    assert [part["precision"] for part in document["numerics"]["precisions"]] == ["fp32"]


def test_a_run_with_other_numerics_is_measured_and_refused(proving):
    document = proving.result("resnet50", "--steps", 8, fault="numerics")
    assert document["status"]["state"] == "numerics_mismatch" and document["status"]["exit_code"] == 5
    assert "2 of 2 quantities do not match in fp32" in document["status"]["message"]
    assert document["numerics"]["precisions"][0]["mismatched"] == ["first_update.loss", "second_update.loss"]
    assert document["metrics"]["throughput"]["value"] > 0 and document["steps"]["count"] == 8


@pytest.mark.parametrize("option", ["--smoke", "--skip-numerics"])
def test_a_probe_can_be_left_out(proving, option):
    document = proving.result("resnet50", option, "--steps", 8, fault="numerics")
    assert document["status"]["state"] == "completed"
    assert document["numerics"]["state"] == "not_run" and option in document["numerics"]["reason"]


def test_a_probe_that_dies_leaves_the_run_to_say_why(proving):
    document = proving.result("resnet50", "--steps", 8, fault="exit")
    assert document["status"]["state"] == "crashed"
    assert "the check ended in crashed" in document["numerics"]["reason"]


def test_a_check_fails_where_numbers_do_not_match(proving):
    assert proving.run("resnet50", "--check")[:2] == (0, "")
    code, output, errors = proving.run("resnet50", "--check", fault="numerics")
    assert (code, output) == (5, "") and "second_update.loss" in errors


def test_what_is_probed_alike_is_probed_once(monkeypatch, capsys):
    probed = []

    def checked(card, *_):
        probed.append(reference.probed_problem(card))
        return Outcome("completed", 0, "correctness passed")

    monkeypatch.setattr("entrypoints.runs.numerics_check.check", checked)
    assert verbs.check(parse(["--check", "--all"])) == 0
    workloads = [line.split()[3].rstrip(":") for line in capsys.readouterr().err.splitlines()]
    assert workloads == [card.name for card in CHECKED] and len(set(probed)) == len(probed) < len(workloads)
