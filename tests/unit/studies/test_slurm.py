"""Studies on Slurm: options of sites, arrays, scripts, and the states of runs."""

import errno
import getpass
import hashlib
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.fake_studies import put, wait_for_opened
from unit.refusals import refused
from unit.studies.slurms import CLUSTER, FakeSlurm, program

from sifmark.core import paths
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.locks import file_lock
from sifmark.core.settings import Settings, load_settings
from sifmark.engines.binds import Bind, parse_binds
from sifmark.studies.events import Ended, Event, Started, Submitted, note, read_log
from sifmark.studies.evidence import read_evidence
from sifmark.studies.folder import task_log
from sifmark.studies.images import ImageHashes
from sifmark.studies.running.local import select
from sifmark.studies.slurm import images, submit
from sifmark.studies.slurm.jobs import ALL_LANES, ArrayTask, JobArray, JobShape, StartedImage, arrays_of
from sifmark.studies.slurm.options import JobOptions, devices_requested, job_options, limit_of, seconds_of
from sifmark.studies.slurm.script import job_name, script_of
from sifmark.studies.slurm.submit import render_runs, submit_runs
from sifmark.studies.states import RunStatus, TaskStatus, status_of
from sifmark.studies.study import Cause, PlannedRun, Run, RunState, Study, StudyPlan, System

EXAMPLE = paths.SCHEMAS / "examples" / "result-1.2" / "training.json"
KEY = "0123456789abcdef"


def planned(name: str = "", nodes: int = 1, devices: int = 1, seconds: float | None = 60, **more: object) -> PlannedRun:
    run = Run(str(more.get("system", "here")), "runs", {}, ("lstm", name), devices, nodes, 1, 1)
    return PlannedRun(run, name or KEY, Path("results") / f"{name}.json", RunState.TO_DO, seconds=seconds)


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


def arrays(runs: list[PlannedRun], options: JobOptions, busy: tuple[str, ...] = (), **longer: float) -> list[object]:
    """The shape, keys, limit and lane of each array."""
    parts = arrays_of(runs, {"here": options}, longer, busy)
    return [(each.shape.text, "".join(run.key for run in each.runs), each.limit, each.lane) for each in parts]


def test_runs_of_one_shape_share_an_array_in_the_order_of_the_plan() -> None:
    runs = [planned("a"), planned("b", nodes=2, devices=8), planned("c"), planned("d", seconds=5000), planned("e")]
    shapes = [("here-1x1-10min", "ace"), ("here-2x4-10min", "b"), ("here-1x1-240min", "d")]
    assert arrays(runs, JobOptions()) == [(*shape, None, ALL_LANES) for shape in shapes]


def test_an_array_has_no_more_tasks_than_slurm_allows_and_longer_ones_for_those_that_need_them() -> None:
    runs = [planned(name) for name in "abcde"]
    parts = [("here-1x1-10min", "ab"), ("here-1x1-10min", "de"), ("here-1x1-20min", "c")]
    assert arrays(runs, JobOptions(max_array_size=2), c=1200.0) == [(*part, None, ALL_LANES) for part in parts]


def test_runs_of_several_shapes_are_dealt_to_as_many_lanes_as_may_be_in_flight() -> None:
    limited, short, long = JobOptions(max_jobs_in_flight=2), "here-1x1-10min", "here-1x1-240min"
    runs = [planned(name) for name in "abc"]
    assert arrays(runs, limited) == [(short, "abc", 2, ALL_LANES)]
    assert arrays(runs, limited, busy=("here",)) == [(short, "ac", 1, 0), (short, "b", 1, 1)]
    both = arrays([*runs, planned("x", seconds=5000), planned("y", seconds=5000)], limited)
    assert both == [(short, "ac", 1, 0), (short, "b", 1, 1), (long, "y", 1, 0), (long, "x", 1, 1)]


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
    began, ended = read_log(array.tasks[1].result).events
    assert isinstance(began, Started) and isinstance(ended, Ended)
    assert (began.job, ended.code, ended.cancelled, ended.array) == ("7_2", 0, False, "trial")
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
    assert not read_log(array.tasks[1].result).events


@pytest.mark.parametrize("start_with", ["sifmark", "apptainer"])
def test_a_result_of_another_run_is_not_that_of_a_task(start_with: str, tmp_path: Path) -> None:
    array = _array(tmp_path, start_with)
    array.tasks[1].result.write_text(EXAMPLE.read_text().replace("training.json", f"/results/{KEY}.json"))
    program(tmp_path / "bin" / "sifmark", _IMAGE.replace("if [", '[[ $* != *"--run b "* ]] || exec false\nif [', 1))
    done = _run_task(array)
    assert done.returncode == 0 and "is done" not in done.stdout, done.stderr
    assert [type(event) for event in read_log(array.tasks[1].result).events] == [Started, Ended]
    assert list(array.tasks[1].result.parent.glob(".earlier/b-1.json"))


def test_a_task_without_a_line_says_so(tmp_path: Path) -> None:
    array = _array(tmp_path, "sifmark")
    array.list.unlink()
    done = _run_task(array)
    assert done.returncode == 66 and "do nodes see that folder?" in done.stderr


def test_an_earlier_result_is_put_away_before_anything_else_can_fail(tmp_path: Path) -> None:
    array = _array(tmp_path, "sifmark")
    result = array.tasks[1].result
    for number in (1, 2):
        result.write_text(f"crashed {number}")
        array.image.path.write_text("another image")
        assert _run_task(array).returncode == 65
        assert (result.parent / ".earlier" / f"b-{number}.json").read_text() == f"crashed {number}"
    assert not result.exists()


def test_a_copy_of_the_same_bytes_is_the_same_image(tmp_path: Path) -> None:
    array = _array(tmp_path, "sifmark")
    os.utime(array.image.path, (1, 1))
    assert _run_task(array).returncode == 0
    assert array.tasks[1].result.exists()


def test_a_task_ends_before_it_measures_where_nothing_can_be_written(tmp_path: Path) -> None:
    """A full disk, as dd meets one; the log of the run has its place from the submission on."""
    array = _array(tmp_path, "sifmark")
    program(tmp_path / "bin" / "dd", "#!/bin/sh\necho \"dd: error writing 'x': No space left on device\" >&2\nexit 1\n")
    done = _run_task(array)
    assert done.returncode == 6 and "No space left on device" in done.stderr
    (ended,) = read_log(array.tasks[1].result).events
    assert isinstance(ended, Ended) and ended.code == 6
    assert not (tmp_path / "words").exists() and not list(array.tasks[1].result.parent.glob(".room*"))


@pytest.mark.parametrize("excluded", ["(null)", "n7"])
def test_a_node_without_the_program_gets_no_further_tasks(tmp_path: Path, excluded: str) -> None:
    array = _array(tmp_path, "sifmark")
    (tmp_path / "bin" / "sifmark").unlink()
    scontrol = (
        f'#!/bin/sh\n[ "$1" != update ] || echo "$*" >{tmp_path}/updated\necho "JobId=7 ExcNodeList={excluded} A=1"\n'
    )
    program(tmp_path / "bin" / "scontrol", scontrol)
    done = _run_task(array, SLURMD_NODENAME="n3")
    assert done.returncode == 127 and "n3 has no " in done.stderr
    nodes = "n3" if excluded == "(null)" else f"{excluded},n3"
    assert (tmp_path / "updated").read_text() == f"update jobid=7 excnodelist={nodes}\n"


@pytest.mark.parametrize("told", [False, True])
def test_an_order_to_end_is_told_from_the_warning_before_the_limit(tmp_path: Path, told: bool) -> None:
    """A scheduler warns the image alone; whoever cancels a job ends the script too."""
    array = _array(tmp_path, "sifmark")
    order = "kill -TERM $PPID; " if told else ""
    program(tmp_path / "bin" / "srun", f"#!/bin/bash\n{order}exit 143\n")
    assert _run_task(array).returncode == 143
    ended = read_log(array.tasks[1].result).events[-1]
    assert isinstance(ended, Ended) and (ended.code, ended.cancelled) == (143, told)


def _array(folder: Path, start_with: str) -> JobArray:
    """An array of two tasks, with its files, whose image is a program that writes an example."""
    image, results = folder / "image.sif", folder / "results" / "here"
    results.mkdir(parents=True)
    for name in ("srun", "apptainer", "sifmark"):
        program(folder / "bin" / name, _LAUNCHER if name == "srun" else _IMAGE)
    image.touch()
    array = JobArray(
        name="trial",
        study="trial",
        shape=JobShape("here", 1, 1, 600),
        options=JobOptions(start_with=start_with),
        image=StartedImage(
            image,
            f"0 {int(image.stat().st_mtime)}",
            f"sha256:{hashlib.sha256(b'').hexdigest()}",
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
    array.folder.mkdir(parents=True)
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


def _run_task(array: JobArray, **more: str) -> subprocess.CompletedProcess[str]:
    variables = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "SLURM_CPUS_ON_NODE": "2", **more}
    variables["PATH"] = f"{array.work / 'bin'}:{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "APPTAINER_BIND"} | variables
    return subprocess.run(
        ["bash", str(array.script)], env=environment, cwd=array.work, capture_output=True, text=True, check=False
    )


# Answers of Slurm


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Programs with given answers in the place of Slurm's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    fake = FakeSlurm(folder)
    fake.answer()
    return fake


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyPlan:
    """A plan of three runs on a system with an image."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "image.sif").write_text("image")
    monkeypatch.setattr(images, "image_hashes", lambda *_: ImageHashes("sha256:0", "sha256:0"))
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
    slurm: FakeSlurm, plan: StudyPlan, settings: Settings, error: str, remedy: str
) -> None:
    slurm.answer(refused=f"sbatch: error: {error}\n")
    with refused(SifmarkError, "job-refused") as caught:
        submit_runs(plan, settings)
    assert remedy in caught.value.remedy
    assert caught.value.cause.startswith("sbatch: ") and "error:" not in caught.value.cause
    assert [path.name for path in (plan.folder / "jobs").iterdir()] == [".submit.lock"]
    states = states_of(plan)
    assert {state.state for state in states} == {RunState.TO_DO}
    assert all(state.reason.detail.startswith("not submitted: sbatch: ") for state in states)


def states_of(plan: StudyPlan) -> list[RunStatus]:
    return list(map(status_of, read_evidence(plan.runs)))


def tasks(array: JobArray, *states: str, job: str = "12", **fields: Any) -> list[TaskStatus]:
    """The tasks of an array in these states."""
    return [
        TaskStatus(f"{job}_{index}", job_name(array.name), CLUSTER, state, **fields)
        for index, state in enumerate(states, start=1)
    ]


def test_the_cluster_behind_a_job_is_noted(slurm: FakeSlurm, plan: StudyPlan, settings: Settings) -> None:
    slurm.answer(job="12;beta")
    (submitted,) = submit_runs(plan, settings)
    noted = read_log(plan.runs[0].result).submitted
    assert submitted.job == "12" and noted is not None
    assert (noted.job, noted.cluster, noted.index, noted.limit) == ("12", "beta", 1, 600)


ENDS = [
    ("COMPLETED", 0, RunState.TO_DO, Cause.NO_RESULT, "left no valid result"),
    ("TIMEOUT", 1, RunState.FAILED, Cause.TIME_LIMIT, "00:10:00"),
    ("OUT_OF_MEMORY", 125, RunState.FAILED, Cause.MEMORY_LIMIT, "mem"),
    ("FAILED", 6, RunState.TO_DO, Cause.NOT_WRITABLE, "disk"),
    ("FAILED", 5, RunState.FAILED, Cause.NO_RESULT, "exit code 5"),
    ("FAILED", 143, RunState.TO_DO, Cause.CANCELLED, "on n1"),
    ("CANCELLED", 0, RunState.TO_DO, Cause.CANCELLED, "on n1"),
    ("NODE_FAIL", 1, RunState.TO_DO, Cause.NODE_FAILED, "on n1"),
    ("PREEMPTED", 0, RunState.TO_DO, Cause.PREEMPTED, "on n1"),
]


@pytest.mark.parametrize(("word", "code", "state", "cause", "detail"), ENDS)
@pytest.mark.parametrize("accounts", [False, True])
def test_slurm_says_what_became_of_a_task_that_noted_nothing(
    slurm: FakeSlurm,
    plan: StudyPlan,
    settings: Settings,
    accounts: bool,
    word: str,
    code: int,
    state: RunState,
    cause: Cause,
    detail: str,
) -> None:
    (submitted,) = submit_runs(plan, settings)
    ended = tasks(submitted.array, word, nodes="n1", exit_code=code)
    waiting = TaskStatus("12_3", job_name(submitted.array.name), CLUSTER, "PENDING", "Priority")
    slurm.answer(waiting, *([] if accounts else ended), accounts=ended if accounts else None)
    first, _, third = states_of(plan)
    assert (first.state, first.reason.cause) == (state, cause) and detail in first.reason.detail
    assert (third.state, str(third.reason), third.job) == (RunState.QUEUED, "Priority", "12_3")


def test_a_task_that_could_not_be_started_names_the_node(slurm: FakeSlurm, plan: StudyPlan, settings: Settings) -> None:
    (submitted,) = submit_runs(plan, settings)
    slurm.answer(*tasks(submitted.array, "FAILED", reason="JobLaunchFailure", nodes="n2", exit_code=0))
    first, *_ = states_of(plan)
    assert (first.state, first.reason.cause) == (RunState.TO_DO, Cause.NOT_STARTED)
    assert first.reason.detail.startswith("on n2: ")


def test_runs_that_wait_or_run_are_not_submitted_again(slurm: FakeSlurm, plan: StudyPlan, settings: Settings) -> None:
    (first,) = submit_runs(plan, settings)
    slurm.answer(*tasks(first.array, "RUNNING", "PENDING"), job="13")
    (submitted,) = submit_runs(plan, settings)
    assert [task.key for task in submitted.array.tasks] == ["c"]


def test_jobs_of_other_users_are_seen(
    slurm: FakeSlurm, plan: StudyPlan, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = submit_runs(plan, settings)
    monkeypatch.setattr("sifmark.studies.slurm.answers.user", lambda: "somebody-else")
    slurm.answer(*tasks(first.array, "RUNNING", "PENDING", "PENDING"))
    assert submit_runs(plan, settings) == ()
    slurm.answer(private="accounts,jobs")
    hidden = states_of(plan)
    assert {each.state for each in hidden} == {RunState.QUEUED}
    assert hidden[0].reason.cause == Cause.SILENT and getpass.getuser() in hidden[0].reason.detail
    assert submit_runs(plan, settings) == ()


@pytest.mark.parametrize("changes", [{"name": "sifmark-another"}, {"cluster": "beta"}, {"task": "99_1"}])
def test_a_job_is_that_of_a_run_only_by_id_name_and_cluster(
    slurm: FakeSlurm, plan: StudyPlan, settings: Settings, changes: dict[str, str]
) -> None:
    (first,) = submit_runs(plan, settings)
    (task,) = tasks(first.array, "RUNNING")
    slurm.answer(task)
    assert states_of(plan)[0].state is RunState.RUNNING
    slurm.answer(replace(task, **changes))  # type: ignore[arg-type]
    assert states_of(plan)[0].state is RunState.TO_DO


def test_a_folder_from_another_cluster_goes_on_here(slurm: FakeSlurm, plan: StudyPlan, settings: Settings) -> None:
    slurm.answer(job="12;beta")
    submit_runs(plan, settings)
    program(slurm.folder / "squeue", '#!/bin/sh\n[ "$1" != --clusters=beta ] || exit 1\n')
    assert {(each.state, each.reason.cause) for each in states_of(plan)} == {(RunState.TO_DO, Cause.ELSEWHERE)}
    slurm.answer(job="13")
    (submitted,) = submit_runs(plan, settings)
    assert submitted.job == "13"


def test_two_submissions_within_a_second_have_their_own_files(
    slurm: FakeSlurm, plan: StudyPlan, settings: Settings
) -> None:
    for job, run in zip(("12", "13", "14"), plan.runs, strict=True):
        slurm.answer(job=job)
        submit_runs(replace(plan, runs=(run,)), settings)
    noted = [read_log(run.result).submitted for run in plan.runs]
    assert [each.job for each in noted if each] == ["12", "13", "14"]
    assert len({each.array for each in noted if each}) == 3


def test_a_submission_without_an_answer_keeps_its_files(
    slurm: FakeSlurm, plan: StudyPlan, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(slurm.folder / "sbatch", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("sifmark.studies.slurm.queue.TIME_LIMIT", 2.0)
    with refused(SifmarkError, "command-failed", "sbatch"):
        submit_runs(plan, settings)
    noted = read_log(plan.runs[0].result).submitted
    assert noted is not None and not noted.job
    slurm.answer(TaskStatus("12_1", job_name(noted.array), CLUSTER, "RUNNING"), job="13")
    (submitted,) = submit_runs(plan, settings)
    assert [task.key for task in submitted.array.tasks] == ["b", "c"], "Slurm had taken the job"


def test_arrays_that_were_submitted_before_a_refusal_are_named(
    slurm: FakeSlurm, plan: StudyPlan, settings: Settings
) -> None:
    program(
        slurm.folder / "sbatch",
        f"#!/bin/sh\nif [ -e {slurm.folder}/once ]; then echo 'sbatch: error: policy' >&2; exit 1; fi\n"
        f"touch {slurm.folder}/once\necho 12\n",
    )
    with refused(SifmarkError, "job-refused", "job 12") as caught:
        submit_runs(plan, replace(settings, slurm={"max_array_size": 2}))
    assert "2 runs had been submitted before" in caught.value.cause and "again later" in caught.value.remedy


def test_a_run_that_has_a_result_by_now_is_not_submitted(
    any_command: None, slurm: FakeSlurm, plan: StudyPlan, settings: Settings
) -> None:
    first, second, _ = plan.runs
    put("training", first)
    second.result.write_bytes(first.result.read_bytes())
    (submitted,) = submit_runs(plan, settings)
    assert [task.key for task in submitted.array.tasks] == ["b", "c"]
    assert not second.result.exists(), "a node would take it for the run's own"
    (kept,) = second.result.parent.glob(".earlier/b-1.json")
    assert kept.read_bytes() == first.result.read_bytes()


def test_nodes_that_could_not_start_an_image_are_left_out(
    slurm: FakeSlurm, plan: StudyPlan, settings: Settings
) -> None:
    (first,) = submit_runs(plan, settings)
    note(plan.runs[0], Ended(time.time(), "n2", 127, job="12_1", array=first.array.name, cluster=CLUSTER))
    (again,) = submit_runs(replace(plan, runs=plan.runs[:1]), settings)
    assert "#SBATCH --exclude=n2\n" in again.script
    (others,) = submit_runs(replace(plan, runs=plan.runs[1:]), settings)
    assert "--exclude" not in others.script


def test_what_waits_holds_up_its_lane_alone(slurm: FakeSlurm, plan: StudyPlan, settings: Settings) -> None:
    limited = replace(settings, slurm={"max_jobs_in_flight": 2})
    program(slurm.folder / "sbatch", f'#!/bin/sh\necho "$*" >>{slurm.folder}/asked\nwc -l <{slurm.folder}/asked\n')
    (first,) = submit_runs(plan, limited)
    assert "#SBATCH --array=1-3%2\n" in first.script
    slurm_tasks = tasks(first.array, "PENDING", "PENDING", "PENDING", job="1")
    squeue = FakeSlurm(slurm.folder)
    asked = (slurm.folder / "sbatch").read_text()
    squeue.answer(*slurm_tasks)
    program(slurm.folder / "sbatch", asked)
    more = tuple(replace(planned(key), result=plan.runs[0].result.with_name(f"{key}.json")) for key in "de")
    second = submit_runs(replace(plan, runs=(*plan.runs, *more)), limited)
    assert [(each.array.lane, each.array.limit) for each in second] == [(0, 1), (1, 1)]
    lines = (slurm.folder / "asked").read_text().splitlines()
    assert ["--dependency=afterany:1" in line for line in lines] == [False, True, True]


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
    with refused(SifmarkError, "image-not-built", "no cuda.sif"):
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


# Logs of runs


def logged(planned: PlannedRun, *events: Event) -> PlannedRun:
    """A run with these events, after a submission of ten minutes as job 12."""
    job = Submitted(time.time(), "login", getpass.getuser(), "trial", 1, 600, "12", CLUSTER)
    for event in (job, *events):
        note(planned, event)
    return planned


def started(ago: float = 0) -> Started:
    return Started(time.time() - ago, "n1", "12_1", "trial", CLUSTER)


def ended(code: int, **fields: Any) -> Ended:
    return Ended(time.time(), "n1", code, job="12_1", array="trial", cluster=CLUSTER, **fields)


LOGS = [
    ([], RunState.TO_DO, "lost: job 12_1 is gone and left no trace"),
    ([started()], RunState.TO_DO, "lost: it began on n1 and left no end"),
    ([started(), ended(0)], RunState.TO_DO, "no_result: it ended well"),
    ([started(), ended(5)], RunState.FAILED, "no_result: exit code 5"),
    ([started(), ended(6)], RunState.TO_DO, "results_not_writable: on n1"),
    ([ended(65)], RunState.TO_DO, "image_replaced: on n1"),
    ([ended(127)], RunState.TO_DO, "program_missing: on n1"),
    ([started(), ended(137)], RunState.FAILED, "no_result: exit code 137: killed: the memory limit"),
    ([started(), ended(143)], RunState.TO_DO, "cancelled: on n1"),
    ([started(560), ended(143)], RunState.FAILED, "job_time_limit: 00:10:00"),
    ([started(560), ended(143, cancelled=True)], RunState.TO_DO, "cancelled: on n1"),
]


@pytest.mark.parametrize(("events", "state", "reason"), LOGS)
def test_without_accounts_logs_say_what_became_of_a_run(
    slurm: FakeSlurm, plan: StudyPlan, events: list[Event], state: RunState, reason: str
) -> None:
    logged(plan.runs[0], *events)
    first, *_ = states_of(plan)
    assert first.state is state and str(first.reason).startswith(reason)


PRINTED = [
    (
        137,
        "slurmstepd: error: Exceeded job memory limit\nsrun: error: n1: task 0: Killed",
        RunState.FAILED,
        Cause.MEMORY_LIMIT,
        "of its job",
    ),
    (
        1,
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-30T00:56:13 DUE TO NODE FAILURE, SEE SLURMCTLD LOG",
        RunState.TO_DO,
        Cause.NODE_FAILED,
        "on n1",
    ),
]


@pytest.mark.parametrize(("code", "printed", "state", "cause", "detail"), PRINTED)
def test_what_slurm_printed_says_why_a_run_ended(
    slurm: FakeSlurm, plan: StudyPlan, code: int, printed: str, state: RunState, cause: Cause, detail: str
) -> None:
    run = logged(plan.runs[0], started(), ended(code))
    log = task_log(plan.folder, "trial", 1)
    log.parent.mkdir(parents=True)
    log.write_text(f"x\n{printed}\n")
    (status,) = map(status_of, read_evidence([run]))
    assert (status.state, status.reason.cause) == (state, cause)
    assert status.reason.detail.split(":")[0] == detail


SILENT = [
    ([], RunState.QUEUED),
    ([started()], RunState.RUNNING),
    ([started(), ended(143, cancelled=True)], RunState.QUEUED),  # a preempted one waits again
    ([started(), ended(5)], RunState.FAILED),
]


@pytest.mark.parametrize(("events", "state"), SILENT)
def test_while_slurm_does_not_answer_runs_are_left_to_their_jobs(
    slurm: FakeSlurm, plan: StudyPlan, capsys: pytest.CaptureFixture[str], events: list[Event], state: RunState
) -> None:
    logged(plan.runs[0], *events)
    slurm.silent()
    first, second, _ = states_of(plan)
    assert (first.state, second.state) == (state, RunState.TO_DO)
    assert "Unable to contact slurm controller" in capsys.readouterr().err
    with refused(SifmarkError, "job-refused"):
        read_evidence(plan.runs, strict=True)


@pytest.mark.parametrize("events", [[], [started()]])
def test_without_slurm_what_was_submitted_is_done_here(
    plan: StudyPlan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], events: list[Event]
) -> None:
    logged(plan.runs[0], *events)
    monkeypatch.setenv("PATH", str(plan.folder))
    first, *_ = states_of(plan)
    assert (first.state, first.reason.cause, first.job) == (RunState.TO_DO, Cause.ELSEWHERE, "")
    assert capsys.readouterr().err == ""
    selected = select(replace(plan, runs=(replace(plan.runs[0], state=first.state, reason=first.reason),)), False)
    assert len(selected.runs) == 1


# Results and jobs together


@pytest.mark.parametrize(
    ("result", "word", "state", "reason"),
    [
        ("completed", "PENDING", RunState.DONE, ""),
        ("crashed", "PENDING", RunState.QUEUED, "Priority"),
        ("crashed", "FAILED", RunState.FAILED, "crashed: x"),
        ("crashed", "CANCELLED", RunState.FAILED, "crashed: x"),
        ("interrupted", "TIMEOUT", RunState.FAILED, "job_time_limit: 00:10:00 did not suffice"),
        ("interrupted", "PREEMPTED", RunState.TO_DO, "preempted: on n1"),
        ("no_device", "COMPLETED", RunState.TO_DO, "no_device: x"),
    ],
)
def test_a_result_counts_more_than_a_job_and_a_job_more_than_nothing(
    any_command: None, slurm: FakeSlurm, plan: StudyPlan, result: str, word: str, state: RunState, reason: str
) -> None:
    run = logged(plan.runs[0])
    if result == "completed":
        put("training", run)
    else:
        code = {"no_device": 3, "interrupted": 143}.get(result, 4)
        put("out_of_memory", run, state=result, message="stopped by SIGTERM" if code == 143 else "x", exit_code=code)
    slurm.answer(TaskStatus("12_1", "sifmark-trial", CLUSTER, word, "Priority" if word == "PENDING" else "", "n1", 4))
    (found,) = read_evidence([run])
    status = status_of(found)
    assert (status.state, str(status.reason)) == (state, reason)
    again = status_of(found, retry="failed")
    assert again.state is (RunState.TO_DO if state is RunState.FAILED else state)


def test_a_run_that_was_stopped_here_is_interrupted_as_its_result_says(any_command: None, plan: StudyPlan) -> None:
    run = plan.runs[0]
    note(run, Started(time.time(), "vm"))
    put("out_of_memory", run, state="interrupted", message="stopped by SIGINT", exit_code=130)
    note(run, Ended(time.time(), "vm", 130, cancelled=True))
    (status,) = map(status_of, read_evidence([run]))
    assert (status.state, str(status.reason)) == (RunState.TO_DO, "interrupted: stopped by SIGINT")


def test_what_runs_out_of_time_gets_more_when_it_is_tried_again(
    slurm: FakeSlurm, plan: StudyPlan, settings: Settings
) -> None:
    run = logged(plan.runs[0])
    slurm.answer(TaskStatus("12_1", "sifmark-trial", CLUSTER, "TIMEOUT", "", "n1", 0))
    (submitted,) = submit_runs(replace(plan, runs=(run,)), settings)
    assert "--time=00:20:00\n" in submitted.script
