"""Studies on Slurm: options of sites, arrays, scripts, and the states of runs."""

import errno
import os
import re
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from unit.fake_studies import put, wait_for_opened
from unit.refusals import refused

from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.locks import file_lock
from sifmark.core.settings import Settings, load_settings
from sifmark.engines.binds import Bind, parse_binds
from sifmark.studies.slurm import submit
from sifmark.studies.slurm.jobs import ArrayTask, JobArray, JobShape, StartedImage, arrays_of
from sifmark.studies.slurm.options import JobOptions, devices_requested, job_options, limit_of, seconds_of
from sifmark.studies.slurm.records import Submission, submissions, write_submission
from sifmark.studies.slurm.script import script_of
from sifmark.studies.slurm.states import JobState, job_states, merge
from sifmark.studies.slurm.submit import render_runs, submit_runs
from sifmark.studies.study import PlannedRun, Run, RunState, Study, StudyPlan, System

EXAMPLE = paths.SCHEMAS / "examples" / "result-1.2" / "training.json"
KEY = "0123456789abcdef"


def planned(name: str = "", nodes: int = 1, devices: int = 1, seconds: float | None = 60, **more: object) -> PlannedRun:
    run = Run(str(more.get("system", "here")), "runs", {}, ("lstm", name), devices, nodes, 1, 1)
    return PlannedRun(run, name or KEY, Path("results") / f"{name}.json", RunState.TO_DO, "", seconds)


# What a site wants


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("40", 2400), ("10:30", 630), ("00:40:00", 2400), ("1-00:00:00", 86400), ("2-12", 216000), ("1-02:30", 95400)],
)
def test_time_limits_are_read_as_slurm_reads_them(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


def test_keys_of_a_system_replace_those_of_the_site() -> None:
    site = {"partition": "all", "account": "zam", "gpus_per_node": 4, "modules": ["Apptainer"]}
    options = job_options(site, {"partition": "h100", "time": "30"}, "study")
    assert options == JobOptions("h100", "zam", gpus_per_node="4", seconds=1800, modules=("Apptainer",))


@pytest.mark.parametrize("own", [{"partitions": "a"}, {"partition": "a\n#SBATCH --uid=0"}, {"setup": ["a\nb"]}])
def test_a_key_that_no_site_has_is_refused_with_its_place(own: dict[str, object]) -> None:
    with refused(UsageError, "document-invalid", "trial.toml: system a: slurm"):
        job_options({}, own, "trial.toml: system a: slurm")


def test_settings_take_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIFMARK_SETTINGS", raising=False)
    Path("sifmark.toml").write_text('[slurm]\npartition = "h100"\ngpus_per_node = "h100:4"\n')
    assert job_options(load_settings().slurm, {}, "").gpus_per_node == "h100:4"
    Path("sifmark.toml").write_text('[slurm]\ngpus_per_node = "four"\n')
    with refused(UsageError, "settings-invalid", "slurm.gpus_per_node"):
        load_settings()


@pytest.mark.parametrize(
    ("estimate", "limit"), [(1, 600), (140, 600), (160, 1200), (3000, 7200), (None, 3600), (500_000, 1_036_800)]
)
def test_a_time_limit_leaves_a_margin_and_is_one_of_a_few(estimate: float | None, limit: int) -> None:
    assert limit_of(estimate, JobOptions()) == limit
    assert limit_of(estimate, JobOptions(seconds=90)) == 90
    assert limit_of(1, JobOptions(seconds=90), at_least=180) == 600


def test_of_a_shared_node_a_run_gets_the_devices_that_it_uses() -> None:
    assert devices_requested(JobOptions(gpus_per_node="a100:4"), 1) == "a100:4"
    assert devices_requested(JobOptions(gpus_per_node="a100:4", exclusive=False), 1) == "a100:1"
    assert devices_requested(JobOptions(exclusive=False), 1) == ""


# Arrays


def test_runs_of_one_shape_share_an_array_in_the_order_of_the_plan() -> None:
    runs = [planned("a"), planned("b", nodes=2, devices=8), planned("c"), planned("d", seconds=5000), planned("e")]
    arrays = [
        (shape.text, [run.key for run in members]) for shape, members in arrays_of(runs, {"here": JobOptions()}, {})
    ]
    assert arrays == [("here-1x1-10min", ["a", "c", "e"]), ("here-2x4-10min", ["b"]), ("here-1x1-240min", ["d"])]


def test_an_array_has_no_more_tasks_than_slurm_allows_and_longer_ones_for_those_that_need_them() -> None:
    runs = [planned(name) for name in "abcde"]
    options = {"here": JobOptions(max_array_size=2)}
    arrays = [
        (shape.seconds, [run.key for run in members]) for shape, members in arrays_of(runs, options, {"c": 1200.0})
    ]
    assert arrays == [(600, ["a", "b"]), (600, ["d", "e"]), (1200, ["c"])]


def test_a_word_with_a_tab_or_a_line_break_is_refused() -> None:
    assert ArrayTask(KEY, Path("/r.json"), ("lstm", "--site", "a b")).line == f"{KEY}\t/r.json\tlstm\t--site\ta b"
    for word in ("a\tb", "a\nb"):
        with refused(UsageError, "document-invalid"):
            _ = ArrayTask(KEY, Path("/r.json"), (word,)).line


# Scripts


def test_without_options_of_a_site_a_job_has_its_nodes_to_itself_and_all_their_memory(tmp_path: Path) -> None:
    lines = re.findall("^#SBATCH --(.*)", _array(tmp_path, "sifmark").script.read_text(), re.MULTILINE)
    assert {"nodes=1", "exclusive", "mem=0", "time=00:10:00", "array=1-2", "signal=TERM@60"} <= set(lines)
    assert not [line for line in lines if line.startswith(("partition", "account", "qos", "gpus", "cpus", "reserv"))]


@pytest.mark.parametrize("start_with", ["sifmark", "apptainer"])
def test_a_task_does_its_run_once(start_with: str, tmp_path: Path) -> None:
    """The fake srun starts the words after its own."""
    array = _array(tmp_path / "with blank", start_with)
    for _ in range(2):
        done = _run_task(array)
        assert done.returncode == 0, done.stderr
    (began, ended) = (array.records / "2").read_text().splitlines()
    assert began.startswith("begin ") and ended.startswith("end ") and ended.endswith(" 0")
    assert "is done" in done.stdout
    words = "lstm --site a b --output " + str(array.tasks[1].result)
    assert (tmp_path / "with blank" / "words").read_text().splitlines()[-1].endswith(words)
    assert not list(array.tasks[1].result.parent.glob(".*.lock"))


def test_the_lock_of_a_file_that_was_removed_excludes_nobody(tmp_path: Path) -> None:
    array = _array(tmp_path, "sifmark")
    lock = array.tasks[1].result.with_name(".b.lock")
    with ThreadPoolExecutor() as pool, ExitStack() as others:
        with file_lock(lock):
            task = pool.submit(_run_task, array)
            wait_for_opened(lock)
            lock.unlink()  # as whoever ends a run does, and another one begins
            others.enter_context(file_lock(lock))
        done = task.result()
    assert done.returncode == 0 and "run b is in progress elsewhere" in done.stdout
    assert not (array.records / "2").exists()


@pytest.mark.parametrize("start_with", ["sifmark", "apptainer"])
def test_a_result_of_another_run_is_not_that_of_a_task(start_with: str, tmp_path: Path) -> None:
    array = _array(tmp_path, start_with)
    array.tasks[1].result.write_text(EXAMPLE.read_text().replace("training.json", f"/results/{KEY}.json"))
    _program(tmp_path / "bin" / "sifmark", _IMAGE.replace("if [", '[[ $* != *"--run b "* ]] || exec false\nif [', 1))
    done = _run_task(array)
    assert done.returncode == 0 and "is done" not in done.stdout, done.stderr
    assert (array.records / "2").read_text().startswith("begin ")


def test_a_task_without_a_line_says_so(tmp_path: Path) -> None:
    array = _array(tmp_path, "sifmark")
    array.list.unlink()
    done = _run_task(array)
    assert done.returncode == 66 and "do nodes see that folder?" in done.stderr
    (state,) = (state for key, state in _states(array).items() if key == "b")
    assert state.cause == "exit code 66: the node does not see the folder of results"


def _states(array: JobArray) -> dict[str, JobState]:
    array.list.write_text(array.lines)
    write_submission(array.folder, Submission(array.name, "here", 600, time.time() - 60, "login", "7"))
    return job_states(array.folder.parent)


def _array(folder: Path, start_with: str) -> JobArray:
    """An array of two tasks, with its files, whose image is a program that writes an example."""
    image, results = folder / "image.sif", folder / "results" / "here"
    results.mkdir(parents=True)
    for name in ("srun", "apptainer", "sifmark"):
        _program(folder / "bin" / name, _LAUNCHER if name == "srun" else _IMAGE)
    image.touch()
    array = JobArray(
        name="trial",
        study="trial",
        shape=JobShape("here", 1, 1, 600),
        options=JobOptions(start_with=start_with),
        image=StartedImage(
            image,
            f"0 {int(image.stat().st_mtime)}",
            binds=(Bind(Path("/data")),),
            sifmark=(str(folder / "bin" / "sifmark"),) if start_with == "sifmark" else (),
            facts="{}",
        ),
        folder=folder / "results" / "jobs",
        work=folder,
        tasks=tuple(
            ArrayTask(key, results / f"{key}.json", ("lstm", "--site", "a b", "--output", str(results / f"{key}.json")))
            for key in "ab"
        ),
    )
    array.records.mkdir(parents=True)
    array.list.write_text(array.lines)
    array.script.write_text(script_of(array))
    return array


# Of the words that a script starts a task with, those before the image's program are the launcher's.
_LAUNCHER = """#!/bin/bash
while [[ $1 != */sifmark && $1 != apptainer ]]; do shift; done
exec "$@"
"""
_IMAGE = f"""#!/bin/bash
if [ "$1" = results.validate ]; then grep -q '"state": "completed"' "${{@: -1}}"; exit; fi
echo "$*" >>"$PWD/words"
sed 's|"training.json"|"'"${{@: -1}}"'"|' {EXAMPLE} >"${{@: -1}}"
"""


def _run_task(array: JobArray) -> subprocess.CompletedProcess[str]:
    variables = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "SLURM_CPUS_ON_NODE": "2"}
    variables["PATH"] = f"{array.work / 'bin'}:{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "APPTAINER_BIND"} | variables
    return subprocess.run(
        ["bash", str(array.script)], env=environment, cwd=array.work, capture_output=True, text=True, check=False
    )


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


# Answers of Slurm


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put programs with given answers in the place of Slurm's."""

    def answer(code: int = 0, error: str = "", **outputs: str) -> None:
        for name, output in {"sbatch": "", "squeue": "", **outputs}.items():
            (tmp_path / f"{name}.txt").write_text(output)
            (tmp_path / f"{name}.err").write_text(error if name == "sbatch" else "")
            lines = f"cat {tmp_path}/{name}.txt; cat {tmp_path}/{name}.err >&2; exit {code if name == 'sbatch' else 0}"
            _program(tmp_path / "bin" / name, f"#!/bin/sh\n{lines}\n")

    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    answer()
    return answer


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyPlan:
    """A plan of three runs on a system with an image."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "image.sif").write_text("image")
    system = System("here", str(tmp_path / "image.sif"))
    study = Study("trial", "Trial", Path("trial.toml"), (), None, (system,), (), (), (), "")
    folder = tmp_path / "results" / "trial"
    runs = tuple(replace(planned(key), result=folder / "here" / f"{key}.json") for key in "abc")
    return StudyPlan(study, folder, {"here": "sha256:0"}, runs)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid partition", "sinfo"),
        ("Batch job submission failed: Invalid account or account/partition combination specified", "account in"),
        ("Batch job submission failed: Invalid qos specification", "qos in"),
        ("Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)", "again later"),
        ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", "set time"),
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", "scontrol ping"),
        ("Batch job submission failed: Something new", "sbatch --help"),
    ],
)
def test_a_refusal_has_slurm_s_words_and_a_remedy(
    slurm: Callable[..., None], plan: StudyPlan, settings: Settings, error: str, remedy: str
) -> None:
    slurm(code=1, error=f"sbatch: error: {error}\n")
    with refused(SifmarkError, "job-refused") as caught:
        submit_runs(plan, settings)
    assert remedy in caught.value.remedy
    assert caught.value.cause.startswith("sbatch: ") and "error:" not in caught.value.cause
    assert not submissions(plan.folder / "jobs")


def test_a_cluster_s_name_behind_the_job_is_left_out(
    slurm: Callable[..., None], plan: StudyPlan, settings: Settings
) -> None:
    slurm(sbatch="12;alpha\n")
    (submitted,) = submit_runs(plan, settings)
    assert submitted.job == "12"


@pytest.mark.parametrize(
    ("state", "code", "expected", "cause"),
    [
        ("COMPLETED", "0:0", RunState.DONE, ""),
        ("TIMEOUT", "0:1", RunState.FAILED, "TIMEOUT: 00:10:00 did not suffice"),
        ("OUT_OF_MEMORY", "0:125", RunState.FAILED, "OUT_OF_MEMORY"),
        ("FAILED", "6:0", RunState.FAILED, "exit code 6: its result could not be written"),
        ("CANCELLED by 1000", "0:0", RunState.TO_DO, "CANCELLED on n1"),
        ("NODE_FAIL", "1:0", RunState.TO_DO, "NODE_FAIL on n1"),
        ("PREEMPTED", "0:0", RunState.TO_DO, "PREEMPTED on n1"),
    ],
)
def test_accounts_say_what_became_of_jobs_that_left_the_queue(
    slurm: Callable[..., None],
    plan: StudyPlan,
    settings: Settings,
    state: str,
    code: str,
    expected: RunState,
    cause: str,
) -> None:
    slurm(sbatch="12\n")
    submit_runs(plan, settings)
    rows = [f"12_1|{state}|{code}|n1|1764234900", "12_2|COMPLETED|0:0|n1|Unknown", "12_[3]|PENDING|0:0||Unknown"]
    slurm(sacct="\n".join(rows), squeue="12_3|PENDING|Priority||N/A|sifmark-trial\n")
    states = job_states(plan.folder)
    assert states["a"].state is expected and states["a"].cause.startswith(cause)
    assert (states["b"].state, states["c"].state, states["c"].cause) == (RunState.DONE, RunState.QUEUED, "Priority")


def test_runs_that_wait_or_run_are_not_submitted_again(
    slurm: Callable[..., None], plan: StudyPlan, settings: Settings
) -> None:
    slurm(sbatch="12\n")
    submit_runs(plan, settings)
    slurm(sbatch="13\n", squeue="12_1|RUNNING|None|n1|1764234900|x\n12_2|PENDING|Priority||N/A|x\n")
    (submitted,) = submit_runs(plan, settings)
    assert [task.key for task in submitted.array.tasks] == ["c"]


def test_two_submissions_within_a_second_have_their_own_files(
    slurm: Callable[..., None], plan: StudyPlan, settings: Settings
) -> None:
    for job, chosen in (("12", plan.runs[:1]), ("13", plan.runs[1:2]), ("14", plan.runs[2:])):
        slurm(sbatch=f"{job}\n")
        submit_runs(replace(plan, runs=chosen), settings)
    jobs = plan.folder / "jobs"
    assert [each.job for each in submissions(jobs)] == ["12", "13", "14"]
    assert [each.keys(jobs) for each in submissions(jobs)] == [["a"], ["b"], ["c"]]


def test_a_submission_without_an_answer_keeps_its_files(
    slurm: Callable[..., None], plan: StudyPlan, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm()
    _program(plan.folder.parent.parent / "bin" / "sbatch", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("sifmark.studies.slurm.queue.TIME_LIMIT", 2.0)
    with refused(SifmarkError, "command-failed", "sbatch"):
        submit_runs(plan, settings)
    (kept,) = submissions(plan.folder / "jobs")
    assert not kept.job and kept.keys(plan.folder / "jobs") == ["a", "b", "c"]
    slurm(squeue=f"12_1|RUNNING|None|n1|1764234900|sifmark-{kept.name}\n", sbatch="13\n")
    (submitted,) = submit_runs(plan, settings)
    assert [task.key for task in submitted.array.tasks] == ["b", "c"], "Slurm had taken the job"


def test_a_run_that_has_a_result_by_now_is_not_submitted(
    any_command: None, slurm: Callable[..., None], plan: StudyPlan, settings: Settings
) -> None:
    slurm(sbatch="12\n")
    first, second, _ = plan.runs
    put("training", first)
    second.result.write_bytes(first.result.read_bytes())
    (submitted,) = submit_runs(plan, settings)
    assert [task.key for task in submitted.array.tasks] == ["b", "c"]
    assert not second.result.exists(), "a node would take it for the run's own"
    (kept,) = second.result.parent.glob(".earlier/b-1.json")
    assert kept.read_bytes() == first.result.read_bytes()


def test_the_other_systems_are_submitted_where_an_image_is_missing(
    plan: StudyPlan, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    other = System("other", "cuda")
    runs = (*plan.runs, planned("d", system="other"))
    both = replace(
        plan,
        study=replace(plan.study, systems=(*plan.study.systems, other)),
        images={"here": "sha256:0", "other": ""},
        runs=runs,
    )
    (rendered,) = render_runs(both, settings)
    assert len(rendered.array.tasks) == 3
    assert "the image of system other is not here" in capsys.readouterr().err
    with refused(SifmarkError, "image-not-built", "all_gather-cuda.sif"):
        render_runs(replace(both, images={"other": ""}, runs=runs[3:]), settings)


def test_data_that_are_not_here_are_missed_before_a_job_waits(plan: StudyPlan, settings: Settings) -> None:
    run = replace(plan.runs[0].run, arguments=("resnet50", "--data", "/nowhere/imagenet"))
    with refused(UsageError, "file-missing", "--data /nowhere/imagenet"):
        render_runs(replace(plan, runs=(replace(plan.runs[0], run=run),)), settings)
    system = replace(plan.study.systems[0], bind=parse_binds(["/nowhere/scratch"]))
    with refused(UsageError, "file-missing", "bind /nowhere/scratch"):
        render_runs(replace(plan, study=replace(plan.study, systems=(system,))), settings)


@pytest.mark.parametrize(("number", "code"), [(errno.EDQUOT, "disk-full"), (errno.EACCES, "system-error")])
def test_a_quota_is_not_a_full_disk_but_needs_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(SifmarkError, match=os.strerror(number)) as caught:
        submit.require_room(tmp_path / "results")
    assert caught.value.code == code
    assert not list((tmp_path / "results").iterdir())


# Records of tasks


def record(text: str) -> str:
    """A record's text, whose times are given as seconds from now: @-560."""
    return re.sub(r"@(-?\d+)", lambda match: str(int(time.time()) + int(match[1])), text)


@pytest.mark.parametrize(
    ("lines", "expected", "cause"),
    [
        ("", RunState.TO_DO, "lost: job 12 is gone and left no trace"),
        ("begin @0 n1 12_1 0", RunState.TO_DO, "lost: it began on n1 and left no end"),
        ("begin @0 n1 12_1 0\nend @0 n1 12_1 0 0", RunState.DONE, ""),
        ("begin @0 n1 12_1 0\nend @0 n1 12_1 0 5", RunState.FAILED, "exit code 5"),
        ("begin @0 n1 12_1 0\nend @0 n1 12_1 0 143", RunState.TO_DO, "CANCELLED: a signal stopped it"),
        ("begin @-560 n1 12_1 0\nend @0 n1 12_1 0 143", RunState.FAILED, "TIMEOUT: 00:10:00"),
        ("begin @0 n1 12_1 0\nend @0 n1 12_", RunState.TO_DO, "lost: it began on n1 and left no end"),
    ],
)
def test_without_accounts_records_say_what_became_of_a_run(
    slurm: Callable[..., None], tmp_path: Path, lines: str, expected: RunState, cause: str
) -> None:
    folder = _submitted(tmp_path, 600, lines)
    (state,) = job_states(folder.parent).values()
    assert state.state is expected and state.cause.startswith(cause)


def test_without_slurm_what_has_no_end_is_taken_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = _submitted(tmp_path, 60, "begin @0 n1 12_1 0")
    (state,) = job_states(folder.parent).values()
    assert (state.state, state.cause) == (RunState.RUNNING, "by its record")
    assert "this host has no sbatch and no squeue" in capsys.readouterr().err
    assert job_states(tmp_path / "other") == {}
    assert capsys.readouterr().err == ""


def _submitted(folder: Path, ago: float, lines: str) -> Path:
    """The folder of a submission so many seconds ago, with the record of its only task."""
    jobs = folder / "results" / "jobs"
    (jobs / "trial.records").mkdir(parents=True)
    (jobs / "trial.runs").write_text(f"{KEY}\t/r.json\tlstm\n")
    if lines:
        (jobs / "trial.records" / "1").write_text(record(lines))
    write_submission(jobs, Submission("trial", "here", 600, time.time() - ago, "login", "12"))
    return jobs


# Plans and jobs together


@pytest.mark.parametrize(
    ("plan_state", "plan_reason", "job_state", "cause", "state", "reason"),
    [
        (RunState.DONE, "", RunState.QUEUED, "Priority", RunState.DONE, ""),
        (RunState.TO_DO, "", RunState.QUEUED, "Priority", RunState.QUEUED, "Priority"),
        (RunState.TO_DO, "", RunState.RUNNING, "", RunState.RUNNING, ""),
        (RunState.TO_DO, "", RunState.DONE, "", RunState.TO_DO, "its job ended without a valid result"),
        (RunState.TO_DO, "", RunState.FAILED, "exit code 5", RunState.FAILED, "exit code 5"),
        (RunState.FAILED, "crashed: x", RunState.FAILED, "exit code 4", RunState.FAILED, "crashed: x"),
        (RunState.FAILED, "interrupted: x", RunState.FAILED, "TIMEOUT: x", RunState.FAILED, "TIMEOUT: x"),
        (RunState.FAILED, "interrupted: x", RunState.TO_DO, "PREEMPTED on n1", RunState.TO_DO, "PREEMPTED on n1"),
        (RunState.FAILED, "crashed: x", RunState.TO_DO, "CANCELLED", RunState.FAILED, "crashed: x"),
        (RunState.CANNOT_RUN, "memory", RunState.TO_DO, "CANCELLED", RunState.CANNOT_RUN, "memory"),
    ],
)
def test_a_result_counts_more_than_a_job_and_a_job_more_than_nothing(
    plan_state: RunState, plan_reason: str, job_state: RunState, cause: str, state: RunState, reason: str
) -> None:
    run = replace(planned(KEY), state=plan_state, reason=plan_reason)
    (merged,) = merge([run], {KEY: JobState(job_state, cause)})
    assert (merged.state, merged.reason) == (state, reason)


def test_what_failed_is_to_do_when_it_is_tried_again() -> None:
    (merged,) = merge([planned(KEY)], {KEY: JobState(RunState.FAILED, "TIMEOUT: x")}, retry=True)
    assert (merged.state, merged.reason) == (RunState.TO_DO, "TIMEOUT: x")
