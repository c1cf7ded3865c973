"""Which images may leave, and what of strangers' words gets into a page."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from sifmark.core import settings
from sifmark.core.errors import RegistryError, SifmarkError, UsageError
from sifmark.core.files import sha256_file
from sifmark.publish import sif
from sifmark.publish.policy import require_allowed
from sifmark.publish.stores import LayoutStore, PublishedImage, RegistryStore, open_store, publish
from sifmark.recipes.names import recipe_names

LABELS = {
    "org.sifmark.stand-in": "false",
    "org.sifmark.base-redistributable": "false",
    "org.sifmark.base-licence": "NVIDIA Deep Learning Container License",
}


@pytest.fixture(autouse=True)
def private(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "sifmark.toml").write_text('private_registries = ["inside.example:5000"]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMARK_SETTINGS", str(tmp_path / "sifmark.toml"))
    settings.settings.cache_clear()


@pytest.mark.parametrize(
    ("host", "changed", "told"),
    [
        ("registry.example", {}, "Licence: NVIDIA Deep Learning Container License"),
        ("127.0.0.1:5000", {}, "may not be redistributed"),
        ("inside.example", {}, "may not be redistributed"),  # another port is another registry
        ("inside.example:5000", {}, None),
        ("", {}, None),
        ("registry.example", {"org.sifmark.base-redistributable": "true"}, None),
        ("registry.example", {"org.sifmark.stand-in": "true"}, "is built on a stand-in"),
        ("127.0.0.1:5000", {"org.sifmark.stand-in": "true"}, None),
    ],
)
def test_which_images_may_leave(host: str, changed: dict, told: str | None) -> None:
    if told is None:
        require_allowed(host, "cuda.sif", {**LABELS, **changed})
        return
    with pytest.raises(SifmarkError, match=told) as caught:
        require_allowed(host, "cuda.sif", {**LABELS, **changed})
    assert "private_registries" in caught.value.remedy


def test_what_an_annotation_says_is_text_in_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    file = tmp_path / "x.sif"
    image = publish(file, f"sha256:{'0' * 64}", 1, {"org.opencontainers.image.version": "<script>alert(1)</script>"})
    name = recipe_names()[0]
    monkeypatch.setattr(sif, "_published", lambda *_: {name: image})
    sif.catalog("registry.example/x", "", str(tmp_path / "site"), as_json=False)
    page = (tmp_path / "site" / "index.html").read_text()
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_a_registry_does_not_show_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    """Public registries answer 401 or 403 for what they do not have, to whoever is not logged in."""
    first, *others = recipe_names()
    image = publish(tmp_path / "x.sif", f"sha256:{'0' * 64}", 1, {})
    shown = {first: image}

    def resolve(self: RegistryStore, name: str) -> PublishedImage:
        if name in shown:
            return shown[name]
        raise RegistryError("answers", "log in", status)

    monkeypatch.setattr(RegistryStore, "resolve", resolve)
    sif.catalog("registry.example/x", "", str(tmp_path / "site"), as_json=False)
    document = json.loads((tmp_path / "site" / "catalog.json").read_text())
    assert [entry["recipe"] for entry in document["images"]] == [first]
    said = capsys.readouterr()
    assert f"not there{'' if status == 404 else ', or not for this login'}: {', '.join(others)}" in said.out + said.err
    shown.clear()
    with pytest.raises(SifmarkError, match="answers" if status != 404 else "nothing of"):
        sif.catalog("registry.example/x", "", "", as_json=False)
    shown[first] = image
    status = 500
    with pytest.raises(RegistryError):
        sif.catalog("registry.example/x", "", "", as_json=False)


def test_which_shelf_is_meant(tmp_path) -> None:
    assert open_store("registry.example:5000/a/b", "1") == RegistryStore("registry.example:5000", "a/b", "1")
    assert open_store("./here", "1") == LayoutStore(tmp_path / "here", "1")
    for bad in ("registry.example", "registry.example/Upper", "https://registry.example/x"):
        with pytest.raises(UsageError, match="no registry"):
            open_store(bad, "1")
    with pytest.raises(UsageError, match="which registry"):
        open_store("", "")


@pytest.mark.parametrize("digest", ["sha256:../../etc/passwd", "sha256:0", ""])
def test_a_folder_that_names_what_is_no_digest(tmp_path, digest: str) -> None:
    entry = {"digest": digest, "annotations": {"org.opencontainers.image.ref.name": "cpu:1"}}
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [entry]}))
    with pytest.raises(SifmarkError, match="which is no digest"):
        LayoutStore(tmp_path, "1").resolve("cpu")


def test_a_folder_of_documents_without_end(tmp_path) -> None:
    digest = f"sha256:{'0' * 64}"
    entry = {"digest": digest, "annotations": {"org.opencontainers.image.ref.name": "cpu:1"}}
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [entry]}))
    (tmp_path / "blobs" / "sha256").mkdir(parents=True)
    with (tmp_path / "blobs" / "sha256" / ("0" * 64)).open("wb") as sink:
        sink.truncate(1 << 40)
    with pytest.raises(SifmarkError, match="is missing or damaged"):
        LayoutStore(tmp_path, "1").resolve("cpu")
    with (tmp_path / "index.json").open("wb") as sink:
        sink.truncate(1 << 40)
    with pytest.raises(SifmarkError, match="has more than"):
        LayoutStore(tmp_path, "1").resolve("cpu")


def test_a_manifest_of_something_else(tmp_path) -> None:
    from sifmark.publish.stores import _read

    no_digest = publish(tmp_path / "x", f"sha256:{'0' * 64}", 1, {}).manifest.replace(b"0" * 64, b"1")
    for text in (b"{}", b"[]", b'{"layers": [{}]}', b"no", no_digest):
        with pytest.raises(RegistryError, match="is no SIF"):
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
    with pytest.raises(SifmarkError, match="is no index of an OCI image layout"):
        LayoutStore(tmp_path, "1").push(("cpu",), publish(tmp_path / "x", f"sha256:{'0' * 64}", 1, {}), tmp_path / "x")
    assert (tmp_path / "index.json").read_text() == index
