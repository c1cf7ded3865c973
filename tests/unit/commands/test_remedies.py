"""Remedies: each command in one exists, with its options; those of frequent mistakes are pasted here as they are."""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sifmark.commands.command_line import main
from sifmark.commands.framework import COMMANDS
from sifmark.core import paths
from sifmark.core.errors import locate_scripts

SOURCES = sorted([*(paths.ROOT / "sifmark").rglob("*.py"), *(paths.ROOT / "entrypoints").rglob("*.py")])
# A command of ours in a text: a name, then options, each with the word after it, or a quoted or capital word.
OURS = re.compile(r"sifmark ((?:[a-z]+\.)?[a-z-]+)((?: (?:--?[a-z-]+|'[^']*'|[A-Z][A-Z/_]*|\[?--\]?))*)")
PROGRAMS = ("sifmark ", "openssl ", "ci/setup/")
GENERAL = {"help", "quiet", "verbose", "color", "json", "version"}


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return every text in the sources that is no docstring, with its file; a value in it is {}."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)]
        docstrings = {id(node.body[0].value) for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                yield path.name, "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield path.name, node.value


def test_every_command_in_a_text_exists_with_its_options() -> None:
    checked = 0
    for file, text in texts():
        for match in OURS.finditer(text):
            name, words = match[1], match[2].split()
            if (command := COMMANDS.get(name)) is None:
                assert "." not in name or name.split(".")[0] not in {group.split(".")[0] for group in COMMANDS}, text
                continue
            flags = {word.removeprefix("--") for parameter in command.params for word in parameter.opts} | GENERAL
            options = {word.removeprefix("--") for word in words if word.startswith("--") and word != "--"}
            assert options <= flags, f"{file}: {text}"
            checked += 1
    assert checked > 60


def test_every_script_in_a_text_exists() -> None:
    named = {script for _, text in texts() for script in re.findall(r"ci/setup/[a-z-]+", text)}
    assert len(named) > 4 and all((paths.CHECKOUT / script).is_file() for script in named)


def test_in_a_wheel_a_script_is_said_to_be_in_a_clone() -> None:
    remedy = "start one: ci/setup/docker; or name yours"
    assert locate_scripts(remedy, in_clone=True) == remedy
    assert locate_scripts(remedy, in_clone=False) == "start one: ci/setup/docker in a clone of sifmark; or name yours"


def commands_of(text: str) -> list[str]:
    """Return the commands in a remedy: from the name of a program to a comma, a semicolon or the end."""
    parts = re.split(r"[;,]| or (?=sifmark)|: (?=[a-z])", text.replace("remedy: ", ""))
    return [part.strip() for part in parts if part.strip().startswith(PROGRAMS)]


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, without images, caches or settings."""
    for name in ("dist", "cache"):
        monkeypatch.setenv(f"SIFMARK_{name.upper()}", str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("mistake", "commands"),
    [
        ("build", ["sifmark build cpu", "sifmark build 'resnet50-*'", "sifmark build --all"]),
        ("run resnet50-cpu", ["sifmark build resnet50-cpu --engine apptainer"]),
        ("run resnet50-cpu --steps 3", ["sifmark run resnet50-cpu -- --steps 3"]),
        ("run resnet50-cpu -- --smoke", ["sifmark build resnet50-cpu --engine apptainer"]),
        ("image.sign cpu --key FILE.pem", ["openssl genpkey -algorithm ed25519 -out FILE.pem"]),
        ("list nothing-at-all", ["sifmark list workloads"]),
        ("registry.push", ["sifmark registry.push cpu"]),
        ("build nothing --dry-run", ["sifmark list workloads"]),
        ("verify", ["sifmark verify cpu"]),
    ],
)
def test_what_a_remedy_says_works_when_it_is_pasted(
    nowhere: Path, capsys: pytest.CaptureFixture[str], mistake: str, commands: list[str]
) -> None:
    """Builds are only planned; what then lacks an image or a registry says so, and is no wrong usage."""
    assert main(mistake.split()) in (1, 2)
    remedy = " ".join(capsys.readouterr().err.partition("remedy: ")[2].split())
    assert commands_of(remedy) == commands, remedy
    for command in commands:
        words = shlex.split(command)
        if words[0] != "sifmark":
            subprocess.run(words, cwd=nowhere, check=True, capture_output=True)
        else:
            main([*words[1:], "--dry-run"] if words[1] == "build" else words[1:])
            assert "remedy: see sifmark" not in (said := capsys.readouterr().err), said
    if "--key" in mistake:
        main(mistake.split())
        assert "[key-unusable]" not in capsys.readouterr().err
