"""The report command: what it writes and prints, which folders it leaves alone, and what results are put beside."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from unit.report import samples

from sifmark.commands.command_line import main
from sifmark.report import packages
from sifmark.report.write import PAGE
from sifmark.results.load import REPORT_MARKER
from sifmark.studies.load import load_study


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The results of two systems, three repeats of one batch each."""
    folder = tmp_path / "results"
    folder.mkdir()
    for site in samples.SYSTEMS:
        for repeat in (1, 2, 3):
            (folder / f"{site}-{repeat}.json").write_text(json.dumps(samples.sample(site, "pictures", 8, repeat)))
    return folder


def test_a_report_of_a_variant_says_so(results: Path, tmp_path: Path) -> None:
    target = tmp_path / "report"
    words = ["--study", "quick", "--variant", "small", "--output", str(target)]
    assert main(["report", str(results), *words]) == 0
    page, text = (target / PAGE).read_text(), (target / "report.md").read_text()
    title = load_study("quick", "small").title
    assert f"{title}</title>" in page and "for the study quick-small" in page
    assert f"\n{title}\n" in text and "Study: quick-small" in text


def test_a_report_is_a_folder_whose_files_are_listed(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report"
    assert main(["report", str(results), "--output", str(target), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    files = {str(file) for file in target.rglob("*") if file.is_file() and file.name != REPORT_MARKER}
    assert {each["file"] for each in listed["files"]} == files and str(target / PAGE) in files
    assert main(["report", str(results), "--output", str(target)]) == 0
    printed = capsys.readouterr()
    assert f"{target / PAGE}" in printed.out and "open " in printed.err


def test_a_second_report_replaces_its_files_alone(results: Path, tmp_path: Path) -> None:
    target = tmp_path / "report"
    assert main(["report", str(results), "--output", str(target), "-q"]) == 0
    first = (target / PAGE).read_bytes()
    (target / "notes.txt").write_text("mine")
    tables = set((target / "tables").iterdir())
    for file in results.glob("beta*"):
        file.unlink()
    owner = json.loads((target / REPORT_MARKER).read_text())
    owner["files"] += ["../results/alpha-1.json", "tables/stale.tex"]
    (target / REPORT_MARKER).write_text(json.dumps(owner))
    (target / "tables" / "stale.tex").write_text("")
    assert main(["report", str(results), "--output", str(target), "-q"]) == 0
    assert (target / PAGE).read_bytes() != first and (target / "notes.txt").read_text() == "mine"
    assert not (target / "tables" / "stale.tex").exists() and set((target / "tables").iterdir()) <= tables
    assert (results / "alpha-1.json").exists(), "names that lead out of the folder are none of its files"
    assert not list(target.rglob(".*partial*"))


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_no_report_is_not_overwritten(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    target = results if kind == "folder" else results / "alpha-1.json"
    before = sorted(results.iterdir())
    assert main(["report", str(results), "--output", str(target)]) == 2
    assert "[folder-not-empty]" in capsys.readouterr().err and sorted(results.iterdir()) == before


def test_without_the_extra_its_installation_is_named(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in packages.PACKAGES:
        monkeypatch.setitem(sys.modules, module, None)
    assert main(["report", str(results), "--paper", "85"]) == 1
    printed = capsys.readouterr().err
    assert "vl-convert-python" in printed and "remedy: pip install 'sifmark[report]'" in printed
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("command", ["report", "report.site"])
def test_a_report_and_a_site_need_nothing_that_makes_pictures(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert main([command, str(results), "--output", str(tmp_path / "report"), "-q"]) == 0


def test_files_for_papers_are_added_at_a_width(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, target = str(samples.study(tmp_path / "results")), tmp_path / "report"
    assert main(["report", folder, "--output", str(target), "-q"]) == 0
    assert {file.suffix for file in (target / "plots").iterdir()} == {".svg"}
    assert {file.suffix for file in (target / "tables").iterdir()} == {".csv", ".md"}
    assert main(["report", folder, "--output", str(target), "--paper", "85", "-q"]) == 0
    name = "pictures-training-throughput"
    png, pdf = ((target / "plots" / f"{name}.{kind}").read_bytes() for kind in ("png", "pdf"))
    assert int.from_bytes(png[16:20], "big") == pytest.approx(85 / 25.4 * 300, abs=2)  # dots, of 300 per inch
    (box,) = re.findall(rb"/MediaBox \[0 0 ([\d.]+)", pdf)
    assert float(box) == pytest.approx(85 / 25.4 * 72, abs=0.5)  # points
    assert (target / "tables" / "pictures-training.tex").is_file()
    page = (target / PAGE).read_text()
    assert f"plots/{name}.pdf" in page
    assert main(["report", folder, "--output", str(target), "--paper", "5"]) == 2
    assert "[invalid-option]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("", 2, "no results are given"),
        ("nowhere", 2, "no result at nowhere"),
        ("RESULTS --by nowhere", 2, "no result has the field 'nowhere'"),
        ("RESULTS --baseline gamma", 2, "no system 'gamma'"),
        ("RESULTS --against baseline:", 2, "baseline:"),
        ("RESULTS --against baseline:gone", 2, "gone"),
        ("RESULTS --against RESULTS --baseline beta", 2, "--against and --baseline"),
        ("RESULTS --against baseline:x --anonymous", 2, "--anonymous"),
        ("RESULTS --require-signature", 2, "no key is trusted"),
        ("RESULTS --study nowhere", 2, "nowhere"),
    ],
)
def test_a_wrong_request_is_named(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, status: int, message: str
) -> None:
    given = ["report", *words.replace("RESULTS", str(results)).split(), "--output", str(tmp_path / "report")]
    assert main(given) == status
    assert message in capsys.readouterr().err and not (tmp_path / "report").exists()


def test_invalid_documents_are_left_out_and_fail_the_command(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (results / "bad.json").write_text('{"value": NaN}')
    target = tmp_path / "report"
    assert main(["report", str(results), "--output", str(target)]) == 1
    assert "1 document is not valid" in capsys.readouterr().err
    assert "bad.json" in (target / PAGE).read_text()


def test_of_one_result_a_warning_does_not_say_of_how_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = samples.write(tmp_path / "one", [samples.sample("alpha", "pictures", 8)])
    assert main(["report", str(alone), "--output", str(tmp_path / "report"), "-q"]) == 0
    assert "not for publication: few repeats\n" in capsys.readouterr().err


def test_results_are_put_beside_others(results: Path, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    for repeat in (1, 2, 3):
        throughput = {"value": 25.0 + repeat, "unit": "images/s"}
        document = samples.sample("alpha", "pictures", 8, repeat, metrics__throughput=throughput)
        (earlier / f"{repeat}.json").write_text(json.dumps(document))
    target = tmp_path / "report"
    assert main(["report", str(results), "--against", str(earlier), "--output", str(target), "-q"]) == 0
    page = (target / PAGE).read_text()
    assert page.count("x faster") >= 4 and str(earlier)[-20:] in page


def test_a_kept_baseline_is_put_beside_results(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["study.baseline", "night", str(results), "-q"]) == 0
    assert main(["report", str(results), "--against", "baseline:night", "-q"]) == 0
    assert "no difference shown" in (tmp_path / "report" / PAGE).read_text()


def test_a_study_names_its_results_and_its_questions(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(results, tmp_path / "results" / "quick" / "here")
    assert main(["report", "--study", "quick", "-q"]) == 0
    page = (tmp_path / "report" / PAGE).read_text()
    assert "A new device in fifteen minutes" in page and "Do repeats agree?" in page


def test_what_differs_can_be_allowed_and_the_spread_of_sessions_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = (
        samples.sample(site, "pictures", 8, repeat, configuration__precision=precision)
        for repeat in (1, 2, 3)
        for site, precision in (("alpha", "fp32"), ("beta", "bf16"))
    )
    folder, target = str(samples.write(tmp_path / "results", some)), tmp_path / "report"

    def written(*options: str) -> str:
        assert main(["report", folder, "--output", str(target), "-q", *options]) == 0
        return (target / "report.md").read_text()

    assert "x faster" not in written()
    assert "x faster" in (allowed := written("--allow", "precision")) and "precision fp32 / bf16" in allowed
    spread = written("--allow", "precision", "--between", "90%")
    assert "x faster" not in spread and "cannot tell" in spread and "standard deviation of 90 %" in spread
    assert main(["report", folder, "--output", str(target), "--allow", "precsion"]) == 2
    assert "[unknown-name]" in capsys.readouterr().err
