"""What devices can do at the most: cited numbers only, and never another device's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.contract.choices import PRECISIONS
from entrypoints.contract.session import DeviceFacts
from entrypoints.results import peaks
from entrypoints.results.roofline import Roof

GRANULARITIES = ("die", "tile", "package", "board", "node")
NAMES = [name for entry in peaks.table() for name in entry["names"]]
WIDEST_FIRST = ("fp64", *PRECISIONS, "fp8")  # integers are apart: some devices have few of their units
MIB_OF_GIB = 1024


def device(name, granularity="package", count=1, mib=None):
    return DeviceFacts("cuda", "nobody", name, count, granularity, mib, 1, 1, "eager", simulated=True)


@pytest.mark.parametrize("entry", peaks.table(), ids=peaks.label)
def test_an_entry_is_whole_and_cited(entry):
    optional = {"memory", "power", "by_memory"}
    assert set(entry) - optional == {"names", "kind", "granularity", "flops", "source"}
    assert entry["kind"] in ("cuda", "xpu", "hpu", "ipu") and ("memory" in entry) == (entry["kind"] != "ipu")
    assert entry["names"] and all(name == name.strip() and name for name in entry["names"])
    assert entry["granularity"] in GRANULARITIES
    assert entry["flops"] and set(entry["flops"]) <= {*WIDEST_FIRST, "int8"}
    assert "https://" in entry["source"]
    rates = [entry["flops"][precision] for precision in WIDEST_FIRST if precision in entry["flops"]]
    assert rates == sorted(rates), "no device is slower in a narrower format"
    assert all(1e12 < rate < 1e16 for rate in entry["flops"].values()), "FLOP/s, not TFLOP/s"
    power = entry.get("power", {"watts": 100, "scope": "board", "source": "http"})
    assert set(power) == {"watts", "scope", "source"} and 50 < power["watts"] < 2000 and "http" in power["source"]
    assert power["scope"] in ("package", "board")


@pytest.mark.parametrize("entry", [entry for entry in peaks.table() if "memory" in entry], ids=peaks.label)
def test_a_memory_is_whole_and_cited(entry):
    memory = entry["memory"]
    assert set(memory) - {"bandwidth", "shared"} == {"cache_mib", "gib", "source"} and "http" in memory["source"]
    assert 1e11 < memory.get("bandwidth", 1e12) < 1e13, "bytes/s, not GB/s"
    assert 1 < memory["cache_mib"] < 1000 and 10 < memory["gib"] < 1000


@pytest.mark.parametrize("entry", peaks.table(), ids=peaks.label)
def test_a_name_and_a_size_are_of_one_entry(entry):
    """And no other entry has them."""
    size = entry["memory"]["gib"] * MIB_OF_GIB if "memory" in entry else None
    precision, flops = next(iter(entry["flops"].items()))
    for name in entry["names"]:
        whole = device(name, entry["granularity"], mib=size)
        assert peaks.of_device(whole, precision) == (flops, entry["source"], None)
        assert peaks.named(whole) == [entry]


# What nvidia-smi and PyTorch report, in MiB.
SIZES = [
    ("NVIDIA H200", 143771, 143155.9375),
    ("NVIDIA H100 NVL", 95830, 95830),
    ("NVIDIA B200", 183359, 182630),
    ("NVIDIA B300 SXM6 AC", 275040, 275040),
    ("NVIDIA GB200", 189471, 189471),
    ("NVIDIA GB300", 284208, 284208),
    ("NVIDIA GH200 480GB", 97871, 97280),
    ("NVIDIA GH200 144G HBM3e", 146831, 146831),
    ("NVIDIA H100 80GB HBM3", 81559, 81559),
    ("NVIDIA A100-PCIE-40GB", 40960, 40339.3125),
    ("NVIDIA A100-SXM4-40GB", 40960, 40441),
    ("NVIDIA L40S", 46068, 46068),
    ("NVIDIA A10", 23028, 23028),
    ("NVIDIA L4", 23034, 23034),
    ("NVIDIA RTX 6000 Ada Generation", 49140, 46068),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 97280),
    ("Tesla T4", 15360, 15109),
    ("Intel(R) Data Center GPU Max 1100", 49135, 49152),
    ("Intel(R) Arc(TM) B580 Graphics", 12215, 11605.1),
]


@pytest.mark.parametrize(("name", "most", "least"), SIZES)
def test_a_size_is_what_drivers_report(name, most, least):
    (entry,) = peaks.named(device(name))
    assert peaks.fits(entry, most) and peaks.fits(entry, least)
    assert not peaks.fits(entry, 0.8 * most) and not peaks.fits(entry, 1.2 * most)


@pytest.mark.parametrize(
    ("mib", "flops"), [(95830, 989.4e12), (65247, None), (81559, None), (97871, None), (None, None)]
)
def test_the_memory_tells_cards_of_one_name_apart(mib, flops):
    """NVIDIA H100 is the SXM5 card with 94 GB, and that with 64 GB, of which nobody cites a peak."""
    assert peaks.of_device(device("NVIDIA H100", mib=mib), "bf16").flops == flops


def test_two_tiles_are_the_whole():
    name = "Intel(R) Data Center GPU Max 1550"
    tile, whole = device(name, "tile"), device(name)
    for precision in PRECISIONS[:-1]:  # it has no FP8
        half = peaks.of_device(tile, precision).flops
        assert half and 2 * half == peaks.of_device(whole, precision).flops
    assert peaks.rated_power(tile) == peaks.rated_power(whole), "of both: nobody cites the half"


def test_the_power_of_a_device_is_of_a_scope():
    assert peaks.rated_power(device("AMD Instinct MI250", "die"))[:2] == (560, "package")
    assert peaks.rated_power(device("GC200"))[:2] == (1500, "board")
    for name in ("NVIDIA H300", "NVIDIA A30"):
        assert peaks.rated_power(device(name)) == (None, None, None, f"no cited power for {name} (package)")


def test_a_memory_without_a_bandwidth_is_no_roof():
    cited = peaks.memory(device("Intel(R) Data Center GPU Max 1100"))
    assert cited == (None, 0.0, None, "no cited memory bandwidth for Intel(R) Data Center GPU Max 1100 (package)")
    assert peaks.roof(device("Intel(R) Data Center GPU Max 1100"), "bf16") == Roof(355.6e12)


def test_the_peak_of_a_device_with_its_source():
    peak = peaks.of_device(device("NVIDIA A100-SXM4-40GB"), "bf16")
    assert peak.flops == 312e12 and "A100" in str(peak.source) and peak.reason is None


@given(st.sampled_from(NAMES), st.text(min_size=1, max_size=12))
def test_a_name_that_only_begins_alike_is_another_device(name, more):
    if name + more not in NAMES:
        assert peaks.of_device(device(name + more), "fp16").flops is None
    if name[:-1] not in NAMES:  # L40S and L40 are both there
        assert peaks.of_device(device(name[:-1]), "fp16").flops is None


@pytest.mark.parametrize(
    ("name", "granularity", "precision"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "package", "bf16"),
        ("NVIDIA A100-SXM4-40GB", "die", "bf16"),
        ("NVIDIA A100-SXM-64GB", "package", "bf16"),
        ("AMD Instinct MI355X (32 compute units)", "die", "bf16"),
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
