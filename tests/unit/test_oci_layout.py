"""OCI image layouts: what is written reads back, and what is damaged is never returned."""

import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.refusals import refused

from sifmark.core.errors import SifmarkError
from sifmark.oci.layout import Layout
from sifmark.oci.manifest import MANIFEST_MEDIA, Descriptor, descriptor_of, read_manifest, write_manifest

CONTENT = b"some bytes"
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
ABSENT = f"sha256:{'0' * 64}"


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_blob_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    assert layout.add(CONTENT) == DIGEST and layout.read(DIGEST) == CONTENT and layout.has(DIGEST)
    with layout.writer() as blob:
        for byte in CONTENT:
            blob.write(bytes([byte]))
    assert (blob.digest, blob.size) == (DIGEST, len(CONTENT))
    assert files(tmp_path) == [f"layout/blobs/sha256/{DIGEST[7:]}"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(ZeroDivisionError), layout.writer() as blob:
        blob.write(CONTENT)
        raise ZeroDivisionError
    assert files(tmp_path) == []


def test_a_part_of_a_blob_stays_until_it_is_whole(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(ZeroDivisionError), layout.partial(DIGEST) as partial:
        assert partial is not None and partial.write_bytes(CONTENT[:3]) and not layout.has(DIGEST)
        raise ZeroDivisionError
    with layout.partial(DIGEST) as partial:
        assert partial is not None and partial.read_bytes() == CONTENT[:3]
        partial.write_bytes(CONTENT)
    assert layout.read(DIGEST) == CONTENT and files(tmp_path) == [f"blobs/sha256/{DIGEST[7:]}"]
    with layout.partial(DIGEST) as partial:
        assert partial is None


def test_two_processes_do_not_fetch_a_blob_twice(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    taken: list[Path | None] = []

    def fetch() -> None:
        with layout.partial(DIGEST) as partial:
            taken.append(partial)

    with layout.partial(DIGEST) as partial:
        assert partial is not None
        other = threading.Thread(target=fetch)
        other.start()
        partial.write_bytes(CONTENT)
    other.join()
    assert taken == [None] and files(tmp_path) == [f"blobs/sha256/{DIGEST[7:]}"]


def test_a_file_is_stored_only_under_its_own_digest(tmp_path: Path) -> None:
    source, layout = tmp_path / "file", Layout(tmp_path / "layout")
    source.write_bytes(CONTENT)
    with refused(SifmarkError, "digest-mismatch", DIGEST, ABSENT):
        layout.add_file(source, ABSENT)
    assert files(tmp_path) == ["file"]
    assert layout.add_file(source, DIGEST) and not layout.add_file(source, DIGEST)
    layout.blob(DIGEST).write_bytes(b"spoiled")
    assert layout.add_file(source, DIGEST) and layout.read(DIGEST) == CONTENT


@pytest.mark.parametrize("damage", [CONTENT[:-1], CONTENT[:-1] + b"?", None])
def test_a_damaged_blob_is_refused_with_its_remedy(tmp_path: Path, damage: bytes | None) -> None:
    layout = Layout(tmp_path, "fetch it again")
    blob = layout.blob(layout.add(CONTENT))
    if damage is None:
        blob.unlink()
    else:
        blob.write_bytes(damage)
    for use in (layout.read, layout.require, lambda digest: layout.copy(digest, len(CONTENT), tmp_path / "target")):
        with pytest.raises(SifmarkError) as raised:
            use(DIGEST)
        assert str(blob) in raised.value.cause and raised.value.remedy == "fetch it again"


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder"])
@pytest.mark.parametrize("place", ["blob", "index"])
def test_what_is_no_file_is_neither_waited_for_nor_read_to_its_end(tmp_path: Path, kind: str, place: str) -> None:
    layout = Layout(tmp_path)
    layout.add(CONTENT)
    path = layout.blob(DIGEST) if place == "blob" else layout.index_file
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    uses: list[Callable[[], object]] = [layout.index]
    if place == "blob":
        uses = [lambda: layout.read(DIGEST), lambda: layout.copy(DIGEST, len(CONTENT), tmp_path / "target")]
        uses += [lambda: layout.copy(DIGEST, path.stat().st_size, tmp_path / "target")]
    for use in uses:
        with pytest.raises(SifmarkError):
            use()


@pytest.mark.parametrize("digest", ["", "sha256:../../etc/passwd", "sha512:" + "0" * 128, "SHA256:" + "0" * 64])
def test_what_is_no_digest_leads_to_no_path(tmp_path: Path, digest: str) -> None:
    for use in (Layout(tmp_path).blob, Layout(tmp_path).read, Layout(tmp_path).has):
        with refused(SifmarkError, "document-invalid"):
            use(digest)


def test_names_stand_for_manifests_and_the_last_one_counts(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    first, second = (Descriptor(MANIFEST_MEDIA, layout.add(content), len(content)) for content in (b"{}", b"[]"))
    layout.name(first, ["a:1", "b:1"])
    layout.name(second, ["a:1"])
    assert layout.names() == {"a:1": second.digest, "b:1": first.digest}
    assert json.loads((tmp_path / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    layout.write_index([first])
    assert layout.names() == {} and layout.index()["manifests"] == [first.document()]


def test_a_manifest_reads_back_as_it_was_written() -> None:
    config, layer = descriptor_of("config", b"{}"), descriptor_of("layer", CONTENT, {"title": "x"})
    subject = descriptor_of(MANIFEST_MEDIA, b"image", {"left": "out"})
    manifest = write_manifest(config, [layer], {"key": "value"}, "application/spdx+json", subject)
    assert read_manifest(manifest.content) == manifest
    assert (manifest.config, manifest.layers, manifest.annotations) == (config, (layer,), {"key": "value"})
    assert manifest.subject == Descriptor(MANIFEST_MEDIA, subject.digest, subject.size)
    listed = manifest.descriptor
    assert (listed.artifact_type, listed.annotations) == ("application/spdx+json", {"key": "value"})
    assert (listed.digest, listed.size) == (descriptor_of("", manifest.content).digest, len(manifest.content))
    assert write_manifest(config, []).descriptor.artifact_type == "config", "as the lists of referrers have it"


GOOD = {"digest": ABSENT, "size": 1}


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"config": GOOD},
        {"config": GOOD, "layers": {}},
        {"config": GOOD, "layers": ["x"]},
        {"config": {"size": 1}, "layers": []},
        {"config": {**GOOD, "digest": "sha256:../x"}, "layers": []},
        {"config": {**GOOD, "size": -1}, "layers": []},
        {"config": {**GOOD, "size": True}, "layers": []},
        {"config": {**GOOD, "size": 1e999}, "layers": []},
        {"config": {**GOOD, "annotations": ["x"]}, "layers": []},
        {"config": GOOD, "layers": [], "annotations": "x"},
        {"config": GOOD, "layers": [], "subject": "x"},
    ],
)
def test_what_is_no_manifest_is_refused(document: object) -> None:
    with pytest.raises(ValueError):
        read_manifest(json.dumps(document).encode())


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"1" * 10_000])
def test_what_is_no_json_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        read_manifest(content)
