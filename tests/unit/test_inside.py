"""What `inv doctor --image` makes of a result."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.doctor import image
from sifmark.doctor.finding import Finding
from sifmark.doctor.image import check_result
from sifmark.engines import ImageInfo
from sifmark.recipes.plan import WORKLOADS

EXAMPLES = paths.SCHEMAS / "examples" / "result-1.0"


def found(name: str, **changes: Any) -> dict[str, Finding]:
    result = {**json.loads((EXAMPLES / f"{name}.json").read_text()), **changes}
    return {finding.subject: finding for finding in check_result(result)}


def test_a_run_on_the_cpu() -> None:
    seen = found("training")
    assert (seen["run"].state, seen["device"].state) == ("good", "good")
    assert seen["framework"].seen.startswith("pytorch 2.") and ", numpy " in seen["framework"].seen
    assert "numa nodes" in seen["topology"].seen
    assert "(node)" in seen["device"].seen and "GiB" in seen["device"].seen
    assert "driver" not in seen, "the host has none"


def test_a_gpu_that_is_held_back_and_shared() -> None:
    accelerator = {"kind": "cuda", "vendor": "NVIDIA", "name": "NVIDIA H200", "count": 1, "granularity": "package"}
    conditions = {
        "driver": {"value": "580.95.05"},
        "throttling": {"value": "software power cap"},
        "partitioning": {"value": "MIG"},
        "other_processes": {"value": 2},
        "power_cap": {"value": 700.0, "unit": "W"},
        "clock": {"value": None, "reason": "the device does not tell"},
    }
    power = {"source": "nvml", "scope": "package"}
    seen = found("training", accelerator=accelerator, device_conditions=conditions, power=power)
    assert seen["device"].seen == "1 x NVIDIA H200 (package)"
    assert (seen["throttling"].state, seen["throttling"].seen) == ("poor", "throttling software power cap")
    assert "other processes 2" in seen["other tenants"].seen and "power cap 700.0 W" in seen["power limit"].seen
    assert "clocks" not in seen and seen["meter"].seen == "nvml, each package"
    conditions["throttling"] = {"value": "none"}
    assert found("training", device_conditions=conditions)["throttling"].state == "good"


def test_no_device_is_bad_and_named() -> None:
    status = {"state": "no_device", "exit_code": 3, "message": "there is no /dev/nvidia0 here", "phase": "import"}
    device = {"kind": "cuda", "reason": "the run ended before a session was open"}
    seen = found("training", status=status, accelerator=device)
    assert (seen["run"].state, seen["device"].state) == ("bad", "bad")
    assert "/dev/nvidia0" in seen["run"].seen and seen["run"].remedy


@pytest.mark.parametrize("answered", ["[]", "null", "7", "", "{}", '{"schema_version": "9"}'])
def test_an_answer_that_is_no_result_is_told(monkeypatch: pytest.MonkeyPatch, answered: str) -> None:
    seen = ImageInfo({WORKLOADS: image.SMALLEST}, 1)
    tool = SimpleNamespace(image_info=lambda _: seen, isolation_flags=list, command=lambda *_: ["x"])
    monkeypatch.setattr(image, "locate", lambda _: (tool, "x.sif"))
    monkeypatch.setattr(image, "device_options", lambda *_: [])
    monkeypatch.setattr(image, "run", lambda *_, **__: SimpleNamespace(output=answered))
    with pytest.raises(SifmarkError, match="x.sif answered with what is no result"):
        list(image.check_image("x.sif"))


@pytest.mark.parametrize(
    ("needed", "value", "old"),
    [
        ("NVIDIA 580", "535.104.05", True),
        ("NVIDIA 580", "580.95.05", False),
        ("amdgpu unknown", "6.8.5", False),
        ("", "535.1", False),
        ("NVIDIA 580", None, False),
    ],
)
def test_a_driver_that_is_too_old_for_the_image_is_bad(needed: str, value: str | None, old: bool) -> None:
    result = json.loads((EXAMPLES / "training.json").read_text())
    result["device_conditions"] = {"driver": {"value": value}}
    said = [
        finding for finding in check_result(result, needed) if finding.subject == "driver" and finding.state == "poor"
    ]
    assert bool(said) == old
    assert not old or (needed in said[0].seen and str(value) in said[0].seen and said[0].remedy)


def test_all_cards_of_the_host_are_told_with_their_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cards = {
        "0000:17:00.0": ("0x10de", "0x030200", "0"),
        "0000:ca:00.0": ("0x10de", "0x030200", "1"),
        "0000:cb:00.0": ("0x1002", "0x120000", "-1"),
        "0000:03:00.0": ("0x8086", "0x038000", "0"),
        "0000:04:00.0": ("0x10de", "0x068000", "0"),  # a bridge
        "0000:05:00.0": ("0x10de", "0x030200", ""),  # of a kernel without NUMA
        "0000:06:00.0": ("0x8086", "0x120000", "0"),  # a neural unit of a processor
    }
    for address, facts in cards.items():
        (tmp_path / address).mkdir()
        for name, fact in zip(("vendor", "class", "numa_node"), facts, strict=True):
            if fact:
                (tmp_path / address / name).write_text(f"{fact}\n")
    monkeypatch.setattr(image, "PCI", tmp_path)
    (told,) = image.check_host_devices("cuda")
    assert told.seen == "4: 0000:05:00.0, 0000:17:00.0 on NUMA node 0, 0000:ca:00.0 on NUMA node 1, 0000:cb:00.0"
    assert [finding.seen for finding in image.check_host_devices("xpu")] == ["1: 0000:03:00.0 on NUMA node 0"]
    assert not list(image.check_host_devices("cpu"))
