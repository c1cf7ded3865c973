"""The audit command, with stand-ins for the scanners on PATH."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.fakes import FakeEngine, settings_for

from sifmark.attestations.sbom import CYCLONEDX
from sifmark.attestations.scanners import SCANNERS
from sifmark.commands import image as command
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings, load_settings

DOCUMENT = json.dumps({"bomFormat": "CycloneDX", "components": [{"name": "jinja2"}]}).encode()
ARGV = {
    "grype": ["sbom:{}", "--fail-on", "negligible"],
    "osv-scanner": ["scan", "source", "--lockfile", "{}"],
    "trivy": ["sbom", "--exit-code", "10", "{}"],
}
VULNERABLE = {"grype": 2, "osv-scanner": 1, "trivy": 10}
# Writes down its arguments and each file that they name, prints a line on either stream, and exits as it is told to.
STAND_IN = """#!{python}
import json, pathlib, sys
files = [pathlib.Path(word.removeprefix("sbom:")) for word in sys.argv[1:]]
documents = {{path.name: path.read_text() for path in files if path.is_file()}}
pathlib.Path(__file__).with_suffix(".called").write_text(json.dumps([sys.argv[1:], documents]))
print({printed!r})
print("loaded \\x1b[1mthe database", file=sys.stderr)
sys.exit({code})
"""

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a stand-in for a scanner on PATH, which has no other program; return the file that records its call."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(program: str, code: int = 0, printed: str = "CVE-1  jinja2\t3.1.2") -> Path:
        path = folder / program
        path.write_text(STAND_IN.format(python=sys.executable, code=code, printed=printed))
        path.chmod(0o755)
        return path.with_suffix(".called")

    return put


@pytest.fixture
def bom(tmp_path: Path) -> str:
    path = tmp_path / "list of packages.json"
    path.write_bytes(DOCUMENT)
    return str(path)


@pytest.mark.parametrize("program", ARGV)
def test_a_scanner_gets_the_document_and_our_options(install: Install, bom: str, program: str) -> None:
    called = install(program)
    command.audit(bom, load_settings(), "", ["--offline", "two words"])
    argv, documents = json.loads(called.read_text())
    assert documents == {"sifmark.cdx.json": DOCUMENT.decode()}
    (path,) = (word.removeprefix("sbom:") for word in argv if word.endswith(".cdx.json"))
    assert argv == [*(word.format(path) for word in ARGV[program]), "--offline", "two words"]
    assert not Path(path).exists(), "the scratch file goes with the audit"


@pytest.mark.parametrize("program", ARGV)
def test_vulnerabilities_are_a_failure(
    install: Install, bom: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install(program, VULNERABLE[program])
    with pytest.raises(SifmarkError, match=f"{program} reports vulnerabilities") as caught:
        command.audit(bom, load_settings(), "", [])
    assert caught.value.exit_code == 1 and "sifmark recipe.lock" in caught.value.remedy
    captured = capsys.readouterr()
    assert captured.out == "CVE-1  jinja2   3.1.2\n", "what it prints is the answer"
    assert "loaded \\x1b[1mthe database\n" in captured.err


SARIF = {"grype": ["--output", "sarif"], "osv-scanner": ["--format", "sarif"], "trivy": ["--format", "sarif"]}


@pytest.mark.parametrize("program", SARIF)
def test_a_report_in_sarif_goes_to_a_file(
    install: Install, bom: str, tmp_path: Path, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one with vulnerabilities, which CI is to show."""
    report = json.dumps({"version": "2.1.0", "runs": []})
    called = install(program, VULNERABLE[program], report)
    with pytest.raises(SifmarkError, check=lambda error: error.code == "vulnerabilities-reported"):
        command.audit(bom, load_settings(), "", ["--offline"], str(tmp_path / "report.sarif"))
    assert json.loads((tmp_path / "report.sarif").read_text())["runs"] == [] and capsys.readouterr().out == ""
    argv, _ = json.loads(called.read_text())
    assert argv[-3:] == [*SARIF[program], "--offline"]


@pytest.mark.parametrize("printed", ["NAME  VULNERABILITY", "[]", '{"matches": []}', ""])
def test_what_is_no_sarif_is_not_written(install: Install, bom: str, tmp_path: Path, printed: str) -> None:
    install("grype", 0, printed)
    with pytest.raises(SifmarkError, match="did not print SARIF"):
        command.audit(bom, load_settings(), "", [], str(tmp_path / "report.sarif"))
    assert not (tmp_path / "report.sarif").exists()


@pytest.mark.parametrize(("program", "code"), [("grype", 1), ("osv-scanner", 127), ("osv-scanner", 128), ("trivy", 1)])
def test_a_scanner_s_own_failure_is_not_a_finding(install: Install, bom: str, program: str, code: int) -> None:
    install(program, code)
    with pytest.raises(SifmarkError, match=f"{program} failed with exit code {code}; .* is not audited"):
        command.audit(bom, load_settings(), "", [])


def test_no_vulnerabilities(install: Install, bom: str, capsys: pytest.CaptureFixture[str]) -> None:
    install("trivy")
    command.audit(bom, load_settings(), "", [])
    assert "trivy reports no vulnerabilities\n  note: it skips system packages" in capsys.readouterr().err


def test_the_first_scanner_on_path_runs_unless_another_is_named(install: Install, bom: str) -> None:
    calls = [install(scanner.program) for scanner in SCANNERS]
    command.audit(bom, load_settings(), "", [])
    assert [call.exists() for call in calls] == [True, False, False]
    command.audit(bom, load_settings(), "trivy", [])
    assert [call.exists() for call in calls] == [True, False, True]


def test_no_scanner(install: Install, bom: str) -> None:
    with pytest.raises(SifmarkError, match="no vulnerability scanner on PATH: grype, osv-scanner, trivy") as caught:
        command.audit(bom, load_settings(), "", [])
    assert "install Grype, OSV-Scanner or Trivy" in caught.value.remedy
    install("grype")
    with pytest.raises(SifmarkError, match="on PATH: trivy"):
        command.audit(bom, load_settings(), "trivy", [])
    with pytest.raises(UsageError, match="no scanner 'gripe'") as caught:
        command.audit(bom, load_settings(), "gripe", [])
    assert "did you mean grype?" in caught.value.remedy


def test_an_image_s_own_document_is_scanned(site: Settings, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    called = install("grype")
    engine = FakeEngine(site)
    engine.add("resnet50-cpu", documents={CYCLONEDX: DOCUMENT})
    command.audit("resnet50-cpu", settings_for(engine, monkeypatch), "", [])
    assert json.loads(called.read_text())[1] == {"sifmark.cdx.json": DOCUMENT.decode()}


def test_an_image_without_a_document(site: Settings, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    called = install("grype")
    engine = FakeEngine(site)
    engine.add("resnet50-cpu", documents={})
    settings = settings_for(engine, monkeypatch)
    with pytest.raises(SifmarkError, match=r"fake:resnet50-cpu has no list of packages in CycloneDX format"):
        command.audit("resnet50-cpu", settings, "", [])
    assert not called.exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"components": 1}', b"\xff", b"[" * 100_000])
def test_what_is_no_cyclonedx_document(install: Install, tmp_path: Path, content: bytes) -> None:
    install("grype")
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(SifmarkError, match="odd.json has no list of packages"):
        command.audit(str(path), load_settings(), "", [])
    with pytest.raises(UsageError, match="No such file"):
        command.audit(str(tmp_path / "nowhere.json"), load_settings(), "", [])


def test_what_is_no_file_of_a_bounded_size_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, endless, large = (tmp_path / f"{name}.json" for name in ("pipe", "endless", "large"))
    os.mkfifo(pipe)
    endless.symlink_to("/dev/zero")
    large.write_bytes(DOCUMENT)
    monkeypatch.setattr(command, "_LARGEST_SBOM", len(DOCUMENT) - 1)
    for path in (pipe, endless, large):
        with pytest.raises(UsageError) as error:
            command.read_document(str(path), load_settings())
        assert error.value.code == "file-unreadable"
    monkeypatch.setattr(command, "_LARGEST_SBOM", len(DOCUMENT))
    assert command.read_document(str(large), load_settings()) == DOCUMENT
