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
from sifmark.studies.folder import claim_folder, run_lock
from sifmark.studies.load import load_study
from sifmark.studies.plan import Request, plan_study
from sifmark.studies.running.states import RunFailure, failure_file, failures_in, read_states
from sifmark.studies.slurm.records import JOBS, Submission, jobs_folder, submissions, write_submission
from sifmark.studies.study import PlannedRun, RunState

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
        "submission": folder / JOBS / "trial.job",
        "runs": folder / JOBS / "trial.runs",
        "record": folder / JOBS / "trial.records" / "1",
        "failure": failure_file(planned.result),
        "lock": run_lock(folder, "alpha", planned.key),
        "result": planned.result,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_unusual_files_are_no_records(request_: Request, settings: Settings, kind: Callable[[Path], None]) -> None:
    (planned,) = plan_study(request_, settings).runs
    for path in _places(planned).values():
        path.parent.mkdir(parents=True, exist_ok=True)
        kind(path)
        (each,) = read_states(request_, settings).plan.runs
        assert each.state is RunState.TO_DO, path
    assert each.reason.startswith("its result is invalid" if planned.result.exists() else "the image is not here")
    assert not failures_in(planned.result.parent) and not submissions(jobs_folder(planned.result.parent.parent))


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
RECORDS = {
    "marker": asdict(StudyOwner("mine", "t", "")),
    "submission": asdict(Submission("trial", "alpha", 600, 1e9, "login", "7")),
    "failure": asdict(RunFailure("why", 1, "logs/a.log", "2026-01-01T00:00:00Z", 1.5)),
}


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(RECORDS)), data=st.data())
def test_a_record_with_any_values_gives_a_state(
    request_: Request, settings: Settings, name: str, data: st.DataObject
) -> None:
    (planned,) = plan_study(request_, settings).runs
    path = _places(planned)[name]
    record = RECORDS[name]
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(record)), VALUES, max_size=3))
    document = data.draw(VALUES) if not changes else record | changes
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "trial.runs").write_text(f"{planned.key}\tx\n")
    path.write_text(json.dumps(document))
    try:
        (each,) = read_states(request_, settings).plan.runs
        assert each.state in (RunState.TO_DO, RunState.FAILED, RunState.QUEUED)
    except SifmarkError as error:
        assert error.code == "study-folder-mismatch" and name == "marker"
    finally:
        path.unlink()


def test_a_submission_leads_to_no_other_file_and_to_no_other_word(tmp_path: Path) -> None:
    submission = Submission("trial", "alpha", 600, 1e9, "login", "7")
    write_submission(tmp_path, submission)
    assert submissions(tmp_path) == [submission]
    for changed in (
        {"name": "../elsewhere"},
        {"job": "7 --uid=0"},
        {"job": "\N{ARABIC-INDIC DIGIT SEVEN}"},
        {"submitted": "1"},
    ):
        (tmp_path / "trial.job").write_text(json.dumps(asdict(submission) | changed))
        assert not submissions(tmp_path), changed
