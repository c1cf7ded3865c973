"""The table of peaks in Python: by name, and never another card's."""

from dataclasses import FrozenInstanceError

import pytest

import sifmark


def test_a_name_gives_the_numbers_of_its_vendor_with_their_sources() -> None:
    h200 = sifmark.peaks("NVIDIA H200")
    assert (h200.name, h200.granularity) == ("NVIDIA H200", "package")
    assert h200.flops["bf16"] == 989.5e12 and h200.flops["fp8"] == 1979e12 and "fp4" not in h200.flops
    assert (h200.memory_bandwidth, h200.memory_gib, h200.cache_mib) == (4.8e12, 141, 60)
    assert (h200.rated_power, h200.rated_power_scope) == (700, "package")
    assert all(text and "https://" in text for text in (h200.source, h200.memory_source, h200.rated_power_source))
    with pytest.raises(FrozenInstanceError):
        h200.rated_power = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        h200.flops["bf16"] = 1  # type: ignore[index]


def test_what_nobody_states_is_none() -> None:
    assert sifmark.peaks("GC200").memory_bandwidth is None
    assert sifmark.peaks("NVIDIA A30").rated_power is None


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(sifmark.UsageError) as raised:
        sifmark.peaks("NVIDIA H20")
    assert raised.value.code == "unknown-name" and "NVIDIA H200" in raised.value.remedy


def test_cards_of_one_name_are_told_apart_by_what_differs() -> None:
    assert sifmark.peaks("NVIDIA H100", memory_mib=95830).memory_gib == 94
    tile = sifmark.peaks("Intel(R) Data Center GPU Max 1550", granularity="tile")
    assert 2 * tile.flops["bf16"] == sifmark.peaks(tile.name, granularity="package").flops["bf16"]
    for arguments in (
        {"name": "NVIDIA H100"},
        {"name": "NVIDIA H100", "memory_mib": 65247},
        {"name": "Intel(R) Data Center GPU Max 1550"},
        {"name": "NVIDIA H200", "granularity": "die"},
    ):
        with pytest.raises(sifmark.UsageError) as raised:
            sifmark.peaks(**arguments)
        assert raised.value.code == "ambiguous-name"
