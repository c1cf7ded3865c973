"""A folder of results that others may write to: whatever lies there, states of runs are told, without a wait."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from unit.refusals import refused

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.results.load import STUDY_MARKER, StudyOwner
from sifmark.studies.events import Ended, Event, Planned, Started, Submitted, log_of_events, note, read_log
from sifmark.studies.folder import claim_folder, run_lock
from sifmark.studies.load import load_study
from sifmark.studies.plan import Request, plan_study
from sifmark.studies.states import failures_in
from sifmark.studies.study import Cause, PlannedRun, RunState

pytestmark = pytest.mark.usefixtures("any_command")
STUDY = 'title = "t"\n[[system]]\nname = "alpha"\nimage = "cuda"\n[[run]]\nworkload = "resnet50"\nsteps = 50\n'


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)  # a hole


def _deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def _missing(path: Path) -> None:
    path.symlink_to("nothing")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _bytes(path: Path) -> None:
    path.write_bytes(b"\xff\0{")


KINDS = (_pipe, _zeros, _huge, _deep, _missing, _loop, _bytes, Path.mkdir)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache=tmp_path / "cache", dist=tmp_path / "dist")


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    (tmp_path / "mine.toml").write_text(STUDY)
    return Request(str(tmp_path / "mine.toml"), results=tmp_path / "results")


def _places(planned: PlannedRun) -> dict[str, Path]:
    folder = planned.result.parent.parent
    return {
        "index": folder / ".index.json",
        "marker": folder / STUDY_MARKER,
        "log": log_of_events(planned.result),
        "lock": run_lock(folder, "alpha", planned.key),
        "result": planned.result,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_unusual_files_are_no_records(request_: Request, settings: Settings, kind: Callable[[Path], None]) -> None:
    (planned,) = plan_study(request_, settings).runs
    for path in _places(planned).values():
        path.parent.mkdir(parents=True, exist_ok=True)
        kind(path)
        (each,) = plan_study(request_, settings).runs
        assert each.state is RunState.TO_DO, path
    assert each.reason.cause == (Cause.INVALID if planned.result.exists() else Cause.IMAGE_MISSING)
    assert not failures_in(planned.result.parent)


@pytest.mark.parametrize("kind", [_pipe, _zeros, Path.mkdir])
def test_no_event_is_written_to_what_is_no_file(
    request_: Request, settings: Settings, kind: Callable[[Path], None]
) -> None:
    (planned,) = plan_study(request_, settings).runs
    log = log_of_events(planned.result)
    log.parent.mkdir(parents=True)
    kind(log)
    with pytest.raises(OSError, match=str(log)):
        note(planned, Started(1e9, "n1"))


@pytest.mark.parametrize("kind", [_pipe, _zeros])
def test_a_marker_that_is_no_file_is_not_replaced(request_: Request, kind: Callable[[Path], None]) -> None:
    study = load_study(request_.study)
    marker = claim_folder(study, request_.results) / STUDY_MARKER
    marker.unlink()
    kind(marker)
    with refused(UsageError, "invalid-option", marker):
        claim_folder(study, request_.results)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
EVENTS: dict[str, Event] = {
    "planned": Planned(1e9, "login", "resnet50", "sha256:0"),
    "submitted": Submitted(1e9, "login", "me", "trial", 1, 600, "7", "alpha", 0),
    "started": Started(1e9, "n1", "7_1", "trial", "alpha", 1),
    "ended": Ended(1e9, "n1", 5, "why", False, "7_1", "trial", "alpha"),
}


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_log_with_any_values_gives_a_state(request_: Request, settings: Settings, data: st.DataObject) -> None:
    (planned,) = plan_study(request_, settings).runs
    lines = []
    for name in data.draw(st.lists(st.sampled_from(sorted(EVENTS)), min_size=1, max_size=4)):
        record = {"what": name, **asdict(EVENTS[name])}
        changes = data.draw(st.dictionaries(st.sampled_from(sorted(record)), VALUES, max_size=2))
        lines.append(json.dumps(record | changes if changes else data.draw(st.just(record) | VALUES)))
    log = log_of_events(planned.result)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("\n".join(lines))
    (each,) = plan_study(request_, settings).runs
    assert each.state in (RunState.TO_DO, RunState.FAILED, RunState.QUEUED, RunState.RUNNING)


def test_the_marker_of_a_folder_may_have_any_values(request_: Request, settings: Settings) -> None:
    plan = plan_study(request_, settings)
    marker = plan.folder / STUDY_MARKER
    marker.parent.mkdir(parents=True)
    values: tuple[object, ...] = (None, 1, "x", [], {}, {"name": 1}, asdict(StudyOwner("other", "t", "")))
    for value in values:
        marker.write_text(json.dumps(value))
        try:
            assert plan_study(request_, settings).runs
        except SifmarkError as error:
            assert error.code == "study-folder-mismatch"


def test_an_event_leads_to_no_other_file_and_to_no_other_word(request_: Request, settings: Settings) -> None:
    (planned,) = plan_study(request_, settings).runs
    submitted = EVENTS["submitted"]
    note(planned, submitted)
    assert read_log(planned.result).submitted == submitted
    for changed in (
        {"array": "../elsewhere"},
        {"job": "7 --uid=0"},
        {"job": "\N{ARABIC-INDIC DIGIT SEVEN}"},
        {"cluster": "a,b"},
        {"time": "1"},
    ):
        log_of_events(planned.result).write_text(json.dumps({"what": "submitted", **asdict(submitted), **changed}))
        assert not read_log(planned.result).events, changed
