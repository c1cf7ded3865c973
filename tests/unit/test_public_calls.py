"""What Python programs call: build, run and study, with an image that is a script; and what `import sifmark` loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from unit.fake_studies import ScriptEngine
from unit.fakes import FakeEngine, settings_for
from unit.refusals import refused

import sifmark
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.studies.running.runner import Ended, Progress

STUDY = """
title = "A study"
questions = ["How fast?"]

[[system]]
name = "here"
image = "cpu"

[[run]]
name = "sizes"
workload = "resnet50"
task = "training"
batch_size = [{sizes}]
steps = 4
"""


@pytest.fixture
def engine(any_command: None, site: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    monkeypatch.chdir(tmp_path)
    return ScriptEngine(site)


def test_a_recipe_is_built_and_run(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for(engine, monkeypatch)
    former = sifmark.report_to(sifmark.Reporter())
    image = sifmark.build("cpu", settings=settings)
    assert (image.recipe, image.path, image.outcome.state) == ("cpu", "fake:cpu", "built")
    assert sifmark.build("cpu", settings=settings).outcome.state == "up to date"
    assert image.identity and "resnet50-cpu" in image.names
    output = sifmark.run(image, "resnet50", batch_size=8, site="a", output="run.json", settings=settings)
    assert output.exit_code == 0 and list(map(str, output.files)) == ["run.json"]
    command = json.loads(Path("run.json").read_text())["provenance"]["command"]
    assert command == ["resnet50", "--batch-size", "8", "--site", "a", "--output", "run.json"]
    again = sifmark.run(image, "resnet50", batch_size=99, site="a", output="run.json", settings=settings)
    assert again.exit_code == 4 and again.files == output.files
    sifmark.report_to(former)
    assert capfd.readouterr() == ("", "")


def test_a_run_without_a_result_is_an_error(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_for(engine, monkeypatch)
    sifmark.build("cpu", settings=settings)
    with refused(SifmarkError, "command-failed"):
        sifmark.run("cpu", without=True, site="a", output="x.json", settings=settings)
    with refused(UsageError, "unknown-name"):
        sifmark.build("nosuch", settings=settings)


def test_a_study_is_planned_and_run(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_for(engine, monkeypatch)
    sifmark.build("cpu", settings=settings)
    Path("mine.toml").write_text(STUDY.format(sizes="1, 2, 99"))
    study = sifmark.Study.load("mine.toml", settings=settings)
    assert [planned.state for planned in study.plan().runs] == ["to do"] * 3
    named = [Path(command.argv[-1]) for command in study.commands()]
    assert named == [each.result.absolute() for each in study.plan().runs]
    told: list[str] = []

    class Told(sifmark.Watcher):
        def report(self, ended: Ended, progress: Progress) -> None:
            told.append(ended.outcome.state)

    outcome = study.run(watcher=Told())
    assert sorted(told) == ["done", "done", "failed"]
    assert (outcome.document()["done"], outcome.document()["failed"]) == (2, 1)
    assert [reason.partition(":")[0] for _, reason in outcome.failed] == ["crashed"]
    assert sorted(planned.state for planned in study.plan().runs) == ["done", "done", "failed"]


def test_an_import_loads_only_what_it_needs() -> None:
    program = "import sys; before = set(sys.modules); import sifmark; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "sifmark" in loaded and loaded - {"sifmark"} <= set(sys.stdlib_module_names)
    assert not [name for name in done.stdout.split() if name.startswith("sifmark.")]
    for name in sifmark._PUBLIC:
        assert callable(getattr(sifmark, name))
