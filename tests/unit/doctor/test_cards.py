"""Accelerators of a host, as the kernel lists them."""

from pathlib import Path

import pytest

from sifmark.doctor import cards


def test_all_cards_of_the_host_are_told_with_their_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    present = {
        "0000:17:00.0": ("0x10de", "0x030200", "0"),
        "0000:ca:00.0": ("0x10de", "0x030200", "1"),
        "0000:cb:00.0": ("0x1002", "0x120000", "-1"),
        "0000:03:00.0": ("0x8086", "0x038000", "0"),
        "0000:04:00.0": ("0x10de", "0x068000", "0"),  # a bridge
        "0000:05:00.0": ("0x10de", "0x030200", ""),  # of a kernel without NUMA
        "0000:06:00.0": ("0x8086", "0x120000", "0"),  # a neural unit of a processor
        "0000:9a:00.0": ("0x1da3", "0x120000", "1"),
    }
    for address, facts in present.items():
        (tmp_path / address).mkdir()
        for name, fact in zip(("vendor", "class", "numa_node"), facts, strict=True):
            if fact:
                (tmp_path / address / name).write_text(f"{fact}\n")
    monkeypatch.setattr(cards, "PCI", tmp_path)
    monkeypatch.setattr(cards, "NUMA", tmp_path / "nodes")
    (tmp_path / "nodes" / "node0").mkdir(parents=True)
    (tmp_path / "nodes" / "node0" / "cpulist").write_text("0-31\n")
    (devices,) = cards.check_host_devices("cuda")
    assert devices.detail == "4: 0000:05:00.0, 0000:17:00.0 on NUMA node 0, 0000:ca:00.0 on NUMA node 1, 0000:cb:00.0"
    assert [finding.detail for finding in cards.check_host_devices("xpu")] == ["1: 0000:03:00.0 on NUMA node 0"]
    assert [finding.detail for finding in cards.check_host_devices("hpu")] == ["1: 0000:9a:00.0 on NUMA node 1"]
    assert not list(cards.check_host_devices("cpu"))
    assert [check.detail for check in cards.check_numa_nodes()] == [
        "NUMA node 0, processors 0-31: 0000:03:00.0, 0000:17:00.0",
        "no NUMA node: 0000:05:00.0, 0000:cb:00.0",
        "NUMA node 1: 0000:9a:00.0, 0000:ca:00.0",
    ]
