"""Exports of a study: their texts, that they are what other programs read, and what their shell scripts do."""

import ast
import json
import os
import shlex
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click
import documents
import pytest
import yaml
from unit.fake_studies import wait_for_opened
from unit.refusals import refused
from unit.studies.exporting import CLUSTER, HERE, IMAGES, OPTIONS, STUDY, plan, run, seconds_of

from sifmark.commands import command_line  # noqa: F401 - declares the commands
from sifmark.commands.framework import COMMANDS
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.locks import file_lock
from sifmark.core.settings import Settings
from sifmark.studies.exports import export
from sifmark.studies.exports.earlier import references
from sifmark.studies.exports.export import FORMATS, export_study
from sifmark.studies.exports.exported import ExportedFile, labels_of
from sifmark.studies.exports.jube import jube_files
from sifmark.studies.exports.reframe import reframe_files
from sifmark.studies.exports.shell import shell_files
from sifmark.studies.folder import run_lock
from sifmark.studies.slurm import images
from sifmark.studies.slurm.jobs import JobArray, JobShape, task_of
from sifmark.studies.slurm.submit import SubmittedArray
from sifmark.studies.study import Reason, RunState, StudyPlan

# In place of sifmark: notes its words, and writes a result unless the workload says otherwise.
STAND_IN = """#!/usr/bin/env bash
if [ "$1" = results.validate ]; then [ "$(cat "${@: -1}")" = valid ]; exit; fi
printf '%s|' "$@" >>"$NOTES"
printf '\\n' >>"$NOTES"
until [ "$1" = -- ]; do shift; done
case $2 in failing) exit 3 ;; large) echo valid >"${@: -1}" && exit 12 ;; invalid) echo bad >"${@: -1}" ;; esac
[ "$2" = invalid ] || echo valid >"${@: -1}"
"""
BINDS = ["--bind", "/scratch/image net", "--bind", "/data:/big data:rw"]
LAUNCHER = """#!/usr/bin/env bash
echo "$1 nodes" >>"$LAUNCHES"
exec "${@:2}"
"""


def test_runs_are_told_apart_by_what_varies() -> None:
    labels = labels_of(plan())
    assert len(set(labels.values())) == len(labels)
    assert {label for label in labels.values() if "cluster-a" in label} == {
        f"sizes batch_size={size} repeat={repeat} system=cluster-a" for size in (16, 32) for repeat in (1, 2)
    }


# Shell scripts


class Script:
    """An exported script with a stand-in of sifmark."""

    def __init__(self, folder: Path, *workloads: str) -> None:
        self.folder = folder
        study = plan()
        more = [run(CLUSTER, workload=workload, batch_size=1) for workload in workloads]
        if workloads:
            study = replace(study, runs=plan(study.folder, RunState.TO_DO, *more).runs[-len(more) :])
        (file,) = shell_files(study, folder)
        assert file.executable
        self.path = folder / file.name
        self.path.write_text(file.text)
        self.program = folder / "sifmark"
        self.program.write_text(STAND_IN)
        self.launcher = folder / "launcher"
        self.launcher.write_text(LAUNCHER)
        for each in (self.path, self.program, self.launcher):
            each.chmod(0o755)

    def __call__(self, *words: str, **variables: str) -> tuple[int, list[list[str]], str]:
        """Run it. Return its exit code, the words of the runs that it started, and what it printed."""
        notes = self.folder / "notes"
        notes.write_text("")
        environment = {
            **os.environ,
            "SIFMARK": str(self.program),
            "NOTES": str(notes),
            "LAUNCHES": "/dev/null",
            "LAUNCH": str(self.launcher),
            **variables,
        }
        done = subprocess.run(
            [self.path, *words], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, [line.split("|")[:-1] for line in notes.read_text().splitlines()], done.stderr


def test_a_script_does_each_run_once(tmp_path: Path) -> None:
    script = Script(tmp_path)
    code, runs, _ = script()
    assert (code, len(runs)) == (0, 8)
    assert script()[:2] == (0, [])
    file = next((tmp_path / "results/trial/here").glob("*.json"))
    file.write_text("cut off")
    code, runs, _ = script()
    assert (code, len(runs), file.read_text()) == (0, 1, "valid\n")


def test_words_arrive_as_they_are(tmp_path: Path) -> None:
    _, runs, _ = Script(tmp_path)("cluster-a")
    study = plan()
    planned = next(each for each in study.runs if each.run.system == "cluster-a" and each.run.nodes == 1)
    words = ["run", *BINDS, CLUSTER.image, "--", *planned.run.arguments, "--site", "cluster-a", "--output"]
    assert runs[0] == [*words, str(tmp_path / planned.result)]


def test_a_script_runs_where_the_study_is_wherever_it_is_started(tmp_path: Path) -> None:
    script = Script(tmp_path, "good")
    script.program.write_text('#!/bin/sh\n[ "$1" = run ] || exit 1\npwd >"$NOTES"\n')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    script.folder = elsewhere
    assert script()[0] == 1 and (elsewhere / "notes").read_text() == f"{tmp_path}\n"
    assert (tmp_path / "results/trial/cluster-a/logs").is_dir()
    script(SIFMARK_RESULTS="mine")
    assert (elsewhere / "mine/cluster-a/logs").is_dir()


def test_systems_can_be_chosen(tmp_path: Path) -> None:
    _, runs, output = Script(tmp_path)("here")
    assert {words[1] for words in runs} == {"cpu"} and len(runs) == 4
    assert output.endswith("4 runs, 0 failed\n")
    assert Script(tmp_path)("nowhere")[:2] == (0, [])


def test_several_nodes_are_started_by_the_launcher(tmp_path: Path) -> None:
    launches = tmp_path / "launches"
    _, runs, _ = Script(tmp_path)("cluster-a", LAUNCHES=str(launches))
    assert len(runs) == 4 and launches.read_text() == "2 nodes\n2 nodes\n"


def test_failures_do_not_stop_the_others(tmp_path: Path) -> None:
    script = Script(tmp_path, "failing", "large", "invalid", "good")
    code, runs, output = script()
    assert (code, len(runs)) == (1, 4)
    assert output.endswith("4 runs, 2 failed\n")
    _, runs, _ = script()
    assert [words[words.index("--") + 1] for words in runs] == ["failing", "invalid"]


def test_a_run_in_progress_elsewhere_is_left_out(tmp_path: Path) -> None:
    script = Script(tmp_path, "good")
    (planned,) = plan(Path("results/trial"), RunState.TO_DO, run(CLUSTER, workload="good", batch_size=1)).runs[-1:]
    folder = tmp_path / "results/trial/cluster-a"
    folder.mkdir(parents=True)
    lock = folder / f".{planned.key}.lock"
    with subprocess.Popen(["flock", str(lock), "sleep", "30"]) as holder:
        while subprocess.run(["flock", "-n", str(lock), "true"], check=False).returncode == 0:
            pass
        code, runs, output = script()
        assert (code, runs) == (0, []) and "in progress elsewhere" in output
        holder.terminate()


def test_a_run_that_begins_elsewhere_after_another_ended_is_left_out(tmp_path: Path) -> None:
    script = Script(tmp_path, "good")
    (planned,) = plan(Path("results/trial"), RunState.TO_DO, run(CLUSTER, workload="good", batch_size=1)).runs[-1:]
    lock = run_lock(tmp_path / "results/trial", "cluster-a", planned.key)
    with ThreadPoolExecutor() as pool, ExitStack() as others:
        with file_lock(lock):
            running = pool.submit(script)
            wait_for_opened(lock)
            lock.unlink()
            others.enter_context(file_lock(lock))
        code, runs, output = running.result()
    assert (code, runs) == (0, []) and "in progress elsewhere" in output


def test_a_run_that_was_done_elsewhere_meanwhile_is_not_done_again(tmp_path: Path) -> None:
    script = Script(tmp_path, "good")
    (planned,) = plan(Path("results/trial"), RunState.TO_DO, run(CLUSTER, workload="good", batch_size=1)).runs[-1:]
    lock = run_lock(tmp_path / "results/trial", "cluster-a", planned.key)
    with ThreadPoolExecutor() as pool, file_lock(lock):
        running = pool.submit(script)
        wait_for_opened(lock)
        lock.with_name(f"{planned.key}.json").write_text("valid\n")
        lock.unlink()
    assert running.result()[:2] == (0, [])


# Suites


def test_jube_reads_a_parameter_for_each_run() -> None:
    (file,) = jube_files(plan(), OPTIONS, seconds_of(plan()))
    document = yaml.safe_load(file.text)
    here, cluster = document["benchmark"]
    assert here["name"] == "here" and cluster["comment"] == r'A "trial" of\nexports: 100 % # {odd}'
    parameters = {each["name"]: each["_"] for each in cluster["parameterset"][0]["parameter"]}
    assert parameters["number"] == "0,1,2,3"
    values = {name: ast.literal_eval(text.removesuffix("[$number]")) for name, text in parameters.items()}
    assert values["arguments"][0] == "resnet50 --batch-size 16 --data '/scratch/image net' --meter nvml"
    assert (values["devices"], values["nodes"], values["time"]) == (["4", "8"] * 2, ["1", "2"] * 2, ["00:40:00"] * 4)
    start = {(each["name"], each.get("tag")): each["_"] for each in cluster["parameterset"][1]["parameter"]}
    assert start["launch", "slurm"].endswith("--gpus-per-node=$devices_of_node --exclusive $site")
    assert start["launch", "!slurm"] == ""
    assert ast.literal_eval(start["site", None]) == "--partition=gpu --account=abc --mem=0"
    assert shlex.split(ast.literal_eval(start["image", None])) == [CLUSTER.image]
    assert shlex.split(ast.literal_eval(start["binds", None])) == BINDS
    assert cluster["step"]["do"][0].startswith("$launch $sifmark run $binds $image --")
    assert set(cluster["result"]["table"]["column"]) > {"number", "batch_size", "data", "throughput", "state"}


def test_a_table_of_jube_has_no_formula_and_no_cell_more() -> None:
    study = plan(Path("results"), RunState.TO_DO, run(CLUSTER, workload="lstm", meter="=cmd;=1+1"))
    (file,) = jube_files(study, OPTIONS, seconds_of(study))
    cells = [line for line in file.text.splitlines() if "{name: meter," in line]
    assert len(cells) == 1 and '"\'=cmd,=1+1"' in cells[0].replace("\\", "")


def test_the_module_of_reframe_is_python_with_a_test_for_each_system() -> None:
    module, schema = reframe_files(plan(), IMAGES, seconds_of(plan()))
    tree = ast.parse(module.text)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert classes == ["SifmarkRun", "trial_here", "trial_cluster_a"]
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    constants = {ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in assigned}
    data = "--data '/scratch/image net'"
    assert constants["RUNS"]["sizes batch_size=32 repeat=2 system=cluster-a"] == {
        "system": "cluster-a", "arguments": f"resnet50 --batch-size 32 {data} --meter nvml", "nodes": 2, "devices": 4,
        "seconds": 2400, "references": {},
    }  # fmt: skip
    here, cluster = (constants["IMAGES"][system] for system in ("here", "cluster-a"))
    assert (here["image"], here["state"], here["options"]) == ("/images/cpu.sif", "1000 1700000000", ["--userns"])
    assert shlex.split(here["facts"]) == ["export", f"SIFMARK_IMAGE={IMAGES['here'].facts}"]
    assert cluster["options"] == ['"${flags[@]}"'] and cluster["before"][0] == "flags=()"
    assert "SIFMARK_LAUNCH_SECRET" not in "".join(here["before"])
    assert cluster["before"][-1] == "export SIFMARK_LAUNCH_SECRET"
    assert json.loads(schema.text)["$id"].endswith(schema.name) and schema.name in module.text


def test_systems_whose_names_are_one_in_python_have_a_class_each() -> None:
    alike = replace(CLUSTER, name="cluster_a")
    whole = plan()
    study = replace(
        whole,
        study=replace(STUDY, systems=(*STUDY.systems, alike)),
        runs=(*whole.runs, *plan(whole.folder, RunState.TO_DO, run(alike, workload="lstm")).runs[-1:]),
    )
    module, _ = reframe_files(study, {**IMAGES, alike.name: IMAGES["cluster-a"]}, seconds_of(study))
    classes = [node.name for node in ast.parse(module.text).body if isinstance(node, ast.ClassDef)]
    assert classes == ["SifmarkRun", "trial_here", "trial_cluster_a", "trial_cluster_a_"]


@pytest.mark.parametrize("title", ['"""', "\\", "'''\n\"", 'ends in "', "${x}\x07"])
def test_no_title_breaks_an_export(title: str) -> None:
    study = replace(plan(), study=replace(STUDY, title=title))
    module, _ = reframe_files(study, IMAGES, seconds_of(study))
    assert ast.parse(module.text)
    (script,) = shell_files(study, Path.cwd())
    assert subprocess.run(["bash", "-n"], input=script.text, text=True, check=False).returncode == 0


# References of earlier results


def finished(folder: Path, *throughputs: float, **changes: str) -> StudyPlan:
    """A plan whose first runs have results with these throughputs."""
    study = plan(folder)
    runs = list(study.runs)
    for number, throughput in enumerate(throughputs):
        runs[number] = replace(runs[number], state=RunState.DONE)
        runs[number].result.parent.mkdir(parents=True, exist_ok=True)
        document = documents.from_image(**changes)
        document["metrics"]["throughput"]["value"] = throughput
        runs[number].result.write_text(json.dumps(document))
    return replace(study, runs=tuple(runs))


def test_references_are_medians_over_the_repeats_of_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sifmark.results.load.document_problems", lambda *_: [])
    study = finished(tmp_path, 10.0, 20.0, 30.0, 40.0, 14.0)
    values = references(study.runs)
    first, again = study.runs[0].key, study.runs[4].key
    assert values[first]["throughput"] == values[again]["throughput"] == (12.0, "images/s", True)
    assert values[first]["step_time_p50"].more_is_better is False
    module, _ = reframe_files(study, IMAGES, seconds_of(study))
    assert "'throughput': [12.0, 'images/s', True]" in module.text


def test_the_rate_of_a_whole_sweep_is_no_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sifmark.results.load.document_problems", lambda *_: [])
    study = finished(tmp_path, 10.0)
    copies = json.loads(study.runs[0].result.read_text())
    copies["workload"]["task"] = "microbenchmark"
    copies["metrics"]["memory_bandwidth"] = {"value": 15.4, "unit": "GB/s"}
    study.runs[0].result.write_text(json.dumps(copies))
    (values,) = {tuple(each.items()) for each in references(study.runs).values()}
    assert values == (("memory_bandwidth", (15.4, "GB/s", True)),)


def test_references_have_the_units_of_their_own_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sifmark.results.load.document_problems", lambda *_: [])
    study = finished(tmp_path, 10.0, 20.0)
    other = json.loads(study.runs[1].result.read_text())
    other["metrics"]["throughput"]["unit"] = "tokens/s"
    study.runs[1].result.write_text(json.dumps(other))
    values = references(study.runs)
    assert [values[each.key]["throughput"].unit for each in study.runs[:2]] == ["images/s", "tokens/s"]


def test_modules_of_reframe_bind_the_data_of_runs_and_no_folder_of_results(
    tmp_path: Path, site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(images, "_located", lambda system, engine: __file__)
    monkeypatch.setattr(images, "_plain", lambda start, engine, settings: start)
    runs = plan(tmp_path / "results", RunState.TO_DO, run(HERE, workload="resnet50", data=f"{tmp_path}/data")).runs
    study = replace(plan(), runs=runs[-1:])
    module, _ = export_study(study, "reframe", tmp_path / "out", site)
    assert f"--bind={tmp_path}/data:{tmp_path}/data:ro" in module.read_text().replace(" ", "=")
    assert f"{tmp_path}/results" not in module.read_text()


@pytest.mark.parametrize("form", ["reframe", "jube"])
def test_suites_find_what_a_study_names_below_its_folder(
    tmp_path: Path, site: Settings, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "trace.csv").write_text("")
    monkeypatch.setattr(images, "_located", lambda system, engine: __file__)
    monkeypatch.setattr(images, "_plain", lambda start, engine, settings: start)
    each = run(HERE, workload="resnet50", data="data", meter="replay:trace.csv", evaluation_data="./data")
    planned = plan(tmp_path / "results", RunState.TO_DO, each).runs[-1]
    file, *_ = export_study(replace(plan(), runs=(planned,)), form, tmp_path / "out", site)
    text = file.read_text()
    for words in ("--data {}/data", "--meter replay:{}/trace.csv", "--evaluation-data {}/data"):
        assert words.format(tmp_path) in text
    assert form == "jube" or f"{tmp_path}/trace.csv:{tmp_path}/trace.csv:ro" in text


def test_failed_and_wrong_results_are_no_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert references(finished(tmp_path / "invalid", 10.0).runs) == {}
    monkeypatch.setattr("sifmark.results.load.document_problems", lambda *_: [])
    assert references(finished(tmp_path / "wrong", 10.0, numerics__state="failed").runs) == {}
    study = finished(tmp_path / "other", 10.0)
    lost = replace(study.runs[0], reason=Reason("out_of_memory"))
    assert references([lost]) == {} == references([replace(study.runs[0], state=RunState.FAILED)])


# The command's work


def test_files_are_written_and_can_be_started(tmp_path: Path, site: Settings) -> None:
    (script,) = export_study(plan(), "shell", tmp_path / "new" / "place", site)
    assert script == tmp_path / "new" / "place" / "trial.sh"
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    (file,) = export_study(plan(), "jube", tmp_path, site)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_runs_that_cannot_be_done_are_left_out(tmp_path: Path, site: Settings) -> None:
    study = plan()
    some = replace(study, runs=(replace(study.runs[0], state=RunState.CANNOT_RUN), *study.runs[1:]))
    (script,) = export_study(some, "shell", tmp_path, site)
    assert study.runs[0].key not in script.read_text() and study.runs[1].key in script.read_text()
    with refused(UsageError, "study-invalid"):
        export_study(plan(Path("results"), RunState.CANNOT_RUN), "shell", tmp_path, site)


def test_what_cannot_be_written_is_refused(tmp_path: Path, site: Settings) -> None:
    (tmp_path / "file").write_text("")
    with refused(UsageError, "invalid-option"):
        export_study(plan(), "shell", tmp_path / "file", site)
    with refused(UsageError, "unknown-name"):
        export_study(plan(), "excel", tmp_path, site)
    with refused(SifmarkError, "image-not-built"):
        export_study(plan(), "reframe", tmp_path / "new", site)
    assert not (tmp_path / "new").exists()


def test_every_format_is_offered() -> None:
    (kind,) = [each.type for each in COMMANDS["study.export"].params if each.name == "target"]
    assert isinstance(kind, click.Choice) and set(kind.choices) == set(FORMATS)


def test_job_scripts_are_submitted_by_hand(tmp_path: Path, site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def rendered(study: StudyPlan, settings: Settings) -> tuple[SubmittedArray, ...]:
        shape = JobShape("here", 1, 1, 600)
        array = JobArray(
            *("20260101-1", "trial", shape, OPTIONS["here"], IMAGES["here"], tmp_path / "jobs", tmp_path),
            tuple(map(task_of, study.runs[:2])),
        )
        return (SubmittedArray(array, "not this"),)

    monkeypatch.setattr(export, "render_runs", rendered)
    written = export_study(plan(tmp_path), "sbatch", tmp_path / "place", site)
    files = {str(file.relative_to(tmp_path / "place")): file for file in written}
    name = "trial-1-here-1x1-10min"
    assert set(files) == {f"{name}.sh", f"{name}.runs", f"{name}.logs/.keep", "submit.sh"}
    assert str(tmp_path / "place") in files[f"{name}.sh"].read_text()
    assert len(files[f"{name}.runs"].read_text().splitlines()) == 2
    assert files["submit.sh"].read_text().splitlines()[-1] == f"sbatch {tmp_path / 'place' / name}.sh"


def test_a_file_is_complete_or_absent(tmp_path: Path, site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = ExportedFile("trial.sh", "\ud800")
    monkeypatch.setitem(export.FORMATS, "shell", lambda _: [bad])
    with pytest.raises(UnicodeEncodeError):
        export_study(plan(), "shell", tmp_path, site)
    assert list(tmp_path.iterdir()) == []
