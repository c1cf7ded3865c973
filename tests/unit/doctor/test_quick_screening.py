"""The first three minutes of a node: counters, comparison with the fleet, the time limit, and what is written."""

import json
import os
import random
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as prometheus_families
from unit.fake_studies import ScriptEngine
from unit.fakes import settings_for
from unit.refusals import refused

import sifmark
from sifmark.commands.study_analysis import screen as screen_command
from sifmark.core.errors import GateError, UndecidedError, UsageError
from sifmark.core.settings import Settings
from sifmark.doctor.quick import measure
from sifmark.doctor.quick.counters import Counters, faults_since, read_counters
from sifmark.doctor.quick.fleet import (
    KEPT,
    add_screening,
    faults_of,
    findings,
    judged,
    limit_of,
    read_screenings,
)
from sifmark.doctor.quick.measure import QuickOutcome, QuickTest, quick_tests
from sifmark.doctor.quick.screen import QuickScreening, screen_node
from sifmark.doctor.quick.textfile import openmetrics
from sifmark.recipes.hardware import load_hardware
from sifmark.results.catalogue import Direction
from sifmark.results.documents import MetricValue

MATMUL = QuickTest("matmul", ("matmul", "--steps", "8"))
NVIDIA = load_hardware("nvidia")


def outcome(value: float = 100.0, state: str = "completed", seconds: float = 20.0) -> QuickOutcome:
    measures = {"peak_flops": MetricValue(value, "FLOP/s", None)} if state == "completed" else {}
    return QuickOutcome(MATMUL, state, "", seconds, measures)


def screening(*outcomes: QuickOutcome, node: str = "n1", **fields: Any) -> QuickScreening:
    from datetime import UTC, datetime

    nothing = Counters({}, (), 1, "a boot")
    given: dict[str, Any] = {"findings": (), "faults": (), "rises": (), "counters": nothing} | fields
    return QuickScreening(node, "sha256:1", datetime(2026, 11, 29, tzinfo=UTC), 60.0, outcomes, **given)


def fleet(count: int = 12, level: float = 100.0, spread: float = 0.01) -> dict[str, list[dict[str, Any]]]:
    chance = random.Random(4)
    return {
        f"n{number:02}": [screening(outcome(level * (1 + chance.gauss(0, spread)))).document()]
        for number in range(count)
    }


# Counters


def tree(root: Path, **counts: int) -> Path:
    files = {
        "sys/bus/pci/devices/0000:01:00.0/aer_dev_fatal": "Undefined 0\nTOTAL_ERR_FATAL {fatal}\n",
        "sys/bus/pci/devices/0000:01:00.0/aer_dev_correctable": "RxErr 1\nTOTAL_ERR_COR {correctable}\n",
        "sys/devices/system/edac/mc/mc0/ce_count": "{corrected}\n",
        "sys/devices/system/edac/mc/mc1/ce_count": "2\n",
        "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed": "{downed}\n",
        "sys/class/drm/card1/device/ras/umc_err_count": "ue: {ue}\nce: 7\n",
        "sys/class/drm/card1/device/ras/gfx_err_count": "ue: 1\nce: 0\n",
    }
    zeros = dict.fromkeys(("fatal", "correctable", "corrected", "downed", "ue"), 0)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(**zeros | counts))
    return root


def test_files_of_the_kernel_are_counted_by_device_and_what_is_not_there_is_named(tmp_path: Path) -> None:
    root = tree(tmp_path, fatal=1, corrected=3, ue=2)
    counters = read_counters([load_hardware("amd")], root)
    assert counters.values == {
        "pcie_fatal": {"0000:01:00.0": 1},
        "memory_corrected": {"mc0": 3, "mc1": 2},
        "ecc_uncorrected": {"card1": 3},
        "ecc_corrected": {"card1": 7},
    }
    assert "memory_uncorrected" in counters.missing and "link_downed" not in counters.missing


def test_only_what_rose_counts_and_after_a_boot_everything_does(tmp_path: Path) -> None:
    before = read_counters([], tree(tmp_path / "a", corrected=3))
    after = read_counters([], tree(tmp_path / "b", corrected=5, downed=1))
    assert sorted((each.name, each.device, each.count, each.fatal) for each in after.rises(before)) == [
        ("link_downed", "mlx5_0", 1, True),
        ("memory_corrected", "mc0", 2, False),
    ]
    rebooted = replace(before, boot="another")
    assert ("memory_corrected", 5) in [(each.name, each.count) for each in after.rises(rebooted)]
    assert list(after.rises(after)) == []


def test_xids_after_a_line_of_the_log_are_faults_unless_applications_cause_them(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    xid = "NVRM: Xid (PCI:0000:{place}:00): {code}, pid=1, name=python"
    lines = [(1, xid.format(place="01", code=79)), (2, "other"), (3, xid.format(place="41", code=79))]
    lines += [(4, xid.format(place="41", code=13)), (5, xid.format(place="41", code=132))]
    log.write_text("".join(f"4,{number},17,-;{text}\n SUBSYSTEM=pci\n" for number, text in lines))
    found = [(each.name, each.device, each.count) for each in faults_since(1, [NVIDIA], log)]
    assert found == [("xid 132", "0000:41:00", 1), ("xid 79", "0000:41:00", 1)]
    assert faults_since(None, [NVIDIA], log) == []  # it could not be read before
    assert read_counters([], tmp_path, log).sequence == 5
    assert read_counters([], tmp_path, tmp_path / "nothing").sequence is None


def test_the_log_of_this_kernel_is_read_to_its_end() -> None:
    if not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("this user may not read the kernel's log")
    sequence = read_counters([]).sequence
    assert sequence is not None and faults_since(sequence, [NVIDIA]) == []


def test_a_vendor_s_program_is_asked_and_counters_that_it_does_not_have_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '00000000:01:00.0, 4, 1'\necho '00000000:41:00.0, [N/A], [N/A]'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    counters = read_counters([NVIDIA], tmp_path)
    assert counters.values == {"ecc_corrected": {"00000000:01:00.0": 4}, "ecc_uncorrected": {"00000000:01:00.0": 1}}
    program.write_text("#!/bin/sh\nexit 1\n")
    assert {"ecc_corrected", "ecc_uncorrected"} <= set(read_counters([NVIDIA], tmp_path).missing)


# Against the fleet


def test_a_slow_node_is_named_and_a_healthy_or_a_fast_one_is_not() -> None:
    for value, worse in ((70.0, True), (99.0, False), (140.0, False)):
        (found,) = findings([outcome(value)], fleet(), "sha256:1")
        assert found.worse is worse and found.earlier == 12, value
    assert found.usual == pytest.approx(100, rel=0.02)


def test_less_is_worse_or_better_by_the_measure() -> None:
    same = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0]
    assert judged(2.0, same, Direction.LOWER, 0.05)[-1] and not judged(0.5, same, Direction.LOWER, 0.05)[-1]
    assert judged(0.5, same, Direction.HIGHER, 0.05)[-1]


def test_small_differences_are_not_named_even_if_all_others_are_equal() -> None:
    usual, distance, worse = judged(0.97, [1.0] * 20, Direction.HIGHER, 0.05)
    assert (usual, distance, worse) == (1.0, -float("inf"), False)
    assert judged(0.9, [1.0] * 20, Direction.HIGHER, 0.05)[-1]


def test_with_few_screenings_the_limit_is_wide_and_below_five_there_is_none() -> None:
    assert limit_of(5) > limit_of(10) > limit_of(1000)
    assert judged(0.1, [1.0, 1.1, 0.9, 1.0], Direction.HIGHER, 0.05) == (None, None, False)


def test_only_the_latest_of_the_same_image_and_test_that_were_not_named_count() -> None:
    others = fleet(5)
    slow = {**screening(outcome(10)).document(), "verdict": "named"}
    other_image = {**screening(outcome(10)).document(), "image": "sha256:2"}
    old = [screening(outcome(10)).document()] * 3
    usual = [screening(outcome(value)).document() for value in (99, 100, 100, 101, 100)]
    given = others | {"n90": [slow] * 9, "n91": [other_image] * 9, "n92": [*old, *usual]}
    (found,) = findings([outcome()], given, "sha256:1")
    assert found.earlier == 10 and found.usual == pytest.approx(100, rel=0.01)
    asked_otherwise = replace(outcome(), test=QuickTest("matmul", ("matmul", "--steps", "9")))
    assert findings([asked_otherwise], given, "sha256:1")[0].earlier == 0


def test_a_test_that_fails_or_takes_far_longer_than_usual_is_a_fault() -> None:
    faults = {
        state: list(faults_of([outcome(state=state, seconds=170.0)], fleet(), "sha256:1"))
        for state in ("crashed", "numerics_mismatch", "time_limit", "interrupted", "not_reached")
    }
    assert [bool(each) for each in faults.values()] == [True, True, True, False, True]
    assert "takes 20 s elsewhere" in faults["time_limit"][0]
    assert not list(faults_of([outcome(state="time_limit", seconds=40.0)], fleet(), "sha256:1"))
    assert not list(faults_of([outcome(state="time_limit", seconds=170.0)], fleet(3), "sha256:1"))  # who knows


# What is kept and written


def test_screenings_of_a_node_are_kept_the_latest_ones_and_other_files_are_left_out(tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        add_screening(
            tmp_path, "n1", read_screenings(tmp_path).get("n1", []), screening(outcome(number + 1)).document()
        )
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "broken.json").write_text("{")
    found = read_screenings(tmp_path)
    assert list(found) == ["n1"] and len(found["n1"]) == KEPT
    assert found["n1"][-1]["tests"][0]["measures"]["peak_flops"]["value"] == KEPT + 3


def test_the_textfile_has_every_measure_with_its_ratio_and_every_fault() -> None:
    counters = Counters({"ecc_corrected": {'a "card"\n': 3}}, (), 1, "a boot")
    rises = tuple(counters.rises(Counters({}, (), 1, "a boot")))
    found = tuple(findings([outcome(50.0)], fleet(), "sha256:1"))
    text = openmetrics(screening(outcome(50.0), findings=found, counters=counters, rises=rises))
    for parse in (openmetrics_families, prometheus_families):
        samples = {(each.name, *each.labels.values()): each.value for family in parse(text) for each in family.samples}
        assert samples["sifmark_screen_verdict", "n1", "named"] == 1
        assert samples["sifmark_screen_new_faults", "n1", "ecc_corrected", 'a "card"\n'] == 3
        assert samples["sifmark_screen_ratio", "n1", "matmul", "peak_flops"] == pytest.approx(0.5, rel=0.02)
        assert samples["sifmark_screen_deviations", "n1", "matmul", "peak_flops"] < -20


def test_tests_are_for_the_device_and_the_number_of_devices() -> None:
    assert [each.name for each in quick_tests("cpu", 1)] == ["matmul", "memory_copy"]
    assert [each.name for each in quick_tests("cuda", 8)] == ["matmul", "memory_copy", "host_device", "all_reduce"]
    assert quick_tests("cuda", 8)[-1].words[:3] == ("all_reduce", "--replicas", "8")


# A whole screening, by an image that is a script


@pytest.fixture
def image(any_command: None, site: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    monkeypatch.chdir(tmp_path)
    engine = ScriptEngine(site)
    settings = settings_for(engine, monkeypatch)
    former = sifmark.report_to(sifmark.Reporter())
    sifmark.build("cpu", settings=settings)
    sifmark.report_to(former)
    return settings


def test_a_screening_is_one_line_a_file_and_an_exit_code(
    image: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "fleet"
    options: dict[str, Any] = {"quick": True, "image": "cpu", "devices": 1, "textfile": "out.prom", "fail": True}
    for number in range(5):
        with refused(UndecidedError, "nodes-not-compared", f"{number} earlier"):
            screen_command(image, (str(folder),), node=f"n{number}", **options)
    capsys.readouterr()
    screen_command(image, (str(folder),), node="n5", **options)
    line = capsys.readouterr().out
    assert line.startswith("n5: healthy: ") and line.count("\n") == 1
    assert Path("out.prom").read_text().endswith("# EOF\n")
    assert sorted(path.stem for path in folder.glob("*.json")) == [f"n{number}" for number in range(6)]


def test_a_node_whose_tests_crash_is_named_with_the_command_for_an_administrator(
    image: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "_FEWER", (*measure._FEWER, "--state", "crashed"))
    with refused(GateError, "nodes-named", "matmul crashed"):
        screen_command(image, (str(tmp_path / "fleet"),), node="n7", quick=True, image="cpu", devices=1, fail=True)
    command = next(line for line in capfd.readouterr().err.splitlines() if "scontrol" in line)
    words = shlex.split(command)
    assert words[:4] == ["scontrol", "update", "nodename=n7", "state=drain"]
    assert words[4].startswith("reason=sifmark: matmul crashed")
    kept = json.loads((tmp_path / "fleet" / "n7.json").read_text())["screenings"][-1]
    assert kept["verdict"] == "named"


def test_a_screening_ends_at_its_limit_with_what_it_has(
    image: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "LEAST", 1.0)
    monkeypatch.setattr(measure, "END", 1.0)
    monkeypatch.setattr(measure, "_FEWER", (*measure._FEWER, "--seconds", "60"))
    found = screen_node(tmp_path / "fleet", "cpu", image, "n1", devices=1, limit=3.0)
    assert [each.state for each in found.outcomes] == ["time_limit", "not_reached"]
    assert found.verdict == "unknown" and 2.0 < found.seconds < 30.0
    assert [each["state"] for each in read_screenings(tmp_path / "fleet")["n1"][0]["tests"]] == [
        "time_limit",
        "not_reached",
    ]


def test_what_the_options_lack_is_named(image: Settings, tmp_path: Path) -> None:
    with refused(UsageError, "argument-missing", "--image"):
        screen_command(image, (str(tmp_path),), quick=True)
    with refused(UsageError, "argument-missing", "folder"):
        screen_command(image, (), quick=True, image="cpu")
    for name in ("../n1", "n1;reboot", "-n1", "n 1"):
        with refused(UsageError, "invalid-option", "--node"):
            screen_command(image, (str(tmp_path),), quick=True, image="cpu", node=name)
    with refused(UsageError, "argument-missing", "--quick"):
        screen_command(image)
