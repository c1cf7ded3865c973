"""The bandwidth of memory and the peak of products are what results of micro-benchmarks are read for."""

import json
from pathlib import Path
from typing import Any

import pytest

from sifmark.core import paths
from sifmark.results.catalogue import headlines
from sifmark.results.comparison.compare import compare_results
from sifmark.results.comparison.query import Query
from sifmark.results.copies import caches_of
from sifmark.results.documents import metrics_of
from sifmark.results.summary import summary
from sifmark.studies.analysis.node_measures import measure_node

H200 = paths.ROOT / "tests" / "fixtures" / "h200"


def document_of(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((H200 / f"{name}.json").read_text())
    return document


def test_no_headline_of_a_micro_benchmark_is_the_mean_of_its_sweep() -> None:
    named = headlines("microbenchmark")
    assert named[:2] == ["peak_flops", "memory_bandwidth"] and "peak_bandwidth" in named
    assert not {name for name in named if name.startswith(("throughput", "step_time", "achieved"))}


@pytest.mark.parametrize(
    ("name", "metric", "value", "unit"),
    [
        ("memory_copy", "memory_bandwidth", 4147, "GB/s"),
        ("memory_copy", "memory_bandwidth_size", 1024, "MiB"),
        ("memory_copy", "cached_bandwidth", 1729, "GB/s"),
        ("memory_copy", "peak_bandwidth", None, "GB/s"),
        ("matmul_bf16", "peak_flops", 848037851401201, "FLOP/s"),
        ("matmul_bf16", "memory_bandwidth", None, "GB/s"),
        ("matmul_bf16", "achieved_flops", None, "FLOP/s"),
        ("matmul_bf16", "utilisation", None, "1"),
        ("host_device", "peak_bandwidth", 55, "GB/s"),
    ],
)
def test_results_of_schema_1_1_have_the_metrics_of_today(
    name: str, metric: str, value: float | None, unit: str
) -> None:
    found = metrics_of(document_of(name))[metric]
    assert (found["value"] and round(found["value"]), found["unit"]) == (value, unit)
    assert found["value"] is not None or found["reason"]


def test_other_results_are_as_they_are() -> None:
    document = document_of("resnet50_bf16")
    assert set(document["metrics"]) <= set(metrics_of(document)) and "memory_bandwidth" not in metrics_of(document)
    today = document_of("memory_copy")
    today["metrics"]["memory_bandwidth"] = {"value": 1.0, "unit": "GB/s"}
    assert metrics_of(today)["memory_bandwidth"]["value"] == 1.0


def test_compare_names_the_bandwidth_of_memory_and_the_peak() -> None:
    files = [str(H200 / f"{name}.json") for name in ("memory_copy", "matmul_bf16")]
    shown: dict[str, float | None] = {}
    for table in compare_results(files, Query()).tables:
        (row,) = table.rows
        shown |= {metric: row.means[metric].value for metric in table.metrics}
    assert shown["memory_bandwidth"] == pytest.approx(4146.55, abs=0.01)
    assert shown["peak_flops"] == pytest.approx(848.04e12, rel=1e-4)
    assert "throughput" not in shown


def test_nodes_are_screened_by_the_bandwidth_of_memory() -> None:
    measures = measure_node(document_of("memory_copy"))
    assert measures["memory_bandwidth"].value == pytest.approx(4146.55, abs=0.01)
    assert measures["peak_bandwidth"].value is None and measures["throughput"].value is None


def test_a_size_is_in_memory_in_caches_or_between() -> None:
    caches = caches_of(document_of("memory_copy"))
    sizes = (16 << 20, 64 << 20, 240 << 20)
    assert [caches.place(size) for size in sizes] == ["caches", "", "memory"]
    unknown = document_of("memory_copy")
    unknown["accelerator"]["name"] = "none"
    assert {caches_of(unknown).place(size) for size in sizes} == {""}


def test_a_reason_names_the_size_that_would_have_left_the_caches(tmp_path: Path) -> None:
    document = document_of("memory_copy")
    document["points"]["measured"] = document["points"]["measured"][:8]
    document["points"]["omitted"] = [{"size": 1 << 28, "reason": "larger than 16777216 (--largest-size)"}]
    found = metrics_of(document)
    assert found["memory_bandwidth"]["value"] is None and str(1 << 28) in found["memory_bandwidth"]["reason"]
    assert found["cached_bandwidth"]["value"] == pytest.approx(1729.43, abs=0.01)
    assert any(found["memory_bandwidth"]["reason"] in line for line in summary(document))
    assert not any("not known" in line for line in summary(document_of("memory_copy")))
