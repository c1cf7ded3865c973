"""What `sifmark doctor` makes of a host: programs and engines that are missing, folders, registries."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sifmark.commands.doctor import run_doctor
from sifmark.core.checks import Check, Status
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.doctor import host


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
    checks = by_name(host.check_apptainer(site))
    assert checks["Apptainer"].status is status
    assert checks["mksquashfs"] == Check("mksquashfs", Status.FAILED, "not installed", "ci/setup/apptainer installs it")


@pytest.mark.parametrize(("engine", "status"), [("apptainer", Status.WARNING), ("docker", Status.FAILED)])
def test_docker_is_needed_by_those_who_choose_it(site: Settings, programs: Path, engine: str, status: Status) -> None:
    (check,) = host.check_docker(replace(site, engine=engine))
    assert check.status is status
    assert check.remedy.startswith("needed only for --engine docker: ") == (engine == "apptainer")


def test_programs_that_are_there_pass(site: Settings, programs: Path) -> None:
    program(programs, "squashfuse")
    assert by_name(host.check_fuse(site))["squashfuse"].status is Status.PASSED


@pytest.mark.parametrize("folder", ["cache", "dist"])
def test_a_folder_without_room_is_a_warning(site: Settings, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    assert by_name(host.check_folders(site))[f"{folder} folder"].status in (Status.PASSED, Status.WARNING)
    monkeypatch.setattr(host, "_SPACE_NEEDED", 2**60)
    check = by_name(host.check_folders(site))[f"{folder} folder"]
    assert check.status is Status.WARNING and "left" in check.detail and check.remedy


def test_a_folder_that_cannot_be_written_is_bad(site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert {check.status for check in host.check_folders(site)} == {Status.FAILED}


def test_registries_that_do_not_answer_are_warnings(site: Settings) -> None:
    """No base needs to be fetched again where it is converted already."""
    hosts = {"docker.io": "127.0.0.1:1", "ghcr.io": "127.0.0.1:1", "nvcr.io": "127.0.0.1:1"}
    hosts |= {"public.ecr.aws": "127.0.0.1:1", "quay.io": "127.0.0.1:1"}
    settings = replace(site, mirrors=hosts, registry="127.0.0.1:1/images")
    checks = list(host.check_registries(settings))
    assert by_name(checks)["registry of images"].status is Status.WARNING
    assert by_name(checks)["registry of cpu"].status is Status.WARNING
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
    with pytest.raises(SifmarkError, match="not ready: Apptainer") as error:
        run_doctor("", site, "json" if as_json else "table")
    assert error.value.code == "host-not-ready"
    printed = capsys.readouterr().out
    if as_json:
        assert [check["status"] for check in json.loads(printed)] == ["failed", "passed"]
        assert list(json.loads(printed)[0]) == ["name", "status", "detail", "remedy"], "a contract"
    else:
        assert printed == "failed  Apptainer: not installed\n        remedy: install it\npassed  fuse: x\n"
