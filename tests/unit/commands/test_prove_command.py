"""The command device.prove: what it starts, with an image or without one, and what it does not overwrite."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.fakes import FakeEngine, settings_for, sha256

from sifmark.commands import hosts as prove
from sifmark.core.checks import Check, Status
from sifmark.core.errors import UsageError
from sifmark.core.paths import ENTRYPOINTS
from sifmark.core.permissions import file_state
from sifmark.core.settings import Settings
from sifmark.doctor import host
from sifmark.engines import CheckFailed, start
from sifmark.engines.start import IMAGE_VARIABLE, CheckedImage


@pytest.fixture(autouse=True)
def doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that was looked at: to look takes seconds."""
    monkeypatch.setattr(host, "check_host", lambda _: [Check("memory", Status.PASSED, "enough")])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that writes what it was given beside itself, and ends as a proof does in which something failed."""
    path = tmp_path / "program"
    path.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > "$0.words"\nprintf "%s" "${IMAGE_VARIABLE}" > "$0.facts"\nexit 7\n'
    )
    path.chmod(0o755)
    return path


def proved(folder: Path, settings: Settings, image: str = "", python: str = "python3") -> Any:
    """Prove, and return the exit code."""
    with pytest.raises(SystemExit) as ended:
        prove.prove_device(settings, image, 5, str(folder), "lstm", python)
    return ended.value.code


def words_of(folder: Path) -> list[str]:
    return ["lstm", "--prove", "--time-limit", "5m", "--output", f"{folder}/"]


def test_without_an_image_an_interpreter_runs_the_checkout(site: Settings, program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "proof"
    assert proved(folder, site, python=str(program)) == 7
    words = ["-s", "-B", str(ENTRYPOINTS / "main.py"), *words_of(folder), "--device", "auto"]
    assert Path(f"{program}.words").read_text().splitlines() == words
    (check,) = json.loads((folder / "doctor.json").read_text())
    assert (check["name"], check["status"], check["detail"]) == ("memory", "passed", "enough")


def test_an_image_runs_its_own_code_and_its_results_say_which_image_that_is(
    site: Settings, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, folder = FakeEngine(site), tmp_path / "proof"
    engine.add("lstm-cpu")
    engine.programs["run"] = [str(program)]
    assert proved(folder, settings_for(engine, monkeypatch), image="lstm-cpu") == 7
    ((address, verb, words, options),) = engine.commands
    assert (address, verb, list(words)) == ("fake:lstm-cpu", "run", words_of(folder))
    assert f"--bind={folder}" in options and f"--env={IMAGE_VARIABLE}" in options
    assert json.loads(Path(f"{program}.facts").read_text())["identity"] == sha256("what runs")


def test_an_image_that_was_replaced_meanwhile_proves_nothing(
    site: Settings, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, file = FakeEngine(site), tmp_path / "image.fake"
    engine.add("lstm-cpu")
    engine.programs["run"] = [str(program)]

    def looked_at(*_: Any, **__: Any) -> CheckedImage:
        file.write_text("the image")
        image = CheckedImage(str(file), engine, {}, file_state(file))
        file.write_text("another image")
        return image

    monkeypatch.setattr(start, "check_image", looked_at)
    with pytest.raises(CheckFailed) as error:
        prove.prove_device(settings_for(engine, monkeypatch), "lstm-cpu", 5, str(tmp_path / "proof"), "", "")
    assert error.value.code == "image-altered" and not Path(f"{program}.words").exists()


def test_a_proof_is_not_overwritten(site: Settings, program: Path, tmp_path: Path) -> None:
    (tmp_path / "proof.json").write_text("{}")
    with pytest.raises(UsageError) as error:
        prove.prove_device(site, "", 5, str(tmp_path), "", str(program))
    assert error.value.code == "folder-not-empty"
    assert not (tmp_path / "doctor.json").exists() and not Path(f"{program}.words").exists()
