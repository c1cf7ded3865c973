"""What every verb answers, whatever it does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sifmark.cli import program
from sifmark.core import paths

VERBS = sorted(program.namespace.task_names)


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_had_or_told_where_it_is(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    program.run(["sifmark", verb, "--help"], exit=False)
    answer = "".join(capsys.readouterr())
    assert f"Usage: sifmark [--core-opts] {verb}" in answer or f"inv --help {verb}" in answer
    program.run(["sifmark", "--help", verb], exit=False)
    assert f"Usage: sifmark [--core-opts] {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("build cpu --jobs x --dry-run", 2, "--jobs 'x' is not a whole number from 1"),
        ("build cpu --engine podman", 2, "remedy: one of apptainer, docker"),
        ("catalog --registry ./nowhere", 1, "nowhere is no folder"),
        ("reproduce cpu", 1, "cpu is not built\n  remedy: inv build cpu, or inv pull cpu"),
        ("doctor --image cpu", 1, "image_compression-cpu is not built"),
        ("fetch-sources here --name resnet50-cpu", 2, "no recipe 'resnet50-cpu'"),
        ("trace RESULT --key nowhere.pub", 2, "there is no key nowhere.pub"),
        ("trace RESULT --image nowhere.sif", 1, "there is no file nowhere.sif"),
        ("compare RESULT --by nowhere", 2, "no result has the field 'nowhere'"),
    ],
)
def test_what_cannot_be_meant_has_its_cause_and_remedy(tmp_path: Path, words: str, code: int, told: str) -> None:
    result = paths.SCHEMAS / "examples" / "result-1.0" / "training.json"
    argv = [sys.executable, "-m", "invoke", "--search-root", paths.ROOT, *words.replace("RESULT", str(result)).split()]
    environment = {**os.environ, "SIFMARK_DIST": str(tmp_path / "dist"), "SIFMARK_ENGINE": "apptainer"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == code and told in done.stderr and "remedy: " in done.stderr, done.stderr
