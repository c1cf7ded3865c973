"""Turn tars of a file system into an OCI image layout: same tars and settings, same bytes, same digest."""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import shutil
from pathlib import Path
from typing import Any, BinaryIO

# The OCI image specification uses Go's names: https://github.com/opencontainers/image-spec/blob/main/config.md
GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MEDIA = "application/vnd.oci.image."
CHUNK = 1 << 20  # bytes


class Hashing:
    """A writer that counts and hashes what passes through it."""

    def __init__(self, target: BinaryIO) -> None:
        self.target = target
        self.sha256 = hashlib.sha256()
        self.size = 0  # bytes

    def write(self, data: bytes) -> int:
        """Write all of `data`."""
        self.sha256.update(data)
        self.size += len(data)
        return self.target.write(data)

    def flush(self) -> None:
        """Flush what lies below."""
        self.target.flush()


def descriptor(kind: str, sha256: str, size: int) -> dict[str, Any]:
    """Return the OCI descriptor of one blob; `size` in bytes."""
    return {"mediaType": f"{MEDIA}{kind}", "digest": f"sha256:{sha256}", "size": size}


def put_json(blobs: Path, kind: str, document: dict[str, Any]) -> dict[str, Any]:
    """Store a document under its hash and return its descriptor."""
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    sha256 = hashlib.sha256(data).hexdigest()
    (blobs / sha256).write_bytes(data)
    return descriptor(kind, sha256, len(data))


def put_layer(blobs: Path, tar: Path) -> tuple[dict[str, Any], str]:
    """Compress the tar into the blobs; return its descriptor and the digest of the tar itself."""
    plain, whole = hashlib.sha256(), blobs / "layer"
    with tar.open("rb") as source, whole.open("wb") as file:
        packed = Hashing(file)
        # Neither name nor time in the header: they would change the digest.
        with gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=packed, mtime=0) as stream:
            for chunk in iter(lambda: source.read(CHUNK), b""):
                plain.update(chunk)
                stream.write(chunk)
    sha256 = packed.sha256.hexdigest()
    whole.rename(blobs / sha256)
    return descriptor("layer.v1.tar+gzip", sha256, packed.size), f"sha256:{plain.hexdigest()}"


def write_layout(tars: list[Path], layout: Path, config: dict[str, Any], created: str) -> str:
    """Write the layout afresh, with a layer for each tar, and return the digest of its manifest."""
    shutil.rmtree(layout, ignore_errors=True)
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layers = [put_layer(blobs, tar) for tar in tars]
    image = {
        "architecture": GO_ARCHITECTURES[platform.machine()],
        "os": "linux",
        "created": created,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [diff_id for _, diff_id in layers]},
        "history": [{"created": created, "created_by": "sifmark ci/setup/stand-in"} for _ in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}manifest.v1+json",
        "config": put_json(blobs, "config.v1+json", image),
        "layers": [layer for layer, _ in layers],
    }
    listed = put_json(blobs, "manifest.v1+json", manifest)
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [listed]}))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return str(listed["digest"])
