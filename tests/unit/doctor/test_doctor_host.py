"""What `sifmark doctor` makes of a host: programs and engines that are missing, folders, registries."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from unit.refusals import refused

from sifmark.commands.hosts import run_doctor
from sifmark.core.checks import Check, Status
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.doctor import host
from sifmark.engines import Forecast
from sifmark.engines.apptainer import forecast
from sifmark.engines.apptainer.squashfs import squashfs_tool


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the only programs that this host has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    return folder


def program(folder: Path, name: str, prints: str = "") -> None:
    (folder / name).write_text(f"#!/bin/sh\necho '{prints}'\n")
    (folder / name).chmod(0o755)


def by_name(checks) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.mark.parametrize(
    ("version", "status"),
    [(None, Status.FAILED), ("1.2.5", Status.FAILED), ("1.3.0", Status.PASSED), ("1.10.1-rc.1", Status.PASSED)],
)
def test_which_apptainer_will_do(site: Settings, programs: Path, version: str | None, status: Status) -> None:
    if version:
        program(programs, "apptainer", f"apptainer version {version}")
    squashfs_tool.cache_clear()
    checks = by_name(host.check_apptainer(site))
    assert checks["Apptainer"].status is status
    assert checks["mksquashfs"] == Check("mksquashfs", Status.FAILED, "not installed", "ci/setup/apptainer installs it")


def test_what_cannot_be_tried_is_not_said_to_be_forbidden(
    site: Settings, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_forbidding_setting", lambda: None)
    assert by_name(host.check_user_namespaces(site))["user namespaces"].status is Status.WARNING


def test_an_engine_that_is_not_there_is_told_in_the_system_s_words(site: Settings, programs: Path) -> None:
    check = by_name(host.check_docker(site))["Docker"]
    assert check.detail.endswith("No such file or directory")


@pytest.mark.parametrize(
    ("prints", "status"),
    [
        ("mksquashfs version 4.3 (2014/05/12)", Status.FAILED),
        ("mksquashfs version 4.4-git.1 (2019/08/29)", Status.PASSED),
        ("unsquashfs version 4.6.1 (2023/03/25)", Status.PASSED),
        ("another fork", Status.PASSED),
    ],
)
def test_which_squashfs_tools_will_do(site: Settings, programs: Path, prints: str, status: Status) -> None:
    """They may be Apptainer's own, which no PATH leads to."""
    own = programs.parent / "libexec" / "apptainer" / "bin"
    own.mkdir(parents=True)
    program(programs, "apptainer", f"apptainer version 1.4.5\nLIBEXECDIR={own.parents[1]}")
    program(own, "mksquashfs", prints)
    squashfs_tool.cache_clear()
    check = by_name(host.check_apptainer(site))["mksquashfs"]
    squashfs_tool.cache_clear()
    assert check.status is status and check.detail.startswith(str(own / "mksquashfs"))


@pytest.mark.parametrize(("engine", "status"), [("apptainer", Status.WARNING), ("docker", Status.FAILED)])
def test_docker_is_needed_by_those_who_choose_it(site: Settings, programs: Path, engine: str, status: Status) -> None:
    (check,) = host.check_docker(replace(site, engine=engine))
    assert check.status is status
    assert check.remedy.startswith("needed only for --engine docker: ") == (engine == "apptainer")


def test_a_host_that_only_runs_images_needs_no_build_packages(site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    (check,) = host.check_build_packages(site)
    assert check.status is Status.PASSED and "uv" in check.detail
    monkeypatch.setitem(sys.modules, "uv", None)
    (check,) = host.check_build_packages(site)
    assert check.status is Status.WARNING and "pip install 'sifmark[build]'" in check.remedy


def test_programs_that_are_there_pass(site: Settings, programs: Path) -> None:
    program(programs, "squashfuse")
    assert by_name(host.check_fuse(site))["squashfuse"].status is Status.PASSED


@pytest.mark.parametrize("folder", ["cache", "dist", "temporary"])
def test_a_folder_without_room_is_a_warning(
    site: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str
) -> None:
    """What fits is what the registries say of the bases, or a guess where none answers."""
    monkeypatch.setenv("APPTAINER_TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr(host, "_SPACE_NEEDED", 1)
    sizes = {"rocm": Forecast(cached=1, stored=1, temporary=1), "cpu": Forecast()}
    monkeypatch.setattr(host, "_forecasts", lambda _: sizes.items())
    fits = by_name(host.check_folders(site))[f"{folder} folder"]
    assert fits.status is Status.PASSED and fits.detail.endswith("left, a build needs about 1 B")
    sizes["rocm"] = Forecast(cached=2**60, stored=2**60, temporary=2**60)
    check = by_name(host.check_folders(site))[f"{folder} folder"]
    assert check.status is Status.WARNING and "left" in check.detail
    assert check.remedy.endswith("a build of rocm needs about 1073741824.0 GiB")
    assert folder != "temporary" or check.detail.startswith(str(tmp_path / "scratch"))


def test_a_folder_that_cannot_be_written_is_bad(site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_forecasts", lambda _: ())
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert {check.status for check in host.check_folders(site)} == {Status.FAILED}


def test_what_builds_need_is_what_engines_forecast(site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "compressed_size", lambda *_: 10**9)
    needs = dict(host._forecasts(site))
    assert needs["cpu"].temporary == 3.5e9 and "xpu_ipex" not in needs, "its base has no digest"


def test_registries_that_do_not_answer_are_warnings(site: Settings) -> None:
    """No base needs to be fetched again where it is converted already."""
    hosts = {"docker.io": "127.0.0.1:1", "ghcr.io": "127.0.0.1:1", "nvcr.io": "127.0.0.1:1"}
    hosts |= {"public.ecr.aws": "127.0.0.1:1", "quay.io": "127.0.0.1:1"}
    settings = replace(site, mirrors=hosts, registry="127.0.0.1:1/images")
    checks = list(host.check_registries(settings))
    assert by_name(checks)["registry of images"].status is Status.WARNING
    (of_cpu,) = (check for check in checks if "cpu, " in check.name and check.name.startswith("registry of "))
    assert of_cpu.status is Status.WARNING, "one line for all recipes with bases of a registry"
    assert all(check.remedy for check in checks if check.status is Status.WARNING)


def test_the_processor_is_always_there(site: Settings) -> None:
    first, *_ = host.check_devices(site)
    assert first.status is Status.PASSED and first.detail.startswith("CPU (")


@pytest.mark.parametrize("as_json", [True, False])
def test_what_is_bad_is_named_at_the_end(
    site: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    bad = Check("Apptainer", Status.FAILED, "not installed", "install it")
    monkeypatch.setattr(host, "CHECKS", (lambda _: iter([bad]), lambda _: iter([Check("fuse", Status.PASSED, "x")])))
    with refused(SifmarkError, "host-not-ready", "Apptainer"):
        run_doctor(site, form="json" if as_json else "table")
    printed = capsys.readouterr().out
    if as_json:
        assert [check["status"] for check in json.loads(printed)] == ["failed", "passed"]
        assert list(json.loads(printed)[0]) == ["name", "status", "detail", "remedy"], "a contract"
    else:
        assert printed == "failed  Apptainer: not installed\n        remedy: install it\npassed  fuse: x\n"
