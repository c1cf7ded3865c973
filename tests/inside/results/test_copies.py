"""Which copies are in memory, and which in caches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from program import ROOT

from entrypoints.contract.messages import Phase, Step, decode, encode
from entrypoints.contract.points import MATMUL, MEMORY_COPY, LastLevelCache, Omitted, Point
from entrypoints.results import copies
from entrypoints.results.copies import CopyRate, bandwidths
from entrypoints.results.measurement import fold
from entrypoints.results.metrics.by_workload import every_metric
from entrypoints.results.points import points

MIB = 2**20
CACHE = LastLevelCache(32.0 * MIB, "the kernel")  # so that copies from 128 MiB on are in memory, and up to 16 in caches
RATES = [CopyRate(4 * MIB, 44.0), CopyRate(16 * MIB, 21.8), CopyRate(64 * MIB, 50.0), CopyRate(256 * MIB, 15.4)]


def test_memory_has_copies_of_four_times_the_caches_and_caches_those_whose_buffers_they_hold():
    assert bandwidths(RATES, (), CACHE) == (
        (CopyRate(256 * MIB, 15.4), None),
        (CopyRate(4 * MIB, 44.0), None),
    )
    exact = [CopyRate(128 * MIB, 15.0), CopyRate(16 * MIB, 20.0)]
    assert [fastest.copy for fastest in bandwidths(exact, (), CACHE)] == exact
    near = [CopyRate(128 * MIB - 1, 15.0), CopyRate(16 * MIB + 1, 20.0)]
    assert [fastest.copy for fastest in bandwidths(near, (), CACHE)] == [None, None]


def test_of_several_copies_in_memory_the_fastest_counts():
    more = [*RATES, CopyRate(1024 * MIB, 15.9), CopyRate(2048 * MIB, 15.7)]
    assert bandwidths(more, (), CACHE).memory.copy == CopyRate(1024 * MIB, 15.9)


def test_without_a_copy_in_memory_the_reason_names_the_size_that_is_needed():
    left_out = [Omitted(size * MIB, "larger than 67108864 (--largest-size)") for size in (1024, 256, 100)]
    memory = bandwidths(RATES[:3], left_out, CACHE).memory
    assert memory.copy is None and memory.reason is not None
    assert f"--largest-size {256 * MIB} is" in memory.reason and "32 MiB" in memory.reason
    assert "larger than 67108864" in memory.reason
    nothing_larger = bandwidths(RATES[:3], (), CACHE).memory
    assert nothing_larger.copy is None and "--largest-size" not in (nothing_larger.reason or "")


@pytest.mark.parametrize(("rates", "cache"), [(RATES, None), ([], CACHE)], ids=["unknown caches", "no sweep"])
def test_what_is_not_known_has_a_reason(rates, cache):
    for fastest in bandwidths(rates, (), cache):
        assert fastest.copy is None and fastest.reason


def measured(operation: str, *sizes: int, cache: Any = None):
    each = [Point(operation, size, 2) for size in sizes]
    sweep = Step(1.0, 0.0, 1, 0, None, call_seconds=[size / 1e9 for size in sizes])
    told = [cache] if cache else []
    return fold([*told, *each, Phase("steady", 0.0), sweep], "bytes", "microbenchmark", precision="fp32")


def metrics(measurement) -> dict[str, Any]:
    names = ("memory_bandwidth", "memory_bandwidth_size", "cached_bandwidth", "cached_bandwidth_size")
    return {name: every_metric()[name](measurement).value for name in (*names, "peak_bandwidth", "peak_flops")}


def test_a_run_has_the_bandwidths_of_its_operation():
    assert metrics(measured(MEMORY_COPY, 2 * MIB, 512 * MIB, cache=CACHE)) == {
        "memory_bandwidth": pytest.approx(2.0),
        "memory_bandwidth_size": 512.0,
        "cached_bandwidth": pytest.approx(2.0),
        "cached_bandwidth_size": 2.0,
        "peak_bandwidth": None,
        "peak_flops": None,
    }
    others = metrics(measured("all_reduce", 2 * MIB, 512 * MIB))
    assert [name for name, value in others.items() if value is not None] == ["peak_bandwidth"]
    products = metrics(measured(MATMUL, 256))
    assert [name for name, value in products.items() if value is not None] == ["peak_flops"]


def test_the_document_says_which_caches_there_are():
    with_them = points(measured(MEMORY_COPY, MIB, cache=CACHE), MEMORY_COPY)
    assert with_them and with_them["last_level_cache"] == {"value": 32.0, "unit": "MiB", "source": "the kernel"}
    without = points(measured(MEMORY_COPY, MIB), MEMORY_COPY)
    assert without and without["last_level_cache"]["value"] is None and without["last_level_cache"]["reason"]
    other = points(measured(MATMUL, 256), MATMUL)
    assert other and other["last_level_cache"] is None
    assert decode(encode(CACHE)) == CACHE


def test_a_result_of_schema_1_1_gets_the_bandwidths_that_its_points_have():
    document = json.loads((ROOT / "tests" / "fixtures" / "h200" / "memory_copy.json").read_text())
    found = copies.metrics_of(document)
    assert {name: metric["value"] for name, metric in found.items()} == {
        "memory_bandwidth": pytest.approx(4146.55, abs=0.01),
        "memory_bandwidth_size": 1024.0,
        "cached_bandwidth": pytest.approx(1729.43, abs=0.01),
        "cached_bandwidth_size": 16.0,
        "peak_bandwidth": None,
    }
    document["accelerator"]["name"] = "a processor"
    assert {metric["value"] for metric in copies.metrics_of(document).values()} == {None}
