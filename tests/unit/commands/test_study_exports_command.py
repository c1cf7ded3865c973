"""The commands study.export and study.archive."""

import json
from pathlib import Path

import pytest
from unit.fake_studies import put

from sifmark.commands.command_line import main
from sifmark.core.settings import Settings
from sifmark.studies.plan import Request, plan_study

SMALL = ("quick", "--variant", "small", "--only", "group=resnet50-training")
PLACE = "quick-small-shell/quick-small.sh"

pytestmark = pytest.mark.usefixtures("any_command")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMARK_DIST", str(tmp_path / "dist"))
    monkeypatch.setenv("SIFMARK_CACHE", str(tmp_path / "cache"))
    return tmp_path


def typed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert main(words) == code, capsys.readouterr().err
    captured = capsys.readouterr()
    return captured.out, captured.err


def write_result(site: Settings) -> Path:
    """Write a result of the first of these runs."""
    planned = plan_study(Request("quick", "small", only=("group=resnet50-training",)), site).runs[0]
    put("training", planned)
    return planned.result


def test_an_export_prints_its_files_and_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, errors = typed(capsys, "study.export", *SMALL)
    assert output == f"{PLACE}\n"
    assert f"run it: {folder / PLACE}" in errors
    assert (folder / PLACE).read_text().count("\nrun here 1 ") == 2
    output, errors = typed(capsys, "study.export", *SMALL, "--format", "jube", "-o", "place")
    assert output == "place/quick-small.yaml\n" and "run it: jube run place/quick-small.yaml" in errors


def test_a_script_for_an_image_that_is_not_here_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    _, errors = typed(capsys, "study.export", *SMALL)
    assert "warning: here: the image is not here: sifmark build cpu; then export again" in errors


@pytest.mark.parametrize("form", ["reframe", "sbatch"])
def test_what_starts_images_itself_needs_them(form: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, errors = typed(capsys, "study.export", *SMALL, "--format", form, code=1)
    assert "[image-not-built]" in errors and not (folder / f"quick-small-{form}").exists()


def test_an_unknown_format_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    _, errors = typed(capsys, "study.export", *SMALL, "--format", "excel", code=2)
    assert "excel" in errors


def test_an_archive_says_what_is_in_it_and_what_is_missing(
    folder: Path, site: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    result = write_result(site)
    output, errors = typed(capsys, "study.archive", "quick", "--variant", "small")
    assert "1 result" in output and "results: 1 completed" in output
    assert "warning: without a result yet: 10 of 11 runs" in errors
    assert "sifmark results.validate quick-small.tar.gz" in errors
    document = json.loads(typed(capsys, "study.archive", "quick", "--variant", "small", "--json", "-o", "b.tar.gz")[0])
    assert document["file"] == "b.tar.gz" and document["size"] == (folder / "b.tar.gz").stat().st_size
    assert (folder / "b.tar.gz").read_bytes() == (folder / "quick-small.tar.gz").read_bytes()
    names = [entry["name"] for entry in document["manifest"]["members"] if entry["kind"] == "result"]
    assert names == [str(result)]


def test_an_archive_of_nothing_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, errors = typed(capsys, "study.archive", "quick", "--variant", "small", code=2)
    assert "[result-missing]" in errors and not list(folder.glob("*.tar.gz"))


def test_an_archive_is_compared_with_another(site: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    write_result(site)
    typed(capsys, "study.archive", "quick", "--variant", "small")
    assert typed(capsys, "results.validate", "quick-small.tar.gz")[0].startswith(
        "valid  quick-small.tar.gz/results/quick-small/here/"
    )
    output, _ = typed(capsys, "compare", "quick-small.tar.gz", "--baseline", "quick-small.tar.gz", "--json")
    assert json.loads(output)


def test_an_altered_archive_fails_every_command(
    folder: Path, site: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    write_result(site)
    typed(capsys, "study.archive", "quick", "--variant", "small")
    file = folder / "quick-small.tar.gz"
    file.write_bytes(file.read_bytes()[:-20])
    for command in ("results.validate", "results.show", "results.trace", "compare"):
        assert main((command, "quick-small.tar.gz")) != 0
        captured = capsys.readouterr()
        assert "quick-small.tar.gz" in captured.out + captured.err and "is damaged" in captured.out + captured.err, (
            command
        )
