"""Studies on a Slurm of two nodes, which are both this machine: arrays, faults, and what is said of them."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import documentation
import pytest
from documents import problems_of
from images.sites import Site, call, set_up
from unit.fake_studies import COMMANDS
from unit.studies.exporting import WORST
from unit.studies.slurms import FakeSlurm

from entrypoints.rules.rule import RULES
from sifmark.core import paths
from sifmark.core.errors import SifmarkError
from sifmark.core.files import sha256_file
from sifmark.core.locks import file_lock
from sifmark.core.settings import Settings, load_settings
from sifmark.results.rules import violations_of
from sifmark.studies.events import EVENTS, Ended, Started, Submitted, note, read_log
from sifmark.studies.evidence import read_evidence
from sifmark.studies.folder import jobs_folder
from sifmark.studies.images import ImageHashes
from sifmark.studies.outcomes import outcome_of
from sifmark.studies.slurm import images
from sifmark.studies.slurm.submit import SubmittedArray, submit_runs
from sifmark.studies.states import RunStatus, status_of
from sifmark.studies.study import Cause, PlannedRun, Run, RunState, Study, StudyPlan, System

PAGE = paths.CHECKOUT / "docs" / "slurm.md"
EXAMPLE = paths.SCHEMAS / "examples" / "result-1.2" / "training.json"
# In place of sifmark: a run lasts `--seconds S` and writes a valid result, or ends with `--code N`.
STAND_IN = f"""#!{sys.executable}
import json, os, pathlib, signal, sys, time
EXAMPLE, OUT_OF_MEMORY = {str(EXAMPLE)!r}, {str(EXAMPLE.with_name("out_of_memory.json"))!r}
words = sys.argv[1:]
if words[0] == "results.validate":
    sys.exit('"state": "completed"' not in pathlib.Path(words[-1]).read_text())
value = lambda name, default: words[words.index(name) + 1] if name in words else default
output = pathlib.Path(value("--output", ""))
def write(state):
    example = EXAMPLE if state == "completed" else OUT_OF_MEMORY
    document = json.loads(pathlib.Path(example).read_text())
    if state != "completed":
        document["status"].update(state=state, message="stopped by SIGTERM", exit_code=143)
    document["provenance"]["command"], document["site"] = words[words.index("--") + 1:], "here"
    output.with_suffix(".draft").write_text(json.dumps(document, indent=2))
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
    found = {"SLURM_CONF": set_up("slurm", "Slurm")}
    yield found
    revive(found)


class Cluster:
    """A folder with a study of some runs, the settings of a site, and Slurm's commands."""

    def __init__(self, folder: Path, settings: Settings, variables: dict[str, str]) -> None:
        self.folder, self.settings, self.variables = folder, settings, variables
        self.results = folder / "results" / "trial"
        self.runs: dict[str, PlannedRun] = {}  # of all plans, by key

    def site(self, **options: object) -> Settings:
        return replace(self.settings, slurm={**self.settings.slurm, **options})

    def plan(self, *runs: tuple[str, ...], nodes: int = 1, image: str = "", **slurm: object) -> StudyPlan:
        """A plan of runs by their arguments; those with a valid result of their job are done."""
        system = System("here", image or str(self.folder / f"{WORST}.sif"), devices=1, nodes=2, slurm=slurm)
        study = Study("trial", "Trial", self.folder / "trial.toml", (), None, (system,), (), (), (), "")
        planned = [self._planned(words, nodes) for words in runs]
        self.runs |= {each.key: each for each in planned}
        states = self.states(planned)
        known = [replace(run, state=each.state, reason=each.reason) for run, each in zip(planned, states, strict=True)]
        return StudyPlan(study, self.results, {"here": "sha256:0"}, tuple(known))

    def _planned(self, words: tuple[str, ...], nodes: int) -> PlannedRun:
        run = Run("here", "runs", {}, ("lstm", *words), nodes, nodes, 1, 1)
        key = run.key("sha256:0")
        return PlannedRun(run, key, self.results / "here" / f"{key}.json", RunState.TO_DO, seconds=10.0)

    def slurm(self, *words: object) -> str:
        return call(list(map(str, words)), env={**os.environ, **self.variables}).stdout

    def states(self, runs: Sequence[PlannedRun] = (), retry: str = "") -> list[RunStatus]:
        """What became of some runs, or of all that were planned, in their order."""
        evidence = read_evidence(runs or list(self.runs.values()))
        return [status_of(each, retry=retry) for each in evidence]

    def waits(self) -> list[RunStatus]:
        """The same when no job waits or runs."""
        busy = (RunState.QUEUED, RunState.RUNNING)
        wait_for(lambda: not any(state.state in busy for state in self.states()))
        return self.states()

    def clear(self) -> None:
        """Cancel what a failed test left in the queue, which others share."""
        noted = [event for run in self.runs.values() for event in read_log(run.result).events]
        jobs = {event.job for event in noted if isinstance(event, Submitted) and event.job}
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
    monkeypatch.setattr(images, "image_hashes", lambda path, *_: ImageHashes("", sha256_file(Path(path))))
    violations_of()  # registers the rules
    monkeypatch.delitem(RULES, COMMANDS)  # results of the stand-in are copies of examples
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

    def said() -> set[str]:
        return {line for line in logs(submitted).splitlines() if line.startswith("task")}

    wait_for(lambda: len(said()) > 1)  # a result is there before its job ends, and brings the lines of the other node
    assert said() == {"task 0 of 2 on n1", "task 1 of 2 on n2"}


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
    begun = [begins(task.result)[0] for each in (first, second) for task in each.array.tasks]
    assert [event.time for event in begun] == sorted(event.time for event in begun)
    assert {state.state for state in here.states()} == {RunState.DONE}


def test_two_submissions_at_once_submit_each_run_once(here: Cluster) -> None:
    plan = here.plan(*run_ids(4, "--seconds", "1"))
    with ThreadPoolExecutor() as pool:
        answers = [future.result() for future in [pool.submit(submit_runs, plan, here.settings) for _ in range(2)]]
    assert sorted(len(answer) for answer in answers) == [0, 1]
    assert len(list(jobs_folder(here.results).glob("*.sh"))) == 1
    assert {state.state for state in here.waits()} == {RunState.DONE}


def test_a_run_in_progress_elsewhere_is_left_to_that(here: Cluster) -> None:
    plan = here.plan(*run_ids(1))
    (planned,) = plan.runs
    (submitted,) = submit_runs(plan, here.site(extra=["--hold"]))
    with file_lock(planned.result.with_name(f".{planned.key}.lock")):
        here.slurm("scontrol", "release", submitted.job)
        wait_for(lambda: submitted.job not in here.slurm("squeue", "--noheader", "--format=%A").split())
        assert submit_runs(plan, here.settings) == ()
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
    here: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_runs(here.plan(*run_ids(1)), here.settings)
    here.waits()
    FakeSlurm(here.folder / "bin").silent()  # Slurm's own would try for minutes
    monkeypatch.setenv("PATH", f"{here.folder / 'bin'}:{os.environ['PATH']}")
    assert [state.state for state in here.states()] == [RunState.DONE]
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
    assert {state.reason.cause for state in states[1:]} == {Cause.CANCELLED}
    again = here.plan(*runs)
    assert [planned.state for planned in again.runs] == [RunState.DONE, *[RunState.TO_DO] * 3]
    assert again.runs[1].reason.cause == Cause.CANCELLED
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
    first, second = (begins(task.result) for task in submitted.array.tasks)
    assert [event.restarts for event in first] == [0, 1]
    assert len(second) == 1 and "is done:" in (submitted.array.logs / "2.log").read_text()


@pytest.mark.full
def test_a_run_of_a_node_that_fails_is_started_again_by_slurm(here: Cluster) -> None:
    (submitted,) = submit_runs(here.plan(("--seconds", "4")), here.settings)
    fail_node(here)
    wait_for(lambda: here.states()[0].reason.detail == "BeginTime")
    revive(here.variables)
    time.sleep(3)  # here the node lives on, and ends its step only now
    release(here, f"{submitted.job}_1")
    (state,) = here.waits()
    assert state.state is RunState.DONE
    assert begins(submitted.array.tasks[0].result)[-1].restarts == 1


def test_a_run_of_a_node_that_fails_is_to_be_done_again(here: Cluster) -> None:
    submit_runs(here.plan(("--seconds", "4")), here.site(extra=["--no-requeue"]))
    node = fail_node(here)
    (state,) = here.waits()
    revive(here.variables)
    assert (state.state, str(state.reason)) == (RunState.TO_DO, f"node_failed: on {node}")


def test_a_run_that_fails_has_its_exit_code_and_its_last_words_as_the_cause(here: Cluster) -> None:
    submit_runs(here.plan(("--code", "3")), here.settings)
    (state,) = here.waits()
    assert (state.state, state.reason.cause) == (RunState.FAILED, Cause.NO_RESULT)
    assert state.reason.detail.startswith("exit code 3: run ")
    assert submit_runs(here.plan(("--code", "3")), here.settings) == ()


def test_a_disk_that_gets_full_stops_an_array_before_it_measures(here: Cluster) -> None:
    runs = run_ids(3)
    here.results.mkdir(parents=True)
    mounted = call(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", here.results], check=False)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted: {mounted.stderr.strip()}")
    try:
        (submitted,) = submit_runs(here.plan(*runs), here.site(extra=["--hold"]))
        call(["dd", "if=/dev/zero", f"of={here.results}/full", "bs=64K"], check=False)
        here.slurm("scontrol", "release", submitted.job)
        states = here.waits()
        assert {(each.state, each.reason.cause) for each in states} == {(RunState.TO_DO, Cause.NOT_WRITABLE)}
        (here.results / "full").unlink()
        submit_runs(here.plan(*runs), here.settings)
        assert {each.state for each in here.waits()} == {RunState.DONE}
    finally:
        here.clear()
        call(["umount", "--lazy", here.results])


def test_results_that_nobody_may_write_are_named_as_the_cause(here: Cluster) -> None:
    here.results.mkdir(parents=True)
    if call(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", here.results], check=False).returncode:
        pytest.skip("no file system can be mounted")
    try:
        (submitted,) = submit_runs(here.plan(*run_ids(2)), here.site(extra=["--hold"]))
        call(["mount", "-o", "remount,ro", here.results])
        here.slurm("scontrol", "release", submitted.job)
        states = here.waits()
        assert {(each.state, each.reason.cause) for each in states} == {(RunState.TO_DO, Cause.NOT_STARTED)}
    finally:
        revive(here.variables)  # a node that cannot start a job may be drained
        call(["umount", "--lazy", here.results])


def test_a_node_without_the_program_is_named_and_left_out(here: Cluster) -> None:
    """Both nodes are this machine: the program is hidden from the jobs of one of them."""
    hide = 'if [ "$SLURMD_NODENAME" = n2 ]; then command() { [ "${2##*/}" != sifmark ]; }; fi'
    site = here.site(setup=[hide])
    submit_runs(here.plan(*run_ids(6, "--seconds", "1")), site)
    states = here.waits()
    missing = [each for each in states if each.state is RunState.TO_DO]
    assert [each.state for each in states].count(RunState.DONE) == 5, "one task alone came to that node"
    assert missing[0].reason.cause == Cause.PROGRAM_MISSING and "n2" in missing[0].reason.detail
    (again,) = submit_runs(here.plan(*run_ids(6, "--seconds", "1")), site)
    assert "#SBATCH --exclude=n2\n" in again.script
    assert {each.state for each in here.waits()} == {RunState.DONE}


def test_an_image_that_was_replaced_is_not_started_and_a_copy_is(here: Cluster) -> None:
    image = here.folder / f"{WORST}.sif"
    (submitted,) = submit_runs(here.plan(("--seed", "0")), here.site(extra=["--hold"]))
    wait_for(lambda: here.states()[0].reason.detail == "JobHeldUser")
    image.write_bytes(image.read_bytes() + b"more")
    here.slurm("scontrol", "release", submitted.job)
    (state,) = here.waits()
    assert (state.state, state.reason.cause) == (RunState.TO_DO, Cause.IMAGE_REPLACED)
    submit_runs(here.plan(("--seed", "0")), here.settings)
    os.utime(image, (1, 1))
    (state,) = here.waits()
    assert state.state is RunState.DONE


def test_a_job_of_which_nothing_is_left_is_to_be_done_again(here: Cluster) -> None:
    (submitted,) = submit_runs(here.plan(("--seed", "0")), here.site(extra=["--hold"]))
    here.slurm("scancel", submitted.job)
    (run,) = here.runs.values()
    noted = read_log(run.result).submitted
    assert noted is not None
    note(run, replace(noted, job="99999999"))
    (state,) = here.states()
    assert (state.state, state.reason.cause) == (RunState.TO_DO, Cause.LOST)
    assert "job 99999999_1 is gone and left no trace" in state.reason.detail


def test_a_job_whose_submission_was_not_recorded_is_known_by_its_name(here: Cluster) -> None:
    (submitted,) = submit_runs(here.plan(("--seed", "0")), here.site(extra=["--hold"]))
    (run,) = here.runs.values()
    noted = read_log(run.result).submitted
    assert noted is not None
    note(run, replace(noted, job=""))
    (state,) = here.states()
    assert (state.state, state.job) == (RunState.QUEUED, f"{submitted.job}_1")
    here.slurm("scancel", submitted.job)


def test_what_is_cancelled_near_its_limit_is_to_be_done_again(here: Cluster) -> None:
    (submitted,) = submit_runs(here.plan(("--seconds", "300"), time="1"), here.settings)
    (run,) = here.runs.values()
    wait_for(lambda: isinstance(read_log(run.result).last, Started))  # a job runs before its script does
    here.slurm("scancel", submitted.job)
    (state,) = here.waits()
    assert (state.state, state.reason.cause) == (RunState.TO_DO, Cause.CANCELLED)
    ended = read_log(run.result).last
    assert isinstance(ended, Ended) and ended.cancelled, "also when Slurm has forgotten it"


def test_a_result_of_an_earlier_attempt_is_kept(here: Cluster) -> None:
    (submitted,) = submit_runs(here.plan(("--seconds", "300")), here.settings)
    wait_for(lambda: here.states()[0].state is RunState.RUNNING)
    time.sleep(1)  # until the image listens to signals
    again(here, f"{submitted.job}_1")
    (run,) = here.runs.values()
    wait_for(lambda: len(begins(run.result)) == 2)
    (kept,) = run.result.parent.glob(".earlier/*.json")
    assert json.loads(kept.read_text())["status"]["state"] == "interrupted"
    here.slurm("scancel", submitted.job)


def test_a_folder_that_is_copied_to_a_host_without_slurm_goes_on_there(
    here: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (submitted,) = submit_runs(here.plan(*run_ids(2)), here.site(extra=["--hold"]))
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(here.folder))
        states = here.states()
    assert {(each.state, each.reason.cause) for each in states} == {(RunState.TO_DO, Cause.ELSEWHERE)}
    here.slurm("scancel", submitted.job)


def test_a_study_comes_to_its_end_whatever_happens_to_its_runs(here: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are preempted; one is cancelled, one loses its node; a host without Slurm reads them too."""
    words = [*run_ids(2, "--seconds", "8"), *run_ids(3)]
    plan = here.plan(*words)
    (submitted,) = submit_runs(plan, here.settings)
    cancelled, lost, *_ = tasks = [f"{submitted.job}_{index}" for index in range(1, 6)]
    wait_for(lambda: [each.state for each in here.states()[:2]] == [RunState.RUNNING] * 2)
    time.sleep(1)  # until the images listen to signals
    preempt(here)
    wait_for(lambda: [each.reason.detail for each in here.states()[:2]] == ["BeginTime"] * 2)
    here.slurm("scancel", cancelled)
    release(here, lost)
    wait_for(lambda: here.states()[1].state is RunState.RUNNING)
    node = here.states()[1].reason.detail.removeprefix("on ")
    here.slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    wait_for(lambda: here.states()[1].state is RunState.QUEUED)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(here.folder))
        without = here.states()
    assert without[0].reason.cause == Cause.CANCELLED, "by its own log"
    assert without[1].state in (RunState.TO_DO, RunState.RUNNING), "it need not wait, unless its lock is held here"
    revive(here.variables)
    time.sleep(3)  # here the node lives on, and ends its step only now
    release(here, lost)
    states = here.waits()
    assert [each.state for each in states] == [RunState.TO_DO, *[RunState.DONE] * 4], tasks
    (again,) = submit_runs(here.plan(*words), here.settings)
    assert [task.key for task in again.array.tasks] == [plan.runs[0].key]
    assert {each.state for each in here.waits()} == {RunState.DONE}
    earlier = [json.loads(path.read_text()) for path in (here.results / "here").glob(".earlier/*.json")]
    assert len(earlier) >= 2 and {each["status"]["state"] for each in earlier} == {"interrupted"}, "none was done twice"


def preempt(here: Cluster) -> None:
    """Let a job of the urgent partition take both nodes for an instant."""
    script = here.folder / "urgent.sh"
    script.write_text("#!/bin/sh\n")
    here.slurm("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wait", script)


@pytest.mark.full
def test_a_run_whose_time_is_up_gets_more_when_it_is_tried_again(here: Cluster) -> None:
    plan = here.plan(("--seconds", "300"), time="1")
    submit_runs(plan, here.settings)
    (state,) = here.waits()
    assert (state.state, str(state.reason)) == (RunState.FAILED, "job_time_limit: 00:01:00 did not suffice")
    assert [each.state for each in here.states(retry="failed")] == [RunState.TO_DO]
    (submitted,) = submit_runs(plan, here.settings)
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
    here = with_image.folder / "results" / "quick-small" / "here"
    logs = list(here.glob(f"{EVENTS}/*.jsonl"))
    results = [here / f"{log.stem}.json" for log in logs]
    wait_for(lambda: all(isinstance(read_log(result).last, Ended) for result in results))
    assert results and all(problems_of(result) == [] for result in results)
    assert {json.loads(result.read_text())["status"]["state"] for result in results} == {"completed"}


def fail_node(here: Cluster) -> str:
    """Let the node of the only run fail once it runs there."""
    wait_for(lambda: here.states()[0].state is RunState.RUNNING)
    node = here.states()[0].reason.detail.removeprefix("on ")
    here.slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    return node


def done(here: Cluster) -> int:
    return [state.state for state in here.states()].count(RunState.DONE)


def again(here: Cluster, task: str) -> None:
    here.slurm("scontrol", "requeue", task)
    release(here, task)


def release(here: Cluster, task: str) -> None:
    """Let a requeued task start at once: Slurm lets it wait for two minutes."""
    wait_for(lambda: here.slurm("squeue", "--noheader", f"--job={task}", "--format=%r").strip() == "BeginTime")
    here.slurm("scontrol", "update", f"jobid={task}", "starttime=now")


def begins(result: Path) -> list[Started]:
    """The attempts of a run."""
    return [event for event in read_log(result).events if isinstance(event, Started)]
