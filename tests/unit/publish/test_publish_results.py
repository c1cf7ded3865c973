"""Signed results in a registry: attached to the images that made them, fetched from there, and read by a register."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import documents
import pytest
from unit.keys import make_key
from unit.refusals import refused
from unit.registry_double import RegistryDouble, serving

from sifmark.commands.reports import site as write_site
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import sha256_bytes
from sifmark.core.keys import key_id
from sifmark.core.settings import Settings
from sifmark.oci.manifest import EMPTY, EMPTY_MEDIA, TITLE, Descriptor, descriptor_of, write_manifest
from sifmark.publish.results import ARTIFACT, fetch_results, push_results
from sifmark.publish.stores import IDENTITY, publish
from sifmark.results.envelope import envelope_path, sign_results

IMAGE = documents.from_image()["provenance"]["image"]
REPOSITORY = f"x/{IMAGE['recipe']}"


@pytest.fixture(params=[True, False], ids=["api", "tags"])
def registry(request: pytest.FixtureRequest) -> Iterator[RegistryDouble]:
    with serving(api=request.param) as server:
        put_image(server, IMAGE["file"]["identity"])
        yield server


def put_image(server: RegistryDouble, identity: str, tag: str = "1") -> str:
    """Let the registry have an image of this identity under a tag, and return the digest of its manifest."""
    image = publish(Path("image.sif"), sha256_bytes(b"image"), 5, {IDENTITY: identity})
    server.blobs |= {sha256_bytes(content): content for content in (b"image", b"{}")}
    return server.put(REPOSITORY, tag, image.manifest, "application/vnd.oci.image.manifest.v1+json")


def signed(folder: Path, key: Path, name: str = "a.json", example: str = "training") -> str:
    file = folder / name
    file.write_text(json.dumps(documents.from_image(example)))
    sign_results(file, key)
    return str(file)


def push(server: RegistryDouble, file: str, site: Settings) -> str:
    (pushed,) = push_results([file], f"{server.host}/x", "1", site)
    return pushed.reference


def test_what_is_pushed_refers_to_its_image_and_comes_back_byte_by_byte(
    registry: RegistryDouble, site: Settings, tmp_path: Path
) -> None:
    key, _ = make_key(tmp_path, "site")
    file = signed(tmp_path, key)
    reference = push(registry, file, site)
    assert push(registry, file, site) == reference, "the same files are the same artifact"
    assert fetch_results([f"oras://{registry.host}/{REPOSITORY}:1"], tmp_path / "fetched") == []
    fetched = {path.name: path for path in (tmp_path / "fetched").rglob("*.json*")}
    assert set(fetched) == {"a.json", "a.json.dsse"}
    assert all(path.read_bytes() == (tmp_path / name).read_bytes() for name, path in fetched.items())
    where = fetched["a.json"].relative_to(tmp_path / "fetched").as_posix()
    assert where.startswith(f"{registry.host.replace(':', '_')}/{REPOSITORY}/")
    assert reference.partition("@sha256:")[2].startswith(fetched["a.json"].parent.name)


def test_a_register_of_a_folder_and_of_a_registry(
    registry: RegistryDouble,
    site: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (ours, our_name), (theirs, their_name) = make_key(tmp_path, "ours"), make_key(tmp_path, "theirs")
    (tmp_path / "results").mkdir()
    signed(tmp_path / "results", ours)
    other = documents.from_image("inference")["id"]
    push(registry, signed(tmp_path, theirs, "b.json", "inference"), site)
    image = f"oras://{registry.host}/{REPOSITORY}:1"
    trusting = replace(site, keys=(our_name, their_name))
    write_site(["results", image], trusting, require_signature=True, target="public", form="json", with_results=True)
    written = json.loads(capsys.readouterr().out)
    assert written["signers"] == {key_id(Path(name)): 1 for name in (our_name, their_name)} and not written["unsigned"]
    copied = {path.name: path for path in (tmp_path / "public" / "results").rglob("*.json")}
    assert set(copied) == {"a.json", "b.json"} and json.loads(copied["b.json"].read_text())["id"] == other
    assert "/tmp" not in (tmp_path / "public" / "index.html").read_text()
    write_site(
        ["results", image], replace(site, keys=(our_name,)), require_signature=True, target="public", form="json"
    )
    (reason,) = json.loads(capsys.readouterr().out)["unsigned"]
    assert reason.startswith(registry.host.replace(":", "_")) and "none of the keys" in reason
    with refused(UsageError, "invalid-option", "--require-signature"):
        write_site([image], trusting, target="public")
    (artifact,) = [digest for _, digest in registry.manifests if registry.manifests[_, digest][1].find(b"dsse") > 0]
    registry.blobs = {digest: content for digest, content in registry.blobs.items() if b"payloadType" not in content}
    with refused(SifmarkError, "signature-untrusted", artifact.partition(":")[2][:16]):
        write_site([image], trusting, require_signature=True, target="other")
    registry.manifests = {key: each for key, each in registry.manifests.items() if key[1] != artifact}
    registry.tags = {key: each for key, each in registry.tags.items() if not key[1].startswith("sha256-")}
    with refused(UsageError, "result-missing", "no result refers to these images"):
        write_site([image], trusting, require_signature=True, target="other")


def test_only_signed_results_of_the_image_that_is_there_are_pushed(
    registry: RegistryDouble, site: Settings, tmp_path: Path
) -> None:
    key, _ = make_key(tmp_path, "site")
    file = signed(tmp_path, key)
    envelope = envelope_path(Path(file))
    shutil.move(envelope, tmp_path / "kept")
    with refused(SifmarkError, "signature-missing", "results.sign"):
        push(registry, file, site)
    shutil.move(tmp_path / "kept", envelope)
    content = Path(file).read_text()
    Path(file).write_text(content + "\n")
    with refused(SifmarkError, "signature-invalid", "it differs from what was signed"):
        push(registry, file, site)
    Path(file).write_text(content)
    put_image(registry, f"sha256:{'0' * 64}")
    with refused(SifmarkError, "digest-mismatch", IMAGE["file"]["identity"]):
        push(registry, file, site)
    with refused(SifmarkError, "results-incomparable", "none"):
        shutil.copyfile(documents.EXAMPLES / "training.json", tmp_path / "c.json")
        sign_results(tmp_path / "c.json", key)
        push(registry, str(tmp_path / "c.json"), site)
    with refused(UsageError, "invalid-option", "a b.json"):
        push(registry, signed(tmp_path, key, "a b.json"), site)
    with refused(UsageError, "invalid-option", "no registry"):
        list(push_results([file], str(tmp_path), "1", site))


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("../a.json",), "other files"),
        (("a.json", "b.json"), "other files"),
        (("a.json", "run.sh"), "other files"),
        ((), "other files"),
    ],
)
def test_an_artifact_with_other_files_is_named_and_not_read(
    registry: RegistryDouble, tmp_path: Path, names: tuple[str, ...], why: str
) -> None:
    image = put_image(registry, "any")
    layers = [descriptor_of("application/json", name.encode(), {TITLE: name}) for name in names]
    registry.blobs |= {sha256_bytes(content): content for content in (EMPTY, *(name.encode() for name in names))}
    subject = Descriptor("application/vnd.oci.image.manifest.v1+json", image, 1)
    manifest = write_manifest(descriptor_of(EMPTY_MEDIA, EMPTY), layers, None, ARTIFACT, subject)
    registry.put(REPOSITORY, manifest.digest, manifest.content, manifest.media_type)
    registry.api = True
    (problem,) = fetch_results([f"oras://{registry.host}/{REPOSITORY}@{image}"], tmp_path / "fetched")
    assert why in problem and not (tmp_path / "fetched").exists()


def test_an_artifact_about_another_image_is_not_read(registry: RegistryDouble, tmp_path: Path) -> None:
    first, second = put_image(registry, "first"), put_image(registry, "second", "2")
    subject = Descriptor("application/vnd.oci.image.manifest.v1+json", second, 1)
    layer = descriptor_of("application/json", b"{}", {TITLE: "a.json"})
    manifest = write_manifest(descriptor_of(EMPTY_MEDIA, EMPTY), [layer], None, ARTIFACT, subject)
    registry.put(REPOSITORY, manifest.digest, manifest.content, manifest.media_type)
    registry.api, registry.listing = True, [manifest.descriptor.document()]
    (problem,) = fetch_results([f"oras://{registry.host}/{REPOSITORY}@{first}"], tmp_path / "fetched")
    assert "another image" in problem


@pytest.mark.parametrize(
    "reference",
    ["oras://registry.example", "oras://registry.example/x", "oras://h/../x:1", "oras://h/x@sha256:0", "h/x:1"],
)
def test_what_is_no_reference_to_an_image(reference: str, tmp_path: Path) -> None:
    with refused(UsageError, "invalid-option", reference):
        fetch_results([reference], tmp_path)
