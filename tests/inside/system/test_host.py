from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.metering.meters import rapl
from entrypoints.system import cgroups, facts, host


def test_every_fact_has_a_value_or_a_reason():
    counters = host.counters()
    entries = {**host.facts(), **host.conditions(rapl.power_cap), **counters, **host.conditions_after(counters)}
    for name, fact in entries.items():
        assert (fact["value"] is None) == ("reason" in fact), name


def test_a_fact_that_this_kernel_shows_is_told():
    conditions = host.conditions(rapl.power_cap)
    assert conditions["numa_nodes_allowed"]["value"] and conditions["runnable_others"]["value"] >= 0
    assert host.counters()["cpu_stolen"]["value"] >= 0
    assert host.facts()["hypervisor"].get("value") in ("yes", "no", None)


def test_facts_agree_with_python():
    entries = host.facts()
    assert entries["kernel"]["value"] == platform.release()
    assert entries["threads_usable"]["value"] == len(os.sched_getaffinity(0))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert entries["memory"]["value"] == pytest.approx(pages / 2**20, rel=0.01)


def test_what_cannot_be_read_is_null_with_the_cause(tmp_path):
    reading = facts.fact(lambda: (tmp_path / "absent").read_text(), "MiB")
    assert reading["value"] is None and reading["unit"] == "MiB" and "absent" in reading["reason"]
    assert facts.fact(lambda: None) == {"value": None, "reason": "the system does not say"}
    assert facts.fact(lambda: 0, "MiB") == {"value": 0, "unit": "MiB"}


@pytest.mark.parametrize(("numbers", "text"), [({0, 1, 2, 3, 8}, "0-3,8"), ({5}, "5"), ({1, 3, 4}, "1,3-4")])
def test_ranges_there_and_back(numbers, text):
    assert host.ranges(numbers) == text
    assert host.parse_ranges(text + "\n") == numbers


def group(tmp_path, monkeypatch, **limits):
    """A made-up tree of control groups `/job/step`, in which each file stands in the folder named."""
    (tmp_path / "job" / "step").mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    for path, text in limits.items():
        folder, name = path.split("__")
        (tmp_path / {"job": "job", "step": "job/step"}[folder] / name.replace("_", ".")).write_text(text)
    monkeypatch.setattr(cgroups, "CGROUP", tmp_path)
    (tmp_path / "membership").write_text("0::/job/step\n")
    monkeypatch.setattr(cgroups, "MEMBERSHIP", tmp_path / "membership")


def test_the_tightest_limit_of_all_control_groups_above_counts(tmp_path, monkeypatch):
    group(tmp_path, monkeypatch, job__cpu_max="150000 100000\n", step__cpu_max="max 100000\n")
    assert host.cpu_quota() == 1.5
    assert host.usable_cores() == 1


def test_no_limit_is_told_as_such(tmp_path, monkeypatch):
    group(tmp_path, monkeypatch, step__cpu_max="max 100000\n")
    assert facts.fact(host.cpu_quota)["reason"] == "no limit is set"


@pytest.mark.parametrize(
    ("name", "line", "events"),
    [
        ("UNIFIED", "0::/job/step", "low 0\noom 4\noom_kill 3\n"),
        ("LEGACY", "4:memory:/job/step\n0::/", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
    ],
)
def test_kills_are_counted_in_the_own_group(tmp_path, monkeypatch, name, line, events):
    for other in ("UNIFIED", "LEGACY"):
        monkeypatch.setattr(cgroups, other, getattr(cgroups, other)._replace(root=tmp_path / other))
    files = getattr(cgroups, name)
    (files.root / "job/step").mkdir(parents=True)
    (files.root / "job/step" / files.events).write_text(events)
    (files.root / "job" / files.events).write_text("oom_kill 9\n")
    monkeypatch.setattr(cgroups, "MEMBERSHIP", tmp_path / "membership")
    (tmp_path / "membership").write_text(f"{line}\n")
    assert host.oom_kills() == 3


def test_kills_of_the_whole_host_count_where_no_group_counts_them(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "MEMBERSHIP", tmp_path / "absent")
    monkeypatch.setattr(host, "PROC", tmp_path)
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 5\n")
    assert host.oom_kills() == 5


# A machine as the kernel shows it: two cores of two threads each, in one package, all of them usable.
TREE = {
    "cpu/online": "0-3\n",
    "cpu/smt/active": "1\n",
    "cpu/intel_pstate/no_turbo": "1\n",
    "cpu/vulnerabilities/itlb_multihit": "KVM: Mitigation: Split huge pages\n",
    "cpu/vulnerabilities/mds": "Vulnerable: Clear CPU buffers attempted, no microcode\n",
    "cpu/vulnerabilities/meltdown": "Not affected\n",
    "cpu/vulnerabilities/spectre_v1": "Mitigation: usercopy/swapgs barriers\n",
    "powercap/intel-rapl:0/name": "package-0\n",
    "powercap/intel-rapl:0/constraint_0_power_limit_uw": "280000000\n",
    "powercap/intel-rapl:1/name": "package-1\n",
    "powercap/intel-rapl:1/constraint_0_power_limit_uw": "270000000\n",
    "powercap/intel-rapl:0:0/name": "core\n",
    "huge_pages": "always [madvise] never\n",
    "proc/cpuinfo": "flags\t: fpu sse hypervisor\ncpu MHz\t\t: 2000.0\n\nflags\t: fpu sse\ncpu MHz\t\t: 3000.5\n",
    "proc/loadavg": "1.39 1.30 1.00 7/112 22963\n",
    "proc/pressure/cpu": "some avg10=3.73 avg60=3.46 avg300=5.93 total=1\nfull avg10=0.00 avg60=0.00 total=0\n",
    "proc/self/status": "Name:\tpython3\nMems_allowed_list:\t0-1,3\n",
    "proc/self/numa_maps": "557542f7a000 bind:0 file=/usr/bin/python3 mapped=2\n557542f7c000 default\n",
    "proc/stat": "cpu  10 20 30 40 50 60 70 800 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n",
}
for number in range(4):
    TREE[f"cpu/cpu{number}/topology/physical_package_id"] = "0\n"
    TREE[f"cpu/cpu{number}/topology/core_id"] = f"{number // 2}\n"
    TREE[f"cpu/cpu{number}/thermal_throttle/core_throttle_count"] = f"{5 + number // 2}\n"
    TREE[f"cpu/cpu{number}/cpufreq/scaling_governor"] = "performance\n" if number else "powersave\n"
    TREE[f"cpu/cpu{number}/cpufreq/scaling_cur_freq"] = f"{2_000_000 + number * 1000}\n"
    TREE[f"cpu/cpu{number}/cpufreq/scaling_max_freq"] = "3500000\n"


for number, name, level, size, sharers in [
    *((number, "index0", 1, "48K", f"{number}") for number in range(4)),
    *((number, "index2", 2, "2048K", f"{number}") for number in range(4)),
    *((number, "index3", 3, "32M" if number < 2 else "16384K", "0-1" if number < 2 else "2-3") for number in range(4)),
]:
    for what, text in {"level": level, "size": size, "shared_cpu_list": sharers}.items():
        TREE[f"cpu/cpu{number}/cache/{name}/{what}"] = f"{text}\n"


@pytest.fixture()
def machine(tmp_path, monkeypatch):
    """The made-up machine; a test writes other files where it needs to."""
    for name, text in TREE.items():
        write(tmp_path, name, text)
    (tmp_path / "group").mkdir()
    group(tmp_path / "group", monkeypatch, step__cpu_stat="usage_usec 9\nthrottled_usec 1500000\n")
    monkeypatch.setattr(host, "SYS_CPU", tmp_path / "cpu")
    monkeypatch.setattr(host, "PROC", tmp_path / "proc")
    monkeypatch.setattr(host, "HUGE_PAGES", tmp_path / "huge_pages")
    monkeypatch.setattr(rapl, "POWERCAP", tmp_path / "powercap")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    return tmp_path


def write(folder, name, text):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu_governor", "performance, powersave"),
        ("cpu_clock_max", 3500.0),
        ("cpu_clock", 2001.5),
        ("cpu_boost", "off"),
        ("cpu_power_cap", 550.0),
        ("smt", "on"),
        ("mitigations", "itlb_multihit: mitigation, mds: vulnerable, spectre_v1: mitigation"),
        ("numa_nodes_allowed", "0-1,3"),
        ("numa_policy", "bind:0"),
        ("transparent_huge_pages", "madvise"),
        ("runnable_others", 6),
        ("cpu_pressure", 3.73),
    ],
)
def test_conditions_of_a_made_up_machine(machine, name, value):
    assert host.conditions(rapl.power_cap)[name]["value"] == pytest.approx(value)


def test_the_threads_of_a_core_share_its_throttle_counter(machine):
    assert host.counters()["cpu_throttled"]["value"] == 5 + 6
    assert host.counters()["cpu_quota_waited"]["value"] == 1.5
    assert host.counters()["cpu_stolen"]["value"] == pytest.approx(800 / os.sysconf("SC_CLK_TCK"))


def test_counters_are_told_as_what_they_gained(machine):
    before = host.counters()
    write(machine, "cpu/cpu2/thermal_throttle/core_throttle_count", "9\n")
    write(machine, "cpu/cpu3/thermal_throttle/core_throttle_count", "9\n")
    (machine / "group" / "job" / "step" / "cpu.stat").unlink()
    after = host.conditions_after(before)
    assert after["cpu_throttled"] == {"value": 3, "unit": "events"}
    assert after["cpu_stolen"] == {"value": 0.0, "unit": "s"}
    assert after["cpu_quota_waited"]["value"] is None and after["cpu_quota_waited"]["reason"]
    assert host.conditions_after(host.counters())["cpu_throttled"]["value"] == 0


def test_a_counter_that_could_not_be_read_before_gained_nothing_that_is_known(machine):
    before = {**host.counters(), "cpu_stolen": {"value": None, "unit": "s", "reason": "no such file"}}
    assert host.conditions_after(before)["cpu_stolen"] == before["cpu_stolen"]


def test_without_cpufreq_the_clock_is_what_cpuinfo_has(machine):
    for number in range(4):
        (machine / f"cpu/cpu{number}/cpufreq/scaling_cur_freq").unlink()
    assert host.clock() == 2500.25
    write(machine, "proc/cpuinfo", "Features\t: fp asimd\n")
    assert "neither" in facts.fact(host.clock)["reason"]
    assert "only x86" in facts.fact(host.hypervisor)["reason"]


def test_a_virtual_machine_is_known_by_the_processor_s_flag(machine):
    assert host.hypervisor() == "yes"
    write(machine, "proc/cpuinfo", "flags\t: fpu hypervisors\n")
    assert host.hypervisor() == "no"


@pytest.mark.parametrize(
    ("file", "text", "value"),
    [("intel_pstate/no_turbo", "0\n", "on"), ("cpufreq/boost", "1\n", "on"), ("cpufreq/boost", "0\n", "off")],
)
def test_boost_by_either_driver(machine, file, text, value):
    (machine / "cpu/intel_pstate/no_turbo").unlink()
    assert "no switch" in facts.fact(host.boost)["reason"]
    write(machine, f"cpu/{file}", text)
    assert host.boost() == value


def test_a_power_cap_that_is_not_there_or_not_for_us_has_the_reason(machine):
    for zone in ("intel-rapl:0", "intel-rapl:1"):
        (machine / "powercap" / zone / "constraint_0_power_limit_uw").unlink()
    assert "constraint_0_power_limit_uw" in facts.fact(rapl.power_cap)["reason"]
    write(machine, "powercap/intel-rapl:0/name", "psys")
    write(machine, "powercap/intel-rapl:1/name", "psys")
    assert "no package" in facts.fact(rapl.power_cap)["reason"]


@given(st.lists(st.booleans(), min_size=1, max_size=6))
def test_flaws_that_a_processor_does_not_have_are_left_out(affected):
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(host, "SYS_CPU", Path(folder)):
        for number, has in enumerate(affected):
            write(Path(folder), f"vulnerabilities/flaw{number}", "Mitigation: some\n" if has else "Not affected\n")
        mitigations = host.mitigations()
    names = [f"flaw{number}: mitigation" for number, has in enumerate(affected) if has]
    assert mitigations == (", ".join(names) or "none needed")


def test_last_level_caches_are_counted_once_each_where_the_process_may_run(machine, monkeypatch):
    assert host.last_level_cache() == (32 + 16) * 2**20
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert host.last_level_cache() == 32 * 2**20
    for number in range(2):
        shutil.rmtree(machine / "cpu" / f"cpu{number}" / "cache" / "index3")
    assert host.last_level_cache() == 2 * 2 * 2**20  # of each its own L2
    shutil.rmtree(machine / "cpu" / "cpu0" / "cache")
    assert facts.fact(host.last_level_cache)["value"] is None
