"""Exports of a study, run by the programs that they are for: ReFrame and JUBE, here and on a Slurm of two nodes."""

import csv
import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import documents
import pytest
from documents import problems_of
from images.sites import Site, call, make_site, set_up
from unit.studies.exporting import WORST

from sifmark.core import paths
from sifmark.results.load import load_results

pytestmark = pytest.mark.full

STUDY = f"""
title = "Products of $(touch pwned) matrices"

[[system]]
name  = "here"
image = {json.dumps(f"./{WORST}.sif", ensure_ascii=False)}
nodes = 2

[[run]]
name         = "products"
workload     = "matmul"
largest_size = 256
precision    = ["fp32", "bf16"]
"""
# A partition of the Slurm of two nodes, as a site describes it to ReFrame. It has no accounting.
SETTINGS = """
site_configuration = {
    "systems": [{
        "name": "pair", "hostnames": [".*"], "partitions": [{
            "name": "all", "scheduler": "SCHEDULER", "launcher": "LAUNCHER", "environs": ["plain"], "max_jobs": 2,
            "sched_options": {"use_nodes_option": True}, "processor": {"num_cpus": 1},
            "container_platforms": [{"type": "Apptainer"}],
        }],
    }],
    "environments": [{"name": "plain"}],
}
"""
# In place of Apptainer: copies the result that is prepared for a workload, the word after the program.
APPTAINER = """#!/bin/bash
while [ "$1" != /sifmark/run ]; do
  case $1 in -B*) stage=${1#-B} stage=${stage%:/rfm_workdir} ;; esac
  shift
done
cp "$PREPARED/$2.json" "$stage/result.json"
"""


@pytest.fixture(scope="module")
def suites() -> Path:
    """The folder with ReFrame's program; JUBE's is in the system's."""
    return Path(set_up("suites", "ReFrame or JUBE"))


@pytest.fixture(scope="module")
def cluster() -> dict[str, str]:
    """The variable by which Slurm's commands find the cluster."""
    return {"SLURM_CONF": set_up("slurm", "Slurm")}


@dataclass(frozen=True)
class Exporter:
    """A folder with a study, in which the images of a site are used."""

    site: Site

    @property
    def folder(self) -> Path:
        return self.site.folder

    @property
    def environment(self) -> dict[str, str]:
        """The variables of whoever runs an export: sifmark is on the path."""
        program = paths.CHECKOUT / ".venv" / "bin"
        return {**self.site.environment, "PATH": f"{program}:{os.environ['PATH']}"}

    def export(self, form: str) -> Path:
        """Export the study and return the folder of the export. JUBE has no folders with a dollar sign of its own."""
        place = self.folder.parent / form if form == "jube" else self.folder / form
        self.site.inv("study.export", "./trial.toml", "--format", form, "-o", str(place))
        return place

    def states(self) -> list[str]:
        """The states of the runs, as study.plan has them."""
        answer = json.loads(self.site.inv("study.plan", "./trial.toml", "--json").stdout)
        return sorted(str(state) for state in _values(answer, "state"))

    def call(
        self, *words: object, variables: Mapping[str, str] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **(variables or {})}
        return call(list(map(str, words)), check=check, cwd=self.folder, env=environment)


def _values(value: Any, key: str) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (item for name, item in value.items() if name == key)
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _values(item, key)


@pytest.fixture
def exporter(built: Site, tmp_path: Path) -> Iterator[Exporter]:
    folder = tmp_path / WORST
    folder.mkdir()
    shutil.copy(built.dist / "cpu.sif", folder / f"{WORST}.sif")
    (folder / "trial.toml").write_text(STUDY)
    yield Exporter(make_site(folder).using(SIFMARK_DIST=str(built.dist)))
    assert not list(tmp_path.rglob("pwned"))


@pytest.fixture
def reframe(suites: Path, exporter: Exporter) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """Run ReFrame on the exported module. Return its exit code, and what its report says of each run."""

    def run(*words: object, launcher: str = "local", **variables: str) -> tuple[int, list[dict[str, Any]]]:
        scheduler = "squeue" if launcher == "srun" else "local"
        settings = SETTINGS.replace("SCHEDULER", scheduler).replace("LAUNCHER", launcher)
        own = exporter.folder.parent  # ReFrame itself quotes no folder of its own
        (own / "settings.py").write_text(settings)
        report = own / "report.json"
        places = ("-C", own / "settings.py", "-c", "reframe/trial.py", "--prefix", own / "reframe-runs")
        options = (*places, "--report-file", report)
        done = exporter.call(suites / "reframe", *options, *words, "--run", variables=variables, check=False)
        assert report.exists(), done.stdout + done.stderr
        return done.returncode, json.loads(report.read_text())["runs"][-1]["testcases"]

    return run


def stand_in(exporter: Exporter) -> dict[str, str]:
    """The variables that put the stand-in before Apptainer, for ReFrame alone."""
    program = exporter.folder / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text(APPTAINER)
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{exporter.environment['PATH']}", "PREPARED": str(exporter.folder / "prepared")}


# ReFrame


def test_reframe_runs_a_study_on_slurm(
    exporter: Exporter, cluster: dict[str, str], reframe: Callable[..., tuple[int, list[dict[str, Any]]]]
) -> None:
    exporter.export("reframe")
    code, cases = reframe(launcher="srun", **cluster)
    assert code == 0, cases
    assert {case["job_nodelist"][0] for case in cases} <= {"n1", "n2"} and len(cases) == 2
    for case in cases:
        values = {entry["name"]: entry for entry in performance(case)}
        assert values["throughput"]["unit"] == "operations/s" and values["throughput"]["value"] > 0
    results = list(load_results(str(exporter.folder.parent / "reframe-runs" / "output")))
    assert [result.problems for result in results] == [(), ()]
    identities = {result.document["provenance"]["image"]["file"]["identity"] for result in results}
    assert len(identities) == 1 and None not in identities
    assert {result.document["site"] for result in results} == {"here"}


def performance(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The values of a test case: the report has them by their names, with the system in front."""
    return [
        {"name": name.rpartition(":")[2], "value": value[0], "reference": value[1], "unit": value[4]}
        for name, value in case["perfvalues"].items()
    ]


def test_reframe_judges_results_by_validity_correctness_and_references(
    exporter: Exporter, reframe: Callable[..., tuple[int, list[dict[str, Any]]]]
) -> None:
    valid = json.dumps(documents.from_image())
    wrong = documents.from_image()
    wrong["numerics"] |= {"state": "failed", "reason": "its losses deviate"}
    prepared = {
        "resnet50": valid,
        "gpt2": json.dumps(documents.from_image("out_of_memory")),
        "lstm": json.dumps(wrong),
        "bert_base": json.dumps(documents.from_image(status__state="time_limit")),
        "mcmc": valid.replace('"schema_version"', '"schema"', 1),
        "matmul": "{",
        "memory_copy": "",
    }
    runs = "".join(f'\n[[run]]\nname = "{name}"\nworkload = "{name}"\n' for name in prepared)
    (exporter.folder / "trial.toml").write_text(f"{STUDY[: STUDY.index('[[run]]')]}{runs}")
    exporter.export("reframe")
    variables = stand_in(exporter)
    (exporter.folder / "prepared").mkdir()
    for name, text in prepared.items():
        if text:
            (exporter.folder / "prepared" / f"{name}.json").write_text(text)
    code, cases = reframe(**variables)
    assert code != 0
    outcomes = {case["display_name"].rpartition("=")[2]: case["result"] for case in cases}
    assert {name for name, outcome in outcomes.items() if outcome == "pass"} == {"resnet50", "gpt2"}
    reasons = {case["display_name"].rpartition("=")[2]: case["fail_reason"] for case in cases}
    assert "correctness: failed" in reasons["lstm"]
    assert "time_limit" in reasons["bert_base"]
    assert "the result is not valid" in reasons["mcmc"]


def test_reframe_compares_with_earlier_results(
    exporter: Exporter, reframe: Callable[..., tuple[int, list[dict[str, Any]]]]
) -> None:
    exporter.call(exporter.export("shell") / "trial.sh")
    assert exporter.states() == ["done", "done"]
    exporter.export("reframe")
    variables = stand_in(exporter)
    (exporter.folder / "prepared").mkdir()
    result = next(
        each
        for each in load_results(str(exporter.folder / "results"))
        if each.document["configuration"]["precision"] == "fp32"
    )
    shutil.copy(result.file, exporter.folder / "prepared" / "matmul.json")
    code, cases = reframe("-n", "precision=fp32", **variables)
    assert code == 0 and len(cases) == 1, cases
    (value,) = (entry for entry in performance(cases[0]) if entry["name"] == "peak_flops")
    assert value["reference"] == result.document["metrics"]["peak_flops"]["value"]
    slow = json.loads(Path(result.file).read_text())
    slow["metrics"]["peak_flops"]["value"] *= 0.9
    (exporter.folder / "prepared" / "matmul.json").write_text(json.dumps(slow))
    code, cases = reframe("-n", "precision=fp32", **variables)
    assert code != 0 and "failed to meet reference(s): peak_flops" in cases[0]["fail_reason"]
    assert reframe("-n", "precision=fp32", "-S", "tolerance=0.2", **variables)[0] == 0


# JUBE


@pytest.mark.parametrize("tags", [(), ("--tag", "slurm")], ids=["here", "slurm"])
def test_jube_runs_a_study(exporter: Exporter, suites: Path, cluster: dict[str, str], tags: tuple[str, ...]) -> None:
    folder = exporter.export("jube")
    exporter.call("jube", "run", folder / "trial.yaml", *tags, variables=cluster)
    exporter.call("jube", "result", folder / "jube-trial-here", "--analyse")
    (table,) = (folder / "jube-trial-here").rglob("runs.dat")
    rows = list(csv.DictReader(table.open(), delimiter=";"))
    assert [(row["number"], row["precision"], row["state"], row["correctness"]) for row in rows] == [
        ("0", "fp32", "completed", "passed"),
        ("1", "bf16", "completed", "passed"),
    ]
    results = {path: json.loads(path.read_text()) for path in sorted(folder.rglob("result.json"))}
    assert len(results) == 2 and all(problems_of(path) == [] for path in results)
    assert [float(row["throughput[1/s]"]) for row in rows] == [
        result["metrics"]["throughput"]["value"] for result in results.values()
    ]


def test_jube_reports_a_run_without_a_result(exporter: Exporter, suites: Path) -> None:
    folder = exporter.export("jube")
    text = (folder / "trial.yaml").read_text()
    (folder / "trial.yaml").write_text(text.replace("{name: sifmark, _: sifmark}", "{name: sifmark, _: 'false'}"))
    done = exporter.call("jube", "run", folder / "trial.yaml", check=False)
    assert "ERROR" in done.stdout.upper()
    assert "|  measure |   2 |    0 |    0 |     2 |    0 |" in done.stdout


def test_suites_find_files_that_a_study_names_below_its_folder(
    exporter: Exporter, suites: Path, reframe: Callable[..., tuple[int, list[dict[str, Any]]]]
) -> None:
    (exporter.folder / "trial.toml").write_text(
        STUDY.replace('["fp32", "bf16"]', '"fp32"\nmeter = "replay:trace.json"')
    )
    samples = [{"at": second, "watts": [50.0]} for second in range(600)]
    trace = {"scope": "package", "devices": ["cpu"], "update_period": 1.0, "samples": samples}
    (exporter.folder / "trace.json").write_text(json.dumps(trace))
    exporter.export("reframe")
    code, cases = reframe()
    assert code == 0, cases
    exporter.call("jube", "run", exporter.export("jube") / "trial.yaml")
    results = [
        *(exporter.folder.parent / "reframe-runs/output").rglob("result.json"),
        *exporter.folder.parent.rglob("jube-*/**/result.json"),
    ]
    assert [json.loads(path.read_text())["provenance"]["simulated"] for path in results] == [True, True]


# Scripts


def test_a_shell_script_does_what_study_run_would_do(exporter: Exporter) -> None:
    script = exporter.export("shell") / "trial.sh"
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert exporter.call(script).stderr.endswith("2 runs, 0 failed\n")
    assert exporter.states() == ["done", "done"]
    before = {path: path.stat().st_mtime_ns for path in (exporter.folder / "results").rglob("*.json")}
    exporter.call(script)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    own, other = sorted((exporter.folder / "results" / "trial" / "here").glob("*.json"))
    shutil.copy(other, own)
    exporter.call(script)
    assert exporter.states() == ["done", "done"] and own.read_text() != other.read_text()


def test_scripts_for_sbatch_do_the_runs(exporter: Exporter, cluster: dict[str, str]) -> None:
    exporter.call(exporter.export("sbatch") / "submit.sh", variables=cluster)
    deadline = time.monotonic() + 600
    while exporter.states() != ["done", "done"]:
        assert time.monotonic() < deadline, exporter.call("squeue", variables=cluster).stdout
        time.sleep(3)


# The archive


def test_an_archive_holds_what_is_needed_to_trust_it_elsewhere(exporter: Exporter) -> None:
    exporter.call(exporter.export("shell") / "trial.sh")
    done = exporter.site.inv("study.archive", "./trial.toml", "--json")
    manifest = json.loads(done.stdout)["manifest"]
    kinds = {entry["kind"] for entry in manifest["members"]}
    assert kinds == {"study", "result", "log", "environment", "image", "sbom", "provenance"}
    assert manifest["states"] == {"completed": 2} and manifest["images"][0]["attested"]
    elsewhere = exporter.folder / "elsewhere"
    elsewhere.mkdir()
    shutil.move(exporter.folder / "trial.tar.gz", elsewhere)
    file = str(elsewhere / "trial.tar.gz")
    assert exporter.site.inv("results.validate", file).returncode == 0
    links = exporter.site.inv("results.trace", file, "--require", "image,packages,provenance").stdout
    assert links.count("verified") >= 6
    assert exporter.site.inv("compare", file, "--by", "configuration.precision").returncode == 0
    assert exporter.site.inv("results.show", file).stdout.count("matmul") >= 2
