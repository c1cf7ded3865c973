"""An anonymous report: no file of it names a host, a user, a path or a device, and every number stays."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.report import samples
from unit.report.test_anonymous import CANARY, planted

from sifmark.report.anonymous import anonymiser_of
from sifmark.report.load import load_report_results
from sifmark.report.report import Report, make_report
from sifmark.report.write import write_report
from sifmark.results import load
from sifmark.results.load import load_all


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of two sites with canaries in every text, some of which the rules of results would refuse."""
    monkeypatch.setattr(load, "document_problems", lambda document, text=None: [])
    folder = tmp_path / CANARY / "results"
    folder.mkdir(parents=True)
    for number, document in enumerate(planted_documents()):
        (folder / f"{number}-{CANARY}.json").write_text(json.dumps(document))
    (folder / "broken.json").write_text(f"{CANARY}")
    return folder


def planted_documents() -> list[dict[str, Any]]:
    some = []
    for site in samples.SYSTEMS:
        documents = [samples.sample(site, "pictures", batch, repeat) for batch in (8, 16) for repeat in (1, 2, 3)]
        for document in (*documents, samples.failure(site, "pictures", 64)):
            place = {**planted(document), "site": f"{CANARY}-{site}"}
            place["host"]["hostname"]["value"] = f"{CANARY}-{site}.example"
            command = place["provenance"]["command"]
            place["provenance"]["command"] = [place["site"] if word == f"{CANARY}-centre" else word for word in command]
            some.append(place)
    return some


def anonymous(folder: Path, sites: bool = True) -> Report:
    anonymiser = anonymiser_of(load_all([str(folder)]), sites)
    return make_report(load_report_results([str(folder)], by="site", anonymiser=anonymiser))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_no_file_of_an_anonymous_report_has_a_canary(results: Path, tmp_path: Path) -> None:
    list(write_report(anonymous(results), tmp_path / "report"))
    files = contents(tmp_path / "report")
    assert {"index.html", "report.md", "runs.csv", "trace.json", "checks.txt", "methods.md"} <= set(files)
    assert any(name.startswith("plots/") for name in files)
    for name, content in files.items():
        left = [line for line in content.lower().splitlines() if CANARY.encode() in line]
        assert CANARY not in name and left == [], name
    page = files["index.html"].decode()
    for kept in ("Accelerator A", "Accelerator B", "Network of pictures", "site-1", "site-2", "host-1"):
        assert kept in page, kept
    image = planted_documents()[0]["provenance"]["image"]
    for digest in (image["file"]["identity"], image["base"]["digest"], image["build_key"]):
        assert digest in files["trace.json"].decode()


def test_numbers_are_those_of_the_report_with_names(results: Path) -> None:
    plain = make_report(load_report_results([str(results)], by="site"))
    ours = anonymous(results)
    for metric in plain.results.metrics:
        values = [
            [(point.mean, point.ratio) for section in report.results.sections for point in section.points(metric)]
            for report in (plain, ours)
        ]
        assert values[0] == values[1]


def test_sites_are_named_unless_they_are_to_be_replaced(results: Path) -> None:
    assert anonymous(results).results.systems == ("site-1", "site-2")
    assert anonymous(results, sites=False).results.systems == tuple(f"{CANARY}-{site}" for site in samples.SYSTEMS)


def test_the_baseline_is_named_by_its_name(results: Path) -> None:
    anonymiser = anonymiser_of(load_all([str(results)]), sites=True)
    label = anonymiser.value("site", f"{CANARY}-beta")
    for by in ("site", ""):
        report = load_report_results([str(results)], by, f"{CANARY}-beta", anonymiser=anonymiser)
        assert report.baseline == label == report.systems[0]
