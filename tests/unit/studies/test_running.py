"""Running a study here: real processes in the place of images, their results, failures and shares."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from documents import problems_of
from unit.fake_studies import ScriptEngine, long_plan, plan_of, run_of, started, state_in
from unit.fakes import settings_for
from unit.refusals import refused

from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.results.envelope import envelope_path
from sifmark.studies.estimate import Estimates
from sifmark.studies.evidence import read_evidence
from sifmark.studies.folder import log_of
from sifmark.studies.running.local import prepare_systems
from sifmark.studies.running.runner import Progress, StudyRunner
from sifmark.studies.running.shares import Shares
from sifmark.studies.states import RunStatus, failures_in, status_of
from sifmark.studies.study import Reason, RunState, StudyPlan


@pytest.fixture
def engine(any_command: None, site: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptEngine:
    monkeypatch.chdir(tmp_path)
    engine = ScriptEngine(site)
    engine.add("cpu")
    engine.tag_workloads("cpu")
    engine.settings = settings_for(engine, monkeypatch)
    return engine


Do = Callable[..., Progress]


@pytest.fixture
def do(engine: ScriptEngine, tmp_path: Path) -> Do:
    """Do the runs of a plan that are not done."""

    def run_all(plan: StudyPlan, jobs: int = 0, **options: Any) -> Progress:
        runs = [planned for planned in plan.runs if planned.state is not RunState.DONE]
        systems = prepare_systems(plan, runs, engine.settings, jobs)
        return StudyRunner(systems, Shares(tmp_path / "shares"), _ignore, _ignore, Estimates(), **options).do(runs)

    return run_all


def _ignore(*_: object) -> None:
    pass


def status_now(plan: StudyPlan) -> list[RunStatus]:
    return list(map(status_of, read_evidence(plan.runs)))


def states(progress: Progress) -> dict[str, RunState]:
    return {ended.planned.key: ended.outcome.state for ended in progress.ended}


def test_each_run_leaves_a_valid_result_and_a_log(do: Do, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, *(run_of(batch_size=size) for size in (1, 2, 4)))
    progress = do(plan)
    assert [ended.planned for ended in progress.ended] == list(plan.runs)
    for planned in plan.runs:
        assert problems_of(planned.result) == []
        assert "processors" in log_of(planned).read_text()
    assert started(plan) == [planned.key for planned in plan.runs]
    assert not list(plan.folder.glob("*/.*.lock"))


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--without", "it", "--code", "2"), "exit code 2: the last word"),
        (("--without", "it"), "exit code 0: devices None"),
        (("--broken", "it"), "invalid_result: "),
        (("--data", "/nowhere/at/all"), "--data /nowhere/at/all: no such file or folder"),
    ],
)
def test_a_run_without_a_valid_result_is_a_failure_with_its_cause(
    do: Do, tmp_path: Path, words: tuple[str, ...], cause: str
) -> None:
    plan = plan_of(tmp_path, run_of("here", *words), run_of(batch_size=2))
    progress = do(plan)
    first, second = plan.runs
    assert states(progress) == {first.key: RunState.FAILED, second.key: RunState.DONE}
    assert cause in failures_in(first.result.parent)[first.key]
    assert not first.result.exists()
    now = status_now(plan)[0]
    assert now.state is RunState.FAILED and cause in str(now.reason)


def test_a_failure_is_done_again_on_request_and_what_it_left_is_kept(do: Do, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, run_of("here", "--state", "crashed"))
    (planned,) = plan.runs
    assert states(do(plan)) == {planned.key: RunState.FAILED}
    failed = replace(plan, runs=(replace(planned, state=RunState.FAILED, reason=Reason("crashed")),))
    do(failed)
    do(failed)
    assert len(started(plan)) == 3
    assert sorted(path.name for path in planned.result.parent.glob(".earlier/*")) == [
        f"{planned.key}-1.json", f"{planned.key}-2.json",
    ]  # fmt: skip
    assert state_in(planned.result) == "crashed"


def test_what_another_process_has_done_meanwhile_is_not_done_again(do: Do, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, run_of(batch_size=1), run_of("here", "--state", "out_of_memory"))
    do(plan)
    progress = do(plan)  # which still says that they are to do
    assert [ended.elsewhere for ended in progress.ended] == [True, True]
    assert len(started(plan)) == 2


def test_a_result_of_another_run_is_put_away_and_the_run_done(do: Do, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, run_of(batch_size=1), run_of(batch_size=2))
    first, second = plan.runs
    do(replace(plan, runs=(first,)))
    second.result.write_bytes(first.result.read_bytes())
    progress = do(replace(plan, runs=(second,)))
    assert [ended.elsewhere for ended in progress.ended] == [False]
    assert states(progress) == {second.key: RunState.DONE} and len(started(plan)) == 2
    (kept,) = second.result.parent.glob(".earlier/*")
    assert kept.name == f"{second.key}-1.json" and kept.read_bytes() == first.result.read_bytes()


def test_an_image_that_was_replaced_after_the_plan_is_not_started(do: Do, tmp_path: Path) -> None:
    plan = replace(plan_of(tmp_path, run_of()), images={"here": "sha256:0"})
    with refused(SifmarkError, "image-altered", "system here"):
        do(plan)
    assert not started(plan)


def test_runs_that_would_have_fewer_threads_side_by_side_are_refused(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    plan = plan_of(tmp_path, run_of("here", "--threads", "1", batch_size=1), run_of("here", batch_size=2))
    with refused(UsageError, "invalid-option", "threads"):
        do(plan, jobs=2)
    assert not started(plan)
    do(plan, jobs=1)


def test_side_by_side_runs_have_their_own_processors_and_devices(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--seconds", "0.5", "--threads", "1")
    plan = plan_of(tmp_path, *(run_of("here", *words, batch_size=size) for size in (1, 2)))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    do(plan, jobs=2)
    logs = sorted(log_of(planned).read_text().split("processors")[1].strip() for planned in plan.runs)
    assert logs == ["[0]", "[1]"]


def test_runs_that_do_not_fit_into_the_budget_are_left_out(do: Do, tmp_path: Path) -> None:
    long = plan_of(tmp_path, run_of(batch_size=1), seconds=1000.0)
    short = plan_of(tmp_path, run_of(batch_size=2), seconds=1.0)
    progress = do(replace(short, runs=(*long.runs, *short.runs)), budget=60.0)
    assert progress.left_out == list(long.runs)
    assert started(short) == [short.runs[0].key]
    (status,) = map(status_of, read_evidence(long.runs))
    assert (status.state, str(status.reason)) == (RunState.TO_DO, "left out for a budget of 1 min 0 s")
    do(long)
    (status,) = map(status_of, read_evidence(long.runs))
    assert (status.state, str(status.reason)) == (RunState.DONE, "")


# Ends before the end


def driver(folder: Path, seconds: float, count: int) -> "subprocess.Popen[str]":
    """A process that does a study, as study.run does, in a folder; several may do the same."""
    words = [sys.executable, "-m", "unit.fake_studies", str(folder), str(seconds), str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(paths.CHECKOUT / "tests"), str(paths.CHECKOUT)])}
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def alive(plan: StudyPlan) -> list[str]:
    """The processes that have to do with the folder of a plan."""
    lines = [path.read_bytes() for path in processes() if path.exists()]
    return [line.decode() for line in lines if str(plan.folder).encode() in line]


def processes() -> Iterator[Path]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            path.read_bytes()
            yield path


def wait_for(happens: Callable[[], bool]) -> None:
    while not happens():  # a test that waits for ever is stopped by whoever runs the tests
        time.sleep(0.02)


def test_a_killed_study_takes_its_runs_with_it_and_nothing_is_done_twice(site: Settings, tmp_path: Path) -> None:
    plan = long_plan(tmp_path, "0.3", 8)
    chance = random.Random(36)
    for _ in range(5):
        study = driver(tmp_path, 0.3, 8)
        before = len(started(plan))
        wait_for(lambda: len(started(plan)) > before or study.poll() is not None)  # noqa: B023
        time.sleep(chance.uniform(0, 0.6))
        study.kill()
        study.communicate()
    last = driver(tmp_path, 0.3, 8)
    assert last.wait() == 0, last.communicate()
    assert alive(plan) == []
    assert [state_in(planned.result) for planned in plan.runs] == ["completed"] * 8
    assert sorted(started(plan, "completed")) == sorted(planned.key for planned in plan.runs)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_study_that_is_stopped_lets_its_run_write_a_result(
    any_command: None, site: Settings, tmp_path: Path, number: int
) -> None:
    plan = long_plan(tmp_path, "60", 2)
    study = driver(tmp_path, 60, 2)
    wait_for(lambda: bool(started(plan)))
    study.send_signal(number)
    study.communicate()
    assert study.returncode != 0
    assert state_in(plan.runs[0].result) == "interrupted" and problems_of(plan.runs[0].result) == []
    assert json.loads(plan.runs[0].result.read_text())["status"]["exit_code"] == 128 + number
    assert alive(plan) == []
    assert not plan.runs[1].result.exists() and not failures_in(plan.runs[0].result.parent)


class StoppedAsItStarts(threading.Thread):
    """A thread that Ctrl-C meets just before it starts, or just after."""

    before = False

    def start(self) -> None:
        if not self.before:
            super().start()
        raise KeyboardInterrupt


@pytest.mark.parametrize("before", [True, False])
def test_ctrl_c_while_a_run_starts_ends_the_study(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    monkeypatch.setattr(StoppedAsItStarts, "before", before)
    monkeypatch.setattr("sifmark.studies.running.runner.threading.Thread", StoppedAsItStarts)
    plan = plan_of(tmp_path, run_of("here", "--seconds", "60"))
    with pytest.raises(KeyboardInterrupt):
        do(plan)
    assert len(started(plan)) <= 1
    for key in started(plan):
        assert key == plan.runs[0].key and state_in(plan.runs[0].result) == "interrupted"


def test_two_at_once_do_each_run_once(site: Settings, tmp_path: Path) -> None:
    plan = long_plan(tmp_path, "0.1", 6)
    both = [driver(tmp_path, 0.1, 6) for _ in range(2)]
    assert [study.wait() for study in both] == [0, 0]
    assert sorted(started(plan)) == sorted(planned.key for planned in plan.runs)


def test_a_full_disk_ends_the_study_before_a_run_is_lost(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sifmark.studies.folder.free_space", lambda _: 1 << 20)
    plan = plan_of(tmp_path, run_of())
    with refused(SifmarkError, "disk-full"):
        do(plan)
    assert not started(plan)


def test_a_machine_without_the_device_ends_the_study(do: Do, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, run_of("here", "--state", "no_device"), run_of(batch_size=2))
    with refused(SifmarkError, "device-missing"):
        do(plan)
    assert len(started(plan)) == 1
    assert {each.state for each in status_now(plan)} == {RunState.TO_DO}, "no run is to blame"


def test_a_quota_that_is_used_up_is_told_and_the_run_is_still_to_do(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "a file")

    monkeypatch.setattr("sifmark.studies.events.append_line", full)
    plan = plan_of(tmp_path, run_of("here", "--without", "it"), run_of())
    with refused(SifmarkError, "disk-full"):
        do(plan)
    assert not started(plan)
    assert {each.state for each in status_now(plan)} == {RunState.TO_DO}


def test_results_are_signed_where_the_site_has_a_key(
    engine: ScriptEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    plan = plan_of(tmp_path, run_of())
    systems = prepare_systems(plan, plan.runs, replace(engine.settings, results_key=key), 0)
    StudyRunner(systems, Shares(tmp_path / "shares"), _ignore, _ignore, Estimates()).do(plan.runs)
    assert envelope_path(plan.runs[0].result).exists()
