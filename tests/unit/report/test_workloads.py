"""What is ranked together in a report: kinds of runs and precisions apart, and numbers of devices never mixed."""

from pathlib import Path
from typing import Any

import pytest
from unit.report import samples
from unit.report.chart_results import with_fields, workload_of

from sifmark.report.load import load_report_results
from sifmark.report.numbers import number_tables
from sifmark.report.results import ReportResults
from sifmark.report.scorecard import scorecard_of
from sifmark.report.workloads import workloads_of
from sifmark.results.comparison.scaling import BATCH, DEVICES, REPLICAS, STRONG, WEAK
from sifmark.results.numbers import format_number


def results_of(folder: Path, documents: list[dict[str, Any]]) -> ReportResults:
    return load_report_results([str(samples.write(folder, documents))], "site", "alpha")


def on_devices(site: str, batch: int, count: int, repeat: int, efficiency: float = 0.9) -> dict[str, Any]:
    """A result of training on some devices, each of which adds as much as `efficiency` of the first."""
    rate = samples.WORKLOADS["pictures"][2] * (1 + efficiency * (count - 1)) * (1 + repeat / 1000)
    return samples.sample(
        *(site, "pictures", batch, repeat),
        accelerator__count=count,
        metrics__throughput={"value": rate * (1 + batch / count / 1000), "unit": "images/s"},
    )


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> ReportResults:
    """A weak study of one, two and four devices, beside a sweep of batch sizes on one."""
    documents = [on_devices("alpha", 16 * count, count, n) for count in (1, 2, 4) for n in (1, 2, 3)]
    documents += [on_devices("alpha", batch, 1, n) for batch in (8, 32, 64) for n in (1, 2, 3)]
    documents += [on_devices("beta", batch, 1, n) for batch in (16, 64) for n in (1, 2, 3)]
    results = results_of(tmp_path_factory.mktemp("scaled"), documents)
    return with_fields(results, lambda each: {REPLICAS: each.observation.fields[DEVICES]})


def test_the_scaling_that_was_measured_is_one_curve_of_a_system(scaled: ReportResults) -> None:
    workload = workload_of(scaled, "training")
    (curve,) = workload.curves.values()
    assert (curve.system, curve.kind, curve.reference.fields[BATCH]) == ("alpha", WEAK, 16)
    assert [point.fields[DEVICES] for point, _ in curve.points] == [2, 4]
    kinds = {each.kind for point in workload.points("throughput") for each in point.row.scalings}
    assert STRONG in kinds, "the sweep beside it looks like strong scaling, and is not shown"


def test_numbers_in_the_names_of_systems_are_in_order(tmp_path: Path) -> None:
    documents = [samples.sample(site, "pictures", 8) for site in ("16", "node10", "8", "node9", "alpha")]
    assert results_of(tmp_path, documents).systems == ("alpha", "8", "16", "node9", "node10")


def test_the_best_is_on_the_fewest_devices(scaled: ReportResults) -> None:
    workload = workload_of(scaled, "training")
    assert workload.fewest == 1
    assert {point.fields[DEVICES] for point in workload.best.values()} == {1}
    (table,) = number_tables([workload])
    place, alpha = samples.places_of(table), table.rows[0]
    assert "on 4" in alpha.cells[place["Many devices"]].small and alpha.cells[place["Batch size"]].text == "64"


def test_contests_are_between_equally_many_devices(scaled: ReportResults) -> None:
    workload = workload_of(scaled, "training")
    assert workload.contest is not None and workload.contest.baseline.fields[DEVICES] == 1
    assert workload.shared("throughput", many=True) == [], "only one system ran on several"


def test_the_latency_beside_a_rate_is_that_of_the_same_results(tmp_path: Path) -> None:
    documents = [samples.of_requests(site, load, n) for site in samples.SYSTEMS for load in (1, 4) for n in (1, 2, 3)]
    workload = workload_of(results_of(tmp_path, documents), "requests")
    (table,) = number_tables([workload])
    place = samples.places_of(table)["Latency"]
    for row in table.rows:
        latency = workload.beside(workload.best[row.system], "latency_p99")
        assert latency is not None and latency.results[0].anchor == row.cells[1].anchor
        assert row.cells[place].text == format_number(1000 * latency.value)
        assert row.cells[place + 1].small == "within 20 ms"


def test_kinds_and_precisions_are_workloads_of_their_own(tmp_path: Path) -> None:
    documents = [samples.of_requests("alpha", 2), samples.sample("alpha", "pictures", 8)]
    documents += [samples.sample("alpha", "pictures", 8, configuration__precision=each) for each in ("fp32", "fp16")]
    workloads = workloads_of(results_of(tmp_path, documents))
    assert [each.anchor for each in workloads] == [
        *("pictures-training-bf16", "pictures-training-fp16", "pictures-training-fp32"),
        "pictures-requests",
    ]
    assert [len(each.points("throughput")) for each in workloads] == [1, 1, 1, 1]


def test_what_failed_belongs_to_its_workload_and_precision(tmp_path: Path) -> None:
    documents = [samples.sample("alpha", "pictures", 8, configuration__precision=each) for each in ("bf16", "fp32")]
    documents += [samples.failure("alpha", "pictures", 64), samples.failure("alpha", "texts", 64)]
    lost = {each.anchor: list(each.lost.get("alpha", ())) for each in workloads_of(results_of(tmp_path, documents))}
    assert lost == {"pictures-training-bf16": [64], "pictures-training-fp32": [], "texts-training": [64]}


def test_two_data_sources_have_different_names(tmp_path: Path) -> None:
    documents = [samples.sample("alpha", "pictures", 8, data__source=source) for source in ("synthetic", "folder")]
    anchors = [each.anchor for each in workloads_of(results_of(tmp_path, documents))]
    assert len(set(anchors)) == len(anchors) >= 1


def test_variants_are_named_where_a_configuration_is(tmp_path: Path) -> None:
    documents = [
        samples.sample(
            *(site, "pictures", 8, repeat),
            configuration__compile=compiled,
            metrics__throughput={"value": 100.0 * (1 + compiled) + repeat, "unit": "images/s"},
        )
        for site in samples.SYSTEMS
        for compiled in (False, True)
        for repeat in (1, 2, 3)
    ]
    results = results_of(tmp_path, documents)
    workload = workload_of(results, "training")
    (table,) = number_tables([workload])
    assert {row.cells[2].small for row in table.rows} == {"compile true"}
    card = scorecard_of(results, [workload])
    assert card is not None and card.groups[0].cells[0].configuration == "batch size 8, compile true"
