"""Devices under load: what their clocks were, what limited them, and what crossed the bus, by replayed readings."""

from __future__ import annotations

import math
from typing import Any

import nvml_stand_in as nvidia
import pytest
from metered import Clock
from test_meters_vendors import MI250, MI300, SECOND_DIE, A, B, Sysman, amds, cards, gpus, tile  # noqa: F401  fixtures

from entrypoints.contract.messages import DeviceFacts, Message, Phase, Step, Usage
from entrypoints.metering.amd import gpus as amd_gpus
from entrypoints.metering.amd.controller import Controller
from entrypoints.metering.amd.libraries import AmdSmi
from entrypoints.metering.load import Limited, Range, risen, window_states
from entrypoints.metering.meter import HEAT, LIMIT_KINDS, POWER, MeterFacts, State
from entrypoints.metering.meters import amd, intel, nvml
from entrypoints.metering.nvidia import bus as nvidia_bus
from entrypoints.metering.nvidia.limits import LIMITS
from entrypoints.metering.sampling import Recording, StateSampler
from entrypoints.metering.selection import open_meter
from entrypoints.metering.states import RECEIVED, StateRecording
from entrypoints.results import power
from entrypoints.results.measurement import fold
from entrypoints.results.metrics import devices

GIB = 2**30


class Watched:
    """A meter of devices whose states are functions of the clock; None is a reading that fails."""

    def __init__(self, clock, *states):
        self.clock, self.states = clock, states
        self.facts = MeterFacts(
            source="made up",
            scope="package",
            devices=tuple(f"device {number}" for number in range(len(states))),
            update_period=0.1,
            averaging=None,
            averaging_reason="nobody made that up",
            has_power=True,
            has_counter=False,
            counter_ranges=(),
            simulated=True,
            limits={"cap": POWER, "heat": HEAT, "sync": "other"},
            watch_period=0.1,
            traffic_method="counter",
        )

    def watch(self):
        states = [state(self.clock()) for state in self.states]
        if None in states:
            raise OSError("the bus is gone")
        return states


def watched(*states, seconds=20.0, period=0.1):
    """What is recorded of devices in these states."""
    clock = Clock()

    def wait(timeout):
        clock.now = min(clock.now + timeout, seconds)
        return clock.now >= seconds

    sampler = StateSampler(Watched(clock, *states), period, clock, wait)
    sampler.loop()
    return sampler.recording()


def busy(at):
    """Idle before 5 s and from 15 s on; in between the clock falls to 900 MHz in every tenth reading."""
    if not 5 <= at < 15:
        return State(clock=300.0, memory_clock=100.0, limiting={"cap": False}, limited={"heat": 7.0}, received=0.0)
    capped = round(at * 10) % 10 == 5
    return State(
        clock=900.0 if capped else 1800.0,
        memory_clock=1600.0,
        limiting={"cap": capped, "heat": False},
        limited={"heat": 7.0 + (at - 5) / 4},
        received=(at - 5) * 1e9,
        sent=at * 1e6,
    )


def test_clocks_and_limits_are_those_of_the_window_and_not_of_the_rest():
    done = window_states(watched(busy), 0, (6.0, 14.0))
    assert done.samples == pytest.approx(80, abs=1)
    assert (done.clock, done.memory_clock) == (Range(900.0, 1800.0), Range(1600.0, 1600.0))
    heat, cap = done.limits or ()
    assert (heat.name, heat.method, cap.name, cap.method) == ("heat", "counter", "cap", "samples")
    assert (heat.seconds, cap.seconds) == (pytest.approx(2.0), pytest.approx(0.8, rel=0.05))
    assert (done.received, done.sent) == (pytest.approx(8e9), pytest.approx(8e6))


def test_a_counter_that_rises_faster_than_time_is_not_believed():
    fast = watched(lambda at: State(limiting={"heat": False}, limited={"heat": 1000 * at}))
    assert window_states(fast, 0, (6.0, 14.0)).limits == []
    alone = watched(lambda at: State(limited={"heat": 1000 * at}))
    assert window_states(alone, 0, (6.0, 14.0)).limits is None
    always = watched(lambda at: State(limited={"heat": 1.01 * at}))
    assert window_states(always, 0, (6.0, 14.0)).limits == [Limited("heat", 8.0, "counter")]


def test_a_counter_that_was_reset_or_not_read_at_the_edges_gives_nothing():
    recording = watched(lambda at: State(received=at if at < 10 else at - 10))
    assert risen(recording, 0, RECEIVED, (6.0, 14.0)) is None
    assert risen(recording, 0, RECEIVED, (11.0, 14.0)) == pytest.approx(3.0)
    late = watched(lambda at: State(received=at if at > 7 else None))
    assert risen(late, 0, RECEIVED, (6.0, 14.0)) is None
    assert risen(late, 0, ("sent", ""), (8.0, 14.0)) is None


def test_a_reading_that_fails_is_a_gap():
    recording = watched(lambda at: None if 7 < at < 8 else State(clock=at))
    assert recording.last_failure == "the bus is gone"
    assert window_states(recording, 0, (7.1, 7.9)).samples == 0
    clock = window_states(recording, 0, (6.0, 14.0)).clock
    assert clock and clock.least == pytest.approx(6.0, abs=0.11)


def test_a_device_that_reports_nothing_has_nothing():
    done = window_states(watched(lambda at: State()), 0, (6.0, 14.0))
    assert (done.clock, done.memory_clock, done.limits, done.received, done.sent) == (None,) * 5


def run_of(*states, facts=None, window=(6.0, 8.0)):
    """A run whose timed window has steps of a second, with a meter of devices in these states."""
    recording = watched(*states)
    facts = facts or Watched(Clock(), *states).facts
    metered = Recording(facts, 0.1, [0.0, 20.0], [[50.0] * 2 for _ in states], (), None, 0, None, (), recording)
    messages: list[Message] = [
        Phase("model", 2.0),
        DeviceFacts("cuda", "NVIDIA", "a GPU", len(states), "package", 1.0, 1, 1, "eager", simulated=True),
        Phase("steady", window[0]),
        *[Step(1.0, 0.0, 4, 1, 1.0)] * round(window[1]),
        Usage("not counted", "not counted", "PyTorch does not count transfers"),
    ]
    return fold(messages, "images", "training", power=metered)


def test_a_result_says_what_limited_each_device_and_what_crossed_its_bus():
    run = run_of(busy, lambda at: busy(at)._replace(limiting={"sync": True}, limited={}, clock=1500.0))
    first, second = power.loads(run)
    assert first["clock"] == {"min": {"value": 900.0, "unit": "MHz"}, "median": {"value": 1800.0, "unit": "MHz"}}
    assert [(limit["name"], limit["kind"]) for limit in first["limits"]] == [("heat", HEAT), ("cap", POWER)]
    assert first["limited"] == {"value": pytest.approx(2.0), "unit": "s"}
    assert first["received"] == {"value": pytest.approx(8e9 / 2**20), "unit": "MiB"}
    assert [limit["kind"] for limit in second["limits"]] == ["other"] and second["limited"]["value"] == 0.0
    assert devices.throttled_fraction(run).value == pytest.approx(0.25)
    assert devices.core_clock(run) == (1500.0, "MHz", None)


def test_traffic_that_the_framework_does_not_count_is_that_of_the_buses():
    steady = lambda at: State(received=at * 2.0**20, sent=at * 2.0**21)  # noqa: E731
    assert devices.host_device_traffic(run_of(steady, steady)).value == pytest.approx(2 * 18 * 3, rel=1e-6)
    silent = Watched(Clock(), steady).facts._replace(traffic_method=None, why_no_traffic="the driver is too old")
    reason = devices.host_device_traffic(run_of(lambda at: State(clock=1.0), facts=silent)).reason
    assert reason == "PyTorch does not count transfers; the driver is too old"


def test_without_a_sample_in_the_window_the_reason_is_given():
    run = run_of(lambda at: None if 5 < at < 15 else State(clock=1.0))
    assert "no state of the device was read" in str(devices.core_clock(run).reason)
    assert "the bus is gone" in str(devices.throttled_fraction(run).reason)
    assert devices.core_clock(fold([], "images", "training")).reason == devices.NOT_WATCHED


def test_nvml_counts_what_limits_clocks_in_seconds(gpus):  # noqa: F811
    gpu = nvidia.Gpu(A)
    gpu.fields = {74: 2_500_000_000, 75: 0, 77: 1_000_000}
    gpus(gpu)
    meter = nvml.find(None)
    (state,) = meter.watch()
    assert (state.clock, state.memory_clock) == (1980, 3201)
    assert state.limited == {"software power cap": 2.5, "software thermal slowdown": 0.0, "board limit": 0.001}
    active = {name for name, limits in state.limiting.items() if limits}
    assert active == {"software power cap", "software thermal slowdown"}
    assert set(state.limiting) | set(state.limited) <= set(meter.facts.limits)
    assert set(meter.facts.limits.values()) <= set(LIMIT_KINDS)


def test_a_driver_without_fields_is_asked_for_violations(gpus):  # noqa: F811
    gpu = nvidia.Gpu(A)
    gpu.violations = {0: 3_000_000_000, 1: 5_000_000_000}
    gpus(gpu)
    (state,) = nvml.find(None).watch()
    assert state.limited == {"software power cap": 3.0, "software thermal slowdown": 5.0}
    gpu.violations = {}
    assert nvml.find(None).watch()[0].limited == {}


def test_bytes_on_the_bus_are_counted_beyond_32_bits(gpus):  # noqa: F811
    gpu = nvidia.Gpu(A)
    gpu.fields = {nvidia_bus.RECEIVED: 2**32 - 2 * GIB, nvidia_bus.SENT: 5}
    gpus(gpu)
    meter = nvml.find(None)
    assert meter.facts.traffic_method == "counter"
    assert 0.02 < (meter.facts.watch_period or 0) < 2**32 / 63e9, "a bus of the fifth generation wraps it in 0.07 s"
    assert meter.watch()[0][-2:] == (0.0, 0.0)
    gpu.fields = {nvidia_bus.RECEIVED: GIB, nvidia_bus.SENT: 8}
    assert meter.watch()[0][-2:] == (3 * GIB, 3.0)
    gpu.long = {*gpu.long, nvidia_bus.RECEIVED, nvidia_bus.SENT}
    assert nvml.find(None).facts.watch_period == nvml.WATCH_PERIOD


def test_bytes_that_may_have_been_missed_reset_the_count(gpus):  # noqa: F811
    gpu = nvidia.Gpu(A)
    gpu.fields = {nvidia_bus.RECEIVED: 0, nvidia_bus.SENT: 0}
    gpus(gpu)
    clock = Clock()
    bus = nvidia_bus.BusCounters(gpu, clock)
    totals = []
    for passed, count in ((0.05, 1000), (0.05, 3000), (0.2, 4000), (0.05, 5000)):
        clock.now += passed
        gpu.fields[nvidia_bus.RECEIVED] = count
        totals.append(bus.bytes()[0])
    assert totals == [0.0, 2000.0, 0.0, 1000.0], "in 0.2 s there may have been 12 GB"


def test_where_bytes_are_not_counted_rates_are_sampled(gpus):  # noqa: F811
    gpu = nvidia.Gpu(A)
    gpu.rates = {0: 1_000_000, 1: 3_000_000}  # KB/s
    gpus(gpu)
    assert nvml.find(None).facts.traffic_method == "samples"
    clock = Clock()
    bus = nvidia_bus.BusRates(gpu, clock)
    clock.now = 0.5
    assert bus.bytes() == (pytest.approx(1.5e9), pytest.approx(0.5e9))
    gpu.rates = {}
    facts = nvml.find(None).facts
    assert (facts.traffic_method, facts.why_no_traffic) == (None, nvml.UNCOUNTED)


def test_states_of_several_gpus_are_of_each(gpus):  # noqa: F811
    gpus(nvidia.Gpu(A), nvidia.Gpu(B))
    nvidia.HOST.gpus[1].clocks = {nvidia.NVML_CLOCK_SM: 1200, nvidia.NVML_CLOCK_MEM: 3201}
    meter: Any = open_meter("nvml", "cuda", [0, 1])
    assert [state.clock for state in meter.watch()] == [1980, 1200]
    assert meter.facts.watch_period and meter.facts.limits == LIMITS


def metrics_of(cycles, hot, **more):
    table = {"accumulation_counter": cycles, "ppt_residency_acc": 0, "socket_thm_residency_acc": hot}
    return {"current_gfxclks": [2100, 1900, "N/A"], "current_gfxclk": 2100, "current_uclk": 1300, **table, **more}


def test_an_mi300_counts_the_cycles_in_which_it_was_limited(amds):  # noqa: F811
    driver = amds({**MI300, "metrics": metrics_of(1000, 10)})
    library, clock = AmdSmi(), Clock()
    controller = Controller(library, library.handles()[0], clock)
    assert controller.state().limited == {"ppt_pwr": 0.0, "socket_thrm": 0.0}
    clock.now = 2.0
    driver.gpus[0]["metrics"] = metrics_of(3000, 510)
    state = controller.state()
    assert (state.clock, state.memory_clock) == (1900, 1300)
    assert state.limited == {"ppt_pwr": 0.0, "socket_thrm": pytest.approx(0.5)}, "a quarter of the cycles of 2 s"
    assert state.limiting == {}
    driver.gpus[0]["metrics"] = metrics_of(5, 1)  # the driver was loaded anew
    assert controller.state().limited["socket_thrm"] == pytest.approx(0.5)
    (state,) = amd.find(None).watch()
    assert state.received is None and amd.find(None).facts.why_no_traffic == amd.NO_TRAFFIC


@pytest.mark.parametrize(
    ("status", "active"),
    [(1 << 1 | 1 << 36, {"PPT", "TEMP"}), (0, set()), (True, {"throttled"}), (2**64 - 1, None), ("N/A", None)],
)
def test_an_mi200_shows_what_limits_its_clock_now(amds, status, active):  # noqa: F811
    amds({**MI300, "metrics": {"current_gfxclk": 1700, "indep_throttle_status": status}})
    meter = amd.find(None)
    (state,) = meter.watch()
    assert {name for name, limits in state.limiting.items() if limits} == (active or set())
    assert bool(state.limiting) == (active is not None) and set(state.limiting) <= set(meter.facts.limits)


def test_a_module_is_as_fast_as_the_slower_of_its_dies(amds, monkeypatch, tmp_path):  # noqa: F811
    cool = {"current_gfxclk": 1700, "current_uclk": 1600, "indep_throttle_status": 0}
    hot = {"current_gfxclk": 1200, "current_uclk": 1600, "indep_throttle_status": 1 << 36}
    amds({**MI250, "metrics": cool}, {**SECOND_DIE, "metrics": hot})
    monkeypatch.setattr(amd_gpus, "PCI", tmp_path)
    for number in range(2):
        (tmp_path / f"0000:{number:02x}:00.0").touch()
    (state,) = amd.find(None).watch()
    assert (state.clock, state.limiting["TEMP"], state.limiting["PPT"]) == (1200, True, False)


def test_a_library_without_a_table_of_the_controller_shows_nothing(amds):  # noqa: F811
    amds({**MI300, "metrics": {}})
    assert amd.find(None).watch() == (State(limiting={}, limited={}),)


def test_a_card_of_intel_s_shows_its_clock_and_what_limits_it(cards, monkeypatch):  # noqa: F811
    tile(cards, "0000:9a:00.0", "tile0/gt0/freq0/throttle", status=1, reason_thermal=1, reason_pl2=0, reason_new=0)
    (cards / "0000:9a:00.0/tile0/gt0/freq0/act_freq").write_text("2400\n")
    meter = intel.find("1")
    assert meter.watch() == (State(2400, limiting={"thermal": True, "pl2": False, "new": False}),)
    kinds = {name: meter.facts.limits[name] for name in ("thermal", "pl2", "new")}
    assert kinds == {"thermal": HEAT, "pl2": POWER, "new": "unknown"}
    assert meter.facts.why_no_traffic == intel.NO_TRAFFIC


@pytest.mark.parametrize("counts", [True, False])
def test_sysman_counts_the_traffic_where_its_driver_does(cards, monkeypatch, counts):  # noqa: F811
    class WithBus(Sysman):
        def __getattr__(self, name):
            if name == "zesDevicePciGetStats":
                return self.statistics
            return super().__getattr__(name)

        def statistics(self, _, statistics):
            statistics._obj.received, statistics._obj.sent = (700, 30) if counts else (0, 0)
            return 0

    monkeypatch.setattr("ctypes.CDLL", lambda _: WithBus(3_500_000))
    meter = intel.find("1")
    assert meter.facts.traffic_method == ("counter" if counts else None)
    assert meter.watch()[0][-2:] == ((700.0, 30.0) if counts else (None, None))


def test_a_recording_of_only_some_devices_has_their_states():
    both = StateRecording(0.1, [1.0], [{("clock", ""): [1.0]}, {("clock", ""): [2.0]}], None)
    assert both.only([1]).devices == [{("clock", ""): [2.0]}]
    assert math.isnan(watched(lambda at: State(clock=at if at > 1 else None)).devices[0][("clock", "")][0])
