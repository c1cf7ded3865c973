"""Folders of sources: filled from a registry, and checked against the digests that recipes pin."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from unit.refusals import refused
from unit.registry_double import REPOSITORY, RegistryDouble, base_of, put_document, put_image, serving

from sifmark.core.environment import platform_name
from sifmark.core.errors import RegistryError, SifmarkError
from sifmark.core.settings import Settings
from sifmark.layers.eviction import remove_all
from sifmark.layers.offline import add_base, base_layout, base_size, offline_base, require_intact
from sifmark.oci.manifest import INDEX_MEDIA

OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}
GO = {"x86_64": "amd64", "aarch64": "arm64"}


def image(server: RegistryDouble, layer: bytes) -> str:
    return put_image(server, {"architecture": "amd64", "layer": layer.decode()}, layer)


@pytest.fixture
def site(tmp_path: Path) -> Settings:
    return Settings(cache=tmp_path / "cache", dist=tmp_path / "dist")


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serving(api=True) as server:
        yield server


def fetched(server: RegistryDouble, digest: str, folder: Path) -> Path:
    base = base_of(server, digest)
    add_base(folder / "sources", base, lambda _line: None)
    layout = offline_base(base, folder / "sources")
    assert layout is not None
    return layout


@pytest.mark.parametrize("listed", [False, True])
def test_a_base_is_taken_whole_also_by_way_of_a_list_of_platforms(
    server: RegistryDouble, tmp_path: Path, listed: bool
) -> None:
    digest = manifest = image(server, b"a layer")
    if listed:
        other = OTHER[platform_name()]
        manifests = {other: image(server, other.encode()), platform_name(): manifest}
        entries = [
            {"digest": entry, "platform": {"os": "linux", "architecture": GO[name]}}
            for name, entry in manifests.items()
        ]
        digest = put_document(server, {"schemaVersion": 2, "mediaType": INDEX_MEDIA, "manifests": entries})
    assert offline_base(base_of(server, digest), tmp_path / "sources") is None
    layout = fetched(server, digest, tmp_path)
    require_intact(layout, digest)
    assert base_size(layout, digest) == len(b"a layer")
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    assert entry["digest"] == manifest


def test_an_index_that_names_another_image_is_refused(server: RegistryDouble, tmp_path: Path) -> None:
    """The blobs of the base are all whole: only who looks at what engines follow finds it."""
    layout = fetched(server, image(server, b"a layer"), tmp_path)
    other = image(server, b"another layer")
    contents = server.blobs | {digest: content for (_, digest), (_, content) in server.manifests.items()}
    for digest, content in contents.items():
        (layout / "blobs" / "sha256" / digest.removeprefix("sha256:")).write_bytes(content)
    index = json.loads((layout / "index.json").read_text())
    index["manifests"][0]["digest"] = other
    (layout / "index.json").write_text(json.dumps(index))
    with refused(SifmarkError, "file-damaged"):
        require_intact(layout, f"sha256:{layout.name}")


@pytest.mark.parametrize(
    "damage", [b"", b"[]", b'{"manifests": []}', b'{"manifests": [{"digest": "../../etc/passwd"}]}']
)
def test_an_index_that_is_damaged_is_refused_and_does_not_crash(
    server: RegistryDouble, tmp_path: Path, damage: bytes
) -> None:
    layout = fetched(server, image(server, b"a layer"), tmp_path)
    (layout / "index.json").write_bytes(damage)
    with pytest.raises(SifmarkError):
        require_intact(layout, f"sha256:{layout.name}")


def test_a_blob_that_is_damaged_is_refused(server: RegistryDouble, tmp_path: Path) -> None:
    layout = fetched(server, image(server, b"a layer"), tmp_path)
    for blob in (layout / "blobs" / "sha256").iterdir():
        whole = blob.read_bytes()
        blob.write_bytes(whole[:-1] + b"?")
        with pytest.raises(SifmarkError):
            require_intact(layout, f"sha256:{layout.name}")
        blob.write_bytes(whole)
    require_intact(layout, f"sha256:{layout.name}")


def test_a_registry_that_sends_another_manifest_is_refused(server: RegistryDouble, tmp_path: Path) -> None:
    digest = image(server, b"a layer")
    server.manifests[REPOSITORY, digest] = server.manifests[REPOSITORY, image(server, b"another layer")]
    with refused(RegistryError, "digest-mismatch"):
        fetched(server, digest, tmp_path)
    assert offline_base(base_of(server, digest), tmp_path / "sources") is None


def test_what_is_fetched_for_a_build_goes_when_the_base_is_converted(
    server: RegistryDouble, site: Settings, tmp_path: Path
) -> None:
    """And not before: a conversion that fails starts again without the network."""
    digest = image(server, b"a layer")
    base = base_of(server, digest)
    with pytest.raises(ZeroDivisionError), base_layout(base, site) as layout:
        assert layout == site.cache / "fetched" / digest.removeprefix("sha256:") and base_size(layout, digest) == 7
        raise ZeroDivisionError
    server.blobs.clear()
    with base_layout(base, site) as layout:
        require_intact(layout, digest)
    assert not layout.exists()
    with pytest.raises(RegistryError), base_layout(base, site):
        pass


def test_what_was_damaged_in_the_cache_is_refused_and_fetched_again(server: RegistryDouble, site: Settings) -> None:
    base = base_of(server, image(server, b"a layer"))
    with pytest.raises(ZeroDivisionError), base_layout(base, site) as layout:
        raise ZeroDivisionError
    for blob in (layout / "blobs" / "sha256").iterdir():
        blob.write_bytes(b"?")
    with refused(SifmarkError, "file-damaged") as error, base_layout(base, site):
        pass
    assert "build again" in error.value.remedy
    with base_layout(base, site) as layout:
        require_intact(layout, base.digest)


def test_the_sources_folder_comes_first_and_stays(server: RegistryDouble, site: Settings, tmp_path: Path) -> None:
    digest = image(server, b"a layer")
    layout = fetched(server, digest, tmp_path)
    with base_layout(base_of(server, digest), replace(site, sources=tmp_path / "sources")) as used:
        assert used == layout
    require_intact(layout, digest)
    assert not (site.cache / "fetched").exists()


def test_clean_removes_what_no_build_has_continued(server: RegistryDouble, site: Settings) -> None:
    base = base_of(server, image(server, b"a layer"))
    with pytest.raises(ZeroDivisionError), base_layout(base, site) as layout:
        raise ZeroDivisionError
    assert list(remove_all(site.cache)) == [f"fetched/{layout.name[:12]}"] and not layout.exists()
