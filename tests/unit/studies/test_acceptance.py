"""Contracts: what is refused, what their repeats can show, and what results decide about each clause."""

import json
import math
import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import documents
import pytest
from unit.keys import make_key
from unit.refusals import refused

from sifmark.commands.acceptance import accept
from sifmark.core.errors import GateError, UndecidedError, UsageError
from sifmark.core.settings import load_settings
from sifmark.results.comparison.intervals import standard_errors
from sifmark.results.comparison.sessions import Part
from sifmark.results.envelope import signer_of
from sifmark.results.load import LoadedResult, result_files
from sifmark.studies.acceptance.contract import Contract, Place, write_study
from sifmark.studies.acceptance.document import as_document
from sifmark.studies.acceptance.judge import Acceptance, Evidence, References, Verdict, gather, judge, shortfall_at
from sifmark.studies.acceptance.plan import plan_of
from sifmark.studies.acceptance.power import Design, detectable, noncentral_tail, power_of
from sifmark.studies.expand import expand
from sifmark.studies.load import load_study

SERIAL = count()
CONTRACT = """
title = "Nodes"
{more}
[[clause]]
name = "training"
run = {{ workload = "resnet50", task = "training", batch_size = 8, steps = 4 }}
metric = "{metric}"
tolerance = 0.05
{required}
"""


def contract(
    folder: Path, required: str = 'value = 100\nunit = "images/s"', more: str = "", metric: str = "throughput"
):
    file = folder / "contract.toml"
    file.write_text(CONTRACT.format(required=required, more=more, metric=metric))
    return Contract.read(file)


def result(value: float, day: int = 1, metrics: dict[str, Any] | None = None, **changes: Any) -> LoadedResult:
    """A completed result with this throughput, and with more metrics than agree with it."""
    document = documents.valid(
        id=str(uuid.UUID(int=next(SERIAL), version=4)),
        metrics__throughput={"value": value, "unit": "images/s"},
        **changes,
    )
    document["metrics"] |= metrics or {}
    for name in ("started", "finished"):
        document[name] = f"2026-11-{day:02}{document[name][10:]}"
    return LoadedResult(f"{document['id']}.json", document)


def evidence(**nodes: Sequence[LoadedResult]) -> Evidence:
    every = [each for those in nodes.values() for each in those]
    files = tuple((each.document["id"], each.file, "sha256:" + "0f" * 32) for each in every)
    return Evidence({"training": {name: list(those) for name, those in nodes.items()}}, files, (), 0)


def repeats(level: float, number: int = 5, spread: float = 0.002, **changes: Any) -> list[LoadedResult]:
    chance = random.Random(7)
    return [result(level * math.exp(chance.gauss(0, spread)), **changes) for _ in range(number)]


NOTHING = References({}, {})


# What a contract says


def test_a_contract_is_a_study_with_a_system_for_each_node_and_a_run_for_each_clause(tmp_path: Path) -> None:
    agreed = contract(tmp_path, more="nodes = 2\nrepeats = 4\n")
    together = replace(agreed.clauses[0], name="both", run={**agreed.clauses[0].run, "nodes": 2})
    agreed = replace(agreed, clauses=(*agreed.clauses, together))
    study = load_study(str(write_study(agreed, Place(("n1", "n2"), "cuda", 4), tmp_path / "out")))
    runs = expand(study, study.systems)
    assert [(run.system, run.group, run.devices, run.nodes) for run in runs[:3]] == [
        ("n1", "training", 1, 1),
        ("n2", "training", 1, 1),
        ("together", "both", 8, 2),
    ]
    assert len(runs) == 3 * 4
    assert study.systems[1].slurm == {"extra": ["--nodelist=n2"]}
    assert (agreed.rows, agreed.nodes_of(together)) == (3, 1)


def test_the_study_follows_a_contract_that_is_changed_on_the_nodes_that_were_named(tmp_path: Path) -> None:
    for place in (Place(("n1", "n2"), "cuda", 4, "gpu", ("--qos=x",)), Place((), "cpu"), Place((), "rocm", 8)):
        file = write_study(contract(tmp_path, more="nodes = 2"), place, tmp_path / "out")
        assert Place.of_study(file) == place
    together = {"nodes": 2, "workload": "resnet50"}
    agreed = contract(tmp_path, more="nodes = 2\nrepeats = 7")
    agreed = replace(agreed, clauses=(*agreed.clauses, replace(agreed.clauses[0], name="both", run=together)))
    file = write_study(agreed, Place(("n1", "n2"), "cuda", 4), tmp_path / "out")
    assert Place.of_study(file) == Place(("n1", "n2"), "cuda", 4)
    assert {group.repeats for group in load_study(str(file)).groups} == {7}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": "throughputt"}, ("throughput", "training")),
        ({"metric": "power_mean"}, ("neither more nor less",)),
        ({"required": "ratio = 0.9"}, ("baseline",)),
        ({"required": "value = 100"}, ("clause.0",)),
        ({"required": 'value = 1\nunit = "images/s"\nratio = 1'}, ("clause.0",)),
        ({"more": "repeats = 2"}, ("repeats",)),
        ({"more": "nodess = 2"}, ("nodes",)),
    ],
)
def test_what_a_contract_may_not_say_is_named(tmp_path: Path, change: dict[str, str], words: tuple[str, ...]) -> None:
    with refused(UsageError, "contract-invalid", *words):
        contract(tmp_path, **change)


def test_a_value_has_the_unit_of_its_metric_perhaps_with_a_prefix(tmp_path: Path) -> None:
    (clause,) = contract(tmp_path, 'value = 300\nunit = "TFLOP/s"', metric="peak_flops").clauses
    assert clause.value_in("FLOP/s") == pytest.approx(3e14)
    with refused(UsageError, "contract-invalid", "images/s", "TFLOP/s"):
        clause.value_in("images/s")
    assert replace(clause, unit="GB/s").value_in("bytes/s") == pytest.approx(3e11)


# What is decided


def judged(folder: Path, given: Evidence, more: str = "", **options: Any) -> Acceptance:
    return judge(contract(folder, more=more, **options), given, NOTHING)


def test_all_nodes_that_keep_a_clause_pass_with_the_interval_that_decided(tmp_path: Path) -> None:
    acceptance = judged(tmp_path, evidence(n1=repeats(102), n2=repeats(101)), "nodes = 2")
    assert acceptance.verdict is Verdict.PASS
    acceptance.require_accepted()
    (clause,) = acceptance.clauses
    first = clause.nodes[0]
    assert (first.node, first.repeats, first.sessions, first.limit) == ("n1", 5, 1, 0.95)
    assert first.low is not None and first.high is not None
    assert 0.95 < first.low < 1.02 < first.high and first.confidence == 0.95
    document = as_document(acceptance)
    assert document["verdict"] == "pass" and len(document["evidence"]) == 10


def test_one_node_below_the_limit_fails_the_contract_at_a_level_for_all_decisions(tmp_path: Path) -> None:
    acceptance = judged(tmp_path, evidence(n1=repeats(101), n2=repeats(80)), "nodes = 2")
    with refused(GateError, "contract-failed", "n2", "training"):
        acceptance.require_accepted()
    slow = acceptance.clauses[0].nodes[1]
    assert slow.verdict is Verdict.FAIL and slow.confidence == pytest.approx(0.975)
    assert slow.high is not None and slow.high < 0.95


@pytest.mark.parametrize(
    ("given", "more", "reason"),
    [
        (evidence(n1=repeats(96)), "", "limit"),  # one session says 1 % at best
        (evidence(n1=repeats(102)), "nodes = 2", "1 of 2 nodes"),
        (evidence(n1=repeats(102, 4)), "", "4 of 5 repeats"),
        (evidence(n1=repeats(102, 2)), "", "2 repeats where 3 are needed"),
        (evidence(), "", "0 of 1 nodes"),
        (evidence(n1=[result(102, status__state="interrupted") for _ in range(5)]), "", "no run completed"),
    ],
)
def test_what_cannot_be_told_says_why(tmp_path: Path, given: Evidence, more: str, reason: str) -> None:
    acceptance = judged(tmp_path, given, more)
    with refused(UndecidedError, "contract-undecided", reason):
        acceptance.require_accepted()


def test_a_run_that_fails_by_its_own_fault_fails_its_clause(tmp_path: Path) -> None:
    crashed = result(100, status__state="crashed", status__message="a message")
    acceptance = judged(tmp_path, evidence(n1=[*repeats(102), crashed]))
    assert acceptance.verdict is Verdict.FAIL and acceptance.clauses[0].reason == "n1: 1 of 6 runs: crashed"


def test_less_is_better_of_some_metrics(tmp_path: Path) -> None:
    required, metric = 'value = 10\nunit = "ms"', "step_time_p50"
    found = {
        level: judged(
            tmp_path,
            evidence(n1=[result(1, metrics={"step_time_p50": {"value": level * 1e-3, "unit": "s"}}) for _ in range(5)]),
            required=required,
            metric=metric,
        ).verdict
        for level in (10.0, 12.0)
    }
    assert found == {10.0: Verdict.PASS, 12.0: Verdict.FAIL}


def test_a_ratio_is_to_the_runs_of_the_baseline_with_the_same_configuration(tmp_path: Path) -> None:
    agreed = contract(tmp_path, "ratio = 1.0", 'baseline = "before"')
    references = References({"before": repeats(100)}, {})
    verdicts = [judge(agreed, evidence(n1=repeats(level)), references).verdict for level in (101, 80)]
    assert verdicts == [Verdict.PASS, Verdict.FAIL]
    other = References({"before": repeats(100, configuration__batch_size=2)}, {})
    undecided = judge(agreed, evidence(n1=repeats(101)), other)
    assert undecided.verdict is Verdict.CANNOT_TELL and "baseline" in undecided.clauses[0].reason


def test_a_busy_host_withholds_the_verdict_unless_the_contract_allows_it(tmp_path: Path) -> None:
    given = repeats(102, conditions_after__run_delay__value=50.0)
    withheld = judged(tmp_path, evidence(n1=given))
    assert withheld.verdict is Verdict.CANNOT_TELL and "busy host" in withheld.clauses[0].reason
    assert judged(tmp_path, evidence(n1=given), 'allow = ["busy"]').verdict is Verdict.PASS


def test_results_are_of_the_clause_whose_run_their_command_asks_for(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    for name in ("training", "inference"):
        (folder / f"{name}.json").write_text((documents.EXAMPLES / f"{name}.json").read_text())
    (folder / "broken.json").write_text("{}")
    words = json.loads((documents.EXAMPLES / "training.json").read_text())["provenance"]["command"]
    study = load_study(str(write_study(contract(tmp_path), Place(image="cpu"), tmp_path / "out")))
    run = expand(study, study.systems)[0]
    pairs = [pair for pair in zip(words[1::2], words[2::2], strict=True) if pair[0] != "--output"]
    other_order = (words[0], *(word for pair in reversed(pairs) for word in pair))
    found = gather([replace(run, arguments=other_order)], [str(folder)])
    assert found.unused == 1 and len(found.invalid) == 1
    assert [len(those) for those in found.by_clause["training"].values()] == [1]
    assert gather([run], [str(folder)]).unused == 2
    named = json.loads((folder / "training.json").read_text())
    named["provenance"]["command"] = words[1:]  # as of an image whose name has the workload
    (folder / "training.json").write_text(json.dumps(named))
    assert gather([replace(run, arguments=other_order)], [str(folder)]).unused == 1


# How many repeats it takes


def test_the_noncentral_tail_is_that_of_simulated_statistics() -> None:
    chance = random.Random(3)
    for noncentrality, freedom in ((3.0, 4), (2.0, 2), (5.0, 9)):
        least = standard_errors(freedom)
        trials = 40_000
        beyond = 0
        for _ in range(trials):
            spread = math.sqrt(chance.gammavariate(freedom / 2, 2) / freedom)
            beyond += (chance.gauss(0, 1) + noncentrality) / spread > least
        assert noncentral_tail(noncentrality, freedom, least) == pytest.approx(beyond / trials, abs=0.01)
    assert noncentral_tail(0, 5, standard_errors(5)) == pytest.approx(0.025, abs=1e-4)
    assert noncentral_tail(3, math.inf, 1.96) == pytest.approx(0.8508, abs=1e-3)


def test_a_shortfall_that_the_plan_says_is_detected_is_found_as_often_as_it_says() -> None:
    spread, distance, confidence = 0.02, 0.05, 0.95
    design = Design(spread**2, 0.0, Part(0.0), 3).with_enough(distance, confidence, 0.9)
    assert design is not None and design.sessions == 1
    chance = random.Random(5)
    found = 0
    for _ in range(4000):
        sample = [chance.gauss(-distance, spread) for _ in range(design.repeats)]
        half = standard_errors(design.repeats - 1) * stdev(sample) / math.sqrt(design.repeats)
        found += fmean(sample) + half < 0
    error, freedom = design.error
    assert found / 4000 == pytest.approx(power_of(distance, error, freedom, confidence), abs=0.01)
    fewer = replace(design, repeats=design.repeats - 1)
    assert not fewer.detects(distance, confidence, 0.9)


def test_sessions_are_asked_for_where_no_number_of_repeats_suffices() -> None:
    design = Design(0.005**2, 0.02**2, Part(0.0), 5)
    far, needed = design.with_enough(0.2, 0.95, 0.9), design.with_enough(0.05, 0.95, 0.9)
    assert far is not None and far.sessions == 1 and needed is not None
    assert needed.sessions > 2 and needed.repeats == 5
    assert design.with_enough(1e-5, 0.95, 0.9) is None


def test_what_is_detectable_has_the_wanted_power() -> None:
    distance = detectable(0.01, 4, 0.95, 0.9)
    assert power_of(distance, 0.01, 4, 0.95) == pytest.approx(0.9, abs=1e-3)
    assert detectable(0.01, 40, 0.95, 0.9) < distance


def test_a_plan_takes_the_spread_from_results_then_from_the_contract(tmp_path: Path) -> None:
    agreed = contract(tmp_path, more="spread = 0.03")
    (plan,) = plan_of(agreed, evidence(), NOTHING)
    assert plan.source == "the contract" and plan.spread == pytest.approx(0.03)
    (measured,) = plan_of(agreed, evidence(n1=repeats(100)), NOTHING)
    assert measured.source == "earlier results" and measured.spread is not None and measured.spread < 0.005
    assert measured.shortfall is not None and plan.shortfall is not None and measured.shortfall < plan.shortfall
    (unknown,) = plan_of(contract(tmp_path), evidence(), NOTHING)
    assert unknown.needed is None and "spread = " in unknown.needs


def test_the_verdict_states_the_shortfall_that_its_repeats_would_have_shown(tmp_path: Path) -> None:
    acceptance = judged(tmp_path, evidence(n1=repeats(102)))
    shown = acceptance.clauses[0].nodes[0].detectable
    assert shown is not None and 0.05 < shown < 0.12
    assert shortfall_at(acceptance.clauses[0].clause, 0.0) == pytest.approx(0.05)


# The command


def test_the_command_writes_a_page_and_a_signed_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    private, public = make_key(tmp_path, "site")
    contract(tmp_path, more="spread = 0.01")
    with refused(UsageError, "result-missing", "--on here"):
        accept(load_settings(), "contract.toml")
    accept(load_settings(), "contract.toml", planning=True)
    assert "the contract" in capsys.readouterr().out
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "training.json").write_text((documents.EXAMPLES / "training.json").read_text())
    with refused(UndecidedError, "contract-undecided", "0 of 1 nodes"):
        accept(load_settings(), "contract.toml", ["some"], key=str(private))
    folder = tmp_path / "contract-acceptance"
    assert json.loads((folder / "acceptance.json").read_text())["verdict"] == "cannot tell"
    assert "Cannot tell" in (folder / "index.html").read_text()
    assert signer_of(folder / "acceptance.json", [public])
    assert not list(result_files(str(folder)))  # it is no result
    with refused(UndecidedError, "contract-undecided"):
        accept(load_settings(), "contract.toml", ["some"])
    assert not (folder / "acceptance.json.dsse").exists()  # that of the earlier verdict


def test_an_example_is_planned_before_there_is_its_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    accept(load_settings(), "contract.toml", beginning=True)
    accept(load_settings(), "contract.toml", planning=True, form="json")
    said = capsys.readouterr()
    assert "no baseline 'offer'" in said.err and len(json.loads(said.out)) == 4
    with refused(UsageError, "unknown-name", "offer"):
        accept(load_settings(), "contract.toml", [str(documents.EXAMPLES / "training.json")])
