"""What every command answers, whatever it does: help, errors with codes, former names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from invoke.exceptions import Exit

from sifmark.cli import program
from sifmark.commands.command import BASES, ENGINE, JSON, KEY, CommandSet
from sifmark.commands.failures import reported_failures
from sifmark.core import paths
from sifmark.core.console import output
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings

assert program.namespace is not None
GROUPS = set(program.namespace.collections)
COMMANDS = sorted(program.namespace.task_names)
FORMER = {
    "audit": "image.audit",
    "catalog": "registry.list",
    "check": "dev.check",
    "convert": "image.to-sif",
    "fetch-sources": "recipe.fetch",
    "lock": "recipe.lock",
    "mirror": "registry.mirror",
    "pins": "recipe.pin",
    "prepare-data": "data.prepare",
    "pull": "registry.pull",
    "push": "registry.push",
    "render": "image.render",
    "reproduce": "image.reproduce",
    "show": "results.show",
    "sign": "image.sign",
    "trace": "results.trace",
    "validate": "results.validate",
}
RESULT = paths.SCHEMAS / "examples" / "result-1.0" / "training.json"


def typed(folder: Path, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    argv: list[str | Path] = [sys.executable, "-m", "invoke", "--search-root", paths.ROOT, *words]
    environment = {**os.environ, "SIFMARK_DIST": str(folder / "dist"), "SIFMARK_ENGINE": "apptainer", **changes}
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=folder, env=environment)


@pytest.mark.parametrize(("switch", "kept"), [("", True), ("1", False)])
def test_what_commands_import_is_compiled_once_where_python_may(switch: str, kept: bool, tmp_path: Path) -> None:
    typed(tmp_path, "list", PYTHONPYCACHEPREFIX=str(tmp_path / "compiled"), PYTHONDONTWRITEBYTECODE=switch)
    assert any((tmp_path / "compiled").rglob("settings.*.pyc")) is kept


def test_commands_are_in_groups() -> None:
    top = [name for name in COMMANDS if "." not in name]
    assert top == ["build", "clean", "compare", "doctor", "list", "run", "verify"]
    assert {name.partition(".")[0] for name in COMMANDS} - set(top) == {
        *("data", "dev", "image", "recipe", "registry", "results"),
    }
    assert set(FORMER.values()) <= set(COMMANDS)
    assert {name.partition(".")[0] for name in COMMANDS} - set(top) | set(FORMER) == GROUPS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_printed_or_an_error_says_how_to_get_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    program.run(["sifmark", command, "--help"], exit=False)
    answer = "".join(capsys.readouterr())
    assert f"Usage: sifmark [--core-opts] {command}" in answer or f"inv --help {command}" in answer
    program.run(["sifmark", "--help", command], exit=False)
    assert f"Usage: sifmark [--core-opts] {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "code", "message"),
    [
        ("build cpu --jobs x --dry-run", 2, "invalid-option", "--jobs 'x' is not a whole number from 1"),
        ("build cpu --engine podman", 2, "", "remedy: one of apptainer, docker"),
        ("registry.list --registry ./nowhere", 1, "", "nowhere is no folder"),
        ("image.reproduce cpu", 1, "image-not-built", "remedy: inv build cpu, or inv registry.pull cpu"),
        ("doctor --image cpu", 1, "image-not-built", "image_compression-cpu is not built"),
        ("recipe.fetch here --name resnet50-cpu", 2, "unknown-name", "no recipe 'resnet50-cpu'"),
        ("recipe.pin --check --update", 2, "invalid-option", "--check and --update: choose one"),
        ("results.trace RESULT --key nowhere.pub", 2, "", "there is no key nowhere.pub"),
        ("results.trace RESULT --image nowhere.sif", 1, "file-missing", "there is no file nowhere.sif"),
        ("results.validate nowhere", 2, "result-missing", "no result at nowhere"),
        ("compare RESULT --by nowhere", 2, "unknown-name", "no result has the field 'nowhere'"),
    ],
)
def test_an_error_has_its_cause_code_and_remedy(
    tmp_path: Path, words: str, status: int, code: str, message: str
) -> None:
    done = typed(tmp_path, *words.replace("RESULT", str(RESULT)).split())
    first, *_ = done.stderr.splitlines()
    assert done.returncode == status and message in done.stderr and "remedy: " in done.stderr, done.stderr
    assert first.startswith("error: ") and first.endswith(f" [{code}]" if code else ""), first


def test_an_error_is_json_for_programs(tmp_path: Path) -> None:
    done = typed(tmp_path, "image.reproduce", "cpu", "--json")
    assert json.loads(done.stdout) == {
        "error": {
            "code": "image-not-built",
            "cause": "cpu is not built",
            "remedy": "inv build cpu, or inv registry.pull cpu",
        }
    }
    done = typed(tmp_path, "compare", "nowhere", "--format", "json")
    assert json.loads(done.stdout)["error"]["code"] == "result-missing"


@pytest.mark.parametrize("former", FORMER)
def test_a_former_name_works_and_says_the_new_one(former: str, tmp_path: Path) -> None:
    done = typed(tmp_path, "--help", former)
    assert done.returncode == 0 and f" {former} " in done.stdout
    assert (
        done.stdout.partition("Docstring")[2]
        == typed(tmp_path, "--help", FORMER[former]).stdout.partition("Docstring")[2]
    )


def test_a_former_name_announces_its_end_on_stderr(tmp_path: Path) -> None:
    old, new = typed(tmp_path, "validate", str(RESULT)), typed(tmp_path, "results.validate", str(RESULT))
    assert (old.returncode, old.stdout) == (new.returncode, new.stdout) == (0, f"valid  {RESULT}\n")
    assert old.stderr == f"validate is now results.validate; the old name goes away in 0.3\n{new.stderr}"
    old = typed(tmp_path, "reproduce", "cpu", "--json")
    assert old.returncode == 1 and json.loads(old.stdout)["error"]["code"] == "image-not-built"


def test_former_names_are_in_no_list(tmp_path: Path) -> None:
    argv: list[str | Path] = [sys.executable, "-m", "sifmark", "--list"]
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
    as_sifmark = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    for text in (typed(tmp_path, "--list").stdout, as_sifmark.stdout):
        names = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
        assert sorted(names) == COMMANDS
    completed = typed(tmp_path, "--complete", "--", "inv").stdout.split()
    assert sorted(completed) == COMMANDS


def test_a_failure_is_printed_as_json_only_if_nothing_was_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exit) as caught, reported_failures(as_json=True):
        output("[]")
        raise SifmarkError("cause", "remedy", code="file-missing")
    assert (caught.value.code, caught.value.message) == (1, "error: cause [file-missing]\n  remedy: remedy")
    assert capsys.readouterr().out == "[]\n"
    with pytest.raises(Exit) as caught, reported_failures(as_json=True):
        raise UsageError("cause\nand its\x1b[2J log", code="invalid-option")
    assert (caught.value.code, caught.value.message) == (2, "error: cause [invalid-option]\nand its\\x1b[2J log")
    assert json.loads(capsys.readouterr().out)["error"]["remedy"] is None
    with pytest.raises(Exit) as caught, reported_failures(as_json=False):
        raise FileNotFoundError(2, "No such file or directory", "x")
    assert "[system-error]" in (caught.value.message or "")
    assert capsys.readouterr().out == ""
    with pytest.raises(Exit) as caught, reported_failures(as_json=False):
        raise KeyboardInterrupt
    assert caught.value.code == 130


def test_common_options_become_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}
    commands = CommandSet()

    @commands.add("group.task", ENGINE, BASES, KEY, JSON, help={"name": "a name"})
    def task(settings: Settings, name: str, json: bool = False) -> None:
        given.update(settings=settings, name=name, json=json)

    @commands.add("plain")
    def plain() -> None:
        given["plain"] = True

    argv = [
        "sifmark",
        "group.task",
        "x",
        "--engine",
        "docker",
        "--bases",
        "stand-in",
        "--key",
        "a.pub",
        "-k",
        "b.pub",
        "--json",
    ]
    monkeypatch.setattr(program, "namespace", commands.namespace())
    program.run([*argv, "plain"], exit=False)
    settings = given["settings"]
    assert isinstance(settings, Settings)
    assert (settings.engine, settings.bases, settings.keys) == ("docker", "stand-in", ("a.pub", "b.pub"))
    assert (given["name"], given["json"], given["plain"]) == ("x", True, True)
