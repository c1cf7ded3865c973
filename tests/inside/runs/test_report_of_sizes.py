"""What is printed when a micro-benchmark has ended, and while it runs."""

from __future__ import annotations

import io
import json

import pytest
from program import ROOT

from entrypoints.contract import cards
from entrypoints.contract.messages import Phase, Step
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.results import copies
from entrypoints.runs.pace import Pace
from entrypoints.runs.progress import Progress
from entrypoints.runs.report import main_text, report

SCHEMA = json.loads((ROOT / "schemas" / "result-1.2.json").read_text("utf-8"))["properties"]["metrics"]["properties"]


def of_h200(name):
    document = json.loads((ROOT / "tests" / "fixtures" / "h200" / f"{name}.json").read_text("utf-8"))
    document["metrics"].update(copies.metrics_of(document))
    return document


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "memory_copy",
            ["  bandwidth    4,147 GB/s, by copies of 1,024 MiB", "  in caches    1,729 GB/s, by copies of 16.00 MiB"],
        ),
        ("matmul_bf16", ["  operations   848.0 TFLOP/s, at the best size"]),
        ("host_device", ["  bus          55.25 GB/s, at the best size"]),
    ],
)
def test_the_peak_is_the_first_number(name, lines):
    document = of_h200(name)
    shown = report(document, None)
    assert shown[1 : 1 + len(lines)] == lines and main_text(document) == lines[0][15:]
    assert not [line for line in shown if "throughput" in line]


def test_without_a_copy_in_memory_the_report_says_why():
    document = of_h200("memory_copy")
    document["points"]["measured"] = document["points"]["measured"][:8]
    document["metrics"].update(copies.metrics_of(document))
    reason = document["metrics"]["memory_bandwidth"]["reason"]
    assert f"  bandwidth    not known: {reason}" in report(document, None)
    assert main_text(document).startswith("1,729 GB/s")


def test_peaks_are_in_the_order_of_the_schema():
    ranks = {name: rule["x-metric"].get("headline", {}).get("microbenchmark") for name, rule in SCHEMA.items()}
    names = ("peak_flops", "memory_bandwidth", "peak_bandwidth")
    assert [ranks[name] for name in names] == sorted(ranks[name] for name in names)
    documents = [of_h200(name) for name in ("matmul_bf16", "memory_copy", "host_device")]
    every = {**documents[0], "metrics": {**documents[0]["metrics"]}}
    for document in documents[1:]:
        known = {name: metric for name, metric in document["metrics"].items() if metric["value"] is not None}
        every["metrics"].update(known)
    assert main_text(every) == main_text(documents[0])


@pytest.mark.parametrize(("workload", "shown"), [("memory_copy", False), ("resnet50", True)])
def test_a_sweep_in_progress_has_no_rate(workload, shown):
    configuration = resolve(parse([workload, "--device", "cpu", "--steps", "4"]), cards.load()[workload], None)
    pace, stream = Pace(configuration, "bytes"), io.StringIO()
    progress = Progress(configuration, "bytes", stream)
    for message in (Phase("steady", 1.0), Step(2.0, 0.0, 10**9, 1, None)):
        pace.follow(message)
        progress.follow(message)
    assert (pace.throughput is not None) is shown and (pace.rate() is not None) is shown
    line = progress.line()
    assert ("bytes/s" in line) is shown and "6.0 s left" in line
