"""The meter of Intel Gaudi, against a stand-in for HLML: no Gaudi is here."""

from __future__ import annotations

import ctypes

import pytest
from hlml_stand_in import StandInHlml, card

from entrypoints.metering.meter import Absence, MeterError, Several, State
from entrypoints.metering.meters import hlml
from entrypoints.metering.selection import addresses, open_meter

FIRST, SECOND = card(4, "0000:4D:00.0"), card(1, "0000:9a:00.0", get_power_usage=98_000)


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in (hlml.MODULE, hlml.MODULES):
        monkeypatch.delenv(name, raising=False)
    hlml._library.cache_clear()
    yield
    hlml._library.cache_clear()


def why_no_meter():
    meter = open_meter("auto", "hpu")
    assert isinstance(meter, Absence)
    return meter.reason


def shown(monkeypatch, *cards, **library):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: StandInHlml(*cards, **library))


def test_a_card_is_read_in_watts_and_joules(monkeypatch):
    shown(monkeypatch, FIRST)
    meter = hlml.find(None)
    assert meter.read()[:2] == ([412.0], [7500.0])
    facts = meter.facts
    assert (facts.source, facts.scope, facts.devices) == ("hlml", "board", ("00P1-HL2000A1-14-4",))
    assert facts.has_power and facts.has_counter and facts.simulated and facts.why_no_traffic


@pytest.mark.parametrize("counted", [0, None])
def test_a_card_without_a_counter_tells_its_power(monkeypatch, counted):
    shown(monkeypatch, card(0, "0000:4d:00.0", get_total_energy_consumption=counted))
    meter = hlml.find(None)
    assert not meter.facts.has_counter and meter.read()[:2] == ([412.0], [])
    monkeypatch.setattr(meter.card, "number", lambda *_, **__: None)
    with pytest.raises(MeterError, match="no longer reports"):
        meter.read()


def test_a_card_that_tells_nothing_is_no_meter(monkeypatch):
    shown(monkeypatch, card(0, "0000:4d:00.0", get_total_energy_consumption=None, get_power_usage=None))
    assert "neither energy nor power" in why_no_meter()


@pytest.mark.parametrize(("bits", "limits"), [(0, ()), (1, ("power",)), (3, ("power", "thermal"))])
def test_what_limits_the_clock_is_watched(monkeypatch, bits, limits):
    shown(monkeypatch, card(0, "0000:4d:00.0", get_current_clocks_throttle_reasons=bits))
    meter = hlml.find(None)
    limiting = {name: name in limits for name in meter.facts.limits}
    assert meter.watch() == (State(clock=1650, limiting=limiting),)
    assert hlml.conditions()["throttling"] == {"value": ", ".join(limits) or "none"}


def test_conditions_of_a_card(monkeypatch, tmp_path):
    monkeypatch.setattr(hlml, "DRIVER", tmp_path / "version")
    (tmp_path / "version").write_text("1.24.1-b336d5e\n")
    shown(monkeypatch, card(0, "0000:4d:00.0", get_power_management_limit=None))
    conditions = hlml.conditions()
    values = {name: fact["value"] for name, fact in conditions.items()}
    assert values.pop("power_cap") is None and conditions["power_cap"]["reason"]
    assert values == {
        "driver": "1.24.1-b336d5e",
        "clock": 1650,
        "clock_max": 1800,
        "temperature": 51,
        "throttling": "none",
        "memory_used": 3.0,
    }
    shown(monkeypatch, FIRST)
    hlml._library.cache_clear()
    assert hlml.conditions()["power_cap"] == {"value": 600.0, "unit": "W"}


@pytest.mark.parametrize(
    ("environment", "number", "module"),
    [({}, 0, 1), ({}, 1, 4), ({hlml.MODULES: "4,1"}, 0, 4), ({hlml.MODULES: "4"}, 0, 4), ({hlml.MODULE: "4"}, 0, 4)],
)
def test_the_card_that_a_rank_acquires_is_metered(monkeypatch, environment, number, module):
    shown(monkeypatch, FIRST, SECOND)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert hlml.find(None, number).facts.devices == (f"00P1-HL2000A1-14-{module}",)
    assert list(addresses("hpu", number)) == ["0000:4d:00.0" if module == 4 else "0000:9a:00.0"]


def test_ranks_of_a_host_are_metered_together(monkeypatch):
    shown(monkeypatch, FIRST, SECOND)
    meter = open_meter("auto", "hpu", (0, 1))
    assert isinstance(meter, Several) and meter.read().watts == [98.0, 412.0]


def test_one_of_the_cards_that_compute_is_no_meter_of_them(monkeypatch):
    shown(monkeypatch, FIRST, SECOND)
    assert not isinstance(open_meter("hlml:0", "hpu", (0,)), Absence)
    meter = open_meter("hlml:0", "hpu", (0, 1))
    assert isinstance(meter, Absence) and "0 is not all of the 2 devices that compute" in meter.reason


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({hlml.MODULE: "3"}, "there is no Gaudi 0: visible are the modules 4, 1"),
        ({hlml.MODULES: "all"}, "HABANA_VISIBLE_MODULES=all lists no modules"),
    ],
)
def test_a_card_that_is_not_there_is_named(monkeypatch, environment, said):
    shown(monkeypatch, FIRST, SECOND)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert said in why_no_meter()


def test_a_card_may_be_named_by_number_or_address(monkeypatch):
    shown(monkeypatch, FIRST, SECOND)
    assert hlml.find("1").read().watts == hlml.find("0000:9a:00.0").read().watts == [98.0]
    for place in ("2", "0000:01:00.0"):
        with pytest.raises(MeterError, match="fails with 6"):
            hlml.find(place)


def test_a_library_that_is_not_there_or_does_not_start_says_so(monkeypatch):
    def absent(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert why_no_meter() == "hlml: libhlml.so of Intel's driver for Gaudi is not here"
    shown(monkeypatch)
    assert "HLML shows no Gaudi" in why_no_meter()
    hlml._library.cache_clear()
    shown(monkeypatch, FIRST, status=9)
    assert "hlml_init fails with 9" in why_no_meter()
    shown(monkeypatch, FIRST, status=hlml.ALREADY_INITIALIZED)
    assert hlml.find(None).read().watts == [412.0]


def test_cards_without_a_module_are_not_guessed(monkeypatch):
    shown(monkeypatch, card(None, "0000:4d:00.0"), card(None, "0000:9a:00.0"))
    assert "does not say which module" in why_no_meter()
