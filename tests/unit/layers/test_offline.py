"""Folders of sources: filled from a registry, and checked against the digests that recipes pin."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from sifmark.core.environment import platform_name
from sifmark.core.errors import RegistryError, SifmarkError
from sifmark.layers.offline import add_base, base_size, offline_base, require_intact
from sifmark.oci import client
from sifmark.recipes.base import BaseImage

OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}
GO = {"x86_64": "amd64", "aarch64": "arm64"}


class FakeRegistry:
    """A registry's blobs and documents, by digest, in place of a server."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def put(self, content: bytes | dict[str, Any]) -> str:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blobs[digest] = data
        return digest

    def image(self, layer: bytes) -> str:
        config = self.put({"architecture": "amd64", "layer": layer.decode()})
        parts = {"config": {"digest": config, "size": 9}, "layers": [{"digest": self.put(layer), "size": len(layer)}]}
        return self.put({"schemaVersion": 2, **parts})


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> FakeRegistry:
    fake = FakeRegistry()
    monkeypatch.setattr(client.Registry, "content", lambda _self, path, _kinds: fake.blobs[path.rpartition("/")[2]])

    def download(_self: object, path: str, _digest: str, _size: int, target: Path) -> None:
        target.write_bytes(fake.blobs[path.rpartition("/")[2]])

    monkeypatch.setattr(client.Registry, "download", download)
    return fake


def base(digest: str) -> BaseImage:
    return BaseImage("registry.example/x", "1.0", digest, "3.11", None, stand_in=False, plain_http=False)


def fetched(digest: str, folder: Path) -> Path:
    add_base(folder / "sources", base(digest), lambda _line: None)
    layout = offline_base(base(digest), folder / "sources")
    assert layout is not None
    return layout


@pytest.mark.parametrize("listed", [False, True])
def test_a_base_is_taken_whole_also_by_way_of_a_list_of_platforms(
    registry: FakeRegistry, tmp_path: Path, listed: bool
) -> None:
    digest = manifest = registry.image(b"a layer")
    if listed:
        other = OTHER[platform_name()]
        manifests = {other: registry.image(other.encode()), platform_name(): manifest}
        entries = [
            {"digest": entry, "platform": {"os": "linux", "architecture": GO[name]}}
            for name, entry in manifests.items()
        ]
        digest = registry.put({"schemaVersion": 2, "manifests": entries})
    assert offline_base(base(digest), tmp_path / "sources") is None
    layout = fetched(digest, tmp_path)
    require_intact(layout, digest)
    assert base_size(layout, digest) == len(b"a layer")
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    assert entry["digest"] == manifest


def test_an_index_that_names_another_image_is_refused(registry: FakeRegistry, tmp_path: Path) -> None:
    """The blobs of the base are all whole: only who looks at what engines follow finds it."""
    layout = fetched(registry.image(b"a layer"), tmp_path)
    other = registry.image(b"another layer")
    for digest, content in registry.blobs.items():
        (layout / "blobs" / "sha256" / digest.removeprefix("sha256:")).write_bytes(content)
    index = json.loads((layout / "index.json").read_text())
    index["manifests"][0]["digest"] = other
    (layout / "index.json").write_text(json.dumps(index))
    with pytest.raises(SifmarkError, match=r"names sha256:.*, which is not the base|holds no image that reads"):
        require_intact(layout, f"sha256:{layout.name}")


@pytest.mark.parametrize(
    "damage", [b"", b"[]", b'{"manifests": []}', b'{"manifests": [{"digest": "../../etc/passwd"}]}']
)
def test_an_index_that_is_damaged_is_refused_and_does_not_crash(
    registry: FakeRegistry, tmp_path: Path, damage: bytes
) -> None:
    layout = fetched(registry.image(b"a layer"), tmp_path)
    (layout / "index.json").write_bytes(damage)
    with pytest.raises(SifmarkError):
        require_intact(layout, f"sha256:{layout.name}")


def test_a_blob_that_is_damaged_is_refused(registry: FakeRegistry, tmp_path: Path) -> None:
    layout = fetched(registry.image(b"a layer"), tmp_path)
    for blob in (layout / "blobs" / "sha256").iterdir():
        whole = blob.read_bytes()
        blob.write_bytes(whole[:-1] + b"?")
        with pytest.raises(SifmarkError):
            require_intact(layout, f"sha256:{layout.name}")
        blob.write_bytes(whole)
    require_intact(layout, f"sha256:{layout.name}")


def test_a_registry_that_sends_another_manifest_is_refused(registry: FakeRegistry, tmp_path: Path) -> None:
    digest = registry.image(b"a layer")
    registry.blobs[digest] = registry.blobs[registry.image(b"another layer")]
    with pytest.raises(RegistryError, match="what came has digest"):
        fetched(digest, tmp_path)
    assert offline_base(base(digest), tmp_path / "sources") is None
