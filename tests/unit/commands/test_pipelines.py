"""What CI systems are shown: summaries, folded logs, and JUnit reports that a strict reader takes."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from sifmark.commands.answers import Table, answer
from sifmark.commands.pipelines import folded, write_junit
from sifmark.core.checks import Check, Status


def test_a_summary_is_appended_on_github_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(("a", "b"), [("x|y", None)])
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    answer("json", {}, table, summary="One")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    answer("json", {}, table, summary="Two")
    answer("csv", {}, table, summary="Three")
    answer("table", {}, table)
    summary = (tmp_path / "summary.md").read_text()
    assert [line for line in summary.splitlines() if line.startswith("#")] == ["### Two", "### Three"]
    assert "x\\|y" in summary and capsys.readouterr().out.startswith("{}\n{}\na,b\n")


@pytest.mark.parametrize(
    ("variable", "first", "last"),
    [
        ("GITHUB_ACTIONS", "::group::verify cpu.sif", "::endgroup::"),
        ("GITLAB_CI", ":verify_cpu_sif[collapsed=true]\r\x1b[0Kverify cpu.sif", ":verify_cpu_sif\r\x1b[0K"),
        ("", "within", "within"),
    ],
)
def test_a_log_is_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str, first: str, last: str
) -> None:
    from sifmark.core.terminal import status

    for name in ("GITHUB_ACTIONS", "GITLAB_CI"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "true")
    with pytest.raises(ValueError, match="fails"), folded("verify cpu.sif"):
        status("within")
        raise ValueError("fails")
    lines = capsys.readouterr().err.removesuffix("\n").split("\n")
    assert lines[0].endswith(first) and lines[-1].endswith(last) and len(lines) == (3 if variable else 1)


def test_a_junit_report_has_each_check_and_no_control_character(tmp_path: Path) -> None:
    checks = [
        Check("trust", Status.PASSED, "built here"),
        Check("smoke", Status.FAILED, "ended \x1b[31mred <tag>\nin two lines", "look & see"),
        Check("golden", Status.SKIPPED, "no clone"),
        Check("meter", Status.WARNING, "none"),
    ]
    write_junit(tmp_path / "report.xml", {"dist/cpu.sif": checks})
    (suite,) = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert suite.attrib == {"name": "dist/cpu.sif", "tests": "4", "failures": "1", "skipped": "1"}
    trust, smoke, golden, meter = ([(part.tag, part.text) for part in case] for case in suite)
    assert trust == [("system-out", "built here")] and golden == [("skipped", "no clone")]
    ((tag, text),) = smoke
    assert tag == "failure" and text is not None and text.splitlines()[1:] == ["in two lines", "look & see"]
    assert "\x1b" not in text and meter == [("system-out", "none")]
