"""Results of earlier schema versions: metrics whose meaning has changed are read under the names of today."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

import sifmark
from entrypoints.contract import cards
from entrypoints.results.roofline import flops_of_unit
from sifmark.results.comparison.compare import compare_results
from sifmark.results.comparison.query import Query
from sifmark.results.documents import measured_metrics, metrics_of
from sifmark.results.load import document_problems
from sifmark.results.summary import summary
from sifmark.results.tidy import ResultPlace, Table, rows
from sifmark.results.versions import highest_percentile
from sifmark.studies.history.baseline import make_baseline, read_baseline, write_baseline

FIXTURES = Path(__file__).parents[2] / "fixtures" / "h200"
CARD = cards.load()["gpt_117m"]
RATES = ("achieved_flops", "utilisation")


def of_h200(name: str) -> dict[str, Any]:
    return dict(json.loads((FIXTURES / f"{name}.json").read_text()))


def as_today(document: dict[str, Any]) -> dict[str, Any]:
    """A result of schema 1.1 of a GPT as an image of today would have written it, under another id and date."""
    made = copy.deepcopy(document)
    flops = flops_of_unit(CARD, made["workload"]["task"])
    made |= {"schema_version": "1.2", "id": "8f6d3c1e-0f3b-4c59-9d0e-6a1f7c2b5d84"}
    made |= {"started": made["started"].replace("2026", "2025"), "finished": made["finished"].replace("2026", "2025")}
    unknown = {"value": None, "reason": "it was not recorded"}
    made["session"] = {name: dict(unknown) for name in ("boot", "job")}
    made["conditions_after"]["openmp_wait"] = unknown
    made["steps"]["seconds"][-1] = math.nextafter(made["steps"]["seconds"][-1], 0.0)  # steps of a run of its own
    made["workload"]["flops"] = {**flops._asdict(), "source": made["workload"]["flops"]["source"]}
    metrics = made["metrics"]
    for name in (*RATES, "utilisation_of_measured_peak"):
        metrics[f"{name}_full_attention"] = dict(metrics[name])
        if metrics[name]["value"] is not None:
            metrics[name]["value"] *= flops.needed_per_unit / flops.per_unit
    if made["steps"]["count"] - made["steps"]["untimed"] < 100:
        metrics["step_time_p99"] = {"value": None, "unit": "s", "reason": "too few"}
    return made


GPT = of_h200("gpt_117m_bf16")


def test_both_versions_are_valid() -> None:
    assert document_problems(GPT) == document_problems(as_today(GPT)) == []


@pytest.mark.parametrize("name", RATES)
def test_a_rate_of_all_pairs_of_places_has_a_name_of_its_own(name: str) -> None:
    metrics, written = metrics_of(GPT), GPT["metrics"][name]["value"]
    assert written and metrics[f"{name}_full_attention"]["value"] == written
    assert metrics[name]["value"] is None and f"{name}_full_attention" in metrics[name]["reason"]
    today = metrics_of(as_today(GPT))
    assert today[f"{name}_full_attention"]["value"] == written
    assert written / 1.1 < today[name]["value"] < written


def test_a_model_without_causal_attention_keeps_its_names() -> None:
    document = of_h200("resnet50_bf16")
    metrics = metrics_of(document)
    assert metrics["utilisation"]["value"] == document["metrics"]["utilisation"]["value"]
    assert not [name for name in metrics if name.endswith("full_attention")]


def test_another_version_of_a_card_is_known_by_its_name_and_any_other_workload_by_its_tokens() -> None:
    for name, tokens, moved in (("gpt_117m", False, True), ("own", True, True), ("own", False, False)):
        document = copy.deepcopy(GPT)
        document["workload"] |= {"name": name, "identity": "sha256:" + "0" * 64}
        if not tokens:
            del document["metrics"]["token_throughput"]
        assert ("utilisation_full_attention" in measured_metrics(document)) == moved


def test_documents_stay_as_they_were_written() -> None:
    before = copy.deepcopy(GPT)
    measured_metrics(GPT)
    assert before == GPT


def test_no_comparison_mixes_the_two(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.json" for name in ("old", "new")}
    files["old"].write_text(json.dumps(GPT))
    files["new"].write_text(json.dumps(as_today(GPT)))
    query = Query(every_metric=True, against=True)
    (row,) = compare_results([str(files["new"])], query, str(files["old"])).compared
    assert row.ratios["utilisation"].value is None and row.ratios["achieved_flops"].value is None
    assert row.ratios["utilisation_full_attention"].value == pytest.approx(1)
    assert row.ratios["throughput"].value == pytest.approx(1)


def test_a_kept_baseline_is_read_in_todays_terms(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(json.dumps(GPT))
    kept = make_baseline("kept", [str(tmp_path / "old.json")]).baseline
    file = write_baseline(kept, tmp_path / "baselines")
    text = json.loads(file.read_text())  # as sifmark 0.2 wrote it
    for run in text["rows"][0]["repeats"]:
        run["values"] = {name: GPT["metrics"][name]["value"] for name in ("throughput", *RATES)}
    file.write_text(json.dumps(text))
    (observation,) = read_baseline(tmp_path / "baselines", "kept").observations()
    for name in RATES:
        assert observation.numbers[name].value is None
        assert observation.numbers[f"{name}_full_attention"].value == GPT["metrics"][name]["value"]


def test_a_99th_percentile_of_few_steps_is_none(tmp_path: Path) -> None:
    document = of_h200("resnet50_bf16")
    steps = document["steps"]
    assert document["metrics"]["step_time_p99"]["value"]
    steps["count"] = steps["untimed"] + 100
    assert metrics_of(document)["step_time_p99"]["value"]
    steps["count"] -= 1
    assert metrics_of(document)["step_time_p99"]["value"] is None
    assert not [line for line in summary(document) if " p99" in line]
    assert "needs 100" in " ".join(summary(document, every_metric=True))
    (tmp_path / "old.json").write_text(json.dumps(GPT))
    assert sifmark.load(tmp_path)[0].metrics["utilisation"].value is None


def test_curves_end_at_the_last_percentile_that_there_are_values_for() -> None:
    document = of_h200("resnet50_bf16")
    steps = document["steps"]

    def percentiles() -> list[float]:
        points = rows(Table.POINTS, document, ResultPlace("x.json"))
        return [row["x"] for row in points if (row["curve"], row["metric"]) == ("percentile", "step_time")]

    steps["count"] = steps["untimed"] + 100
    assert percentiles() == [0, 1, 5, 25, 50, 75, 90, 95, 99, 100]
    steps["count"] -= 1
    assert percentiles() == [0, 1, 5, 25, 50, 75, 90, 95, 100]


@pytest.mark.parametrize(("requests", "highest"), [(0, 50), (63, 50), (64, 90), (130, 95), (661, 95), (662, 99)])
def test_the_highest_percentile_is_that_of_the_documents(requests: int, highest: int) -> None:
    assert highest_percentile(requests) == highest
