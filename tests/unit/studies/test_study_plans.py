"""Plans of studies: states of runs, what they will take, and what cannot run."""

import json
import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import documents
import pytest
from unit.fake_studies import put
from unit.refusals import refused

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.locks import file_lock, is_held
from sifmark.core.settings import Settings
from sifmark.results.envelope import envelope_path
from sifmark.results.load import STUDY_MARKER, load_file, study_of
from sifmark.results.warnings import duration
from sifmark.studies.folder import claim_folder, log_of, run_lock, take_over
from sifmark.studies.image_options import batch_of_cell
from sifmark.studies.load import load_study, result_paths
from sifmark.studies.outcomes import entry_for
from sifmark.studies.overview import cells_of_plan, rows_of
from sifmark.studies.plan import Request, plan_study
from sifmark.studies.study import Cause, PlannedRun, RunState, StudyPlan

pytestmark = pytest.mark.usefixtures("any_command")
STUDY = """
title = "t"
repeats = 2
[[system]]
name = "alpha"
image = "cuda"
devices = 4
memory_gib = 40
[[system]]
name = "beta"
image = "cpu_tf"
[[run]]
name = "resnet"
workload = "resnet50"
task = "training"
precision = ["fp32", "bf16"]
batch_size = [16, 4096]
devices = [1, 8]
steps = 50
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache=tmp_path / "cache", dist=tmp_path / "dist")


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    (tmp_path / "mine.toml").write_text(STUDY)
    return Request(str(tmp_path / "mine.toml"), results=tmp_path / "results")


def plan_with(request: Request, settings: Settings, **changes: object) -> StudyPlan:
    return plan_study(replace(request, **changes), settings)  # type: ignore[arg-type]


def only(plan: StudyPlan, system: str, **cell: object) -> list[PlannedRun]:
    return [each for each in plan.runs if each.run.system == system and cell.items() <= dict(each.run.cell).items()]


def test_runs_of_images_that_are_elsewhere_are_planned(request_: Request, settings: Settings) -> None:
    plan = plan_study(request_, settings)
    assert len(plan.runs) == 2 * 2 * 8
    assert plan.images == {"alpha": "", "beta": ""}
    first = plan.runs[0]
    assert first.state is RunState.TO_DO and str(first.reason) == "the image is not here: sifmark build cuda"
    assert first.result == request_.results / "mine" / "alpha" / f"{first.key}.json"
    assert [each.run.repeat for each in plan.runs] == [1] * 16 + [2] * 16
    assert not request_.results.exists(), "a plan writes nothing"


def test_what_cannot_run_says_why(request_: Request, settings: Settings) -> None:
    plan = plan_study(request_, settings)
    (eight, _) = only(plan, "alpha", precision="fp32", batch_size=16, devices=8)
    assert (eight.state, str(eight.reason)) == (RunState.CANNOT_RUN, "8 devices, and alpha has 4 on each of 1 nodes")
    (half, _) = only(plan, "beta", precision="bf16", batch_size=16, devices=1)
    assert (half.state, str(half.reason)) == (RunState.CANNOT_RUN, "precision bf16: cpu in tensorflow has fp32")


def test_workloads_that_a_framework_lacks_cannot_run(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "mine.toml").write_text('title = "t"\n[[run]]\nworkload = "efficientnet_b0"')
    plan = plan_study(Request(str(tmp_path / "mine.toml"), systems=("a:cuda_tf", "b:cuda")), settings)
    assert [each.state for each in plan.runs] == [RunState.CANNOT_RUN, RunState.TO_DO]
    assert str(plan.runs[0].reason) == "efficientnet_b0 is not implemented in tensorflow"


def test_the_largest_batch_is_searched_on_one_device(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "mine.toml").write_text('title = "t"\n[[run]]\nworkload = "lstm"\nbatch_size = "max"\ndevices = [1, 2]')
    single, two = plan_study(Request(str(tmp_path / "mine.toml"), systems=("a:cuda",)), settings).runs
    assert single.state is RunState.TO_DO and two.state is RunState.CANNOT_RUN
    assert 'batch_size = "max" with devices 2: it searches on one device' in str(two.reason)


def test_sizes_that_no_device_holds_are_run_and_announced(request_: Request, settings: Settings) -> None:
    (large, _) = only(plan_study(request_, settings), "alpha", precision="fp32", batch_size=4096, devices=1)
    assert large.state is RunState.TO_DO
    assert large.memory_gib is not None and large.memory_gib > 300
    assert large.seconds == 15


def test_estimates_follow_operations_and_devices(request_: Request, settings: Settings) -> None:
    plan = plan_study(request_, settings)
    (small, _) = only(plan, "alpha", precision="fp32", batch_size=16, devices=1)
    assert small.seconds is not None
    assert small.seconds == pytest.approx(15 + 5 + 50 * 16 * 24299077632 / 1e13)
    assert small.device_hours == pytest.approx(small.seconds / 3600)


def test_results_decide_about_states_and_times(request_: Request, settings: Settings) -> None:
    first, second, third = plan_study(request_, settings).runs[:3]
    put("training", first)
    put("out_of_memory", second)
    put("training", third, x=1)
    plan = plan_study(request_, settings)
    done, refused, invalid = plan.runs[:3]
    assert (done.state, str(done.reason)) == (RunState.DONE, "")
    example = json.loads(documents.TRAINING.read_text())
    took = duration(example)
    assert done.seconds == pytest.approx(took)
    assert done.memory_gib == pytest.approx(example["metrics"]["peak_process_memory"]["value"] / 1024, rel=1e-3)
    assert (refused.state, str(refused.reason)) == (RunState.DONE, "out_of_memory")
    assert invalid.state is RunState.TO_DO and str(invalid.reason).startswith("invalid_result: status")
    again = next(each for each in plan.runs if each.run.repeat == 2 and each.run.cell == first.run.cell)
    assert again.seconds == pytest.approx(took + 15), "as its other repeat, with a check and a start"


def test_a_result_of_another_run_does_not_count(request_: Request, settings: Settings) -> None:
    runs = plan_study(request_, settings).runs
    first, _, second, *others = runs
    later = next(each for each in others if each.run.cell == first.run.cell and each.run.repeat == 2)
    elsewhere = next(each for each in others if each.run.system == "beta" and each.run.cell == first.run.cell)
    put("training", first)
    elsewhere.result.parent.mkdir()
    for planned in (second, later, elsewhere):
        shutil.copy(first.result, planned.result)
    states = {each.key: (each.state, str(each.reason)) for each in plan_study(request_, settings).runs}
    assert states[first.key] == (RunState.DONE, "")
    for key, difference in {
        second.key: f"its arguments are {shlex.join(first.run.arguments)}",
        later.key: f"it was kept as {first.key}",
        elsewhere.key: "its system is alpha",
    }.items():
        assert states[key] == (RunState.TO_DO, f"result_of_another_run: {difference}")
    shutil.move(first.result, second.result)
    assert not any(each.state is RunState.DONE for each in plan_study(request_, settings).runs)


def test_a_failed_result_of_another_run_is_no_failure_of_this_one(request_: Request, settings: Settings) -> None:
    first, _, second, *_ = plan_study(request_, settings).runs
    put("out_of_memory", first, state="crashed", message="")
    shutil.copy(first.result, second.result)
    assert [each.state for each in plan_study(request_, settings).runs[:3:2]] == [RunState.FAILED, RunState.TO_DO]


def test_failed_runs_are_kept_and_tried_again_on_request(request_: Request, settings: Settings) -> None:
    first = plan_study(request_, settings).runs[0]
    put("out_of_memory", first, state="crashed", message="not there any more")
    failed = plan_study(request_, settings).runs[0]
    assert failed.state is RunState.FAILED and str(failed.reason).startswith("crashed: not there")
    for retry in ("failed", "crashed"):
        again = plan_with(request_, settings, retry=retry).runs[0]
        assert again.state is RunState.TO_DO and str(again.reason).startswith("again: after crashed")
    assert plan_with(request_, settings, retry="time_limit").runs[0].state is RunState.FAILED


def test_a_run_with_a_held_lock_is_running(request_: Request, settings: Settings) -> None:
    first = plan_study(request_, settings).runs[0]
    lock = run_lock(request_.results / "mine", "alpha", first.key)
    with file_lock(lock):
        assert plan_study(request_, settings).runs[0].state is RunState.RUNNING
    assert plan_study(request_, settings).runs[0].state is RunState.TO_DO
    lock.unlink()
    assert not is_held(lock) and not lock.exists(), "to ask makes no lock file"


def test_a_file_beside_the_results_says_nothing_of_them(request_: Request, settings: Settings) -> None:
    first = plan_study(request_, settings).runs[0]
    put("training", first, x=1)
    size, modified = (status := first.result.stat()).st_size, status.st_mtime_ns
    index = request_.results / "mine" / ".index.json"  # as sifmark 0.2 believed it
    rows = {f"alpha/{first.key}": [size, modified, "done", "", 1.0, 1.0, 1.0, None, None]}
    index.write_text(json.dumps({"version": 4, "results": rows}))
    before = index.read_bytes()
    (planned,) = (each for each in plan_study(request_, settings).runs if each.key == first.key)
    ((problem,),) = (loaded.problems for loaded in load_file(str(first.result)))
    assert (planned.state, str(planned.reason)) == (RunState.TO_DO, f"invalid_result: {problem}")
    assert index.read_bytes() == before
    assert {each.name for each in index.parent.iterdir()} == {index.name, "alpha"}, "a plan writes nothing"


def test_a_result_is_validated_again_if_its_file_changes(
    request_: Request, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = plan_study(request_, settings).runs[0]
    put("training", first)
    assert entry_for(first)
    put("out_of_memory", first)
    entry = entry_for(first)
    assert entry is not None and str(entry.reason) == "out_of_memory"
    with monkeypatch.context() as patch:
        patch.setattr("sifmark.studies.outcomes.load_file", lambda path: pytest.fail(f"read again: {path}"))
        assert entry_for(first) == entry
    status = first.result.stat()
    first.result.write_bytes(first.result.read_bytes().replace(b"out_of_memory", b"out_of_mem0ry", 1))
    os.utime(first.result, ns=(status.st_atime_ns, status.st_mtime_ns))
    forged = entry_for(first)
    assert forged is not None and forged.reason.cause == Cause.INVALID, "size and date are the same"
    first.result.unlink()
    assert entry_for(first) is None


def test_a_plan_has_the_batch_size_that_a_search_came_to(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "mine.toml").write_text(STUDY.replace("[16, 4096]", '"max"').replace("repeats = 2", "repeats = 1"))
    request = Request(str(tmp_path / "mine.toml"), results=tmp_path / "results", systems=("alpha",))
    first, *_ = plan_study(request, settings).runs
    trials = [
        {"batch_size": size, "state": state, "message": "", "peak_process_mib": None, "seconds": 1.0}
        for size, state in ((2, "completed"), (4, "out_of_memory"), (3, "out_of_memory"))
    ]
    put("training", first)
    document = json.loads(first.result.read_text())
    document["search"] = {"memory_limit_mib": None, "largest": 2, "trials": trials}
    first.result.write_text(json.dumps(document))
    assert plan_study(request, settings).runs[0].batch_size == document["configuration"]["batch_size"]
    weak = replace(first.run, cell={**first.run.cell, "scaling": "weak"}, devices=4)
    assert (batch_of_cell(weak, 64), batch_of_cell(first.run, 64), batch_of_cell(weak, None)) == (16, 64, None)


def test_a_condition_chooses_runs(request_: Request, settings: Settings) -> None:
    plan = plan_with(request_, settings, only=("batch_size=16 precision=FP32,bf16 system=alpha", "devices=8 repeat=2"))
    chosen = [each.run for each in plan.runs]
    assert {run.cell["batch_size"] for run in chosen if run.devices == 1} == {16}
    assert len(chosen) == 2 * 2 * 2 + 2 * 4 - 2
    for text, message in {
        "batchsize=1": "batch_size",
        "batch_size": "KEY=VALUE",
        "batch_size=5": "no run",
        "": "empty",
    }.items():
        with pytest.raises(UsageError) as error:
            plan_with(request_, settings, only=(text,))
        assert message in str(error.value)


def test_systems_are_chosen_replaced_and_added(request_: Request, settings: Settings) -> None:
    assert {each.run.system for each in plan_with(request_, settings, systems=("beta",)).runs} == {"beta"}
    plan = plan_with(request_, settings, systems=("alpha:rocm", "here:cpu"))
    assert set(plan.images) == {"alpha", "here"}
    assert "sifmark build rocm" in str(plan.runs[0].reason)
    for text, message in {"gamma": "no system 'gamma'", "here:cup": "no recipe 'cup'", "../a:cpu": "no name"}.items():
        with pytest.raises(UsageError, match=message):
            plan_with(request_, settings, systems=(text,))


def test_a_study_without_systems_says_how_to_name_one(tmp_path: Path, settings: Settings) -> None:
    with pytest.raises(UsageError) as error:
        plan_study(Request("quick", results=tmp_path), settings)
    assert "--system here:cpu" in error.value.remedy


def test_the_folder_of_another_study_is_refused(request_: Request, settings: Settings, tmp_path: Path) -> None:
    study = load_study(request_.study)
    folder = claim_folder(study, request_.results)
    assert claim_folder(study, request_.results) == folder
    (tmp_path / "mine.toml").write_text(STUDY.replace("steps = 50", "steps = 60"))
    plan_study(request_, settings)  # a changed study keeps its folder
    (tmp_path / "mine.toml").write_text(STUDY.replace('title = "t"', 'title = "another"'))
    with refused(SifmarkError, "study-folder-mismatch") as error:
        plan_study(request_, settings)
    assert STUDY_MARKER in error.value.remedy


SMALL = """
[variant.small]
set = { batch_size = [4096, 8] }
"""


def test_a_variant_has_a_name_and_a_folder_of_its_own(request_: Request, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(STUDY + SMALL)
    plan = plan_with(request_, settings, variant="small")
    assert (plan.study.name, plan.study.title) == ("mine-small", "t (small)")
    assert plan.folder == request_.results / "mine-small"
    claim_folder(plan.study, request_.results)
    claim_folder(load_study(request_.study), request_.results)
    assert study_of(plan.runs[0].result) == "mine-small"
    shared = {each.key for each in plan.runs} & {each.key for each in plan_study(request_, settings).runs}
    assert len(shared) == len(plan.runs) / 2, "the same runs, of which the results are the same"


def test_a_variant_takes_over_the_results_of_its_runs(request_: Request, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(STUDY + SMALL)
    whole = plan_study(request_, settings)
    put("training", only(whole, "alpha", batch_size=16)[0])
    same = only(whole, "alpha", batch_size=4096)[0]
    put("training", same)
    log_of(same).parent.mkdir()
    log_of(same).write_text("a log")
    envelope_path(same.result).write_text("signed")
    plan = plan_with(request_, settings, variant="small")
    assert take_over(plan) == 0 and not plan.folder.exists(), "results of a folder that is of no study"
    claim_folder(whole.study, request_.results)
    assert (take_over(plan), take_over(plan), take_over(whole)) == (1, 0, 0)
    plan = plan_with(request_, settings, variant="small")
    (done,) = [each for each in plan.runs if each.state is RunState.DONE]
    assert done.key == same.key and log_of(done).read_text() == "a log"
    assert envelope_path(done.result).read_text() == "signed" and same.result.exists()


def test_results_of_a_variant_are_found_by_its_name(request_: Request, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(STUDY + SMALL)
    plan = plan_with(request_, settings, variant="small")
    put("training", plan.runs[0])
    assert result_paths((), request_.study, str(request_.results), "small") == (str(plan.folder / "alpha"),)
    with refused(UsageError, "result-missing") as error:
        result_paths((), request_.study, str(request_.results))
    assert "--variant small" in error.value.remedy


def test_results_where_a_file_is(request_: Request, settings: Settings) -> None:
    request_.results.mkdir()
    (request_.results / "mine").write_text("")
    with refused(UsageError, "study-folder-mismatch"):
        plan_study(request_, settings)


def test_cells_with_the_same_command_share_a_run(tmp_path: Path, settings: Settings) -> None:
    common = 'workload = "lstm"\nstrategy = ["ddp", "fsdp"]\n'
    (tmp_path / "mine.toml").write_text(
        'title = "t"\nrepeats = 2\n[[system]]\nname = "a"\nimage = "cuda"\ndevices = 2\n'
        f'[[run]]\nname = "one"\n{common}devices = [1, 2]\n[[run]]\nname = "two"\n{common}devices = 2\n'
    )
    plan = plan_study(Request(str(tmp_path / "mine.toml"), results=tmp_path / "results"), settings)
    keys = [each.key for each in plan.runs]
    assert len(keys) == len(set(keys)) == 2 * 3, "one device has no strategy"
    put("out_of_memory", plan.runs[1])
    plan = plan_study(Request(str(tmp_path / "mine.toml"), results=tmp_path / "results"), settings)
    assert sum(each.state is RunState.DONE for each in plan.runs) == 1
    cells = [(each.run.group, each.run.cell["strategy"], each.run.devices, each.run.repeat) for each in plan.cells]
    assert len(cells) == len(set(cells)) == 2 * (4 + 2)
    rows = {row.group: row for row in rows_of(plan)}
    assert [(row.runs, row.states[RunState.DONE]) for row in rows.values()] == [(8, 1), (4, 1)]
    assert [cell.text for cell in cells_of_plan(plan)] == ["-", "1/2", "-", "-", "1/2", "-"]
    only_two = plan_study(Request(str(tmp_path / "mine.toml"), only=("run=two",)), settings)
    assert {each.key for each in only_two.runs} < set(keys) and not only_two.shared


def test_repeats_of_one_command_in_several_groups_have_one_estimate(tmp_path: Path, settings: Settings) -> None:
    common = 'workload = "lstm"\nbatch_size = 8\nsteps = 5\n'
    (tmp_path / "mine.toml").write_text(
        'title = "t"\n[[system]]\nname = "a"\nimage = "cuda"\n'
        f'[[run]]\nname = "once"\n{common}[[run]]\nname = "twice"\nrepeats = 2\n{common}'
    )
    request = Request(str(tmp_path / "mine.toml"), results=tmp_path / "results")
    put("training", plan_study(request, settings).runs[0])
    done, again = plan_study(request, settings).runs
    assert (done.state, again.state, again.run.group) == (RunState.DONE, RunState.TO_DO, "twice")
    assert done.seconds and again.seconds == pytest.approx(done.seconds + 15)
