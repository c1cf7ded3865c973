"""Scripts with hostile names of folders, images and data, run by bash: they do what they should, and nothing else."""

import ast
import json
import os
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from properties import examples
from unit.refusals import refused
from unit.studies.exporting import HOSTILE, IMAGES, OPTIONS, STUDY, plan, run, seconds_of

from sifmark.commands import command_line
from sifmark.core import paths
from sifmark.core.errors import UsageError
from sifmark.core.files import write_text
from sifmark.core.shell import comment, pattern, word, words
from sifmark.engines.apptainer.engine import Apptainer
from sifmark.engines.binds import Bind
from sifmark.recipes.hardware import Access
from sifmark.studies.events import Ended, Started, read_log
from sifmark.studies.exports import export
from sifmark.studies.exports.export import export_study
from sifmark.studies.exports.jube import jube_files
from sifmark.studies.exports.reframe import reframe_files
from sifmark.studies.exports.shell import shell_files
from sifmark.studies.load import load_study
from sifmark.studies.slurm.jobs import ArrayTask, JobArray, JobShape, StartedImage
from sifmark.studies.slurm.options import JobOptions
from sifmark.studies.slurm.script import script_of, start_lines, start_options
from sifmark.studies.slurm.submit import SubmittedArray
from sifmark.studies.study import RunState, StudyPlan, System
from sifmark.studies.template import study_template

# In place of a program: notes how many words it got and the words, each with a NUL behind it.
RECORDER = """#!/bin/bash
[ "$1" != results.validate ] || exit 1
printf '%s\\0' "$#" "$@" >>"$NOTES"
"""
# Starts the words from the program on.
LAUNCHER = """#!/bin/bash
while [[ ${1##*/} != sifmark && $1 != apptainer ]]; do shift; done
exec "$@"
"""
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 200
)
SLOW = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True)
class Bench:
    """A folder of programs that note their words, and another one in which scripts work."""

    programs: Path
    work: Path

    def run(self, *words: str | Path, **variables: str) -> list[list[str]]:
        """Run a script; return the words of the command lines that it started."""
        notes = self.programs / "notes"
        notes.write_text("")
        environment = {name: value for name, value in os.environ.items() if name != "CDPATH"}
        environment |= {"PATH": f"{self.programs}:{os.environ['PATH']}", "NOTES": str(notes), **variables}
        done = subprocess.run(list(words), cwd=self.programs, env=environment, capture_output=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        said, started = os.fsdecode(notes.read_bytes()).split("\0")[:-1], []
        while said:
            count = int(said.pop(0))
            started.append(said[:count])
            said = said[count:]
        return started


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Fails if a script made a file that nobody named."""
    programs, work = tmp_path / "programs", tmp_path / "work"
    for folder in (programs, work):
        folder.mkdir()
    texts = {"srun": LAUNCHER, **dict.fromkeys(("apptainer", "module", "sbatch", "sifmark"), RECORDER)}
    for name, text in texts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    yield Bench(programs, work)
    assert not [path for path in tmp_path.rglob("pwned*") if path.name in ("pwned", "pwned<")]
    assert {path.name for path in programs.iterdir()} <= {*texts, "notes", "script.sh"}


def in_folder(name: str, work: Path) -> tuple[Path, StudyPlan]:
    """A folder of this name, and a plan of a run whose image, data and bind mount have it too."""
    folder = work / name
    folder.mkdir()
    image = folder / f"{name}.sif"
    image.touch()
    system = System("here", str(image), title=name, bind=(Bind(Path(f"/scratch/{name}")),))
    each = run(system, workload="lstm", data=f"{name}/data")
    (planned,) = plan(Path("results") / name, RunState.TO_DO, each).runs[-1:]
    study = replace(STUDY, title=name, systems=(system,))
    return folder, replace(plan(Path("results") / name), study=study, runs=(planned,))


def bound(name: str) -> list[str]:
    """What sifmark is to read: it divides a bind at colons without a backslash."""
    return ["--bind", f"/scratch/{name}".replace("\\", r"\\").replace(":", r"\:")]


def in_shell(bench: Bench, name: str) -> None:
    folder, study = in_folder(name, bench.work)
    (file,) = shell_files(study, folder)
    script = bench.programs / "script.sh"
    script.write_bytes(os.fsencode(file.text))
    (planned,), (system,) = study.runs, study.study.systems
    for results, variables in ((folder / study.folder, {}), (folder / "mine", {"SIFMARK_RESULTS": f"{folder}/mine"})):
        (started,) = bench.run("bash", script, **variables)
        output = results / "here" / f"{planned.key}.json"
        arguments = [*planned.run.arguments, "--site", "here", "--output", str(output)]
        assert started == ["run", *bound(name), system.image, "--", *arguments]
        assert (output.parent / "logs" / f"{planned.key}.log").is_file()
    assert {path.name for path in folder.iterdir()} == {f"{name}.sif", "results", "mine"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_shell_script_takes_every_name_as_it_is(bench: Bench, name: str) -> None:
    in_shell(bench, name)


@SLOW
@given(NAMES)
def test_a_shell_script_takes_any_name_as_it_is(bench: Bench, name: str) -> None:
    assume(not (bench.work / name).exists())
    in_shell(bench, name)


def array_in(bench: Bench, name: str, start_with: str) -> JobArray:
    folder = bench.work / name
    folder.mkdir()
    image = folder / f"{name}.sif"
    image.touch()
    results = folder / "results" / "here"
    sifmark = (str(bench.programs / "sifmark"),) if start_with == "sifmark" else ()
    flags = ("--mount", f"type=bind,source={name}")
    state, facts = f"0 {int(image.stat().st_mtime)}", json.dumps({"a": name})
    start = StartedImage(image, state, "", (Bind(Path(f"/scratch/{name}")),), sifmark, flags, facts=facts)
    return JobArray(
        *("trial", "trial", JobShape("here", 1, 1, 600), JobOptions(modules=("a;touch", "$(pwned)")), start),
        *(folder / "results" / "jobs", folder),
        (ArrayTask("a", results / "a.json", ("lstm", name, "--output", str(results / "a.json"))),),
    )


def in_job(bench: Bench, name: str, start_with: str) -> None:
    array = array_in(bench, name, start_with)
    text = script_of(array)
    for folder in (array.logs, array.tasks[0].result.parent):
        folder.mkdir(parents=True)
    write_text(array.list, array.lines)
    write_text(array.script, text)
    options = dict(line[8:].partition("=")[::2] for line in text.split("\n") if line.startswith("#SBATCH "))
    assert shlex.split(options["--chdir"]) == [str(array.work)]
    assert shlex.split(options["--output"]) == [f"{str(array.logs).replace('%', '%%')}/%a.log"]
    job = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1", "SLURM_CPUS_ON_NODE": "2"}
    *loaded, started = bench.run("bash", array.script, **job)
    assert loaded == [["load", module] for module in array.options.modules]
    image, arguments = str(array.image.path), array.tasks[0].arguments
    expected = {
        "sifmark": ["run", *bound(name), image, "--", *arguments],
        "apptainer": ["--quiet", "run", *array.image.flags, image, *arguments],
    }
    assert started == expected[start_with]
    assert [type(event) for event in read_log(array.tasks[0].result).events] == [Started, Ended]


SLURM_REFUSES = {"\\": "invalid-option", **dict.fromkeys(map(chr, [*range(32), 127]), "document-invalid")}


@pytest.mark.parametrize("start_with", ["sifmark", "apptainer"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_job_script_takes_every_name_as_it_is_or_is_not_written(bench: Bench, name: str, start_with: str) -> None:
    codes = {SLURM_REFUSES[character] for character in name if character in SLURM_REFUSES}
    if codes:
        with pytest.raises(UsageError) as caught:
            in_job(bench, name, start_with)
        assert caught.value.code in codes
    else:
        in_job(bench, name, start_with)


@SLOW
@given(NAMES.filter(lambda name: not SLURM_REFUSES.keys() & set(name)), st.sampled_from(["sifmark", "apptainer"]))
def test_a_job_script_takes_any_name_as_it_is(bench: Bench, name: str, start_with: str) -> None:
    assume(not (bench.work / name).exists())
    in_job(bench, name, start_with)


@pytest.mark.parametrize("name", ["\\", "a\\'b\"", 'ends in "', "\\\\n"])
def test_a_job_starts_in_any_folder(bench: Bench, name: str) -> None:
    array = replace(array_in(bench, "plain", "sifmark"), work=Path("/", name))
    (line,) = [line for line in script_of(array).split("\n") if line.startswith("#SBATCH --chdir=")]
    assert shlex.split(line)[1:] == [f"--chdir=/{name}"]


def test_an_image_is_no_option(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.work)
    _, study = in_folder("plain", bench.work)
    Path("--help.sif").touch()
    system = replace(study.study.systems[0], image="--help.sif")
    (file,) = shell_files(replace(study, study=replace(study.study, systems=(system,))), bench.work)
    script = bench.programs / "script.sh"
    script.write_text(file.text)
    (started,) = bench.run("bash", script)
    assert started[:4] == ["run", *bound("plain"), f"{bench.work}/--help.sif"]


@pytest.mark.parametrize("name", HOSTILE)
def test_job_scripts_are_submitted_by_their_names(
    bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch, site: Any
) -> None:
    array = array_in(bench, "plain", "sifmark")
    monkeypatch.setattr(export, "render_runs", lambda *_: (SubmittedArray(array, ""),))
    place = bench.work / "place" / name
    if SLURM_REFUSES.keys() & set(name):
        with pytest.raises(UsageError):
            export_study(plan(), "sbatch", place, site)
        return
    *_, submit = export_study(replace(plan(), study=replace(STUDY, title=name)), "sbatch", place, site)
    (started,) = bench.run("bash", submit)
    assert started == [str(place / "trial-1-here-1x1-10min.sh")]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_module_of_reframe_takes_every_name_as_it_is(bench: Bench, name: str) -> None:
    _, study = in_folder(name, bench.work)
    flags = ("--mount", f"type=bind,source={name}")
    image = replace(IMAGES["here"], path=Path(f"/{name}.sif"), flags=flags, facts=name)
    module, _ = reframe_files(study, {"here": image}, seconds_of(study))
    tree = ast.parse(module.text)
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    constants = {ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in assigned}
    here, (each,) = constants["IMAGES"]["here"], constants["RUNS"].values()
    assert here["image"] == f"/{name}.sif"
    script = bench.programs / "script.sh"  # as ReFrame puts it together
    start = f"apptainer exec {' '.join(here['options'])} image /sifmark/run {each['arguments']}"
    facts = 'apptainer "$SIFMARK_IMAGE"'
    script.write_bytes(os.fsencode("\n".join([*here["before"], here["facts"], start, facts])))
    command = ["exec", *flags, "image", "/sifmark/run", "lstm", "--data", f"{name}/data"]
    assert bench.run("bash", script) == [command, [name]]


@pytest.mark.parametrize("flags", [(), ("--nv",)])
@pytest.mark.parametrize("devices", [("/dev/zer?", "/dev/none", "/dev/null"), ("/dev/none?",)])
@pytest.mark.parametrize("file", ["", "devices.conf", "none.conf", "./devices.conf"])
def test_scripts_find_devices_as_sifmark_does(
    bench: Bench,
    site: Any,
    monkeypatch: pytest.MonkeyPatch,
    devices: tuple[str, ...],
    flags: tuple[str, ...],
    file: str,
) -> None:
    access = Access(devices, flags)
    (bench.work / "devices.conf").touch()
    place = "" if not file else file if file.startswith(".") else str(bench.work / file)
    monkeypatch.setenv("IPUOF_CONFIG_PATH", place)
    here = StartedImage(
        Path("/i.sif"), "", "", device_files=devices, device_flags=flags, selection_paths=("IPUOF_CONFIG_PATH",)
    )
    script = bench.programs / "script.sh"
    script.write_text("\n".join(["set -u", *start_lines(here), f"apptainer {' '.join(start_options(here))}"]))
    (options,) = bench.run("bash", script)
    expected = Apptainer(site).device_flags(access)
    assert len(options) == len(expected) and sorted(options) == sorted(expected)  # which comes first does not matter


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_of_jube_takes_every_name_as_it_is(bench: Bench, name: str) -> None:
    _, study = in_folder(name, bench.work)
    partition = replace(OPTIONS["here"], constraint=f"a&{name}")
    (file,) = jube_files(study, {"here": partition}, seconds_of(study))
    (benchmark,) = yaml.safe_load(file.text)["benchmark"]
    assert benchmark["step"]["do"][0].startswith("$launch $sifmark run $binds $image -- $arguments --site here ")
    parameters = {
        (each["name"], each.get("tag")): each["_"]
        for part in benchmark["parameterset"]
        for each in part["parameter"]
        if each.get("mode") == "python"
    }
    assert not [text for text in parameters.values() if "$" in text.removesuffix("[$number]")]
    values = {key: ast.literal_eval(text.removesuffix("[$number]")) for key, text in parameters.items()}
    assert not [text for text in values.values() if "$ " in text or "$\n" in text]  # which JUBE would change
    (planned,), (system,) = study.runs, study.study.systems
    assert shlex.split(values["binds", None]) == bound(name)
    assert shlex.split(values["image", None]) == [system.image]
    assert shlex.split(values["site", None]) == [f"--constraint=a&{name}"]
    (arguments,) = values["arguments", None]
    assert shlex.split(arguments) == list(planned.run.arguments)


def test_what_names_a_study_or_a_system_is_a_plain_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'title = "T"\n[[system]]\nname = {name}\nimage = "cpu"\n[[run]]\nname = "a"\nworkload = "lstm"\n'
    for name in set(HOSTILE) - {"EOF"}:
        file = tmp_path / f"{name}.toml"
        file.write_text(text.format(name='"here"'))
        with refused(UsageError, "study-invalid"):
            load_study(str(file))
        plain = tmp_path / "plain.toml"
        plain.write_text(text.format(name=json.dumps(name)))
        with refused(UsageError, "study-invalid"):
            load_study(str(plain))
    plain.write_text(text.format(name='"here"'))
    assert load_study(str(plain)).name == "plain"


@pytest.mark.parametrize("file", ["my study.toml", "-x.toml", "a\nb.toml"])
def test_no_study_is_written_to_a_file_that_is_no_study(file: str, tmp_path: Path) -> None:
    words = ["study.init", "--workloads", "lstm", "--systems", "here:cpu", "--output"]
    assert command_line.main([*words, str(tmp_path / file)]) == 2
    assert not list(tmp_path.iterdir())


def test_the_folder_of_a_study_is_no_key_of_it() -> None:
    text = study_template(["lstm"], ["here:cpu"], "a\nevil = 1\n/study.toml")
    assert "evil" not in tomllib.loads(text)


# The words themselves


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
@example(list(HOSTILE))
def test_every_shell_reads_words_back(texts: list[str]) -> None:
    script = f"{comment('|'.join(texts))}\nprintf '%s\\0' {words(texts)} end {comment('|'.join(texts))}"
    for shell in ("bash", "sh"):
        done = subprocess.run([shell], input=os.fsencode(script), capture_output=True, check=True, env={"LC_ALL": "C"})
        assert os.fsdecode(done.stdout).split("\0")[:-1] == [*texts, "end"]


def test_no_word_has_a_nul() -> None:
    with refused(UsageError, "invalid-option"):
        word("a\0b")


def test_a_pattern_finds_files_and_starts_nothing(tmp_path: Path) -> None:
    for name in ("x0", "x1", "$(touch pwned)0", "y0"):
        (tmp_path / name).touch()
    for text, found in {"x[0-9]": "x0 x1", "$(touch pwned)?": "$(touch pwned)0", "[!x$]*": "y0"}.items():
        done = subprocess.run(["bash", "-c", f"echo {pattern(text)}"], cwd=tmp_path, capture_output=True, check=True)
        assert done.stdout.decode() == f"{found}\n"
    assert not (tmp_path / "pwned").exists()


def test_what_writes_scripts_leaves_quoting_to_one_module() -> None:
    sources = [paths.PACKAGE / "recipes" / "render.py", *(paths.PACKAGE / "studies" / "slurm").glob("*.py")]
    sources += (paths.PACKAGE / "studies" / "exports").glob("*.py")
    imported = {
        name.name
        for source in sources
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (*node.names, ast.alias(getattr(node, "module", None) or ""))
    }
    assert "sifmark.core.shell" in imported and "shlex" not in imported
