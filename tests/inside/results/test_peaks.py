"""What devices can do at the most: cited numbers only, and never another device's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.contract.choices import PRECISIONS
from entrypoints.contract.session import DeviceFacts
from entrypoints.results import peaks

GRANULARITIES = ("die", "tile", "package", "board", "node")
NAMES = [name for entry in peaks.table() for name in entry["names"]]


def device(name, granularity="package", count=1):
    return DeviceFacts("cuda", "nobody", name, count, granularity, None, 1, 1, "eager", simulated=True)


@pytest.mark.parametrize("entry", peaks.table(), ids=lambda entry: entry["names"][0])
def test_an_entry_is_whole_and_cited(entry):
    assert set(entry) - {"memory"} == {"names", "kind", "granularity", "flops", "source", "power"}
    assert entry["kind"] in ("cuda", "xpu", "hpu", "ipu") and ("memory" in entry) == (entry["kind"] != "ipu")
    assert entry["names"] and all(name == name.strip() and name for name in entry["names"])
    assert entry["granularity"] in GRANULARITIES
    assert entry["flops"] and set(entry["flops"]) <= set(PRECISIONS)
    assert "https://" in entry["source"]
    rates = [entry["flops"][precision] for precision in PRECISIONS if precision in entry["flops"]]
    assert rates == sorted(rates), "no device is slower in a narrower format"
    assert all(1e12 < rate < 1e16 for rate in rates), "FLOP/s, not TFLOP/s"
    power = entry["power"]
    assert set(power) == {"watts", "scope", "source"} and 50 < power["watts"] < 2000 and "http" in power["source"]
    assert power["scope"] in ("package", "board")


@pytest.mark.parametrize(
    "entry", [entry for entry in peaks.table() if "memory" in entry], ids=lambda entry: entry["names"][0]
)
def test_a_memory_is_whole_and_cited(entry):
    memory = entry["memory"]
    assert set(memory) == {"bandwidth", "cache_mib", "source"} and "http" in memory["source"]
    assert 1e11 < memory["bandwidth"] < 1e13, "bytes/s, not GB/s"
    assert 1 < memory["cache_mib"] < 1000


def test_no_device_has_two_peaks():
    devices = [(name, entry["granularity"]) for entry in peaks.table() for name in entry["names"]]
    assert len(devices) == len(set(devices))


def test_two_tiles_are_the_whole():
    name = "Intel(R) Data Center GPU Max 1550"
    tile, whole = device(name, "tile"), device(name)
    for precision in PRECISIONS:
        half = peaks.of_device(tile, precision).flops
        assert half and 2 * half == peaks.of_device(whole, precision).flops
    assert peaks.rated_power(tile) == peaks.rated_power(whole), "of both: nobody cites the half"


def test_the_power_of_a_device_is_of_a_scope():
    assert peaks.rated_power(device("AMD Instinct MI250", "die"))[:2] == (560, "package")
    assert peaks.rated_power(device("GC200"))[:2] == (1500, "board")
    unknown = peaks.rated_power(device("NVIDIA H200 NVL"))
    assert unknown == (None, None, None, "no cited power for NVIDIA H200 NVL (package)")


def test_the_peak_of_a_device_with_its_source():
    peak = peaks.of_device(device("NVIDIA A100-SXM4-40GB"), "bf16")
    assert peak.flops == 312e12 and "A100" in str(peak.source) and peak.reason is None


@given(st.sampled_from(NAMES), st.text(min_size=1, max_size=12))
def test_a_name_that_only_begins_alike_is_another_device(name, more):
    if name + more not in NAMES:
        assert peaks.of_device(device(name + more), "fp16").flops is None
    assert peaks.of_device(device(name[:-1]), "fp16").flops is None


@pytest.mark.parametrize(
    ("name", "granularity", "precision"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "package", "bf16"),
        ("NVIDIA A100-SXM4-40GB", "die", "bf16"),
        ("NVIDIA H200 NVL", "package", "bf16"),
        ("Tesla V100-SXM2-16GB", "package", "bf16"),
        ("AMD EPYC 7742 64-Core Processor", "node", "fp32"),
    ],
)
def test_what_nobody_cites_is_unknown_and_named(name, granularity, precision):
    peak = peaks.of_device(device(name, granularity), precision)
    assert peak == (None, None, f"no cited peak for {name} ({granularity}) in {precision}")


# What drivers report: memory clock in MHz, width of the memory in bits, and the bytes of the last cache.
REPORTED = [
    ("Tesla T4", 5001, 256, 4194304),
    ("Quadro RTX 6000", 7001, 384, 6291456),
    ("Tesla V100-SXM2-32GB", 877, 4096, 6291456),
    ("NVIDIA A100-PCIE-40GB", 1215, 5120, 41943040),
    ("NVIDIA A100-SXM4-40GB", 1215, 5120, 41943040),
    ("NVIDIA A100 80GB PCIe", 1512, 5120, 41943040),
    ("NVIDIA A100-SXM4-80GB", 1593, 5120, 41943040),
    ("NVIDIA H100 PCIe", 1593, 5120, 52428800),
    ("NVIDIA H100 80GB HBM3", 2619, 5120, 52428800),
    ("NVIDIA GH200 480GB", 2619, 6144, 62914560),
]


@pytest.mark.parametrize(("name", "megahertz", "bits", "cache"), REPORTED)
def test_a_memory_is_what_drivers_report(name, megahertz, bits, cache):
    cited = peaks.memory(device(name))
    # two transfers a clock
    assert cited.bandwidth == pytest.approx(2 * megahertz * 1e6 * bits / 8, rel=0.005)
    assert cited.cache == cache
