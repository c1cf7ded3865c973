"""Which store is meant, and folders as stores: what others wrote there, damage, and publishers at once."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from unit.refusals import refused

from sifmark.core.errors import RegistryError, SifmarkError, UsageError
from sifmark.core.files import sha256_file
from sifmark.core.settings import Settings
from sifmark.publish.stores import LayoutStore, RegistryStore, open_store, publish


def test_which_store_is_meant(site: Settings, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = RegistryStore("registry.example:5000", "a/b", "1")
    assert open_store("registry.example:5000/a/b", "1", site) == store
    assert open_store("", "1", replace(site, registry="registry.example:5000/a/b")) == store
    assert open_store("./here", "1", site) == LayoutStore(tmp_path / "here", "1")
    for bad in ("registry.example", "registry.example/Upper", "https://registry.example/x"):
        with refused(UsageError, "invalid-option", bad):
            open_store(bad, "1", site)
    with refused(UsageError, "invalid-option"):
        open_store("", "", site)
    for bad in ("../../../elsewhere", "a?b", "a#b", "a\r\nX: y", "%2e", "-a", "é", "a" * 129):
        with refused(UsageError, "invalid-option", repr(bad)):
            open_store("registry.example/x", bad, site)


@pytest.mark.parametrize("digest", ["sha256:../../etc/passwd", "sha256:0", ""])
def test_a_folder_that_names_what_is_no_digest(tmp_path, digest: str) -> None:
    entry = {"digest": digest, "annotations": {"org.opencontainers.image.ref.name": "cpu:1"}}
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [entry]}))
    with refused(SifmarkError, "document-invalid"):
        LayoutStore(tmp_path, "1").resolve("cpu")


def test_a_folder_of_documents_without_end(tmp_path) -> None:
    digest = f"sha256:{'0' * 64}"
    entry = {"digest": digest, "annotations": {"org.opencontainers.image.ref.name": "cpu:1"}}
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [entry]}))
    (tmp_path / "blobs" / "sha256").mkdir(parents=True)
    with (tmp_path / "blobs" / "sha256" / ("0" * 64)).open("wb") as sink:
        sink.truncate(1 << 40)
    with refused(SifmarkError, "file-damaged"):
        LayoutStore(tmp_path, "1").resolve("cpu")
    with (tmp_path / "index.json").open("wb") as sink:
        sink.truncate(1 << 40)
    with refused(SifmarkError, "document-invalid"):
        LayoutStore(tmp_path, "1").resolve("cpu")


def test_a_manifest_of_something_else(tmp_path) -> None:
    from sifmark.publish.stores import _read

    no_digest = publish(tmp_path / "x", f"sha256:{'0' * 64}", 1, {}).manifest.replace(b"0" * 64, b"1")
    for text in (b"{}", b"[]", b'{"layers": [{}]}', b"no", no_digest):
        with refused(RegistryError, "not-a-sif"):
            _read(text, "here")


def test_publishers_of_one_folder_keep_each_other_s_images(tmp_path) -> None:
    """Also where one reads the index before the other has written it: that is what the lock is for."""

    def publishes(number: int) -> None:
        file = tmp_path / f"{number}.sif"
        file.write_bytes(bytes([number]) * 100_000)
        image = publish(file, sha256_file(file), 100_000, {})
        LayoutStore(tmp_path / "shelf", "1").push((f"name{number}",), image, file)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(publishes, range(16)))
    assert all(LayoutStore(tmp_path / "shelf", "1").resolve(f"name{number}").size == 100_000 for number in range(16))


def test_what_others_wrote_in_a_folder_s_index_stays(tmp_path) -> None:
    digest = f"sha256:{'0' * 64}"
    unnamed = {"digest": digest, "size": 1}
    theirs = {**unnamed, "annotations": {"org.opencontainers.image.ref.name": "other:1", "of": "theirs"}}
    index = {"annotations": {"by": "another"}, "manifests": [unnamed, theirs]}
    (tmp_path / "index.json").write_text(json.dumps(index))
    file = tmp_path / "cpu.sif"
    file.write_bytes(b"sif")
    image = publish(file, sha256_file(file), 3, {})
    LayoutStore(tmp_path, "1").push(("cpu",), image, file)
    written = json.loads((tmp_path / "index.json").read_text())
    assert written["annotations"] == {"by": "another"} and written["manifests"][:2] == [unnamed, theirs]
    assert LayoutStore(tmp_path, "1").resolve("cpu").digest == image.digest
    assert written["schemaVersion"] == 2


@pytest.mark.parametrize("index", ["[]", "{", "{}", '{"manifests": 1}', '{"manifests": ["a"]}'])
def test_an_index_that_is_none_stays_as_it_is(tmp_path, index: str) -> None:
    (tmp_path / "index.json").write_text(index)
    with refused(SifmarkError, "document-invalid"):
        LayoutStore(tmp_path, "1").push(("cpu",), publish(tmp_path / "x", f"sha256:{'0' * 64}", 1, {}), tmp_path / "x")
    assert (tmp_path / "index.json").read_text() == index
