"""Pushing, pulling, mirroring and signing SIF files: real small ones, between folders, without Apptainer."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from unit.fakes import write_image
from unit.refusals import refused

from sifmark.builds import ledger
from sifmark.builds.records import read_record, record_path, write_build_record
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.engines import CheckFailed, open_engine
from sifmark.engines.apptainer.engine import Apptainer, describe_image
from sifmark.publish import sif
from sifmark.publish.mirror import mirror_images
from sifmark.publish.publisher import publisher_of
from sifmark.publish.reports import PullReport, PushReport, SigningKey
from sifmark.publish.stores import open_store, publish
from sifmark.recipes.names import names_of

# Stands in for Apptainer: signs by writing a line behind the file, and says so.
APPTAINER = """#!/bin/sh
[ "$1" = --version ] && exec echo "apptainer version 1.4.5"
[ "$1" = sign ] || exit 1
for file; do :; done
echo signed >> "$file"
"""


@pytest.fixture
def engine(site: Settings) -> Apptainer:
    """A site with the image of recipe cpu, built here."""
    engine = Apptainer(site)
    path = Path(engine.address("cpu"))
    plan = write_image(path, "cpu", site)
    write_build_record(plan, engine, describe_image(path, engine.inspect(str(path))), site)
    engine.tag_workloads("cpu")
    return engine


@pytest.fixture
def elsewhere(site: Settings, tmp_path: Path) -> Settings:
    """A site that has nothing yet."""
    return replace(site, dist=tmp_path / "elsewhere" / "dist", cache=tmp_path / "elsewhere" / "cache")


def push(engine: Apptainer, store: Path, name: str = "cpu") -> PushReport:
    return sif.push(name, str(store), "1", engine, engine.settings)


def pull(store: Path, settings: Settings, name: str = "cpu", signed: bool = False) -> PullReport:
    return sif.pull(name, str(store), "1", open_engine(settings, "apptainer"), settings, signed)


def test_the_publisher_is_chosen_by_the_engine(site: Settings) -> None:
    from sifmark.publish import docker

    assert publisher_of(open_engine(site, "apptainer")) is sif
    assert publisher_of(open_engine(site, "docker")) is docker


def test_what_is_pushed_is_pulled_elsewhere(engine: Apptainer, elsewhere: Settings, tmp_path: Path) -> None:
    pushed, again = push(engine, tmp_path / "store"), push(engine, tmp_path / "store", "resnet50-cpu")
    assert pushed.summary.startswith("sent, with ") and again.summary.startswith("was there already, with ")
    record = read_record("cpu", engine, strict=True)
    assert record and record.fields["pushed"] == pushed.reference and pushed.names[0].endswith("cpu:1")
    pulled = pull(tmp_path / "store", elsewhere, "resnet50-cpu")
    assert (pulled.digest, pulled.file, pulled.identity) == (pushed.digest, pushed.file, pushed.identity)
    assert list(pulled.document()) == ["digest", "file", "identity", "signed_by", "path"]
    assert pulled.names == names_of("cpu") and all((elsewhere.dist / f"{name}.sif").exists() for name in pulled.names)
    record = read_record("cpu", open_engine(elsewhere, "apptainer"), strict=True)
    assert record and record.fields["pulled"].endswith(pushed.digest) and not record.was_built
    assert not ledger.is_trusted(record.digest, elsewhere), "nobody vouches for it"


def test_without_the_signature_that_is_asked_for_nothing_is_named(
    engine: Apptainer, elsewhere: Settings, tmp_path: Path
) -> None:
    push(engine, tmp_path / "store")
    with refused(CheckFailed, "signature-missing"):
        pull(tmp_path / "store", replace(elsewhere, keys=("site.pub",)), signed=True)
    assert not list(elsewhere.dist.glob("cpu.sif*"))


def test_an_image_of_another_recipe_is_not_pushed(engine: Apptainer, tmp_path: Path) -> None:
    Path(engine.address("cpu_tf")).hardlink_to(engine.address("cpu"))
    with refused(SifmarkError, "recipe-mismatch"):
        push(engine, tmp_path / "store", "cpu_tf")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("label", "value", "code"),
    [
        ("org.sifmark.identity", "sha256:0", "not-as-announced"),
        ("org.sifmark.build-key", "other", "not-as-announced"),
    ],
)
def test_what_is_not_as_announced_is_refused(
    engine: Apptainer, elsewhere: Settings, tmp_path: Path, label: str, value: str, code: str
) -> None:
    path, store = Path(engine.address("cpu")), open_store(str(tmp_path / "store"), "1", engine.settings)
    push(engine, tmp_path / "store")
    published = store.resolve("cpu")
    annotations = {**published.annotations, label: value}
    store.push(("cpu",), publish(path, published.blob, published.size, annotations), path)
    with refused(SifmarkError, code):
        pull(tmp_path / "store", elsewhere)
    assert not list(elsewhere.dist.glob("*.sif"))


def test_more_than_fits_is_not_fetched(elsewhere: Settings, tmp_path: Path) -> None:
    with refused(SifmarkError, "disk-full"):
        sif.require_space("cpu", 2**60, tmp_path)


def test_a_mirror_has_all_names(engine: Apptainer, elsewhere: Settings, tmp_path: Path) -> None:
    push(engine, tmp_path / "store")
    origin, target = (open_store(str(tmp_path / name), "1", engine.settings) for name in ("store", "copy"))
    (first,), (second,) = (list(mirror_images(origin, target, ("*",), engine.settings)) for _ in range(2))
    assert first.sent and not second.sent and first.reference == second.reference
    assert pull(tmp_path / "copy", elsewhere, "resnet50-cpu").names == names_of("cpu")


def test_a_damaged_file_is_not_mirrored(engine: Apptainer, tmp_path: Path) -> None:
    digest = str(push(engine, tmp_path / "store").file).removeprefix("sha256:")
    blob = tmp_path / "store" / "blobs" / "sha256" / digest
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    origin, target = (open_store(str(tmp_path / name), "1", engine.settings) for name in ("store", "copy"))
    with refused(SifmarkError, "digest-mismatch"):
        list(mirror_images(origin, target, ("cpu",), engine.settings))
    assert not (tmp_path / "copy" / "index.json").exists()


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SigningKey:
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text(APPTAINER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return SigningKey(tmp_path / "key.pem")


def test_signing_keeps_identity_and_trust(engine: Apptainer, key: SigningKey) -> None:
    before = read_record("cpu", engine, strict=True)
    report = sif.sign("cpu", key, "", "", engine, engine.settings)
    after = read_record("cpu", engine, strict=True)
    assert before and after and before.identity == after.identity and before.digest != after.digest
    assert ledger.is_trusted(after.digest, engine.settings) and not report.published
    assert Path(engine.address("resnet50-cpu")).samefile(engine.address("cpu"))
    assert after.identity in report.summary


def test_what_is_not_as_recorded_is_not_signed(engine: Apptainer, key: SigningKey) -> None:
    path = Path(engine.address("cpu"))
    content = path.read_bytes() + b"more"
    path.write_bytes(content)
    with refused(CheckFailed, "digest-mismatch"):
        sif.sign("cpu", key, "", "", engine, engine.settings)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda engine, path: path.write_text("{"), "record-damaged"),
        (lambda engine, path: path.unlink(), "not-built-here"),
        (lambda engine, path: path.write_text(json.dumps({"identity": "a", "digest": "b"})), "not-built-here"),
    ],
)
def test_what_was_not_built_here_is_not_signed(engine: Apptainer, key: SigningKey, change, code: str) -> None:
    change(engine, record_path("cpu", engine))
    with refused(CheckFailed, code):
        sif.sign("cpu", key, "", "", engine, engine.settings)


def test_a_sif_is_signed_here_and_not_in_a_registry(engine: Apptainer, key: SigningKey) -> None:
    with refused(UsageError, "invalid-option"):
        sif.sign("cpu", key, "registry.example/x", "", engine, engine.settings)


def test_an_image_that_others_may_change_is_neither_signed_nor_pushed(
    engine: Apptainer, key: SigningKey, tmp_path: Path
) -> None:
    path = Path(engine.address("cpu"))
    before = path.read_bytes()
    path.chmod(0o777)
    with refused(SifmarkError, "path-shared"):
        sif.sign("cpu", key, "", "", engine, engine.settings)
    with refused(SifmarkError, "path-shared"):
        push(engine, tmp_path / "store")
    assert path.read_bytes() == before and not (tmp_path / "store").exists()
