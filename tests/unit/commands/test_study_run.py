"""study.run and study.status: what they do, print and refuse, with an image that is a script."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.fake_studies import ScriptEngine, plan_of, run_of
from unit.fakes import settings_for

from sifmark.commands import studies
from sifmark.commands.study_views import StudyDisplay
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.doctor import load
from sifmark.studies.estimate import Estimates
from sifmark.studies.running.runner import Progress

STUDY = """
title = "A study"
questions = ["How fast?"]
repeats = 2

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

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def settings(any_command: None, site: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(load, "SAMPLE", 0.0)
    engine = ScriptEngine(site)
    engine.add("cpu")
    engine.tag_workloads("cpu")
    return settings_for(engine, monkeypatch)


def write(sizes: str = "1, 2, 4", title: str = "A study", name: str = "mine") -> str:
    Path(f"{name}.toml").write_text(STUDY.replace("A study", title).format(sizes=sizes))
    return f"{name}.toml"


@pytest.fixture
def run(settings: Settings, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a study, and return what it answers as JSON, with what it said, and the error's code if there is one."""

    def study_run(file: str, **fields: Any) -> dict[str, Any]:
        code = ""
        try:
            studies.run(settings, form="json", study=file, **fields)
        except SifmarkError as error:
            code = error.code
        said = capsys.readouterr()
        answer = json.loads(said.out) if said.out else {}
        return {**(answer if isinstance(answer, dict) else {"commands": answer}), "code": code, "errors": said.err}

    return study_run


def states(settings: Settings, capsys: pytest.CaptureFixture[str], file: str, **fields: Any) -> dict[str, int]:
    studies.study_status(settings, form="json", study=file, **fields)
    totals = json.loads(capsys.readouterr().out)["totals"]
    return {state: count for state, count in totals.items() if count}


def test_a_study_runs_and_goes_on_where_it_was(
    run: Run, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write()
    first = run(file, only=("batch_size=1",))
    assert (first["done"], first["failed"], first["code"]) == (2, 0, "")
    assert states(settings, capsys, file) == {"done": 2, "to do": 4}
    second = run(file)
    assert second["done"] == 6 and "4 runs to do" in second["errors"]
    assert "[4/4] here: resnet50 training batch size 4 (2/2): completed, " in second["errors"]
    assert "0 runs to do" in run(file)["errors"]
    assert states(settings, capsys, file) == {"done": 6}


def test_a_variant_does_only_what_the_whole_study_has_not(run: Run) -> None:
    file = write()
    with Path(file).open("a") as stream:
        stream.write("[variant.few]\nset = { batch_size = [2, 8] }\n")
    assert run(file)["done"] == 6
    few = run(file, variant="few")
    assert (few["study"], few["folder"], few["done"]) == ("mine-few", "results/mine-few", 4)
    assert "2 results copied from the whole study" in few["errors"] and "2 runs to do" in few["errors"]


def test_a_failure_is_told_and_done_again_on_request(
    run: Run, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write("1, 98, 99")
    first = run(file)
    assert (first["done"], first["failed"], first["code"]) == (4, 2, "study-incomplete")
    second = run(file)
    assert "0 runs to do" in second["errors"]
    assert (second["done"], second["failed"], second["code"]) == (4, 2, "study-incomplete")
    assert "2 runs to do" in run(file, retry="failed")["errors"]
    studies.study_status(settings, study=file)
    shown = capsys.readouterr().out
    assert "2/2" in shown and "OOM" in shown and "failed(crashed)" in shown
    assert "failed: here: resnet50 training batch size 99 (1/2) and 1 more: crashed: no more" in shown
    assert "4 of 6 runs, 66 %" in shown


def test_another_study_s_folder_is_refused(run: Run) -> None:
    assert run(write())["code"] == ""
    assert run(write(title="Another"))["code"] == "study-folder-mismatch"


def test_an_image_that_is_not_here_is_told(run: Run, settings: Settings) -> None:
    file = write()
    assert run(file, system=("there:cuda",))["code"] == "image-not-built"
    Path(file).write_text(
        Path(file).read_text().replace("[[run]]", '[[system]]\nname = "far"\nimage = "cuda"\n[[run]]')
    )
    answer = run(file)
    assert answer["done"] == 6 and "system far is left out: " in answer["errors"]


@pytest.mark.parametrize(("systems", "commands"), [(("here", "there:cuda"), 6), (("there:cuda",), 0)])
def test_a_dry_run_has_the_images_that_are_here_and_names_the_others(
    run: Run, systems: tuple[str, ...], commands: int
) -> None:
    answer = run(write(), system=systems, dry_run=True)
    assert len(answer["commands"]) == commands and answer["code"] == ""
    assert "system there is left out: " in answer["errors"] and "sifmark build cuda" in answer["errors"]


@pytest.mark.parametrize("options", [{"budget": "soon"}, {"on": "slurm", "jobs": 2}, {"on": "slurm", "budget": "1h"}])
def test_options_that_mean_nothing_are_refused(run: Run, options: dict[str, Any]) -> None:
    assert run(write(), **options)["code"] == "invalid-option"


def test_a_budget_runs_the_ends_first_and_leaves_out_the_rest(run: Run) -> None:
    answer = run(write(), budget="1s")
    assert answer["left_out"] == 6 and answer["done"] == 0 and answer["code"] == ""
    assert "6 runs would not have fitted into the budget" in answer["errors"]


def test_a_dry_run_prints_commands_and_writes_nothing(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    studies.run(settings, dry_run=True, study=write())
    printed = capsys.readouterr().out
    assert printed.startswith("# here: resnet50 training batch size 1 (1/2), ")
    assert printed.count(" --task training ") == printed.count(" --site here --output ") == 6
    assert not Path("results").exists()


def test_watching_ends_when_all_is_done(
    run: Run, settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "INTERVAL", 0.05)
    file = write("1")
    watching = threading.Thread(target=studies.study_status, args=(settings, True), kwargs={"study": file})
    watching.start()
    time.sleep(0.2)
    studies.run(settings, study=file)
    watching.join(timeout=60)
    assert not watching.is_alive() and "2 of 2 runs" in capsys.readouterr().out


def test_the_time_left_is_that_of_runs_side_by_side_and_in_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, estimates, display = [0.0], Estimates(), StudyDisplay(plain=True)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    plan = plan_of(tmp_path, *(run_of(batch_size=size) for size in (1, 2, 4)), seconds=100.0)
    first, second, third = plan.runs
    with display.watching(plan, plan.runs, 2, estimates):
        both = Progress(deque([third]), active={first.key: first, second.key: second})
        assert display._left(both) == "; about 2 min 30 s left"
        clock[0] = 60.0
        assert display._left(both) == "; about 1 min 30 s left"
        estimates.learn(first.run, 60.0, 100.0)
        last = Progress(deque(), active={second.key: second, third.key: third})
        assert display._left(last) == "; about 1 min 0 s left", (
            "the third run has just begun, and is as fast as the first"
        )
        clock[0] = 1000.0
        assert display._left(last) == "", "who takes longer than estimated has an end nobody knows"


def test_only_tables_are_watched(settings: Settings) -> None:
    with pytest.raises(UsageError):
        studies.study_status(settings, watch=True, form="json", study=write())


def test_status_as_csv_has_a_row_for_each_cell(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    studies.study_status(settings, form="csv", study=write())
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == "group,system,cell,state,done,runs,reason" and len(rows) == 3


def test_a_changed_study_reruns_what_it_affects(run: Run) -> None:
    assert run(write("1, 2"))["done"] == 4
    answer = run(write("2, 4"))
    assert "2 runs to do" in answer["errors"] and answer["done"] == 4
