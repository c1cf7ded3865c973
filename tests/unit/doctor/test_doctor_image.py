"""What `sifmark doctor --image` makes of a result."""

import json
from dataclasses import replace
from typing import Any

import pytest
from unit.fakes import FakeEngine
from unit.refusals import refused

from sifmark.core import paths
from sifmark.core.checks import Check, Status
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.doctor import image
from sifmark.doctor.image import check_result
from sifmark.engines import CheckFailed
from sifmark.recipes.labels import WORKLOADS

EXAMPLES = paths.SCHEMAS / "examples" / "result-1.2"


def checks_of(name: str, **changes: Any) -> dict[str, Check]:
    result = {**json.loads((EXAMPLES / f"{name}.json").read_text()), **changes}
    return {check.name: check for check in check_result(result)}


def test_a_run_on_the_cpu() -> None:
    checks = checks_of("training")
    assert (checks["run"].status, checks["device"].status) == (Status.PASSED, Status.PASSED)
    assert checks["framework"].detail.startswith("pytorch 2.") and ", numpy " in checks["framework"].detail
    assert "numa nodes" in checks["topology"].detail
    assert "(node)" in checks["device"].detail and "GiB" in checks["device"].detail
    assert "driver" not in checks, "the host has none"


def test_a_gpu_that_is_held_back_and_shared() -> None:
    accelerator = {"kind": "cuda", "vendor": "NVIDIA", "name": "NVIDIA H200", "count": 1, "granularity": "package"}
    conditions = {
        "driver": {"value": "580.95.05"},
        "throttling": {"value": "software power cap"},
        "partitioning": {"value": "MIG"},
        "other_processes": {"value": 2},
        "power_cap": {"value": 700.0, "unit": "W"},
        "clock": {"value": None, "reason": "the device does not report it"},
    }
    power = {"source": "nvml", "scope": "package"}
    checks = checks_of("training", accelerator=accelerator, device_conditions=conditions, power=power)
    assert checks["device"].detail == "1 x NVIDIA H200 (package)"
    assert (checks["throttling"].status, checks["throttling"].detail) == (
        Status.WARNING,
        "throttling software power cap",
    )
    assert "other processes 2" in checks["other tenants"].detail and "power cap 700.0 W" in checks["power limit"].detail
    assert "clocks" not in checks and checks["meter"].detail == "nvml, each package"
    conditions["throttling"] = {"value": "none"}
    assert checks_of("training", device_conditions=conditions)["throttling"].status == Status.PASSED


def test_a_host_with_other_work_is_not_for_publication() -> None:
    after = {"run_delay": {"value": 31.0, "unit": "%"}, "cpu_stolen": {"value": 0.0}}
    check = checks_of("training", conditions_after=after)["other work"]
    assert check.status is Status.WARNING and "waited 31.00 % of their time" in check.detail
    assert "other work" not in checks_of("training", conditions_after={**after, "run_delay": {"value": 0.1}})


def test_no_device_is_bad_and_named() -> None:
    status = {"state": "no_device", "exit_code": 3, "message": "there is no /dev/nvidia0 here", "phase": "import"}
    device = {"kind": "cuda", "reason": "the run ended before a session was open"}
    checks = checks_of("training", status=status, accelerator=device)
    assert (checks["run"].status, checks["device"].status) == (Status.FAILED, Status.FAILED)
    assert "/dev/nvidia0" in checks["run"].detail and checks["run"].remedy


@pytest.mark.parametrize("answered", ["[]", "null", "7", "", "{}", '{"schema_version": "9"}'])
def test_an_answer_that_is_no_result_is_told(site: Settings, answered: str) -> None:
    engine = FakeEngine(site)
    engine.add("image_compression-cpu")
    engine.programs["run"] = ["printf", "%s", answered]
    with refused(SifmarkError, "result-invalid"):
        list(image.check_image("cpu", engine, site))


def test_a_result_is_told_as_checks(site: Settings) -> None:
    engine = FakeEngine(site)
    engine.add("image_compression-cpu")
    engine.programs["run"] = ["cat", str(EXAMPLES / "training.json")]
    checks = {check.name: check for check in image.check_image("cpu", engine, site)}
    assert checks["run"].status is Status.PASSED
    with refused(CheckFailed, "signature-missing"):
        list(image.check_image("cpu", engine, replace(site, require_signature=True, keys=("site.pub",))))


def test_an_image_without_the_smallest_workload_is_refused(site: Settings) -> None:
    engine = FakeEngine(site)
    engine.add("resnet50-cpu", labels={WORKLOADS: "resnet50"})
    with refused(SifmarkError, "not-sifmark-image"):
        list(image.check_image("resnet50-cpu", engine, site))


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
    checks = (check for check in check_result(result, needed) if check.name == "driver")
    said = [check for check in checks if check.status is Status.WARNING]
    assert bool(said) == old
    assert not old or (needed in said[0].detail and str(value) in said[0].detail and said[0].remedy)


@pytest.mark.parametrize(("shown", "status"), [("SLURM_LOCALID=0", Status.WARNING), ("", Status.PASSED)])
def test_whether_an_image_sees_the_variables_of_a_launch(
    site: Settings, monkeypatch: pytest.MonkeyPatch, shown: str, status: Status
) -> None:
    variables = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "0", "SLURM_PROCID": "1"}
    engine = FakeEngine(site)
    engine.add("image_compression-cpu")
    engine.programs["exec"] = ["echo", shown] if shown else ["env"]
    address = engine.address("image_compression-cpu")
    assert not list(image.check_variables(address, engine)), "no launcher started this"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (check,) = image.check_variables(address, engine)
    assert check.status is status and "SLURM_PROCID" in check.detail
    assert list(engine.commands[-1][3]) == ["--isolated", "--with-variables"]
    assert ("--cleanenv" in check.remedy) == (status is Status.WARNING)
