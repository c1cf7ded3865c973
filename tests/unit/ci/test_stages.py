"""The stages of ci/test: they leave no test out, know what decides their outcome, and a failure fails the whole."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import inputs
import pytest
import records
import running
import schedule
import stages
from records import Record
from run_stages import summarise
from schedule import Outcome, Result, Schedule
from setups import Setup, setups
from stages import Stage

from sifmark.core import paths

FILES = {"a.py": "a", "b/c.py": "c", "tests/test_x.py": "import helper\n", "tests/helper.py": "", "tests/other.py": ""}


@dataclass(frozen=True)
class Scripted(Stage):
    """A stage that runs a line of Python."""

    code: str = ""

    def missing(self) -> str | None:
        return None

    def commands(self, full: bool, workers: int, report: Path) -> list[list[str]]:
        return [[sys.executable, "-c", self.code]]


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A repository of a few files, with a folder of records."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for module in (inputs, stages, running, schedule):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    for module in (records, running, schedule):
        monkeypatch.setattr(module, "FOLDER", tmp_path / "build" / "test-stages")
    monkeypatch.setattr(inputs, "tracked", lambda: tuple(FILES))
    monkeypatch.setattr(inputs, "PROGRAMS", ())
    (tmp_path / "build" / "test-stages").mkdir(parents=True)
    return tmp_path


def scripted(name: str, code: str = "", **options: object) -> Scripted:
    return replace(Scripted(name, name, ".venv", (), ("a.py",), code=code), **options)  # type: ignore[arg-type]


def run(chosen: Sequence[Stage], jobs: int = 2, resume: bool = False, steps: Sequence[Setup] = ()) -> list[Outcome]:
    outcomes = []
    for outcome in Schedule(chosen, steps, jobs, full=False, resume=resume).run(lambda _: None):
        outcomes.append(outcome)
        if outcome.record is not None:
            records.save(outcome.record)
    return outcomes


def results(outcomes: Sequence[Outcome]) -> dict[str, Result]:
    return {outcome.stage.name: outcome.result for outcome in outcomes}


def test_every_test_file_belongs_to_a_stage_of_the_full_run_and_all_but_a_few_to_one_of_the_gate() -> None:
    files = set((paths.CHECKOUT / "tests").rglob("test_*.py"))
    of_gate = [stage for stage in stages.all_stages() if stage.gate is not None]
    for chosen, left in ((stages.all_stages(), ()), (of_gate, stages.FULL_ONLY)):
        covered = {paths.CHECKOUT / name for stage in chosen for name in stage.files()}
        missing = [file for file in files if not covered & {file, *file.parents}]
        assert sorted(file.name for file in missing) == sorted(f"test_{name}.py" for name in left)


def test_names_are_unique_and_what_they_need_can_be_set_up() -> None:
    every = stages.all_stages()
    assert len({stage.name for stage in every}) == len(every)
    assert {stage.name for stage in every} > set(stages.FIRST)
    needed = {need for stage in every for need in stage.needs}
    assert needed == {setup.name for setup in setups(needed, full=True)}
    for setup in setups(needed, full=True):
        assert (paths.CHECKOUT / setup.argv[0]).is_file()


def test_the_hash_is_of_what_a_stage_reads_and_of_nothing_else(root: Path) -> None:
    stage = Stage("images-x", "", ".venv", ("tests/test_x.py",), ("b", "*.toml"))
    before = inputs.fingerprint(stage, full=False)
    for name, changes in (("a.py", False), ("tests/other.py", False), ("b/c.py", True), ("tests/helper.py", True)):
        (root / name).write_text("changed")
        assert (inputs.fingerprint(stage, full=False) != before) == changes, name
        (root / name).write_text(FILES[name])
    assert inputs.fingerprint(stage, full=False) == before
    assert inputs.fingerprint(stage, full=True) != before, "other tests are selected"
    (root / "b" / "c.py").chmod(0o755)
    assert inputs.fingerprint(stage, full=False) != before
    (root / "b" / "c.py").chmod(0o644)
    (root / ".venv").mkdir()
    (root / ".venv" / ".sifmark-inputs").write_text("other requirements")
    assert inputs.fingerprint(stage, full=False) != before


def test_all_run_also_after_a_failure(root: Path) -> None:
    outcomes = run([scripted("bad", "raise SystemExit(1)"), scripted("good", "print('well')")], jobs=1)
    assert results(outcomes) == {"bad": Result.FAILED, "good": Result.PASSED}
    assert (root / "build" / "test-stages" / "good.log").read_text() == "well\n"
    assert [outcome.stage.name for outcome in outcomes] == ["bad", "good"]


def test_a_failed_stage_fails_the_gate_and_one_that_cannot_run_the_full_run(root: Path) -> None:
    good, bad = run([scripted("good"), scripted("bad", "raise SystemExit(1)")], jobs=1)
    missing = replace(good, result=Result.NOT_RUN)
    assert [summarise(outcomes, full=False) for outcomes in ([good], [good, bad], [good, missing])] == [0, 1, 0]
    assert [summarise(outcomes, full=True) for outcomes in ([good], [good, bad], [good, missing])] == [0, 1, 1]


def test_a_stage_is_left_out_only_where_that_is_asked_for_and_it_passed_on_the_same_inputs(root: Path) -> None:
    good, bad = scripted("good"), scripted("bad", "raise SystemExit(1)")
    run([good, bad])
    assert results(run([good, bad], resume=True)) == {"good": Result.UNCHANGED, "bad": Result.FAILED}
    assert results(run([good], resume=False)) == {"good": Result.PASSED}
    (root / "a.py").write_text("other")
    assert results(run([good], resume=True)) == {"good": Result.PASSED}
    records.forget("good")
    assert results(run([good], resume=True)) == {"good": Result.PASSED}


def test_a_stage_waits_for_what_it_needs_and_fails_where_that_does(root: Path) -> None:
    made = root / "made"
    steps = [
        Setup("slow", (sys.executable, "-c", f"import time; time.sleep(0.5); open({str(made)!r}, 'w').close()")),
        Setup("absent", (sys.executable, "-c", "raise SystemExit(1)")),
        Setup("optional", (sys.executable, "-c", "raise SystemExit(1)"), optional=True),
        Setup("address", (sys.executable, "-c", "print('unix:///x')"), exports="ENGINE"),
    ]
    chosen = [
        scripted("first", f"assert not __import__('os').path.exists({str(made)!r})"),
        scripted("waits", f"open({str(made)!r}).close()", needs=("slow", "optional")),
        scripted("told", "import os; assert os.environ['ENGINE'] == 'unix:///x'", needs=("address",)),
        scripted("fails", needs=("absent",)),
    ]
    outcomes = run(chosen, steps=steps)
    failed = {"fails": Result.FAILED}
    assert results(outcomes) == {**dict.fromkeys(("first", "waits", "told"), Result.PASSED), **failed}
    assert next(outcome for outcome in outcomes if outcome.stage.name == "fails").reason == "set-up failed: absent"


def test_records_that_cannot_be_read_are_none(root: Path) -> None:
    record = Record("one", "0", True, 1.0, 2, 3, 0, "now")
    records.save(record)
    assert records.load("one") == record
    for text in ("", "[]", "{}", '{"stage": "one"}'):
        (root / "build" / "test-stages" / "one.json").write_text(text)
        assert records.load("one") is None
    assert records.load("two") is None
    assert records.count(root / "none.xml") == (0, 0, 0)
