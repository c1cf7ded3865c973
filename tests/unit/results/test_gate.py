"""The gate as decisions about a comparison, and comparing as a library that prints nothing."""

import json
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import documents
import pytest
from unit.refusals import refused

from sifmark.core.errors import UsageError
from sifmark.results.comparison.compare import Comparison, compare_observations, compare_results
from sifmark.results.comparison.gate import Gate, GateDecision
from sifmark.results.comparison.intervals import Ratio
from sifmark.results.comparison.observation import ComparisonGroup, Observation, Session
from sifmark.results.comparison.query import Query
from sifmark.results.documents import MetricValue

METRIC = ("throughput",)


def write(folder: Path, *values: float, **changes: Any) -> str:
    folder.mkdir(exist_ok=True)
    for value in values:
        number = uuid.uuid4()
        metric = {"value": value, "unit": "images/s"}
        document = documents.valid(id=str(number), metrics__throughput=metric, **changes)
        (folder / f"{number}.json").write_text(json.dumps(document))
    return str(folder)


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    """Twice the throughput of the baseline."""
    new = write(tmp_path / "new", 199, 200, 201)
    return compare_results([new], Query(METRIC, against=True), write(tmp_path / "old", 99, 100, 101))


def test_comparing_prints_nothing(comparison: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = comparison.compared
    assert row.ratios["throughput"].value == pytest.approx(2, rel=1e-3)
    assert comparison.units == {"throughput": "images/s"}
    assert (comparison.invalid, comparison.duplicates, comparison.refused) == ([], 0, [])
    assert capsys.readouterr() == ("", "")


def test_invalid_documents_and_copies_are_counted(tmp_path: Path) -> None:
    folder = Path(write(tmp_path / "new", 100))
    (file,) = folder.iterdir()
    (folder / "copy.json").write_text(file.read_text())
    (folder / "bad.json").write_text("{}")
    comparison = compare_results([str(folder)], Query(METRIC))
    assert comparison.duplicates == 1 and len(comparison.invalid) == 1 and "bad.json" in comparison.invalid[0]


def test_a_copy_under_another_id_is_the_same_run(tmp_path: Path) -> None:
    original = documents.from_image()
    for number, changes in enumerate(({}, {"started": "2026-11-26T05:00:00.000Z"}, {"site": "elsewhere"})):
        copy = original | {"id": str(uuid.uuid4())} | changes
        if "site" in changes:
            copy["provenance"] = {**copy["provenance"], "command": [*copy["provenance"]["command"], "--site=elsewhere"]}
        if "started" in changes:  # the run is moved in time as a whole
            shift = datetime.fromisoformat(copy["started"]) - datetime.fromisoformat(original["started"])
            moved = datetime.fromisoformat(original["finished"]) + shift
            copy["finished"] = f"{moved:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
        (tmp_path / f"{number}.json").write_text(json.dumps(copy))
    comparison = compare_results([str(tmp_path)], Query(METRIC))
    assert (comparison.invalid, comparison.duplicates) == ([], 2)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (Query(("throughputs",)), "unknown-name"),
        (Query(METRIC, more_fields=("nowhere",)), "unknown-name"),
        (Query(METRIC, allowed=frozenset({"nowhere"})), "unknown-name"),
        (Query(METRIC, baseline=("accelerator.kind", "nowhere")), "baseline-missing"),
    ],
)
def test_a_query_that_no_result_can_answer(tmp_path: Path, query: Query, code: str) -> None:
    with refused(UsageError, code) as caught:
        compare_results([write(tmp_path / "new", 100)], query)
    assert "--" not in caught.value.cause


@pytest.mark.parametrize(
    ("gate", "decision"),
    [
        (Gate(0.9), GateDecision.PASSED),
        (Gate(2.0), GateDecision.UNDECIDED),
        (Gate(2.5), GateDecision.FAILED),
        (Gate(2.5, above=True), GateDecision.PASSED),
        (Gate(1.5, above=True), GateDecision.FAILED),
    ],
)
def test_the_whole_interval_decides(comparison: Comparison, gate: Gate, decision: GateDecision) -> None:
    verdict = gate.judge(comparison)
    assert verdict.decision is decision
    assert bool(verdict.reason) is (decision is not GateDecision.PASSED)


def test_without_metrics_the_headline_of_each_kind_of_run_is_judged() -> None:
    """The rate of a whole sweep of copies has fallen, since there are more small ones; the memory is as fast."""
    group = ComparisonGroup("sha256:0", "microbenchmark", "steady", "synthetic")
    fields = {"schema_version": "1.2", "status.state": "completed", "configuration.smoke": False}
    fields["numerics.state"] = "passed"

    def copies(side: str, day: int, sweep: float, memory: float) -> list[Observation]:
        sample = [{"throughput": sweep * x, "memory_bandwidth": memory * x} for x in (0.999, 1.0, 1.001)]
        return [
            Observation(
                *(side, f"{side}{number}.json", f"{side}{number}", "copies", group, fields),
                {name: MetricValue(value, "GB/s", None) for name, value in measured.items()},
                session=Session("n01", day=f"2026-11-{day:02}"),
            )
            for number, measured in enumerate(sample)
        ]

    observations = [*copies("against", 1, 40.0, 100.0), *copies("results", 2, 20.0, 100.0)]
    assert Gate(0.9).judge(compare_observations(observations, Query(against=True))).passed
    asked = compare_observations(observations, Query(METRIC, against=True))
    assert Gate(0.9).judge(asked).decision is GateDecision.FAILED


def test_a_gate_does_not_decide_about_what_is_missing(tmp_path: Path) -> None:
    query = Query(METRIC, against=True)
    few = compare_results([write(tmp_path / "few", 200)], query, write(tmp_path / "old", 99, 100, 101))
    assert Gate(0.9).judge(few).reason.startswith("cannot tell of 1 of 1 row")
    unsteady = write(tmp_path / "unsteady", 99, 100, 101, steadiness__steady=False)
    verdict = Gate(0.9).judge(compare_results([unsteady], query, str(tmp_path / "old")))
    assert verdict.decision is GateDecision.UNDECIDED and "not steady" in verdict.reason
    write(tmp_path / "unsteady", 100, configuration__smoke=True)
    verdict = Gate(0.9).judge(compare_results([unsteady], query, str(tmp_path / "old")))
    assert verdict.decision is GateDecision.UNDECIDED and "1 excluded result" in verdict.reason


@pytest.mark.parametrize(
    ("metric", "below", "above"),
    [
        ("step_time_p50", False, True), ("energy_per_unit", False, True), ("peak_process_memory", False, True),
        ("throughput", True, False), ("units_per_watt_hour", True, False), ("utilisation", True, False),
        ("phases.compile", False, True), ("epochs.2.throughput", True, False), ("time_to_first_step.warm", False, True),
        ("power_mean", True, True), ("unheard_of", True, True),
    ],
)  # fmt: skip
def test_a_gate_suits_a_metric_unless_the_worse_would_pass(metric: str, below: bool, above: bool) -> None:
    assert (Gate(1.0).suits(metric), Gate(1.0, above=True).suits(metric)) == (below, above)


def test_without_an_interval_nothing_is_kept() -> None:
    assert Gate(1.0).keeps(None) is None
    assert Gate(1.0).keeps(Ratio(2.0, reason="2 and 2 repeats where 3 are needed")) is None
    assert Gate(1.0).keeps(Ratio(2.0, 1.0, 3.0)) is True
