"""The commands study.list, study.init and study.plan."""

import json
import re
from pathlib import Path

import pytest
from unit.fake_studies import put

from sifmark.commands.command_line import main
from sifmark.core.settings import load_settings
from sifmark.studies.load import load_study
from sifmark.studies.plan import Request, plan_study

SMALL = ("study.plan", "quick", "--variant", "small")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMARK_DIST", str(tmp_path / "dist"))
    monkeypatch.setenv("SIFMARK_CACHE", str(tmp_path / "cache"))
    return tmp_path


def typed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(words) == code, capsys.readouterr().err
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_studies_are_listed_with_the_sites_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "studies").mkdir()
    (folder / "studies" / "own.toml").write_text('title = "Ours"\n[[run]]\nworkload = "lstm"\nbatch_size = [1, 2]\n')
    (folder / "studies" / "bad.toml").write_text('title = "Bad"\n')
    text = typed(capsys, "study.list")
    assert re.search(r"^own +Ours +2 +0$", text, re.MULTILINE)
    assert re.search(r"^quick .* small$", text, re.MULTILINE)
    assert "bad" not in text
    rows = json.loads(typed(capsys, "study.list", "--json"))["studies"]
    assert {"own", "quick"} <= {row["study"] for row in rows}


def test_a_plan_has_a_row_for_each_group(capsys: pytest.CaptureFixture[str]) -> None:
    text = typed(capsys, *SMALL)
    assert "here: the image is not here: sifmark build cpu" in text
    assert re.search(r"^here +resnet50-training +2 of batch_size +2 +~", text, re.MULTILINE)
    assert "device hours" not in text, "of one device these are its time"
    assert text.splitlines()[-1].startswith("in all 11 runs: 11 to do; to do: ~")
    assert len(typed(capsys, *SMALL, "--format", "csv").splitlines()) == 1 + 6
    assert typed(capsys, *SMALL, "--format", "markdown").startswith("| system | runs of |")
    document = json.loads(typed(capsys, *SMALL, "--json"))
    assert len(document["runs"]) == 11 and len(document["groups"]) == 6
    assert document["images"]["here"] == {"id": None, "reason": "the image is not here: sifmark build cpu"}
    assert document["runs"][0]["arguments"][0] == "matmul"


def test_a_plan_shows_what_is_done_and_what_cannot_run(any_command: None, capsys: pytest.CaptureFixture[str]) -> None:
    put("training", plan_study(Request("quick", "small"), load_settings()).runs[0])
    assert "in all 11 runs: 1 done, 10 to do" in typed(capsys, *SMALL)
    text = typed(capsys, "study.plan", "quick", "--system", "pod:ipu", "--only", "workload=matmul")
    assert "cannot run: pod matmul: matmul is for GPUs and CPUs" in text


def test_sizes_beyond_the_device_are_announced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.toml").write_text(
        'title = "t"\n[[system]]\nname = "a"\nimage = "cuda"\nmemory_gib = 16\n'
        '[[run]]\nworkload = "resnet50"\nbatch_size = [8, 512, 1024]\n'
    )
    text = typed(capsys, "study.plan", "s.toml")
    assert re.search(r"to do: a resnet50 batch_size=512: out_of_memory_expected: at least 2\d", text)


def test_a_new_study_can_be_planned_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = "--workloads", "resnet50,matmul,all_reduce,mcmc", "--systems", "alpha:cuda,beta:dist/rocm.sif"
    text = typed(capsys, "study.init", *names)
    typed(capsys, "study.init", *names, "--output", "s.toml")
    assert (folder / "s.toml").read_text().replace("s.toml", "study.toml").rstrip() == text.rstrip()
    study = load_study("s.toml")
    assert [system.name for system in study.systems] == ["alpha", "beta"]
    assert [group.name for group in study.groups] == ["resnet50-training", "matmul", "all_reduce", "mcmc-sampling"]
    assert load_study("s.toml", "small").systems[0].image == "cpu"
    assert "in all" in typed(capsys, "study.plan", "s.toml", "--variant", "small")
    assert "s.toml exists already" in typed(capsys, "study.init", *names, "--output", "s.toml", code=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workloads", "resnet5", "--systems", "a:cpu"), "did you mean resnet50"),
        (("--workloads", "lstm", "--systems", "a"), "write NAME:IMAGE"),
        (("--workloads", "lstm", "--systems", "a:cup"), "did you mean cpu"),
        (("--workloads", "lstm,lstm", "--systems", "a:cpu"), "or one twice"),
    ],
)
def test_bad_names_of_a_new_study_are_refused(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in typed(capsys, "study.init", *words, code=2)


def test_errors_of_a_file_name_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.toml").write_text('title = "t"\n[[run]]\nworkload = "lstm"\nstrategy = "dpp"\n')
    text = typed(capsys, "study.plan", "s.toml", "--system", "here:cpu", code=2)
    assert "s.toml:4: run lstm: no strategy 'dpp'" in text and "did you mean ddp" in text and "[study-invalid]" in text
