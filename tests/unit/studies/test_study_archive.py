"""What the archive of a study holds: results, logs and scripts of its systems, and what is known of their images."""

import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import documents
import pytest
from rocrate.rocrate import ROCrate
from unit.fakes import FakeEngine
from unit.keys import make_key
from unit.refusals import refused
from unit.studies.exporting import STUDY

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.schemas import validator
from sifmark.core.settings import Settings
from sifmark.results.envelope import sign_results
from sifmark.studies.exports import archive as module
from sifmark.studies.exports.archive import archive_study
from sifmark.studies.study import Study

IDENTITY = "sha256:" + "a" * 64


@pytest.fixture
def engine(site: Settings, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The engine of all images; none is here yet."""
    fake = FakeEngine(site)
    monkeypatch.setattr(module, "engine_for", lambda *_: fake)
    return fake


@pytest.fixture
def study(tmp_path: Path) -> Study:
    file = tmp_path / "trial.toml"
    file.write_text('title = "Trial"\n')
    return replace(STUDY, file=file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of a study, with a log, a script and whatever else is there while it runs."""
    path = tmp_path / "results" / "trial"
    contents = {
        "here/logs/0a.log": "a log",
        "here/.events/0b.jsonl": "{}",
        "here/.earlier/0c-1.json": "old",
        "here/.0a.lock": "",
        "here/.0d.json.partial-1/0d.json": "half",
        "here/notes.txt": "not ours",
        "jobs/20260101-1.sh": "#!/bin/bash",
        "jobs/20260101-1.logs/1.log": "begin",
        "jobs/.submit.lock": "",
        "elsewhere/0e.json": "of a system that the study does not have",
        ".study.json": "{}",
        ".index.json": "{}",
    }
    for name, text in contents.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    write(path, "here/0a.json")
    write(path, "cluster-a/0f.json", status__state="completed")
    return path


def write(folder: Path, name: str, example: str = "training", **changes: Any) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    document = documents.from_image(example, **changes)
    document["id"] = f"{len(list(folder.rglob('*'))):08d}-0000-4000-8000-000000000000"
    document["provenance"]["image"] |= {"recipe": "cpu"}
    document["provenance"]["image"]["file"]["identity"] = IDENTITY
    file.write_text(json.dumps(document))
    return file


Packed = Callable[..., dict[str, list[str]]]


@pytest.fixture
def packed(study: Study, folder: Path, site: Settings, engine: FakeEngine) -> Packed:
    """Write the archive, and return the names of its members by kind."""

    def pack(target: Path = folder.parent / "trial.tar.gz") -> dict[str, list[str]]:
        manifest = archive_study(study, folder, target, site)
        validator("archive-1.1").validate(manifest)
        kinds: dict[str, list[str]] = {}
        for entry in manifest["members"]:
            kinds.setdefault(entry["kind"], []).append(entry["name"])
        return kinds

    return pack


def test_all_of_a_study_is_packed_and_nothing_else(packed: Packed) -> None:
    assert packed() == {
        "study": ["study/trial.toml"],
        "result": ["results/trial/cluster-a/0f.json", "results/trial/here/0a.json"],
        "log": ["results/trial/here/.events/0b.jsonl", "results/trial/here/logs/0a.log"],
        "script": ["results/trial/jobs/20260101-1.logs/1.log", "results/trial/jobs/20260101-1.sh"],
        "environment": ["environment.json"],
        "crate": ["ro-crate-metadata.json"],
        "image": [f"images/cpu-{'a' * 16}/image.json"],
    }


def test_equal_contents_give_equal_bytes(packed: Packed, folder: Path) -> None:
    packed()
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(path.stat().st_mode | 0o011)
    packed(folder.parent / "again.tar.gz")
    assert (folder.parent / "again.tar.gz").read_bytes() == (folder.parent / "trial.tar.gz").read_bytes()


def test_the_documents_of_an_image_that_is_here_are_packed(
    packed: Packed, folder: Path, engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"images/cpu-{'a' * 16}"
    engine.add("cpu", runs=IDENTITY, signed_by="site")
    engine.tag_workloads("cpu")
    kinds = packed()
    assert kinds["sbom"] == [f"{place}/sbom.cyclonedx.json"] and kinds["provenance"] == [f"{place}/provenance.json"]
    assert kinds["signature"] == [f"{place}/signature-1"]
    assert "no SBOM" not in capsys.readouterr().err
    with tarfile.open(folder.parent / "trial.tar.gz") as stream:
        (image,) = json.load(stream.extractfile("manifest.json") or pytest.fail())["images"]
    assert image["attested"] and image["identity"] == IDENTITY and image["folder"] == place


@pytest.mark.parametrize("runs", ["sha256:" + "b" * 64, None])
def test_an_image_that_did_not_make_the_results_is_not_packed(
    packed: Packed, engine: FakeEngine, runs: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if runs:
        engine.add("cpu", runs=runs)
        engine.tag_workloads("cpu")
    assert not {"sbom", "provenance"} & packed().keys()
    assert "the image of recipe cpu is not here: no SBOM" in capsys.readouterr().err


def test_signatures_of_results_are_packed(packed: Packed, folder: Path, tmp_path: Path) -> None:
    key, _ = make_key(tmp_path, "site")
    sign_results(folder / "here/0a.json", key)
    assert packed()["signature"] == ["results/trial/here/0a.json.dsse"]


def test_links_lead_nothing_into_an_archive(packed: Packed, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("secret")
    (folder / "here/logs/link.log").symlink_to(tmp_path / "secret")
    (folder / "jobs/link").symlink_to(tmp_path / "secrets")
    os.mkfifo(folder / "jobs/pipe")
    kinds = packed()
    assert not any("link" in name or "pipe" in name for names in kinds.values() for name in names)


def test_names_that_no_archive_has_are_left_out_and_reported(
    packed: Packed, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "here/logs/ä \x1b.log").write_text("")
    (folder / "jobs" / ("x" * 201)).write_text("")
    assert not any("ä" in name or "xxx" in name for names in packed().values() for name in names)
    assert capsys.readouterr().err.count("left out of the archive") == 2


def test_an_invalid_result_is_not_handed_in(packed: Packed, folder: Path) -> None:
    (folder / "here/0a.json").write_text("{}")
    with refused(SifmarkError, "result-invalid"):
        packed()
    assert not list(folder.parent.glob("*.tar.gz"))


@pytest.mark.parametrize("name", ["trial.tar.zst", "trial.zip", "trial", "trial.tgz"])
def test_another_form_is_refused(packed: Packed, folder: Path, name: str) -> None:
    with refused(UsageError, "invalid-option") as caught:
        packed(folder.parent / name)
    assert "-o trial.tar.gz" in caught.value.remedy


def test_a_study_without_results_is_refused(study: Study, tmp_path: Path, site: Settings, engine: FakeEngine) -> None:
    with refused(UsageError, "result-missing"):
        archive_study(study, tmp_path / "none", tmp_path / "x.tar.gz", site)


def test_an_archive_tells_nothing_of_who_wrote_it(packed: Packed, folder: Path, site: Settings) -> None:
    packed()
    with tarfile.open(folder.parent / "trial.tar.gz") as stream:
        environment = json.load(stream.extractfile("environment.json") or pytest.fail())
    assert set(environment) == {"sifmark", "revision", "python", "platform", "packages", "engine", "bases"}
    assert str(site.cache) not in json.dumps(environment)


def test_an_unpacked_archive_is_an_ro_crate(packed: Packed, folder: Path, engine: FakeEngine, tmp_path: Path) -> None:
    write(folder, "here/0g.json", "out_of_memory")
    engine.add("cpu", runs=IDENTITY, signed_by="site")
    engine.tag_workloads("cpu")
    packed()
    with tarfile.open(folder.parent / "trial.tar.gz") as stream:
        stream.extractall(tmp_path / "crate", filter="data")
    crate = ROCrate(tmp_path / "crate")
    there = {str(path.relative_to(tmp_path / "crate")) for path in (tmp_path / "crate").rglob("*") if path.is_file()}
    assert {entity.id for entity in crate.data_entities} == there - {"ro-crate-metadata.json"}
    runs = {entity["result"].id: entity for entity in crate.get_by_type("CreateAction")}
    results = sorted((tmp_path / "crate" / "results").rglob("*.json"))
    assert sorted(runs) == [str(path.relative_to(tmp_path / "crate")) for path in results] and len(runs) == 3
    for file, run in runs.items():
        document = json.loads((tmp_path / "crate" / file).read_text())
        assert run["endTime"] == document["finished"] and run.id == f"#run-{document['id']}"
        assert IDENTITY in run["instrument"]["identifier"]
        assert {each.id for each in run["instrument"]["subjectOf"]} > {f"images/cpu-{'a' * 16}/provenance.json"}
    assert runs["results/trial/here/0g.json"]["actionStatus"] == "http://schema.org/FailedActionStatus"
    assert crate.datePublished == max(datetime.fromisoformat(run["endTime"]) for run in runs.values())
    assert {each.id for each in crate.root_dataset["mentions"]} == {run.id for run in runs.values()}
