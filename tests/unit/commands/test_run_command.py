"""Running an image: what is started, with which facts, and what is not started."""

import errno
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.fakes import FakeEngine, FakeInspection, settings_for, sha256, write_image
from unit.report import samples

from sifmark.commands.images import run
from sifmark.commands.run import AskedRun, RunRequest, print_commands, start_images
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.process import CommandError
from sifmark.core.settings import Settings
from sifmark.doctor import load
from sifmark.engines import CheckFailed, open_engine
from sifmark.engines.apptainer.sif import DATA_START
from sifmark.engines.locate import device_options, locate, names_file
from sifmark.engines.repeating import Repeats
from sifmark.engines.start import IMAGE_VARIABLE, image_facts
from sifmark.recipes.labels import DEVICES, RECIPE, RUN_FLAGS, VERSION

KEY, OTHER = "site.pub", "other.pub"


@pytest.fixture
def engine(site: Settings) -> FakeEngine:
    engine = FakeEngine(site)
    engine.add("resnet50-cpu")
    return engine


@pytest.fixture(autouse=True)
def _short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others use of this machine is not what these tests are about."""
    monkeypatch.setattr(load, "SAMPLE", 0.0)


def start_image(
    address: str, engine: FakeEngine, words: Sequence[str], settings: Settings, printed: bool, signed: bool
) -> None:
    """Run an image once, or print its command."""
    asked = [AskedRun("an image", address, engine, tuple(words))]
    (print_commands if printed else start_images)(asked, RunRequest(settings, Repeats(), signed))


class StartedError(Exception):
    """The process became another program."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What was started, in place of becoming it."""
    program: dict[str, Any] = {}

    def become(name: str, argv: list[str], environment: Mapping[str, str]) -> None:
        program.update(argv=argv, facts=json.loads(environment[IMAGE_VARIABLE]))
        raise StartedError

    monkeypatch.setattr(os, "execvpe", become)
    return program


@pytest.mark.parametrize(
    ("keys", "signed_by", "signer"), [((), KEY, None), ((KEY,), KEY, KEY), ((KEY,), OTHER, None), ((KEY,), None, None)]
)
def test_an_image_is_started_with_its_facts(
    engine: FakeEngine, started: dict[str, Any], keys: tuple[str, ...], signed_by: str | None, signer: str | None
) -> None:
    engine.images["fake:resnet50-cpu"].signed_by = signed_by
    with pytest.raises(StartedError):
        start_image("fake:resnet50-cpu", engine, (), replace(engine.settings, keys=keys), False, False)
    assert started["argv"] == ["true"]
    assert started["facts"] == {
        "identity": sha256("what runs"),
        "digest": sha256("the file"),
        "signer": signer,
        "build_key": sha256("build key"),
    }


@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize(
    ("keys", "signed_by", "code"),
    [((), KEY, "no-trusted-key"), ((KEY,), None, "signature-missing"), ((KEY,), OTHER, "signature-untrusted")],
)
@pytest.mark.parametrize("asked_by", ["option", "settings"])
def test_without_the_signature_that_is_asked_for_nothing_is_started(
    engine: FakeEngine,
    started: dict[str, Any],
    printed: bool,
    keys: tuple[str, ...],
    signed_by: str | None,
    code: str,
    asked_by: str,
) -> None:
    engine.images["fake:resnet50-cpu"].signed_by = signed_by
    settings = replace(engine.settings, keys=keys, require_signature=asked_by == "settings")
    with pytest.raises(CheckFailed) as error:
        start_image("fake:resnet50-cpu", engine, (), settings, printed, asked_by == "option")
    assert error.value.code == code and not started


def test_a_report_of_what_a_run_wrote_follows_it(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    samples.write(tmp_path / "results", [samples.sample("alpha", "pictures", 8)])
    (tmp_path / "new.json").write_text(json.dumps(samples.sample("beta", "pictures", 16)))
    engine.programs["run"] = ["cp", str(tmp_path / "new.json"), str(tmp_path / "results")]
    words = ["--steps", "2", "--output", "results/"]
    with pytest.raises(SystemExit) as ended:
        run("resnet50-cpu", settings_for(engine, monkeypatch), words, report_folder="report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert ended.value.code == 0 and "1 result " in page and "batch size 16" in page
    assert "open report/index.html in a browser" in capsys.readouterr().err
    with pytest.raises(UsageError) as refused:
        run("resnet50-cpu", settings_for(engine, monkeypatch), ["--output", "-"], report_folder="report")
    assert refused.value.code == "invalid-option"


def test_a_run_that_writes_nothing_has_no_report(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    engine.programs["run"] = ["false"]
    with pytest.raises(SystemExit) as ended:
        run("resnet50-cpu", settings_for(engine, monkeypatch), ["--steps", "2"], report_folder="report")
    assert ended.value.code == 1 and not (tmp_path / "report").exists()
    assert "no run wrote a result" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", ["cuda", "rocm", "ipu"])
def test_an_image_for_an_accelerator_is_started_on_a_host_without_one(
    engine: FakeEngine, started: dict[str, Any], recipe: str
) -> None:
    """Its devices are looked at before it starts, by the programs of their vendors, where there are any."""
    engine.add(f"resnet50-{recipe}", labels={DEVICES: "/dev/none"})
    with pytest.raises(StartedError):
        start_image(f"fake:resnet50-{recipe}", engine, (), engine.settings, False, False)
    assert started["argv"]


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "PBS_JOBID"])
def test_a_container_learns_the_job_that_it_runs_in(
    engine: FakeEngine, started: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "4711")
    with pytest.raises(StartedError):
        start_image("fake:resnet50-cpu", engine, (), engine.settings, False, False)
    *_, options = engine.commands[-1]
    assert f"--env={name}" in options and "--env=FLUX_JOB_ID" not in options


def test_a_command_is_printed_for_a_job_s_script(
    engine: FakeEngine,
    started: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine.programs["run"] = ["run", "a b"]
    run("resnet50-cpu", settings_for(engine, monkeypatch), ["--steps", "2"], printed=True)
    assert capsys.readouterr().out == "run 'a b'\n" and not started
    assert engine.commands == [("fake:resnet50-cpu", "run", ("--steps", "2"), ["--home"])]


def test_a_program_that_is_not_there_is_told_with_its_remedy(engine: FakeEngine) -> None:
    engine.programs["run"] = ["/nowhere/engine"]
    with pytest.raises(CommandError) as error:
        start_image("fake:resnet50-cpu", engine, (), engine.settings, False, False)
    assert error.value.code == "program-missing"


@pytest.mark.parametrize(
    ("words", "terminal", "added"),
    [
        ((), True, ("--output", "kept/")),
        ((), False, ()),
        (("--output", "-"), True, ()),
        (("--output=mine.json",), True, ()),
        (("--list",), True, ()),
        (("--prove",), True, ()),
        (("--help",), True, ()),
    ],
)
def test_results_are_kept_where_a_person_watches(
    engine: FakeEngine,
    started: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[str, ...],
    terminal: bool,
    added: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    with pytest.raises(StartedError):
        start_image(
            "fake:resnet50-cpu", engine, words, replace(engine.settings, results=tmp_path / "kept"), False, False
        )
    assert tuple(engine.commands[-1][2]) == (*words, *added)
    assert (tmp_path / "kept").is_dir() is bool(added)


def test_options_that_the_image_would_refuse_are_refused_before_it_is_looked_at(
    engine: FakeEngine, started: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "inspect", None)
    with pytest.raises(SifmarkError) as error:
        start_image("fake:resnet50-cpu", engine, ("--stepz", "3"), engine.settings, False, False)
    assert (error.value.code, error.value.exit_code) == ("unknown-option", 2) and "--steps" in error.value.remedy


def test_options_of_an_image_of_another_version_are_left_to_it(engine: FakeEngine, started: dict[str, Any]) -> None:
    engine.images["fake:resnet50-cpu"].labels[VERSION] = "99.0"
    with pytest.raises(StartedError):
        start_image("fake:resnet50-cpu", engine, ("--stepz", "3"), engine.settings, False, False)


def test_a_signature_is_not_looked_for_where_no_key_is_trusted(engine: FakeEngine) -> None:
    image = engine.images["fake:resnet50-cpu"]
    assert image_facts(image, required=False, keys=())["signer"] is None


@pytest.mark.parametrize(
    ("name", "file"), [("resnet50-cpu", False), ("x.sif", True), ("./x", True), ("sifmark:cpu", False)]
)
def test_what_names_a_file(name: str, file: bool) -> None:
    assert names_file(name) == file


@pytest.mark.parametrize(
    ("name", "labels", "code"),
    [
        ("./nowhere.sif", {}, "file-missing"),
        ("resnet50-cuda", {}, "image-not-built"),
        ("resnet50-cpu", {RECIPE: "cuda"}, "recipe-mismatch"),
        ("nosuch", {}, "unknown-name"),
    ],
)
def test_what_is_not_there_is_not_located(engine: FakeEngine, name: str, labels: dict[str, Any], code: str) -> None:
    engine.images["fake:resnet50-cpu"].labels.update(labels)
    with pytest.raises(SifmarkError) as error:
        locate(name, engine)
    assert error.value.code == code


@pytest.mark.parametrize(("bases", "is_named"), [("stand-in", True), ("pinned", False)])
def test_an_image_that_is_not_built_says_where_and_how(site: Settings, bases: str, is_named: bool) -> None:
    settings = replace(site, bases=bases, origins={"bases": "bases in sifmark.toml", "dist": "SIFMARK_DIST"})
    with pytest.raises(SifmarkError) as error:
        locate("resnet50-cuda", open_engine(settings, "apptainer"))
    assert f"resnet50-cuda.sif in {site.dist} (SIFMARK_DIST)" in error.value.cause
    assert ("--bases pinned" in error.value.remedy and "bases in sifmark.toml" in error.value.remedy) is is_named
    assert "--engine" not in error.value.remedy


def test_a_name_that_is_another_image_than_its_recipe_s_is_not_started(engine: FakeEngine) -> None:
    recipe = engine.add("cpu")
    assert locate("resnet50-cpu", engine) == "fake:resnet50-cpu"
    recipe.runs = sha256("what was built since")
    with pytest.raises(SifmarkError) as error:
        locate("resnet50-cpu", engine)
    assert error.value.code == "names-stale" and "sifmark build" in error.value.remedy


def test_a_name_that_is_a_copy_is_started(site: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system has no hard links."""
    apptainer = open_engine(site, "apptainer")
    write_image(Path(apptainer.address("cpu")), "cpu", site)
    monkeypatch.setattr(os, "link", _no_links)
    apptainer.tag_workloads("cpu")
    name = apptainer.address("resnet50-cpu")
    assert locate("resnet50-cpu", apptainer) == name
    with Path(name).open("r+b") as stream:
        stream.seek(DATA_START)
        stream.write(b"another")
    with pytest.raises(SifmarkError) as error:
        locate("resnet50-cpu", apptainer)
    assert error.value.code == "names-stale"


def _no_links(*_: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.fixture
def file(engine: FakeEngine, tmp_path: Path) -> Path:
    """A file whose image is signed by a key of this site, in a folder that nobody else may write to."""
    path = tmp_path / "signed.sif"
    path.write_text("an image")
    tmp_path.chmod(0o755)
    engine.images[str(path)] = engine.add("cpu", signed_by=KEY)
    return path


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("how", ["replaced", "written to"])
def test_an_image_that_changes_while_it_is_looked_at_is_not_started(
    engine: FakeEngine, started: dict[str, Any], monkeypatch: pytest.MonkeyPatch, file: Path, how: str, signed: bool
) -> None:
    def replaced(image: FakeInspection, keys: Sequence[str]) -> str:
        target = file if how == "written to" else file.with_name("other")
        target.write_text("another image")
        target.replace(file)
        return KEY

    monkeypatch.setattr(FakeInspection, "signer", replaced)
    with pytest.raises(CheckFailed) as error:
        start_image(str(file), engine, (), replace(engine.settings, keys=(KEY,)), False, signed)
    assert error.value.code == "image-altered" and not started


@pytest.mark.parametrize(("mode", "signed"), [(0o755, True), (0o777, False)])
def test_an_image_that_stays_is_started(
    engine: FakeEngine, started: dict[str, Any], file: Path, mode: int, signed: bool
) -> None:
    file.parent.chmod(mode)
    with pytest.raises(StartedError):
        start_image(str(file), engine, (), replace(engine.settings, keys=(KEY,)), False, signed)
    assert started["facts"]["signer"] == KEY


def test_a_signature_that_is_asked_for_needs_a_file_that_nobody_else_can_replace(
    engine: FakeEngine, started: dict[str, Any], file: Path
) -> None:
    file.parent.chmod(0o777)
    with pytest.raises(SifmarkError) as error:
        start_image(str(file), engine, (), replace(engine.settings, keys=(KEY,)), False, True)
    assert error.value.code == "path-shared" and not started


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        ({}, []),  # a CPU's
        ({RECIPE: "another", DEVICES: "/dev/kfd"}, ["--device"]),
        ({RECIPE: "another", DEVICES: "/dev/kfd", RUN_FLAGS: "--nv"}, ["--device"]),
        ({RECIPE: "cuda", DEVICES: "/dev/kfd", RUN_FLAGS: "--bind /:/host"}, ["--device"]),  # the recipe here counts
    ],
)
def test_devices_by_labels(engine: FakeEngine, labels: dict[str, Any], options: list[str]) -> None:
    engine.images["fake:resnet50-cpu"].labels.update(labels)
    assert device_options(engine, "fake:resnet50-cpu") == options


def test_flags_that_no_recipe_has_are_refused(engine: FakeEngine) -> None:
    labels = {RECIPE: "another", DEVICES: "/dev/kfd", RUN_FLAGS: "--bind /:/host"}
    engine.images["fake:resnet50-cpu"].labels.update(labels)
    with pytest.raises(SifmarkError) as error:
        device_options(engine, "fake:resnet50-cpu")
    assert error.value.code == "not-sifmark-image"
