"""The meters on made-up trees of kernel files, and how one is chosen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from metered import Clock, meter_of, sampled, why_no_meter
from program import ROOT

from entrypoints.contract import cards
from entrypoints.contract.statuses import UsageError
from entrypoints.metering import kernel_files
from entrypoints.metering.energy import window_energy
from entrypoints.metering.meter import Absence, MeterError
from entrypoints.metering.meters import hwmon, rapl, replay
from entrypoints.metering.names import names
from entrypoints.metering.selection import each_meter, open_meter
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve

TOP = 262_143_328_850  # max_energy_range_uj of a real server


def zone(root, folder, name, energy=1_000_000):
    path = root / folder
    path.mkdir(parents=True)
    for file, content in (("name", name), ("energy_uj", energy), ("max_energy_range_uj", TOP)):
        (path / file).write_text(f"{content}\n")
    return path / "energy_uj"


@pytest.fixture()
def powercap(tmp_path):
    """A server of two packages, as the kernel lays it out: flat, parts beside their packages."""
    zone(tmp_path, "intel-rapl:1", "package-1", 7_500_000)
    zone(tmp_path, "intel-rapl:0", "package-0", 2_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 400)
    zone(tmp_path, "intel-rapl:0:1", "dram", 400)
    zone(tmp_path, "intel-rapl:1:0", "dram", 400)
    zone(tmp_path, "intel-rapl:2", "psys", 90_000_000)
    zone(tmp_path, "intel-rapl-mmio:0", "package-9", 2_000_000)
    (tmp_path / "intel-rapl").mkdir()
    return tmp_path


def test_a_meter_that_is_no_longer_of_use_holds_no_file(powercap):
    def held():
        return len(list(Path("/proc/self/fd").iterdir()))

    before = held()
    for _ in range(5):
        opened = open_meter(f"rapl:{powercap}", "cpu")
        assert held() == before + 2  # a counter for each package
        del opened
    assert held() == before


def test_rapl_adds_packages_and_nothing_that_they_contain_or_that_contains_them(powercap):
    meter = rapl.find(str(powercap))
    assert meter.facts.devices == ("package-0", "package-1")
    assert (meter.facts.scope, meter.facts.source) == ("package", "rapl")
    assert (meter.facts.has_counter, meter.facts.has_power) == (True, False)
    assert meter.facts.counter_ranges == (pytest.approx(262143.32885), pytest.approx(262143.32885))
    assert meter.read()[:2] == ((), [pytest.approx(2.0), pytest.approx(7.5)])


def test_rapl_with_a_zone_for_each_die(tmp_path):
    for die in (0, 1):
        zone(tmp_path, f"intel-rapl:{die}", f"package-0-die-{die}")
    facts = rapl.find(str(tmp_path)).facts
    assert (facts.scope, facts.devices) == ("die", ("package-0-die-0", "package-0-die-1"))


def test_rapl_over_a_wrap(powercap):
    clock, power = Clock(), 125.0
    counters = {package: powercap / f"intel-rapl:{package}" / "energy_uj" for package in (0, 1)}
    meter = rapl.find(str(powercap))

    class AtThisMoment:
        facts = meter.facts

        def read(self):
            for package, counter in counters.items():
                counter.write_text(str(int(TOP - 1e9 + clock.now * power * (1 + package) * 1e6) % TOP))
            return meter.read()

    used = window_energy(sampled(AtThisMoment(), clock, 40.0), (3.0, 36.0))
    assert used.joules == [pytest.approx(125 * 33), pytest.approx(250 * 33)] and used.method == "counter"


def test_rapl_says_who_may_read_it(powercap, monkeypatch):
    real = os.open

    def guarded(path, *arguments):
        if path.endswith("energy_uj"):  # as root, who runs these tests in some places, nothing is forbidden
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments)

    monkeypatch.setattr(kernel_files.os, "open", guarded)
    assert "energy_uj may be read by root only; ask" in why_no_meter(f"rapl:{powercap}", "cpu")


def test_a_machine_without_meters(tmp_path):
    assert "no package of intel-rapl in" in why_no_meter(f"rapl:{tmp_path}", "cpu")
    assert "no power meter with a label" in why_no_meter(f"hwmon:{tmp_path / 'nowhere'}", "cpu")


def test_a_counter_that_holds_no_number_is_an_absence(powercap):
    (powercap / "intel-rapl:0" / "energy_uj").write_text("\n")
    assert "intel-rapl:0/energy_uj holds no number: ''" in why_no_meter(f"rapl:{powercap}", "cpu")


def sensor(root, number, label, microwatts, interval="1000", below="device"):
    path = root / f"hwmon{number}" / below
    path.mkdir(parents=True)
    (path / "power1_oem_info").write_text(f"{label}\n")
    (path / "power1_average").write_text(f"{microwatts}\n")
    if interval:
        (path / "power1_average_interval").write_text(f"{interval}\n")


@pytest.fixture()
def grace(tmp_path):
    """A GH200 node of two sockets; each sensor contains others."""
    for socket in (0, 1):
        for place, (label, watts) in enumerate([("Module", 700), ("Grace", 200), ("CPU", 120), ("SysIO", 40)]):
            sensor(tmp_path, 4 * socket + place, f"{label} Power Socket {socket}", (watts + socket) * 1_000_000)
    (tmp_path / "hwmon9").mkdir()  # a fan
    return tmp_path


def test_grace_counts_each_processor_once(grace):
    meter = hwmon.find(str(grace))
    assert meter.facts.devices == ("Grace Power Socket 0", "Grace Power Socket 1")
    assert meter.read()[:2] == ([pytest.approx(200.0), pytest.approx(201.0)], ())
    assert (meter.facts.scope, meter.facts.averaging, meter.facts.update_period) == ("package", 1.0, 1.0)


def test_a_whole_module_is_metered_by_name_alone(grace, monkeypatch):
    monkeypatch.setattr(hwmon, "HWMON", grace)
    assert "2 modules, and 1 have a GPU that computes" in why_no_meter("grace_hopper", "cuda")
    both = open_meter("grace_hopper", "cuda", (0, 1))
    assert not isinstance(both, Absence)
    assert both.facts.devices == ("Module Power Socket 0", "Module Power Socket 1")
    one_of_two = open_meter("grace_hopper:1", "cuda", (0, 1))
    assert isinstance(one_of_two, Absence) and "1 modules, and 2 have a GPU" in one_of_two.reason
    meter = meter_of("grace_hopper:1", "cuda")
    assert (meter.facts.devices, meter.facts.scope) == (("Module Power Socket 1",), "board")
    assert meter.read().watts == [pytest.approx(701.0)]
    assert "0 modules" in why_no_meter("grace_hopper:7", "cuda")
    for socket in range(4, 8):
        shutil.rmtree(str(grace / f"hwmon{socket}"))
    assert meter_of("grace_hopper", "cpu").facts.devices == ("Module Power Socket 0",)
    assert "Module" not in str(open_meter("auto", "cuda"))


def test_meters_of_newer_kernels_lie_a_folder_higher(tmp_path):
    sensor(tmp_path, 0, "Grace Power Socket 0", 150_000_000, below="")
    assert hwmon.find(str(tmp_path)).read().watts == [pytest.approx(150.0)]


def test_a_power_that_the_firmware_does_not_know_is_no_power(tmp_path):
    sensor(tmp_path, 0, "Grace Power Socket 0", 4_294_967_295_000)
    meter = hwmon.find(str(tmp_path))
    with pytest.raises(MeterError, match="does not know the power"):
        meter.read()


def test_an_averaging_time_that_nobody_knows_has_a_reason(tmp_path):
    sensor(tmp_path, 0, "Grace Power Socket 0", 1, interval="")
    facts = hwmon.find(str(tmp_path)).facts
    assert facts.averaging is None and "does not say" in str(facts.averaging_reason)


def test_other_power_meters_are_named(tmp_path):
    sensor(tmp_path, 0, "Chassis", 1)
    with pytest.raises(MeterError, match="its power meters are Chassis"):
        hwmon.find(str(tmp_path))


TRACE = {
    "scope": "board",
    "devices": ["board 0"],
    "update_period": 0.1,
    "counter_ranges": [100.0],
    "samples": [{"at": at / 10, "watts": [20.0], "joules": [at * 2.0 % 100]} for at in range(401)],
}


def test_a_trace_is_played_in_real_time_and_ends():
    clock = Clock(1000.0)
    meter = replay.Replay(TRACE, clock)
    assert meter.facts.simulated and meter.facts.has_power and meter.facts.has_counter
    clock.now = 1001.25
    assert meter.read()[:2] == ([20.0], [24.0])
    clock.now = 1040.05
    assert meter.read()[:2] == ([20.0], [0.0])
    clock.now = 1040.11
    with pytest.raises(MeterError, match="the trace is over after 40 s"):
        meter.read()


def test_energy_of_a_played_trace():
    clock = Clock(1000.0)
    recording = sampled(replay.Replay(TRACE, clock), clock, 45.0)
    used = window_energy(recording, (1002.03, 1035.07))
    assert used.joules == [pytest.approx(20 * 33.04, rel=0.005)] and used.integral == [pytest.approx(20 * 33.04)]
    assert recording.failures > 40 and "over" in recording.last_failure


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", '{"scope": "board"}', json.dumps({**TRACE, "samples": []}), "\x00"],
    ids=["empty", "list", "object", "null", "scope", "no samples", "binary"],
)
def test_a_file_that_is_no_trace(tmp_path, text):
    (tmp_path / "trace").write_text(text)
    assert "is no trace" in why_no_meter(f"replay:{tmp_path / 'trace'}", "cpu")


def test_a_deep_file_is_no_trace(tmp_path):
    """In a process of its own: Python 3.8 crashes on deep documents where an earlier test has used up its stack."""
    (tmp_path / "trace").write_text("[" * 100_000)
    program = (
        "import sys\n"
        "from entrypoints.metering.meter import MeterError\n"
        "from entrypoints.metering.meters import replay\n"
        "try:\n    replay.find(sys.argv[1])\nexcept MeterError as error:\n    print(error)\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "trace")]
    said = subprocess.run(argv, env={"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, check=True).stdout.decode()
    assert "is no trace: RecursionError" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory."),
        ("{}", "is no trace: KeyError: 'samples'"),
        (json.dumps({**TRACE, "scope": "device"}), "its scope 'device' is not one of die, package, board, node"),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused_before_a_run(tmp_path, text, said):
    path = tmp_path / "trace.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as error:
        resolve(parse(["--meter", f"replay:{path}"]), cards.load()["resnet50"], None)
    assert str(error.value).startswith(f"--meter replay:{path}: ") and said in str(error.value)


def test_a_replay_is_asked_for_with_a_file(tmp_path):
    assert "replay:FILE" in why_no_meter("replay", "cpu")
    assert "No such file" in why_no_meter(f"replay:{tmp_path / 'absent'}", "cpu")
    assert "replay" not in why_no_meter("auto", "abacus")


def test_every_meter_is_found_by_its_file_name():
    assert {"hwmon", "rapl", "replay"} <= set(names())


def test_the_first_meter_that_reads_is_taken(powercap, grace, monkeypatch):
    monkeypatch.setattr(rapl, "POWERCAP", powercap)
    monkeypatch.setattr(hwmon, "HWMON", powercap / "nowhere")
    assert meter_of("auto", "cpu").facts.source == "rapl"
    monkeypatch.setattr(hwmon, "HWMON", grace)
    assert meter_of("auto", "cpu").facts.source == "acpi_power_meter"


def test_where_none_reads_each_one_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(rapl, "POWERCAP", tmp_path)
    monkeypatch.setattr(hwmon, "HWMON", tmp_path)
    reason = why_no_meter("auto", "cpu")
    assert reason.startswith("hwmon: no Grace processor") and "; rapl: no package" in reason


def test_a_meter_is_not_taken_for_a_device_that_it_does_not_measure(powercap):
    assert why_no_meter("auto", "abacus") == "no meter measures abacus"
    assert "measures cpu, and this run is on abacus" in why_no_meter(f"rapl:{powercap}", "abacus")
    assert "--meter none" in why_no_meter("none", "cpu")


def test_each_meter_of_a_host_with_all_of_its_devices(powercap, grace, monkeypatch):
    monkeypatch.setattr(rapl, "POWERCAP", powercap)
    monkeypatch.setattr(hwmon, "HWMON", grace)
    found = dict(each_meter())
    devices = {name: meter.facts.devices for name, meter in found.items() if not isinstance(meter, Absence)}
    assert devices == {
        "rapl": ("package-0", "package-1"),
        "hwmon": ("Grace Power Socket 0", "Grace Power Socket 1"),
        "grace_hopper": ("Module Power Socket 0", "Module Power Socket 1"),
    }
    reasons = [meter.reason for meter in found.values() if isinstance(meter, Absence)]
    assert set(found) == set(names()) - {"replay"} and all(reasons)


def test_each_meter_of_those_that_are_named(powercap, tmp_path):
    ((choice, meter), (_, absent)) = each_meter([f"rapl:{powercap}", f"rapl:{tmp_path / 'nowhere'}"])
    assert not isinstance(meter, Absence)
    assert choice == f"rapl:{powercap}" and meter.facts.devices == ("package-0", "package-1")
    assert isinstance(absent, Absence) and "no package" in absent.reason
