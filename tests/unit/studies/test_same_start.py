"""A run is started alike on every way: here, by Slurm's scripts, by a shell script, by ReFrame and by JUBE.

Programs in the place of Apptainer and sifmark note how they were started. What sifmark was started with goes through
its own command, up to where that becomes Apptainer. What may differ between two ways is in this file, by its name.
"""

import ast
import csv
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import pytest
import yaml
from unit.studies.exporting import launcher

from sifmark.commands import command_line
from sifmark.core import paths
from sifmark.core.files import write_text
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.engines.start import check_image
from sifmark.studies.expand import expand
from sifmark.studies.exports.export import export_study
from sifmark.studies.exports.shell import shell_files
from sifmark.studies.load import load_study, study_names
from sifmark.studies.running.execute import Processes, ReadySystem, execute
from sifmark.studies.running.shares import Share
from sifmark.studies.slurm.submit import render_runs
from sifmark.studies.study import PlannedRun, Run, RunState, Study, StudyPlan, System

WORST = 'it\'s "a", b:c $(touch pwned) Jülich'  # Slurm takes neither a backslash nor a control character
# Notes its folder, its words and its variables, with a NUL behind each and an empty one at the end.
RECORDER = """#!/bin/bash
[ "$1" != results.validate ] || exit 1
{ printf '%s\\0' "$PWD" "$#" "${0##*/}" "$@"; env -0; printf '\\0'; } >>"$NOTES"
"""
# What a shell, a scheduler or this test says of itself. Several nodes share a secret.
PERMITTED_VARIABLES = {"_", "PWD", "OLDPWD", "SHLVL", "NOTES", "SIFMARK_LAUNCH_SECRET"}
PERMITTED_BEGINNING = "SLURM_"
# Variables of a user that reach every image.
OWN = {"OMP_NUM_THREADS": "3", "APPTAINER_BIND": "/own", "APPTAINERENV_MALLOC_ARENA_MAX": "1", "NCCL_DEBUG": "WARN"}
JOB = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "2"}
VALUED = ("--bind", "--mount")
Mount = tuple[str, str, bool]  # source, target, whether it is writable


@dataclass(frozen=True)
class Started:
    """A start of Apptainer: its options but those of mounts, its mounts, and the words for the image."""

    folder: Path
    options: tuple[str, ...]
    mounts: tuple[Mount, ...]
    image: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    words: tuple[str, ...]

    def seen(self, path: str) -> tuple[str, bool] | None:
        """What the image sees at a path: a path of the host, and whether it may write there."""
        here, mounts = str(self.folder), list(self.mounts)
        if not any(is_within(here, target) for _, target, _ in mounts):
            mounts.append((here, here, True))  # Apptainer mounts it first, and what is above it hides it
        above = [mount for mount in mounts if is_within(path, mount[1])]
        if not above:
            return None
        source, target, writable = max(above, key=lambda mount: len(Path(mount[1]).parts))
        place = str((Path(source) / os.path.relpath(path, target)).resolve())
        if place != path and not is_within(place, str(Path(source).resolve())):  # a link, which the image follows
            return self.seen(place)
        return place, writable


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def started(folder: Path, words: Sequence[str], variables: Mapping[str, str]) -> Started:
    """Read a command line of Apptainer."""
    program, *rest = words
    assert program == "apptainer"
    options, mounts = [], []
    while rest[0].startswith("-") or rest[0] in ("run", "exec"):
        word = rest.pop(0)
        if word in VALUED:
            mounts.append(mount_of(word, rest.pop(0)))
        elif word.startswith("-B"):
            mounts.append(mount_of("--bind", word.removeprefix("-B")))
        elif word == "--pwd":
            folder = Path(rest.pop(0))
        elif word != "--quiet":  # which changes no more than what is printed
            options.append(word)
    image, *arguments = rest
    if options[0] == "exec":  # of the program that the image's own start runs
        assert arguments.pop(0) == "/sifmark/run"
        options[0] = "run"
    kept = {
        name: value
        for name, value in variables.items()
        if name not in PERMITTED_VARIABLES and not name.startswith(PERMITTED_BEGINNING)
    }
    return Started(folder, tuple(options), tuple(mounts), image, tuple(arguments), kept, tuple(words))


def differences(one: Started, other: Started, *permitted: str) -> dict[str, tuple[object, object]]:
    """What differs between two starts: fields and variables, each with its two values."""
    names = {"folder", "options", "mounts", "image", "arguments"}.difference(permitted)
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in names}
    variables = {*one.variables, *other.variables}
    pairs |= {name: (one.variables.get(name), other.variables.get(name)) for name in variables}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def mount_of(option: str, text: str) -> Mount:
    if option == "--bind":
        source, target, mode = [*text.split(":"), "", ""][:3]
        return source, target or source, mode != "ro"
    (fields,) = csv.reader([text])
    values = dict(each.partition("=")[::2] for each in fields)
    return values["source"], values["destination"], "ro" not in values


class Bench:
    """Programs that note how they were started, and an image, by which the runs of a plan are started on all ways."""

    def __init__(self, folder: Path, settings: Settings, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.settings, self.patch = folder, settings, patch
        self.work, self.programs, self.notes = folder / "work", folder / "programs", folder / "notes"
        self.work.mkdir()
        self.programs.mkdir()
        settings.dist.mkdir()
        shutil.copy(paths.CHECKOUT / "tests" / "fixtures" / "0.1.0" / "cpu.sif", settings.dist)
        self.engine = open_engine(settings, "apptainer")
        self.engine.tag_workloads("cpu")
        for name in ("apptainer", "sifmark", "srun"):
            program = self.programs / name
            program.write_text(launcher() if name == "srun" else RECORDER)
            program.chmod(0o755)
        for name, value in {**OWN, "NOTES": str(self.notes), "PATH": f"{self.programs}:{os.environ['PATH']}"}.items():
            patch.setenv(name, value)
        patch.chdir(self.work)

    def plan(self, study: Study, systems: Sequence[System], runs: Sequence[Run]) -> StudyPlan:
        """A plan of runs that are all to do."""
        identity = self.engine.inspect(str(self.settings.dist / "cpu.sif")).identity()
        folder = Path("results") / study.name
        planned = []
        for run in runs:
            key = run.key(identity)
            planned.append(PlannedRun(run, key, folder / run.system / f"{key}.json", RunState.TO_DO, seconds=60.0))
        study = replace(study, systems=tuple(systems))
        return StudyPlan(study, folder, {system.name: identity for system in systems}, tuple(planned))

    def noted(self) -> Iterator[tuple[Path, list[str], dict[str, str]]]:
        """What has been started since this was asked before."""
        said = os.fsdecode(self.notes.read_bytes()).split("\0")[:-1] if self.notes.exists() else []
        self.notes.write_text("")
        while said:
            folder, count = Path(said.pop(0)), int(said.pop(0)) + 1
            words, end = said[:count], said.index("", count)
            yield folder, words, dict(each.partition("=")[::2] for each in said[count:end])
            said = said[end + 1 :]

    def call(self, *words: str | Path, cwd: Path, **variables: str) -> list[Started]:
        """Run a script, and return how it started Apptainer, by itself or by way of sifmark."""
        done = subprocess.run(
            list(map(str, words)), cwd=cwd, env={**os.environ, **variables}, capture_output=True, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        return [started(*each) if each[1][0] == "apptainer" else self.by_sifmark(*each) for each in list(self.noted())]

    def by_sifmark(self, folder: Path, words: Sequence[str], variables: Mapping[str, str]) -> Started:
        """How sifmark's command, which was started with these words, starts Apptainer."""
        became: list[Started] = []

        def become(_: str, argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
            became.append(started(folder, argv, environment))
            raise SystemExit

        with self.patch.context() as patch:
            patch.setattr(os, "environ", dict(variables))
            patch.setattr(os, "execvpe", become)
            patch.setattr("sifmark.doctor.load.report_load", lambda *_: None)
            patch.chdir(folder)
            with suppress(SystemExit):
                assert command_line.main(words[1:]) == 0
        (one,) = became
        return one

    # The ways, each of which yields the runs of a plan in its own order.

    def here(self, plan: StudyPlan) -> Iterator[Started]:
        image = check_image(str(self.settings.dist / "cpu.sif"), self.engine, self.settings, signed=False)
        systems = {system.name: system for system in plan.study.systems}
        for planned in plan.runs:
            planned.result.parent.mkdir(parents=True, exist_ok=True)
            ready = ReadySystem(systems[planned.run.system], image, self.settings)
            outcome = execute(planned, ready, Share((), {}, (), ExitStack()), (), Processes())
            assert "it printed nothing" in str(outcome.reason)
        for each in list(self.noted()):
            yield started(*each)

    def slurm(self, plan: StudyPlan, start_with: str) -> Iterator[Started]:
        options = {"start_with": start_with, "sifmark": str(self.programs / "sifmark")}
        for number, each in enumerate(render_runs(plan, replace(self.settings, slurm=options))):
            array = replace(each.array, name=f"{start_with}-{number}")
            array.logs.mkdir(parents=True)
            write_text(array.list, array.lines)
            write_text(array.script, each.script.replace(each.array.name, array.name))
            for task in range(1, len(array.tasks) + 1):
                yield from self.call("bash", array.script, cwd=array.work, SLURM_ARRAY_TASK_ID=str(task), **JOB)

    def shell(self, plan: StudyPlan) -> Iterator[Started]:
        (file,) = shell_files(plan, self.work)
        script = self.folder / file.name
        script.write_text(file.text)
        yield from self.call("bash", script, cwd=self.folder)

    def reframe(self, plan: StudyPlan) -> Iterator[Started]:
        file, _ = export_study(plan, "reframe", self.folder / "reframe", self.settings)
        module = suite(file, self.patch)
        for number, name in enumerate(module.RUNS):
            folder = self.stage(f"reframe-{number}")  # whose names ReFrame makes, and does not quote
            script = folder / "job.sh"
            script.write_text(job_of(module, name, folder))
            yield from self.call("bash", script, cwd=folder)

    def jube(self, plan: StudyPlan) -> Iterator[Started]:
        (file,) = export_study(plan, "jube", self.folder / "jube", self.settings)
        for benchmark in yaml.safe_load(file.read_text())["benchmark"]:
            values = parameters_of(benchmark) | {"launch": "", "sifmark": "sifmark"}
            for number, arguments in enumerate(values["arguments"]):
                command = benchmark["step"]["do"][0]
                for name in ("launch", "sifmark", "binds", "image"):
                    command = command.replace(f"${name} ", f"{values[name]} ")
                command = command.replace("$arguments ", f"{arguments} ")
                yield from self.call("sh", "-c", command, cwd=self.stage(f"jube-{number}"))

    def stage(self, name: str) -> Path:
        """A folder of a run's own, in which suites start it."""
        folder = self.folder / "stages" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def parameters_of(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the parameters of a benchmark of JUBE that are expressions of Python."""
    every = [each for part in benchmark["parameterset"] for each in part["parameter"] if each.get("mode") == "python"]
    return {each["name"]: ast.literal_eval(each["_"].removesuffix("[$number]")) for each in every}


def suite(file: Path, patch: pytest.MonkeyPatch) -> ModuleType:
    """Import a module of ReFrame with as much in the place of ReFrame as it needs to describe a start."""

    def same(*_: object, **__: object) -> Callable[[Any], Any]:
        return lambda function: function

    names: dict[str, Any] = dict.fromkeys(("run_after", "run_before"), same)
    names |= {"sanity_function": lambda function: function, "variable": lambda *_, value=None: value}
    stand_ins: dict[str, dict[str, Any]] = {
        "reframe": {"RunOnlyRegressionTest": type("Test", (), {}), "simple_test": lambda test: test},
        "reframe.core": {},
        "reframe.core.builtins": {**names, "parameter": list},
        "reframe.utility": {},
        "reframe.utility.sanity": {},
    }
    for name, content in stand_ins.items():
        stand_in = ModuleType(name)
        vars(stand_in).update(content)
        patch.setitem(sys.modules, name, stand_in)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, stand_in)
    spec = importlib.util.spec_from_file_location("exported", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def job_of(module: ModuleType, name: str, stage: Path) -> str:
    """The script of a run as ReFrame 4 puts it together (reframe/core/containers.py)."""
    (test,) = (each for each in vars(module).values() if name in getattr(each, "study_run", ()))
    case = test()
    case.study_run, case.num_cpus_per_task, case.container_platform = name, 2, SimpleNamespace()
    case.start()
    platform = case.container_platform
    options = " ".join([f'-B"{stage}:/rfm_workdir"', "--pwd /rfm_workdir", *platform.options])
    return "\n".join([*case.prerun_cmds, f"apptainer exec {options} {platform.image} {platform.command}"])


@pytest.fixture
def bench(tmp_path: Path, site: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    yield Bench(tmp_path, site, monkeypatch)
    assert not list(tmp_path.rglob("pwned"))


def by_run(plan: StudyPlan, starts: Iterator[Started], of_runs: Mapping[str, PlannedRun]) -> dict[str, Started]:
    """Starts by the key of their run: suites give results no name of a run, and start each with other words."""
    found: dict[str, Started] = {}
    for each in starts:
        output = Path(each.arguments[-1])
        key = output.stem if output.name != "result.json" else next(
            key for key, planned in of_runs.items()
            if key not in found and in_any_folder(planned.arguments) == each.arguments
        )  # fmt: skip
        assert key not in found
        found[key] = each
    assert set(found) == {planned.key for planned in plan.runs}
    return found


def in_any_folder(arguments: Sequence[str]) -> tuple[str, ...]:
    """The words of a run that starts in a folder of its own: what they name is absolute, and the result is there."""
    *words, _ = arguments
    return (*(str(Path(word).absolute()) if Path(word).exists() else word for word in words), "result.json")


def require_same(bench: Bench, plan: StudyPlan, asked: Sequence[Mount], data: Sequence[str]) -> dict[str, Started]:
    """Start the runs of a plan on all ways, and compare them. Return how they are started here.

    Every run sees what its system binds, in the same way, and the data.
    """
    runs = {planned.key: planned for planned in plan.runs}
    here = by_run(plan, bench.here(plan), runs)
    for key, each in here.items():
        assert each.arguments == runs[key].arguments
        assert each.folder == bench.work
        assert OWN.items() <= each.variables.items()
        assert json.loads(each.variables["SIFMARK_IMAGE"])["identity"] == plan.images[runs[key].run.system]
    for starts in (bench.slurm(plan, "sifmark"), bench.shell(plan)):
        for key, each in by_run(plan, starts, runs).items():
            assert differences(each, here[key]) == {}
    for key, each in by_run(plan, bench.slurm(plan, "apptainer"), runs).items():
        # Of plain Apptainer an array has one command line: each run sees what some run of its system does.
        system = runs[key].run.system
        together = {mount for other in runs if runs[other].run.system == system for mount in here[other].mounts}
        assert set(each.mounts) == together
        assert differences(each, here[key], "mounts") == {}
        require_seen(each, asked, data)
    for starts in (bench.reframe(plan), bench.jube(plan)):
        for key, each in by_run(plan, starts, runs).items():
            # Each run has a folder of its own, where its result is, and words that name the same files there.
            assert differences(each, here[key], "folder", "arguments", "mounts") == {}
            require_seen(each, asked, data)
    for each in here.values():
        require_seen(each, asked, data)
    return here


def require_seen(each: Started, asked: Sequence[Mount], data: Sequence[str]) -> None:
    for source, target, writable in asked:
        assert each.seen(target) == (source, writable), (target, each.words)
    for word in each.arguments:
        if Path(word).name in data:
            place = each.seen(str(each.folder / word))
            assert place is not None and Path(place[0]).is_dir(), (word, each.words)
    output = each.seen(str((each.folder / each.arguments[-1]).parent))
    assert output is not None and output[1], each.words


def shapes(runs: Sequence[Run]) -> list[Run]:
    """A run of each system, and one of each division and set of options and data: others differ in values alone."""
    chosen: dict[object, Run] = {}
    systems: set[str] = set()
    for run in runs:
        options = tuple(word for word in run.arguments if word.startswith("--"))
        shape = (run.nodes > 1, run.devices > 1, run.cell.get("data"), options)
        if shape not in chosen or run.system not in systems:
            chosen[shape if shape not in chosen else run.system] = run
            systems.add(run.system)
    return list(chosen.values())


IN_GATE = ("quick", "serving", "caraml")  # studies of one device and of several, of an engine, and on several nodes


@pytest.mark.parametrize("variant", ["", "small"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name not in IN_GATE)) for name in study_names()]
)
def test_the_runs_of_a_study_are_started_alike_on_every_way(name: str, variant: str, bench: Bench) -> None:
    study = load_study(name, variant)
    systems = [replace(system, image="cpu") for system in study.systems] or [System("here", "cpu")]
    runs = shapes(expand(study, systems))
    data = {str(run.cell["data"]) for run in runs if run.cell.get("data", "synthetic") != "synthetic"}
    for folder in data:  # a link out of the folder of the study, as to a file system of data
        elsewhere = bench.folder / "elsewhere" / folder
        elsewhere.mkdir(parents=True)
        Path(folder).parent.mkdir(parents=True, exist_ok=True)
        Path(folder).symlink_to(elsewhere)
    require_same(bench, bench.plan(study, systems, runs), (), [Path(folder).name for folder in data])


WORST_STUDY = """
title = "T"

[[system]]
name      = "here"
image     = "cpu"
bind      = [{binds}]
arguments = ["--meter", "none"]

[[run]]
workload = "resnet50"
steps    = 4
data     = [{data}]
"""


@pytest.mark.parametrize("is_above", [False, True])
def test_binds_of_the_worst_names_are_the_same_on_every_way(bench: Bench, is_above: bool) -> None:
    """One of them may be above the folder of the study, in which results stay writable."""
    place = bench.folder / WORST
    for name in ("plain", "renamed", "scratch", "data"):
        (place / name / "deep").mkdir(parents=True)
    Path("linked").symlink_to(place / "data")
    Path("relative").mkdir()
    escaped, renamed = str(place).replace(":", r"\:"), f"/sets/{WORST}"
    binds = [
        f"{escaped}/plain",
        rf"{escaped}/renamed:{renamed.replace(':', chr(92) + ':')}",
        f"{escaped}/scratch:/scratch:rw",
        "relative",
        *([str(bench.folder)] if is_above else []),
    ]
    data = ["linked", f"{renamed}/deep", f"{place}/data"]
    file = Path("worst.toml")
    texts = {"binds": ", ".join(map(json.dumps, binds)), "data": ", ".join(map(json.dumps, data))}
    file.write_text(WORST_STUDY.format(**texts))
    study = load_study(str(file.absolute()))
    plan = bench.plan(study, study.systems, expand(study, study.systems))
    asked = [
        (f"{place}/plain", f"{place}/plain", False),
        (f"{place}/renamed", renamed, False),
        (f"{place}/scratch", "/scratch", True),
        (f"{bench.work}/relative", f"{bench.work}/relative", False),
        *([(str(bench.folder), str(bench.folder), False)] if is_above else []),
    ]
    here = require_same(bench, plan, asked, ["linked", "deep", "data"])
    assert len(here) == len(data)


def test_sifmark_itself_starts_a_run_as_its_command_does_in_these_tests(bench: Bench) -> None:
    (bench.programs / "sifmark").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m sifmark "$@"\n')
    study = load_study("quick", "small")
    runs = shapes(expand(study, study.systems))[:1]
    plan = bench.plan(study, study.systems, runs)
    bench.patch.setenv("PYTHONPATH", str(paths.ROOT))
    (here,), (by_script,) = bench.here(plan), bench.shell(plan)
    assert differences(by_script, here) == {}
