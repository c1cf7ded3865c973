"""Studies on a Slurm of two nodes, which are both this machine: arrays, faults, and what is said of them."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import documentation
import pytest
from documents import problems_of
from images.sites import Site, call
from unit.studies.exporting import WORST

from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.locks import file_lock
from sifmark.core.settings import Settings, load_settings
from sifmark.studies.outcomes import outcome_of
from sifmark.studies.slurm.records import jobs_folder, submissions, task_record, write_submission
from sifmark.studies.slurm.states import JobState, job_states, merge
from sifmark.studies.slurm.submit import SubmittedArray, submit_runs
from sifmark.studies.study import PlannedRun, Run, RunState, Study, StudyPlan, System

PAGE = paths.CHECKOUT / "docs" / "slurm.md"
EXAMPLE = paths.SCHEMAS / "examples" / "result-1.2" / "training.json"
# In place of sifmark: a run lasts `--seconds S` and writes a valid result, or ends with `--code N`.
STAND_IN = f"""#!{sys.executable}
import json, os, pathlib, signal, sys, time
words = sys.argv[1:]
if words[0] == "results.validate":
    sys.exit('"state": "completed"' not in pathlib.Path(words[-1]).read_text())
value = lambda name, default: words[words.index(name) + 1] if name in words else default
output = pathlib.Path(value("--output", ""))
def write(state):
    document = pathlib.Path({str(EXAMPLE)!r}).read_text().replace('"state": "completed"', f'"state": "{{state}}"', 1)
    document = document.replace('"training.json"', json.dumps(str(output)))
    output.with_suffix(".draft").write_text(document)
    output.with_suffix(".draft").rename(output)
def stop(*_):
    write("interrupted")
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print("task", os.environ["SLURM_PROCID"], "of", os.environ["SLURM_STEP_NUM_TASKS"], "on", os.environ["SLURMD_NODENAME"])
print(" ".join(words), flush=True)
time.sleep(float(value("--seconds", 0)))
if code := int(value("--code", 0)):
    sys.exit(code)
if os.environ["SLURM_PROCID"] == "0":
    write("completed")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """The variable by which Slurm's commands find the cluster."""
    done = call([paths.CHECKOUT / "ci" / "setup" / "slurm"], check=False)
    if done.returncode:
        pytest.skip(f"no Slurm: {done.stderr[-200:]}")
    yield {"SLURM_CONF": done.stdout.strip()}
    revive({"SLURM_CONF": done.stdout.strip()})


class Cluster:
    """A folder with a study of some runs, the settings of a site, and Slurm's commands."""

    def __init__(self, folder: Path, settings: Settings, variables: dict[str, str]) -> None:
        self.folder, self.settings, self.variables = folder, settings, variables
        self.results = folder / "results" / "trial"

    def site(self, **options: object) -> Settings:
        return replace(self.settings, slurm={**self.settings.slurm, **options})

    def plan(self, *runs: tuple[str, ...], nodes: int = 1, image: str = "", **slurm: object) -> StudyPlan:
        """A plan of runs by their arguments; those with a valid result of their job are done."""
        system = System("here", image or str(self.folder / f"{WORST}.sif"), devices=1, nodes=2, slurm=slurm)
        study = Study("trial", "Trial", self.folder / "trial.toml", (), None, (system,), (), (), (), "")
        planned = [self._planned(words, nodes) for words in runs]
        merged = merge(planned, job_states(self.results))
        return StudyPlan(study, self.results, {"here": "sha256:0"}, tuple(merged))

    def _planned(self, words: tuple[str, ...], nodes: int) -> PlannedRun:
        run = Run("here", "runs", {}, ("lstm", *words), nodes, nodes, 1, 1)
        key = run.key("sha256:0")
        result = self.results / "here" / f"{key}.json"
        done = result.is_file() and json.loads(result.read_text())["status"]["state"] == "completed"
        return PlannedRun(run, key, result, RunState.DONE if done else RunState.TO_DO, "", 10.0)

    def slurm(self, *words: object) -> str:
        return call(list(map(str, words)), env={**os.environ, **self.variables}).stdout

    def states(self) -> list[JobState]:
        """What became of the runs, in the order of their keys' submission."""
        return list(job_states(self.results).values())

    def waits(self) -> list[JobState]:
        """The same when no job waits or runs."""
        busy = (RunState.QUEUED, RunState.RUNNING)
        wait_for(lambda: not any(state.state in busy for state in self.states()))
        return self.states()

    def clear(self) -> None:
        """Cancel what a failed test left in the queue, which others share."""
        jobs = [each.job for each in submissions(jobs_folder(self.results)) if each.job]
        call(["scancel", *jobs], check=False, env={**os.environ, **self.variables})


def run_ids(count: int, *words: str) -> list[tuple[str, ...]]:
    """Arguments of so many different runs."""
    return [("--seed", str(number), *words) for number in range(count)]


def logs(submitted: SubmittedArray) -> str:
    return "".join(path.read_text() for path in sorted(submitted.array.logs.iterdir()))


def wait_for(happens: Callable[[], bool], seconds: float = 900) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.3)


def revive(variables: dict[str, str]) -> None:
    """Let both nodes take jobs again."""
    environment = {**os.environ, **variables}
    call(["scontrol", "update", "nodename=n1,n2", "state=resume"], check=False, env=environment)


@pytest.fixture
def here(tmp_path: Path, cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    folder = tmp_path / WORST
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    program = folder / "sifmark"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    (folder / f"{WORST}.sif").write_text("an image")
    place = Cluster(folder, replace(load_settings(), slurm={"sifmark": str(program)}), cluster)
    yield place
    place.clear()
    assert not list(tmp_path.rglob("pwned"))


# Submissions


def test_an_array_does_the_runs_of_a_plan_and_leaves_the_script_to_see(here: Cluster) -> None:
    plan = here.plan(*run_ids(3))
    (submitted,) = submit_runs(plan, here.settings)
    assert {state.state for state in here.waits()} == {RunState.DONE}
    assert all(problems_of(planned.result) == [] for planned in plan.runs)
    assert submitted.array.script.read_text() == submitted.script
    assert f"run {here.folder / WORST}.sif -- lstm --seed 0 --site here --output" in logs(submitted)
    assert [planned.state for planned in here.plan(*run_ids(3)).runs] == [RunState.DONE] * 3
    assert submit_runs(here.plan(*run_ids(3)), here.settings) == ()


def test_a_run_on_two_nodes_is_one_task(here: Cluster) -> None:
    (submitted,) = submit_runs(here.plan(("--replicas", "2"), nodes=2), here.settings)
    (state,) = here.waits()
    assert state.state is RunState.DONE
    assert {line for line in logs(submitted).splitlines() if line.startswith("task")} == {
        "task 0 of 2 on n1",
        "task 1 of 2 on n2",
    }


def test_a_dry_run_writes_and_submits_nothing(here: Cluster) -> None:
    (rendered,) = submit_runs(here.plan(*run_ids(2)), here.settings, dry_run=True)
    assert "#SBATCH --array=1-2\n" in rendered.script and not rendered.job
    assert not here.results.exists()


def test_jobs_in_flight_are_limited_over_all_arrays(here: Cluster) -> None:
    settings = here.site(max_jobs_in_flight=1, max_array_size=2)
    first, second = submit_runs(here.plan(*run_ids(4, "--seconds", "1")), settings)
    active = 0
    while any(state.state in (RunState.QUEUED, RunState.RUNNING) for state in here.states()):
        active = max(active, sum(state.state is RunState.RUNNING for state in here.states()))
        time.sleep(0.3)
    assert active == 1
    begun = [
        task_record(each.array.folder, each.array.name, index).events[0] for each in (first, second) for index in (1, 2)
    ]
    assert [event.time for event in begun] == sorted(event.time for event in begun)
    assert {state.state for state in here.states()} == {RunState.DONE}


def test_two_submissions_at_once_submit_each_run_once(here: Cluster) -> None:
    plan = here.plan(*run_ids(4, "--seconds", "1"))
    with ThreadPoolExecutor() as pool:
        answers = [future.result() for future in [pool.submit(submit_runs, plan, here.settings) for _ in range(2)]]
    assert sorted(len(answer) for answer in answers) == [0, 1]
    assert len(submissions(jobs_folder(here.results))) == 1
    assert {state.state for state in here.waits()} == {RunState.DONE}


def test_a_run_in_progress_elsewhere_is_left_to_that(here: Cluster) -> None:
    plan = here.plan(*run_ids(1))
    (planned,) = plan.runs
    with file_lock(planned.result.with_name(f".{planned.key}.lock")):
        (submitted,) = submit_runs(plan, here.settings)
        wait_for(lambda: not here.slurm("squeue", "--noheader", "--job", submitted.job).strip())
    assert "in progress elsewhere" in logs(submitted) and not planned.result.exists()


# What fails before there is a job


def test_without_slurm_the_remedy_is_another_host(here: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.raises(SifmarkError, match="no sbatch and no squeue") as caught:
        patched.setenv("PATH", str(here.folder))
        submit_runs(here.plan(*run_ids(1)), here.settings)
    assert caught.value.code == "program-missing" and "--on here" in caught.value.remedy


def test_an_unknown_partition_is_refused_in_slurm_s_words(here: Cluster) -> None:
    with pytest.raises(SifmarkError, match="invalid partition specified: nowhere") as caught:
        submit_runs(here.plan(*run_ids(1), partition="nowhere"), here.settings)
    assert caught.value.code == "job-refused" and "sinfo" in caught.value.remedy
    assert [path.name for path in jobs_folder(here.results).iterdir()] == [".submit.lock"]


def test_an_array_that_is_too_large_is_refused_and_the_setting_named(here: Cluster) -> None:
    with pytest.raises(SifmarkError, match="Invalid job array specification") as caught:
        submit_runs(here.plan(*run_ids(1001)), here.site(max_array_size=5000))
    assert "max_array_size" in caught.value.remedy


def test_a_controller_that_does_not_answer_stops_a_submission_but_no_status(
    here: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    submit_runs(here.plan(*run_ids(1)), here.settings)
    here.waits()
    silent = here.folder / "bin" / "squeue"  # Slurm's own would try for minutes
    silent.parent.mkdir()
    silent.write_text("#!/bin/sh\necho 'squeue: error: Unable to contact slurm controller' >&2\nexit 1\n")
    silent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{silent.parent}:{os.environ['PATH']}")
    assert [state.state for state in here.states()] == [RunState.DONE]
    assert "read from their own records alone: squeue: " in capsys.readouterr().err
    with pytest.raises(SifmarkError) as caught:
        submit_runs(here.plan(*run_ids(2)), here.settings)
    assert caught.value.code == "job-refused"


def test_a_full_disk_is_noticed_before_a_job_waits(here: Cluster) -> None:
    here.results.mkdir(parents=True)
    mounted = call(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", here.results], check=False)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted: {mounted.stderr.strip()}")
    try:
        with pytest.raises(SifmarkError, match="No space left on device") as caught:
            submit_runs(here.plan(*run_ids(1)), here.settings)
    finally:
        call(["umount", here.results])
    assert caught.value.code == "disk-full" and "--results" in caught.value.remedy


# What fails afterwards


def test_killed_jobs_leave_runs_to_do_and_only_those_are_submitted_again(here: Cluster) -> None:
    runs = [("--seed", "0"), *(("--seed", str(number), "--seconds", "300") for number in (1, 2, 3))]
    (submitted,) = submit_runs(here.plan(*runs), here.settings)
    wait_for(lambda: [state.state for state in here.states()].count(RunState.RUNNING) == 2 and done(here) == 1)
    here.slurm("scancel", submitted.job)
    states = here.waits()
    assert [state.state for state in states] == [RunState.DONE, *[RunState.TO_DO] * 3]
    assert {state.cause.split(" on ")[0] for state in states[1:]} <= {"CANCELLED", "CANCELLED: a signal stopped it"}
    again = here.plan(*runs)
    assert [planned.state for planned in again.runs] == [RunState.DONE, *[RunState.TO_DO] * 3]
    assert "CANCELLED" in again.runs[1].reason
    (second,) = submit_runs(again, here.settings)
    assert [task.key for task in second.array.tasks] == [planned.key for planned in again.runs[1:]]
    here.slurm("scancel", second.job)
    here.waits()


def test_a_requeued_run_is_done_again_and_a_finished_one_is_not(here: Cluster) -> None:
    (submitted,) = submit_runs(here.plan(("--seconds", "3"), ("--seed", "1")), here.settings)
    wait_for(lambda: done(here) == 1 and RunState.RUNNING in {state.state for state in here.states()})
    for index in (1, 2):
        again(here, f"{submitted.job}_{index}")
    assert {state.state for state in here.waits()} == {RunState.DONE}
    first, second = (task_record(submitted.array.folder, submitted.array.name, index) for index in (1, 2))
    assert [(event.what, event.restarts) for event in first.events] == [
        ("begin", 0),
        ("end", 0),
        ("begin", 1),
        ("end", 1),
    ]
    assert len(second.events) == 2 and "is done:" in (submitted.array.logs / "2.log").read_text()


@pytest.mark.full
def test_a_run_of_a_node_that_fails_is_started_again_by_slurm(here: Cluster) -> None:
    (submitted,) = submit_runs(here.plan(("--seconds", "4")), here.settings)
    fail_node(here)
    wait_for(lambda: here.states()[0].cause == "BeginTime")
    revive(here.variables)
    time.sleep(3)  # here the node lives on, and ends its step only now
    release(here, f"{submitted.job}_1")
    (state,) = here.waits()
    assert state.state is RunState.DONE
    assert task_record(submitted.array.folder, submitted.array.name, 1).events[-1].restarts == 1


def test_a_run_of_a_node_that_fails_is_to_be_done_again(here: Cluster) -> None:
    submit_runs(here.plan(("--seconds", "4")), here.site(extra=["--no-requeue"]))
    node = fail_node(here)
    (state,) = here.waits()
    revive(here.variables)
    assert (state.state, state.cause) == (RunState.TO_DO, f"NODE_FAIL on {node}")


@pytest.mark.parametrize(("code", "cause"), [(6, "quota"), (3, "exit code 3"), (127, "does not have what starts")])
def test_a_run_that_fails_has_its_exit_code_as_the_cause(here: Cluster, code: int, cause: str) -> None:
    submit_runs(here.plan(("--code", str(code))), here.settings)
    (state,) = here.waits()
    assert state.state is RunState.FAILED and cause in state.cause
    (planned,) = here.plan(("--code", str(code))).runs
    assert planned.state is RunState.FAILED and cause in planned.reason
    assert submit_runs(here.plan(("--code", str(code))), here.settings) == ()


def test_an_image_that_was_replaced_is_not_started(here: Cluster) -> None:
    (submitted,) = submit_runs(here.plan(("--seed", "0")), here.site(extra=["--hold"]))
    wait_for(lambda: here.states()[0].cause == "JobHeldUser")
    (here.folder / f"{WORST}.sif").write_text("another image")
    here.slurm("scontrol", "release", submitted.job)
    (state,) = here.waits()
    assert state.state is RunState.FAILED and "image was replaced" in state.cause


def test_a_job_of_which_nothing_is_left_is_to_be_done_again(here: Cluster) -> None:
    (submitted,) = submit_runs(here.plan(("--seed", "0")), here.site(extra=["--hold"]))
    here.slurm("scancel", submitted.job)
    record = submissions(submitted.array.folder)[0]
    write_submission(submitted.array.folder, replace(record, job="99999999"))
    (state,) = here.states()
    assert state.state is RunState.TO_DO and state.cause.startswith("lost: job 99999999 is gone and left no trace")


def test_a_job_whose_submission_was_not_recorded_is_known_by_its_name(here: Cluster) -> None:
    (submitted,) = submit_runs(here.plan(("--seed", "0")), here.site(extra=["--hold"]))
    record = submissions(submitted.array.folder)[0]
    write_submission(submitted.array.folder, replace(record, job=""))
    (state,) = here.states()
    assert (state.state, state.job) == (RunState.QUEUED, f"{submitted.job}_1")
    here.slurm("scancel", submitted.job)


@pytest.mark.full
def test_a_run_whose_time_is_up_gets_more_when_it_is_tried_again(here: Cluster) -> None:
    plan = here.plan(("--seconds", "300"), time="1")
    submit_runs(plan, here.settings)
    (state,) = here.waits()
    assert (state.state, state.cause) == (RunState.FAILED, "TIMEOUT: 00:01:00 did not suffice")
    retried = replace(plan, runs=tuple(merge(plan.runs, job_states(here.results), retry=True)))
    (submitted,) = submit_runs(retried, here.settings)
    assert "--time=00:10:00" in submitted.script
    here.slurm("scancel", submitted.job)


# A real image


@pytest.fixture
def with_image(
    tmp_path: Path, cluster: dict[str, str], built: Site, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """A folder from which jobs find the images that are built."""
    folder = tmp_path / WORST
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name, value in {**cluster, "SIFMARK_DIST": str(built.dist), "SIFMARK_BASES": "stand-in"}.items():
        monkeypatch.setenv(name, value)
    place = Cluster(folder, load_settings(), cluster)
    yield place
    place.clear()
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.full
@pytest.mark.parametrize("start_with", ["sifmark", "apptainer"])
def test_runs_of_an_image_leave_results_on_one_node_and_on_two(with_image: Cluster, start_with: str) -> None:
    steps = ("--steps", "4", "--warmup-steps", "1", "--batch-size", "2", "--skip-numerics", "--meter", "none")
    ddp = ("--strategy", "ddp", "--replicas", "2")
    plans = [with_image.plan(steps, image="cpu"), with_image.plan((*steps, *ddp), nodes=2, image="cpu")]
    both = replace(plans[0], runs=tuple(planned for plan in plans for planned in plan.runs))
    submitted = submit_runs(both, with_image.site(start_with=start_with))
    assert len(submitted) == 2
    states = with_image.waits()
    assert [state.state for state in states] == [RunState.DONE] * 2, [logs(each) for each in submitted]
    assert all(outcome_of(planned).state is RunState.DONE for planned in both.runs)
    results = [json.loads(planned.result.read_text()) for planned in both.runs]
    assert [result["accelerator"]["count"] for result in results] == [1, 2]
    assert all(result["provenance"]["image"]["file"]["identity"].startswith("sha256:") for result in results)


@pytest.mark.full
def test_the_page_shows_what_its_commands_print_on_a_cluster(with_image: Cluster) -> None:
    """Its blocks of text are sessions on a login node; others run everywhere, in test_docs.py."""
    blocks = [block for block in documentation.blocks(PAGE) if block.language == "text"]
    sessions = [session for block in blocks for session in documentation.sessions(block)]
    assert [line.split()[1] for line, _ in sessions] == ["study.run", "study.status"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for line, shown in sessions:
        done = call(["bash", "-c", f"{line} 2>&1"], env={**os.environ, "PATH": path})
        assert documentation.pattern(shown).search(done.stdout), f"$ {line}\n{done.stdout}"
    with_image.results = with_image.folder / "results" / "quick-small"
    (state,) = with_image.waits()
    assert state.state is RunState.DONE, state
    (result,) = (with_image.results / "here").glob("*.json")
    assert problems_of(result) == [] and json.loads(result.read_text())["status"]["state"] == "completed"


def fail_node(here: Cluster) -> str:
    """Let the node of the only run fail once it runs there."""
    wait_for(lambda: here.states()[0].state is RunState.RUNNING)
    node = here.states()[0].nodes
    here.slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    return node


def done(here: Cluster) -> int:
    return [state.state for state in here.states()].count(RunState.DONE)


def again(here: Cluster, task: str) -> None:
    here.slurm("scontrol", "requeue", task)
    release(here, task)


def release(here: Cluster, task: str) -> None:
    """Let a requeued task start at once: Slurm lets it wait for two minutes."""
    wait_for(lambda: {state.job: state.cause for state in here.states()}[task] == "BeginTime")
    here.slurm("scontrol", "update", f"jobid={task}", "starttime=now")
