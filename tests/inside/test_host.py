from __future__ import annotations

import os
import platform

import pytest

from entrypoints import host


def test_every_fact_has_a_value_or_a_reason():
    for name, fact in {**host.facts(), **host.conditions()}.items():
        assert (fact["value"] is None) == ("reason" in fact), name


def test_facts_agree_with_python():
    facts = host.facts()
    assert facts["kernel"]["value"] == platform.release()
    assert facts["threads_usable"]["value"] == len(os.sched_getaffinity(0))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts["memory"]["value"] == pytest.approx(pages / 2**20, rel=0.01)


def test_what_cannot_be_read_is_null_with_the_cause(tmp_path):
    told = host.fact(lambda: (tmp_path / "absent").read_text(), "MiB")
    assert told["value"] is None and told["unit"] == "MiB" and "absent" in told["reason"]
    assert host.fact(lambda: None) == {"value": None, "reason": "the system does not say"}
    assert host.fact(lambda: 0, "MiB") == {"value": 0, "unit": "MiB"}


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
    monkeypatch.setattr(host, "CGROUP", tmp_path)
    monkeypatch.setattr(host, "own_group", lambda: "job/step")


def test_the_tightest_limit_of_all_control_groups_above_counts(tmp_path, monkeypatch):
    group(
        tmp_path, monkeypatch, job__cpu_max="150000 100000\n", step__cpu_max="max 100000\n", job__memory_max="1048576\n"
    )
    assert host.cpu_quota() == 1.5
    assert host.memory_limit() == 1.0
    assert host.usable_cores() == 1


def test_no_limit_is_told_as_such(tmp_path, monkeypatch):
    group(tmp_path, monkeypatch, step__cpu_max="max 100000\n")
    assert host.fact(host.cpu_quota)["reason"] == "no limit is set"


def test_kills_are_counted_in_the_own_group(tmp_path, monkeypatch):
    group(tmp_path, monkeypatch, step__memory_events="low 0\noom 4\noom_kill 3\n", job__memory_events="oom_kill 9\n")
    assert host.oom_kills() == 3
