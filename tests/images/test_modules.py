"""Module files of pulled images, loaded by Lmod and by Environment Modules themselves."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sifmark.publish.modulefiles import write_modulefiles
from sifmark.publish.reports import PullReport
from sifmark.recipes.labels import DESCRIPTION, RECIPE, VERSION

NAMES = ("resnet50-cpu", "lstm-cpu")
TITLE = 'A "title" of [exec touch pwned] $HOME {a; \\ é'

# Stands in for Python, which the commands of a module start: prints each word on a line.
ECHO = '#!/bin/sh\nprintf "%s\\n" "$@"\n'


LABELS = {RECIPE: "cpu", VERSION: "0.3.0", DESCRIPTION: TITLE}


@pytest.fixture(scope="module")
def programs(consumers: Path) -> dict[str, list[str]]:
    """What Lmod and Environment Modules are started with."""
    (lmod,) = (consumers / "usr" / "share" / "lmod").glob("*.*/libexec/lmod")
    (tcl,) = (consumers / "usr" / "lib").glob("*/modulecmd.tcl")
    return {"lmod": ["lua5.3", str(lmod)], "environment-modules": ["tclsh", str(tcl)]}


@pytest.fixture
def report(tmp_path: Path) -> PullReport:
    """A pulled image in a folder that shells would take apart."""
    folder = tmp_path / "it's a $folder"
    folder.mkdir()
    file = str(folder / "cpu.sif")
    return PullReport(file, "sha256:1", "sha256:2", "site.pub", NAMES, "sha256:3")


@pytest.fixture(params=["lmod", "environment-modules"])
def module(
    request: pytest.FixtureRequest,
    programs: dict[str, list[str]],
    report: PullReport,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs a line of Bash in which `module` is that of the program."""
    echo = tmp_path / "echo words"
    echo.write_text(ECHO)
    echo.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(echo))
    written = write_modulefiles(report, LABELS, tmp_path / "modules")
    assert [path.name for path in written] == ["0.3.0.lua", "0.3.0"]
    words = " ".join(f"'{word}'" for word in programs[request.param])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MODULE", "LMOD", "LOADEDMOD"))}
    environment = {**kept, "MODULEPATH": str(tmp_path / "modules"), "LC_ALL": "C.UTF-8"}

    def run(line: str) -> "subprocess.CompletedProcess[str]":
        script = f'module() {{ eval "$({words} bash "$@")"; }}\n{line}'
        argv = ["bash", "-c", script]
        return subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_a_module_makes_commands_of_the_images_names(
    module: Callable[..., "subprocess.CompletedProcess[str]"], report: PullReport, tmp_path: Path
) -> None:
    done = module("module load sifmark/cpu\nlstm-cpu --site 'a b' '$x'\nprintf '%s\\n' \"$SIFMARK_CPU_SIF\"")
    lstm = report.address.replace("cpu.sif", "lstm-cpu.sif")
    expected = ["-P", "-m", "sifmark", "run", lstm, "--", "--site", "a b", "$x", report.address]
    assert done.stdout.splitlines() == expected, done.stderr
    assert not (tmp_path / "pwned").exists()


def test_help_has_the_text_as_it_is(module: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    done = module("module help sifmark/cpu/0.3.0; module whatis sifmark/cpu")
    assert TITLE in done.stderr and "identity: sha256:2" in done.stderr and "signed by: site.pub" in done.stderr
    assert "Version: 0.3.0" in done.stderr


def test_a_module_leaves_nothing_behind(module: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    done = module("module load sifmark/cpu; module unload sifmark/cpu; type lstm-cpu; echo ${SIFMARK_CPU_SIF-gone}")
    assert done.stdout == "gone\n" and "lstm-cpu: not found" in done.stderr


def test_a_new_version_lies_beside_the_old_one(
    module: Callable[..., "subprocess.CompletedProcess[str]"], report: PullReport, tmp_path: Path
) -> None:
    newer = replace(report, address=str(tmp_path / "newer" / "cpu.sif"))
    write_modulefiles(newer, {**LABELS, VERSION: "0.4.0"}, tmp_path / "modules")
    shown = 'printf "%s\\n" "$SIFMARK_CPU_SIF"'
    done = module(
        f"module load sifmark/cpu/0.3.0; {shown}; module unload sifmark/cpu; module load sifmark/cpu; {shown}"
    )
    assert done.stdout.splitlines() == [report.address, newer.address], done.stderr
